"""The captures of CUDA graphs that pyprof's collector recorded outside of the range that it collected.

They are traces, too, and stand as texts under the file's key ``pyprof`` (pyprof/capture/trace_file.py writes them).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pyprof.errors import InputError
from pyprof.parse.kineto.event_types import Trace
from pyprof.parse.kineto.json_text import decoded

RECORD_VERSION = 1  # of what pyprof/capture/graph_captures.py records


class _Record(msgspec.Struct):
    version: int
    traces: list[str]
    ordered: tuple[
        int, ...
    ] = ()  # the numbers of graphs whose nodes can run in one order only; also of those in the file


class _Own(msgspec.Struct):
    """The part of the key ``pyprof`` that is read here."""

    graphs: _Record | None = None


class EmbeddedGraphs(NamedTuple):
    """What a trace has under its key ``pyprof`` about CUDA graphs."""

    traces: Sequence[Trace] = ()  # of the captures
    ordered: frozenset[int] = frozenset()  # the numbers of graphs whose nodes can run in one order only
    warnings: Sequence[str] = ()  # about what cannot be read


def embedded_graphs(file: Path, trace: Trace) -> EmbeddedGraphs:
    """The traces of the captures of graphs, and the numbers of the graphs that have one order."""
    if not trace.pyprof:
        return EmbeddedGraphs()
    try:
        record = msgspec.json.decode(trace.pyprof, type=_Own).graphs
        if record is None:
            return EmbeddedGraphs()
        if record.version != RECORD_VERSION:
            why = f"the captures of CUDA graphs have version {record.version}, not {RECORD_VERSION}: left out"
            return EmbeddedGraphs(warnings=[why])
        return EmbeddedGraphs([decoded(file, text.encode()) for text in record.traces], frozenset(record.ordered))
    except (InputError, ValueError, RecursionError) as error:  # msgspec's errors and those of text are ValueErrors
        why = f"the captures of CUDA graphs under the key pyprof cannot be read and are left out ({error})"
        return EmbeddedGraphs(warnings=[why])
