"""What pyprof recorded of the steps before the profiler started (pyprof/step_timer.py)."""

from collections.abc import Collection
from typing import Annotated

import msgspec
from msgspec import Meta

from pyprof.parse.formats.own_record import OwnRecord, own_record
from pyprof.range_pieces import joined, piece_in
from pyprof.step_timer import NAME, VERSION
from pyprof.table.measured_steps import LARGEST_NS, MeasuredStep, TimedCalls

VERSIONED = "the record of measured steps has"
_Ns = Annotated[int, Meta(ge=0, lt=LARGEST_NS)]


class _Calls(msgspec.Struct):
    names: tuple[str, ...]
    calls: tuple[_Ns, ...]
    end_ns: _Ns


class _Step(msgspec.Struct):
    number: Annotated[int, Meta(ge=0, lt=1 << 53)]
    host_ns: _Ns
    gpu_ns: _Ns | None = None
    alone: bool = False
    calls: _Calls | None = None


class _Record(OwnRecord):
    marked: bool = False
    steps: tuple[_Step, ...] = ()


def of_trace(own: bytes) -> tuple[tuple[MeasuredStep, ...], list[str]]:
    """The steps under a trace's key ``pyprof``, and warnings."""
    unreadable = "the steps measured before the profiler started cannot be read and are"
    record, warnings = own_record(own, "steps", _Record, VERSION, unreadable, VERSIONED)
    return _steps(record) if record else (), warnings


def of_markers(texts: Collection[str]) -> tuple[tuple[MeasuredStep, ...], list[str]]:
    """The steps in the NVTX ranges of one thread whose texts begin with ``NAME``, and warnings."""
    text = next((text.removeprefix(NAME) for text in texts if text.startswith(f"{NAME}{{")), None)
    if text is None:
        text = joined(piece for text in texts if (piece := piece_in(text, NAME)) is not None)
    if text is None:
        return (), ["the steps measured before nsys recorded are not complete and are left out"]
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        return (), [f"the steps measured before nsys recorded cannot be read and are left out ({error})"]
    if record.version != VERSION:
        return (), [f"{VERSIONED} version {record.version}, not {VERSION}: left out"]
    return _steps(record), []


def _steps(record: _Record) -> tuple[MeasuredStep, ...]:
    return tuple(
        MeasuredStep(s.number, s.host_ns, s.gpu_ns, record.marked, s.alone, _timed_calls(s.calls)) for s in record.steps
    )


def _timed_calls(calls: _Calls | None) -> TimedCalls | None:
    """The calls of a step; None without any, or if they are damaged."""
    if calls is None:
        return None
    name, gap, own = (calls.calls[first::3] for first in range(3))
    found = TimedCalls(calls.names, name, gap, own, calls.end_ns)
    return found if found.is_possible() else None
