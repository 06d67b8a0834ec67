"""The kernel table of any file: read directly, or made from a profiler's file.

Every command that annotates a table (prof.py, pyprof report, ...) begins with::

    loaded = load_table("net.sqlite")  # or net.dict, net.parquet, net.json.gz, ...; None or "-": a net.dict on stdin
    annotation = annotate(loaded.table)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.command.envelope import Input
from pyprof.errors import InputError
from pyprof.files import Name, is_standard
from pyprof.parse.graph_option import add_graphs
from pyprof.prof.kept_files import kept

if TYPE_CHECKING:
    from pyprof.command.progress import Say
    from pyprof.parse.attribute.capture import Capture
    from pyprof.prof.limits.peaks_file import Peaks
    from pyprof.prof.ranks.pace_records import JobPath
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import HostTable, MemoryTable, Table


class LoadedFile(NamedTuple):
    """A kernel table and, if it came from a profiler's file, what the profiler reported."""

    name: str  # of the file; "-" is standard input
    table: Table
    profiler: str | None = None  # "nsys 2025.3.1"; None for a table, which does not record it
    warnings: tuple[str, ...] = ()
    capture: Capture | None = None  # a profiler's file as read, with its ranges; None if nobody asked for it
    memory: MemoryTable | None = None  # its allocations; None if it has none
    host: HostTable | None = None  # its calls of the GPU's API; None if it has none, or nobody asked for them
    path: JobPath | None = None  # the critical path across the ranks of a job's folder

    @property
    def input(self) -> Input:
        """The description of the file in the header of --json."""
        return Input(self.name, self.profiler)


def load_table(
    name: Name, say: Say = lambda _: None, graphs: Sequence[str] = (), host: bool = False, ranges: bool = False
) -> LoadedFile:
    """Read a kernel table, a job, or a profiler's file as parse.py does. The content decides, not the name.

    ``say`` reports progress (``pyprof.command.progress``). A pipe must carry a kernel table, because its head cannot be
    read twice. ``graphs``: traces of the capture of the CUDA graphs that a profiler's file replays.
    ``host``: make the table of host calls of a profiler's file, too. ``ranges``: keep the capture with its ranges.
    Raises InputError for a file that is neither, is damaged, or holds neither a GPU operation nor a CPU op.
    """
    if is_standard(name):
        return _read(name, say, graphs, host, ranges)
    key = (str(name), *graphs, host, ranges)
    return kept(key, [str(name), *graphs], lambda: _read(name, say, graphs, host, ranges))


def _load_all(names: Sequence[Name], say: Say, graphs: Sequence[str], host: bool, ranges: bool) -> LoadedFile:
    """The file, or the captures of several processes in one table, each by its own clock."""
    read = [load_table(name, say, graphs, host, ranges) for name in names]
    if len(read) == 1:
        return read[0]
    from pyprof.parse.merge import apart, host_apart, memory_apart
    from pyprof.table.columns import Table

    profilers = ", ".join(dict.fromkeys(each.profiler for each in read if each.profiler))
    return LoadedFile(
        read[0].name,
        Table.concat(apart([each.table for each in read])),
        profilers or None,
        tuple(f"{each.name}: {text}" for each in read for text in each.warnings),
        memory=memory_apart(read),
        host=host_apart(read) if host else None,
    )


def load_with_calls(file: str, say: Say) -> tuple[LoadedFile, HostTable]:
    """Read a file for a replay: its kernel table and its host calls. Raises InputError for one without host calls."""
    loaded = load_table(file, say, host=True)
    if loaded.host is None:
        advice = "give the profiler's file, or what parse.py -o net.pyprof makes of it"
        raise InputError(loaded.name, f"expected the host's calls, found a kernel table, which has none; {advice}")
    return loaded, loaded.host


