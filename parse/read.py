"""A profiler's file to its kernel table: find the reader, read, attribute."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyprof.command.progress import Say
from pyprof.compiled_record import CompiledRecord
from pyprof.errors import InputError
from pyprof.gc_pause import given_back
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.compiled_code import name_origins
from pyprof.parse.attribute.contents import Contents
from pyprof.parse.attribute.notes import CaptureNotes
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.unrecorded_code import name_unrecorded
from pyprof.parse.detect import brief_reader, is_parquet_folder, lean_reader, reader
from pyprof.parse.graphs.other_captures import with_graphs
from pyprof.parse.inductor.debug_folder import debug_graphs
from pyprof.parse.tables.correlate import correlate
from pyprof.parse.tables.host_rows import host_table
from pyprof.parse.tables.memory_rows import memory_table
from pyprof.table.columns import HostTable, MemoryTable, Table
from pyprof.table.losses import losses


class Parsed(NamedTuple):
    capture: Capture
    notes: CaptureNotes
    table: Table
    memory: MemoryTable | None = None  # the capture's allocations; None if it has none
    host: HostTable | None = None  # its calls of the GPU's API; None if it has none, or nobody asked for them


def read_profile(
    file: Path,
    say: Say = lambda _: None,
    brief: bool = False,
    lean: bool = False,
    graphs: Sequence[Capture] = (),
    host: bool = False,
    memory: bool = True,
    inductor: Mapping[str, CompiledRecord] | None = None,
) -> Parsed:
    """Read one file, reporting progress to ``say``.

    ``graphs``: captures of the CUDA graphs that the file replays, from files of their own. ``inductor``: records of
    the compiled graphs that ran without pyprof, for ``read_inductor``.
    ``brief``: read for a summary, and skip columns that it does not use. ``lean``: read for the table alone; the
    capture, and so the names in ``notes``, may lack ranges on which no row depends, and it has no host calls.
    ``host``, ``memory``: whether to make the tables of host calls and of allocations, too.
    Raises InputError if the file is not a profiler's, or is damaged.
    """
    say(f"reading {file.name}")
    capture = (lean_reader if lean else reader)(file)(file)
    say(f"attributing {capture.rows:,} rows")
    capture.graphs += graphs
    last = lean and not (host or memory)
    table, events, calls = _tables(capture, brief, inductor or {}, memory, host, last)
    return Parsed(capture, CaptureNotes.of(capture, losses(table) or capture.losses), table, events, calls)


def _tables(
    capture: Capture, brief: bool, inductor: Mapping[str, CompiledRecord], memory: bool, host: bool, last: bool
) -> tuple[Table, MemoryTable | None, HostTable | None]:
    """The tables of a capture; options as in ``read_profile``. ``last``: as in ``correlate``."""
    joined = with_graphs(capture)
    with given_back():
        tree = RangeTree(joined)
    name_origins(joined, tree)
    joined.unrecorded = dict(inductor)
    name_unrecorded(joined, tree)
    table = correlate(joined, brief, tree, last=last) if capture.rows else Table(0, {})
    events = memory_table(joined, tree) if memory and not brief and capture.memory is not None else None
    calls = host_table(joined, tree) if host and joined.calls is not None else None
    return table, events, calls


def read_graphs(files: Sequence[str]) -> list[Capture]:
    """The captures of CUDA graphs in files, and in the files of folders (vLLM and SGLang fill `capture_traces/`).

    Raises InputError for a file that is not a profiler's or in which no graph is captured, and for an empty folder.
    """
    captures = [reader(path)(path) for file in files for path in _files(Path(file))]
    for capture in captures:
        if not capture.graph_launches:
            wanted = "expected launches between cudaStreamBeginCapture and cudaStreamEndCapture, found none"
            raise InputError(capture.file, f"{wanted}: give the trace that was recorded while the graph was captured")
    return captures


def read_inductor(folders: Sequence[str]) -> dict[str, CompiledRecord]:
    """The graphs in inductor's debug folders, by name. Raises InputError for a folder without any."""
    graphs = [graph for folder in folders for graph in debug_graphs(Path(folder))]
    return {f"{graph.folder}#{number}": graph.record for number, graph in enumerate(graphs)}


def _files(path: Path) -> list[Path]:
    if not path.is_dir() or is_parquet_folder(path):
        return [path]
    inside = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
    if not inside:
        raise InputError(path, "expected traces of the capture of CUDA graphs, found an empty folder")
    return inside


def read_brief(file: Path, say: Say = lambda _: None) -> tuple[CaptureNotes, Contents]:
    """The summary of a file. Only a part of a long file is read, and the attributed share is then an estimate.

    Raises InputError as ``read_profile`` does.
    """
    brief = brief_reader(file)
    if brief is not None:
        say(f"looking at {file.name}")
        return brief(file)
    parsed = read_profile(file, say, brief=True)
    return parsed.notes, Contents.of(parsed.table)
