"""What pyprof perfetto prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pyprof.command.json_schema import FileWritten, Record, doc

if TYPE_CHECKING:
    from pyprof.prof.perfetto.tracks import Trace


class TraceWritten(Record):
    """The trace written, and what it contains."""

    output: Annotated[FileWritten, doc("the trace written")]
    operations: Annotated[int, doc("rows of the kernel table")]
    slices: Annotated[int, doc("of all tracks")]
    tracks: Annotated[int, doc("processes, groups, threads, streams and counters")]
    notes: Annotated[list[str], doc("what the limits rest on, and how times were moved")]


def trace_written(output: str, operations: int, trace: Trace) -> TraceWritten:
    slices = sum(map(len, trace.slices))
    return TraceWritten(FileWritten.of(output), operations, slices, len(trace.tracks), list(trace.notes))