def _read(name: Name, say: Say, graphs: Sequence[str], host: bool, ranges: bool) -> LoadedFile:
    from pyprof.parse.detect import is_table  # imported here, not at the top: commands import this module for --help
    from pyprof.prof.job import is_job
    from pyprof.prof.table.check_cells import check_cells
    from pyprof.prof.table.pyprof_links import link_backward_rows
    from pyprof.table.container import is_container, read_container
    from pyprof.table.kernel_names import name_wrappers
    from pyprof.table.read_table import kernels_of, read_table

    file = Path(str(name))
    if not is_standard(name) and is_job(file):
        from pyprof.prof.job.whole_job import whole_job

        job = whole_job(file, say, host)
        table = link_backward_rows(job.table)
        check_cells(table, str(name))
        warnings = _with_losses(table, job.warnings)
        return LoadedFile(str(name), table, job.profiler, warnings, host=job.host, path=job.path)
    if not is_standard(name) and is_container(file):
        say(f"reading {file.name}")
        container = read_container(file)
        table = name_wrappers(link_backward_rows(kernels_of(container, str(name))))
        check_cells(table, str(name))
        warnings = _with_losses(table, container.warnings)
        return LoadedFile(str(name), table, container.profiler, warnings, memory=container.memory, host=container.host)
    if is_standard(name) or (file.exists() and not file.is_file() and not file.is_dir()) or is_table(file):
        shown = "standard input" if is_standard(name) else str(name)
        say(f"reading {shown if is_standard(name) else file.name}")
        if graphs:
            raise InputError(shown, "expected a profiler's file beside --graphs, found a table (give both to parse.py)")
        table = name_wrappers(link_backward_rows(read_table(name)))
        check_cells(table, shown)
        return LoadedFile("-" if is_standard(name) else shown, table, warnings=_with_losses(table, ()))
    from pyprof.parse.read import read_graphs, read_profile

    capture, notes, table, memory, calls = read_profile(file, say, graphs=read_graphs(graphs), host=host)
    if not len(table):
        why = "expected GPU operations or CPU ops, found allocations alone: pyprof memory reads them"
        raise InputError(file, notes.why_empty if memory is None else why)
    check_cells(table, str(name))
    warnings = tuple(notes.warnings)
    found = capture if ranges else None
    return LoadedFile(str(name), link_backward_rows(table), notes.profiler, warnings, found, memory, calls)


def _with_losses(table: Table, warnings: tuple[str, ...]) -> tuple[str, ...]:
    """The warnings with the one that the table's capture is incomplete, if it is."""
    from pyprof.table.losses import incomplete_line, losses

    line = incomplete_line(losses(table))
    return (line, *warnings) if line and line not in warnings else warnings


class LoadedMemory(NamedTuple):
    """The allocations of a file, and its kernel table if it has one."""

    name: str
    memory: MemoryTable
    kernels: Table | None
    profiler: str | None
    warnings: tuple[str, ...]
    host: HostTable | None = None  # its calls of the GPU's API; None if it has none, or nobody asked for them

    @property
    def input(self) -> Input:
        """The description of the file in the header of --json."""
        return Input(self.name, self.profiler)


def load_memory(file: Path, say: Say = lambda _: None, host: bool = False) -> LoadedMemory:
    """Read the allocations of a container, a profiler's file or a memory snapshot.

    ``host``: make the table of host calls of a profiler's file, too.
    Raises InputError for a file without allocations, with what would record them.
    """
    from pyprof.parse.detect import is_table
    from pyprof.table.container import is_container, read_container

    if is_container(file):
        say(f"reading {file.name}")
        container = read_container(file)
        found = container.memory, container.kernels, container.profiler, container.warnings, container.host
    elif is_table(file):
        message = f"expected allocations, found a kernel table, which has none; {RECORD_MEMORY['']}"
        raise InputError(file, message)
    else:
        from pyprof.parse.read import read_profile

        parsed = read_profile(file, say, host=host)
        notes, table = parsed.notes, parsed.table if len(parsed.table) else None
        found = parsed.memory, table, notes.profiler, tuple(notes.warnings), parsed.host
    memory, kernels, profiler, warnings, calls = found
    if memory is None or not len(memory):
        advice = RECORD_MEMORY.get((profiler or "").partition(" ")[0], RECORD_MEMORY[""])
        raise InputError(file, f"expected allocations, found none; {advice}")
    return LoadedMemory(str(file), memory, kernels, profiler, warnings, calls)


