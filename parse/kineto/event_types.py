"""The events of a torch.profiler trace as typed records: the parts that are used, with the file's keys."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from msgspec import Raw, Struct, field

from pyprof.table.columns import NULL

WANTED = "expected a torch.profiler (Kineto) trace"
# What may stand for a number: AMD writes streams as "0x0", traces of 2021 write threads as "14412".
Number = int | float | str | bool | None
NOTHING = Raw()


def _named(key: str) -> Any:
    """A number under another key of the file; NULL without it."""
    return field(default=NULL, name=key)


class Args(Struct, gc=False):
    """The args of an event that are used; ``old_`` ones have the keys of 2021."""

    corr: Number = _named("correlation")
    ext: Number = _named("External id")
    old_ext: Number = _named("external id")
    dims: Raw = field(default=NOTHING, name="Input Dims")
    old_dims: Raw = field(default=NOTHING, name="Input dims")
    types: Raw = field(default=NOTHING, name="Input type")
    strides: Raw = field(default=NOTHING, name="Input Strides")
    values: Raw = field(default=NOTHING, name="Concrete Inputs")
    seq: Number = _named("Sequence number")
    forward_thread: Number = _named("Fwd thread id")
    device: Number = NULL
    stream: Number = NULL
    grid: Raw = NOTHING
    block: Raw = NOTHING
    registers: Number = _named("registers per thread")
    shared: Number = _named("shared memory")
    occupancy: Number = field(default=None, name="est. achieved occupancy %")
    bytes: Number = NULL
    graph_node: Number = _named("graph node id")
    # what a collective sends: ParamCommsUtils.hpp, SaveNcclMeta.cpp
    collective: Number = field(default=None, name="Collective name")
    elements_in: Number = field(default=None, name="In msg nelems")
    elements_out: Number = field(default=None, name="Out msg nelems")
    ranks: Number = field(default=None, name="Group size")
    element: Any = field(default=None, name="dtype")
    group: Any = field(default=None, name="Process Group Name")
    sender: Any = field(default=None, name="Src Rank")
    receiver: Any = field(default=None, name="Dst Rank")


NO_ARGS = Args()


class Event(Struct, gc=False):
    """An event of the Chrome trace format; times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: float | Decimal = 0.0
    dur: float = 0.0
    id: Number = None
    args: Args | None = None


class FloatEvent(Event, gc=False):
    ts: float = 0.0


class ExactEvent(Event, gc=False):
    """For times that a float cannot hold to the nanosecond: those since 1970, with a fraction."""

    ts: Decimal = Decimal(0)


class Header(Struct):
    deviceProperties: Any = None
    distributedInfo: Any = None


@dataclass(slots=True)
class Trace:
    """A decoded file."""

    events: list[Event]
    devices: Any = None  # deviceProperties as it is
    distributed: Any = None  # distributedInfo
    warnings: list[str] = dataclasses.field(default_factory=list)
