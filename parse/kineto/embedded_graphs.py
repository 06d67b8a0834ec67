"""The captures of CUDA graphs that pyprof's collector recorded outside of the range that it collected.

They are traces, too, and stand as texts under the file's key ``pyprof`` (pyprof/capture/trace_file.py writes them).
"""

from pathlib import Path

import msgspec

from pyprof.errors import InputError
from pyprof.parse.kineto.event_types import Trace
from pyprof.parse.kineto.json_text import decoded

RECORD_VERSION = 1  # of what pyprof/capture/graph_captures.py records


class _Record(msgspec.Struct):
    version: int
    traces: list[str]


class _Own(msgspec.Struct):
    """The part of the key ``pyprof`` that is read here."""

    graphs: _Record | None = None


def embedded_graphs(file: Path, trace: Trace) -> tuple[list[Trace], list[str]]:
    """The traces of the captures of graphs, and warnings about those that cannot be read."""
    if not trace.pyprof:
        return [], []
    try:
        record = msgspec.json.decode(trace.pyprof, type=_Own).graphs
        if record is None:
            return [], []
        if record.version != RECORD_VERSION:
            return [], [f"the captures of CUDA graphs have version {record.version}, not {RECORD_VERSION}: left out"]
        return [decoded(file, text.encode()) for text in record.traces], []
    except (InputError, ValueError, RecursionError) as error:  # msgspec's errors and those of text are ValueErrors
        return [], [f"the captures of CUDA graphs under the key pyprof cannot be read and are left out ({error})"]