# By profiler: how to record allocations.
RECORD_MEMORY = {
    "": "record them with pyprof run --memory, and keep them with parse.py -o net.pyprof",
    "kineto": "record them with pyprof run --memory, or torch.profiler.profile(profile_memory=True)",
    "nsys": "record them with nsys profile --cuda-memory-usage=true",
}


def add_input(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """The argument ``file`` and the options that decide how it is annotated."""
    file = (
        "net.dict (or .gz), net.parquet or net.pyprof from pyprof parse, or a profiler's file that it reads "
        f"(net.sqlite, net.json, ...); - {'or none ' if nargs else ''}is a net.dict on standard input"
    )
    parser.add_argument("file", nargs=nargs, help=file)
    add_graphs(parser)
    add_peaks(parser)
    add_models(parser)


class _NamedDevice(argparse.Action):
    """``--device NAME``; with ``list``, the names are printed and the program ends."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if values == "list":
            from pyprof.prof.limits.other_device import device_names

            sys.stdout.write("".join(f"{name}\n" for name in device_names()))
            parser.exit()
        setattr(namespace, self.dest, values)


def add_device(parser: argparse.ArgumentParser, does: str) -> None:
    """Add --device, the name of a GPU in data/devices.csv."""
    text = f"{does}, such as A100-80GB-SXM4, by the limits of both GPUs; list prints the known ones"
    parser.add_argument("--device", metavar="NAME", action=_NamedDevice, help=text)


def add_peaks(parser: argparse.ArgumentParser) -> None:
    peaks = "peaks of the GPU as pyprof peaks writes them; without it, its data sheet's"
    parser.add_argument("--peaks", metavar="FILE", help=peaks)


def add_models(parser: argparse._ActionsContainer) -> None:
    models = "a Python file to run first, whose @pyprof.model functions count ops of your own; may be repeated"
    parser.add_argument("--models", metavar="FILE.py", action="append", default=[], help=models)


def add_counters(parser: argparse._ActionsContainer) -> None:
    """The option for reports of Nsight Compute, which ``load_annotated`` joins to the table."""
    ncu = (
        "a report of Nsight Compute of the same program (ncu --csv --page raw, or .ncu-rep), whose counters become "
        "columns: dram_rd, bytes_ratio, ...; may be repeated"
    )
    parser.add_argument("--ncu", metavar="FILE", action="append", default=[], help=ncu)


def load_model_files(args: argparse.Namespace) -> None:
    """Register the op models of the option ``models``, before anything is counted."""
    if args.models:
        from pyprof.prof.ops.plugins import load_model_file

        for file in args.models:
            load_model_file(file)


def load_annotated(
    args: argparse.Namespace, host: bool = False, advice: bool = False, ranges: bool = False
) -> tuple[LoadedFile, Annotation, Peaks | None]:
    """The input as the options say, annotated, and the peaks (None: the data sheet's). The output is checked first.

    ``host``: with the table of the host's calls. ``advice``: with the column advice, which that of the cards is.
    ``ranges``: with the capture's ranges.
    """
    from pyprof.command.progress import progress
    from pyprof.files import check_output
    from pyprof.prof.limits.peaks_file import load_peaks
    from pyprof.prof.work.annotate import annotate

    check_output(args.output, args.force)  # before minutes of work
    load_model_files(args)
    peaks = load_peaks(args.peaks) if args.peaks else None
    with progress(3 if advice else 2, not args.quiet) as say:
        loaded = _load_all([args.file, *getattr(args, "others", ())], say, args.graphs, host or advice, ranges)
        annotation = annotate(loaded.table)
        if getattr(args, "ncu", None):
            from pyprof.prof.counters.measured import read_counters

            say(f"reading {', '.join(args.ncu)}")
            annotation = replace(annotation, counters=read_counters([*map(Path, args.ncu)], loaded.table))
        if advice:
            from pyprof.prof.changes.find_changes import find_changes

            say("replaying")
            found = find_changes(loaded.table, annotation, loaded.host, peaks, loaded.name)
            annotation = replace(annotation, advice=found.of_rows(len(loaded.table)))
        return loaded, annotation, peaks
