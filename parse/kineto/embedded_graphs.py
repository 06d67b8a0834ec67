"""The captures of CUDA graphs that pyprof's collector recorded outside of the range that it collected.

They are traces, too, and stand as texts under the file's key ``pyprof`` (pyprof/capture/trace_file.py writes them).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyprof.errors import InputError
from pyprof.parse.formats.own_record import OwnRecord, own_record
from pyprof.parse.kineto.event_types import Trace
from pyprof.parse.kineto.json_text import decoded

RECORD_VERSION = 1  # of what pyprof/capture/graph_captures.py records


class _Record(OwnRecord):
    traces: list[str]
    ordered: tuple[int, ...] = ()  # as in ``EmbeddedGraphs``, also of graphs in the file itself


class EmbeddedGraphs(NamedTuple):
    """What a trace has under its key ``pyprof`` about CUDA graphs."""

    traces: Sequence[Trace] = ()  # of the captures
    ordered: frozenset[int] = frozenset()  # the numbers of graphs whose nodes can run in one order only
    warnings: Sequence[str] = ()  # about what cannot be read


def embedded_graphs(file: Path, trace: Trace) -> EmbeddedGraphs:
    """The traces of the captures of graphs, and the numbers of the graphs that have one order."""
    what = "the captures of CUDA graphs"
    unreadable = f"{what} under the key pyprof cannot be read and are"
    record, warnings = own_record(trace.pyprof, "graphs", _Record, RECORD_VERSION, unreadable, f"{what} have")
    if record is None:
        return EmbeddedGraphs(warnings=warnings)
    try:
        return EmbeddedGraphs([decoded(file, text.encode()) for text in record.traces], frozenset(record.ordered))
    except (InputError, ValueError, RecursionError) as error:
        return EmbeddedGraphs(warnings=[f"{unreadable} left out ({error})"])
