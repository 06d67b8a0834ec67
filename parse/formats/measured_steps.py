"""What pyprof recorded of the steps before the profiler started (pyprof/step_timer.py)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from pyprof.step_timer import VERSION
from pyprof.table.measured_steps import LARGEST_NS, MeasuredStep

_Ns = Annotated[int, Meta(ge=0, lt=LARGEST_NS)]


class _Step(msgspec.Struct):
    number: Annotated[int, Meta(ge=0, lt=1 << 53)]
    host_ns: _Ns
    gpu_ns: _Ns | None = None


class _Record(msgspec.Struct):
    version: int
    marked: bool = False
    steps: list[_Step] = []


class _Own(msgspec.Struct):
    """The part of a trace's key ``pyprof`` that is read here."""

    steps: _Record | None = None


def of_trace(text: bytes) -> tuple[tuple[MeasuredStep, ...], list[str]]:
    """The steps under a trace's key ``pyprof``, and warnings."""
    try:
        own = msgspec.json.decode(text, type=_Own) if text else _Own()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (), [f"the steps measured before the profiler started cannot be read and are left out ({error})"]
    return _checked(own.steps)


def of_marker(text: str) -> tuple[tuple[MeasuredStep, ...], list[str]]:
    """The steps in the JSON of an NVTX range, and warnings."""
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        return (), [f"the steps measured before nsys recorded cannot be read and are left out ({error})"]
    return _checked(record)


def _checked(record: _Record | None) -> tuple[tuple[MeasuredStep, ...], list[str]]:
    if record is None:
        return (), []
    if record.version != VERSION:
        return (), [f"the record of measured steps has version {record.version}, not {VERSION}: left out"]
    return tuple(MeasuredStep(s.number, s.host_ns, s.gpu_ns, record.marked) for s in record.steps), []
