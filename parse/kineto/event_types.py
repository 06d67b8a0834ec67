"""The events of a torch.profiler trace as typed records, with the file's keys. Unused parts are left out."""

import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from msgspec import Raw, Struct, field

from pyprof.table.columns import NULL
from pyprof.table.losses import Loss

WANTED = "expected a torch.profiler (Kineto) trace"
# The types that a number may have: AMD writes streams as "0x0", traces of 2021 write threads as "14412".
Number = int | float | str | bool | None
NOTHING = Raw()


def _named(key: str) -> Any:
    """A number field with a different key in the file; NULL if the key is missing."""
    return field(default=NULL, name=key)


class Args(Struct, gc=False):
    """The used args of an event. Fields with the prefix ``old_`` have the keys of 2021."""

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
    annotation: Any = field(default=None, name="str")  # torch.cuda._graph_annotations.mark_kernels("...") of 2.13
    kernel: Any = None  # the name of the kernel that a HIP call launches
    old_kernel: Any = field(default=None, name="Kernel")
    cbid: Number = NULL  # CUPTI's number of a call
    wait_stream: Number = _named("wait_on_stream")  # of a synchronisation
    wait_record: Number = _named("wait_on_cuda_event_record_corr_id")
    # a collective's message: ParamCommsUtils.hpp, SaveNcclMeta.cpp
    collective: Number = field(default=None, name="Collective name")
    elements_in: Number = field(default=None, name="In msg nelems")
    elements_out: Number = field(default=None, name="Out msg nelems")
    ranks: Number = field(default=None, name="Group size")
    element: Any = field(default=None, name="dtype")
    group: Any = field(default=None, name="Process Group Name")
    sender: Any = field(default=None, name="Src Rank")
    receiver: Any = field(default=None, name="Dst Rank")


class MemoryArgs(Args, gc=False):
    """The used args of an event, in a trace with allocations (profile_memory=True)."""

    address: Number = _named("Addr")
    size: Number = _named("Bytes")
    allocated: Number = _named("Total Allocated")
    reserved: Number = _named("Total Reserved")
    device_type: Number = _named("Device Type")
    device_id: Number = _named("Device Id")


NO_ARGS = Args()
MEMORY = "[memory]"  # the name of the events of allocations and frees


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
    """An event with exact decimal times. A float cannot represent fractional times since 1970 to the nanosecond."""

    ts: Decimal = Decimal(0)


class MemoryEvent(FloatEvent, gc=False):
    """An event of a trace with allocations. Only such traces are decoded with more args, which take memory."""

    args: MemoryArgs | None = None


class ExactMemoryEvent(ExactEvent, gc=False):
    args: MemoryArgs | None = None


class Header(Struct):
    deviceProperties: Any = None
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    pyprof: Raw = NOTHING  # what pyprof's own collector recorded
    WARNING: Any = None  # libkineto's messages, lists of texts
    ERROR: Any = None


@dataclass(slots=True)
class Trace:
    """A decoded file."""

    events: list[Event]
    devices: Any = None  # the file's deviceProperties, unchanged
    distributed: Any = None  # the file's distributedInfo, unchanged
    base: Any = None  # the file's baseTimeNanoseconds, unchanged: the Unix time of its time 0
    pyprof: bytes = b""  # the JSON text of the file's key pyprof
    warnings: list[str] = dataclasses.field(default_factory=list)
    losses: list[Loss] = dataclasses.field(default_factory=list)
    messages: list[str] = dataclasses.field(default_factory=list)  # libkineto's warnings and errors
    wrong: list[tuple[Event, str]] = dataclasses.field(default_factory=list)  # events, and keys of a wrong type

    def with_header(self, header: Header) -> "Trace":
        """The same trace with what its file says beside the events."""
        self.devices, self.distributed = header.deviceProperties, header.distributedInfo
        self.base, self.pyprof = header.baseTimeNanoseconds, bytes(header.pyprof)
        lists = (texts for texts in (header.ERROR, header.WARNING) if isinstance(texts, list))
        self.messages = [text for texts in lists for text in texts if isinstance(text, str)]
        return self
