"""The events of a torch.profiler trace as typed records: what of them is used, under the file's keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec import Raw, Struct

from pyprof.table.columns import NULL

WANTED = "expected a torch.profiler (Kineto) trace"
# What stands for a number: AMD writes streams as "0x0", 2021's traces threads as "14412".
Number = int | float | str | bool | None
NOTHING = Raw()

_ARGS = {
    "corr": "correlation", "ext": "External id", "old_ext": "external id", "dims": "Input Dims",
    "old_dims": "Input dims", "types": "Input type", "strides": "Input Strides", "values": "Concrete Inputs",
    "seq": "Sequence number", "forward_thread": "Fwd thread id", "registers": "registers per thread",
    "shared": "shared memory", "occupancy": "est. achieved occupancy %", "graph_node": "graph node id",
    "collective": "Collective name", "elements_in": "In msg nelems", "elements_out": "Out msg nelems",
    "ranks": "Group size", "element": "dtype", "group": "Process Group Name",
    "sender": "Src Rank", "receiver": "Dst Rank",
}  # fmt: skip


class Args(Struct, gc=False, rename=_ARGS):
    """What we use of an event's args; the keys in lower case are the 2021 ones."""

    corr: Number = NULL
    ext: Number = NULL
    old_ext: Number = NULL
    dims: Raw = NOTHING
    old_dims: Raw = NOTHING
    types: Raw = NOTHING
    strides: Raw = NOTHING
    values: Raw = NOTHING
    seq: Number = NULL
    forward_thread: Number = NULL
    device: Number = NULL
    stream: Number = NULL
    grid: Raw = NOTHING
    block: Raw = NOTHING
    registers: Number = NULL
    shared: Number = NULL
    occupancy: Number = None
    bytes: Number = NULL
    graph_node: Number = NULL
    collective: Number = None  # these say what a collective was told: ParamCommsUtils.hpp, SaveNcclMeta.cpp
    elements_in: Number = None
    elements_out: Number = None
    ranks: Number = None
    element: Any = None
    group: Any = None
    sender: Any = None
    receiver: Any = None


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
    warnings: list[str] = field(default_factory=list)
