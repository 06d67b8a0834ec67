"""The result of every reader: the GPU rows, their launches and the ranges on the CPU threads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pyprof.compiled_record import CompiledRecord
from pyprof.parse.attribute.scope import Scope
from pyprof.table.columns import NULL, Bools, Coded, Codes, Data, Indices, Ints, coded_of, ints_of
from pyprof.table.cpu_facts import CpuFacts
from pyprof.table.gpu_samples import GpuSamples
from pyprof.table.losses import Loss
from pyprof.table.measured_steps import MeasuredStep

OPEN = 1 << 62  # the end of a range that was never closed, later than all times; readers then subtract the origin


@dataclass(slots=True)
class Ranges:
    """The ranges of all CPU threads, as columns, in any order. Times in ns; ``NULL`` if unknown.

    A long capture has more ranges than anything else, so numbers of threads and scopes are kept in 32 bits.
    """

    thread: Indices  # index into Capture.threads
    start: Ints
    end: Ints
    scope: Indices  # index into Capture.scopes
    seq: Ints  # autograd sequence number
    op_id: Ints  # the profiler's number of this call, unique within the process; not kept by a lean reader
    forward_thread: Ints | None = None  # for a backward node: index of the thread of its forward op, if known
    forward_range: Ints | None = None  # for a backward node: the range of its forward op, if the profiler names it
    number: Codes | None = None  # its place in the file; None: the ranges are in the file's order

    def __post_init__(self) -> None:
        self.thread, self.scope = (column.astype(np.int32, copy=False) for column in (self.thread, self.scope))

    def __len__(self) -> int:
        return len(self.scope)

    def keep_names(self) -> None:
        """Free all columns except threads and scopes, which ``CaptureNotes`` needs."""
        self.start = self.end = self.seq = self.op_id = np.zeros(0, np.int64)
        self.forward_thread = self.forward_range = self.number = None

    def last_time(self) -> int:
        """The last time at which a range began or was closed; ``NULL`` without ranges."""
        closed = self.end[self.end < OPEN // 2]
        return int(max(closed.max(initial=NULL), self.start.max(initial=NULL)))

    @classmethod
    def empty(cls) -> Ranges:
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, none)


@dataclass(slots=True)
class GraphLaunches:
    """Calls that CUDA graphs recorded instead of running them: one entry per call, in order of graph, then of time.

    ``began`` and the columns after it have one entry per graph.
    """

    graph: Ints  # which graph recorded the call
    kind: Ints  # index into GRAPH_KINDS
    thread: Ints  # index into Capture.threads
    time: Ints
    kernel: Coded  # the kernel's name, where the profiler records it at capture (HIP); else empty
    began_thread: Ints  # the thread that captured the graph, an index into Capture.threads
    began: Ints  # when the capture of the graph began
    number: Ints  # the profiler's number of the graph, by which opaque rows name it; NULL if it has none
    ended: Ints  # when it ended; NULL if another file has it, whose clock is its own
    branched: Bools  # whether streams waited for each other, so that replay may order the kernels in another way

    def __len__(self) -> int:
        return len(self.graph)


GRAPH_KINDS = ("kernel", "memcpy", "memset")


@dataclass(slots=True)
class MemoryEvents:
    """Allocations and frees, in the file's order. Times in ns; ``NULL`` if unknown."""

    thread: Ints  # index into Capture.threads; -1 if unknown
    time: Ints
    bytes: Ints  # negative where they are freed
    address: Ints
    kind: Coded  # cuda, cpu, ...; see pyprof.table.schema.MEMORY
    device: Ints
    level: Coded  # allocator, driver or before; see pyprof.table.schema.MEMORY
    allocated: Ints | None = None  # in use after the event; None: the format does not record it
    reserved: Ints | None = None
    pid: Ints | None = None  # None: those of the threads
    trace: Coded | None = None  # the call stack as a JSON list, where the format has one for each event
    name: Coded | None = None
    category: Coded | None = None
    phase: Coded | None = None  # where no range tells it
    dir: Coded | None = None

    def __len__(self) -> int:
        return len(self.time)


@dataclass(slots=True)
class HostCalls:
    """The calls of the GPU's API on the CPU threads, in any order. Times in ns; ``NULL`` if unknown."""

    thread: Ints  # index into Capture.threads
    start: Ints
    end: Ints
    name: Coded
    corr: Ints
    stream: Ints | None = None  # that the call records an event on, makes wait, or waits for; None: not recorded
    record: Ints | None = None  # index of the call that recorded the event waited for; -1: none or unknown

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class RecordedStorage:
    """A tensor's storage at the end of the capture, as pyprof's own collector records it."""

    address: int
    nbytes: int  # of its block
    kind: str
    device: int
    category: str  # parameters, buffers, gradients, optimizer state
    name: str  # of the tensor in its model
    layer: str  # of the module that holds it


@dataclass(slots=True)
class Capture:
    """The content of one profiler file."""

    file: str
    profiler: str  # "nsys 2025.3.1", "kineto", ...
    threads: list[tuple[int, int]]  # (pid, tid) by index
    scopes: list[Scope]  # distinct, by index
    ranges: Ranges
    rows: int  # GPU operations, in order of start
    columns: dict[str, Data]  # the rows' columns that the profiler provides, some of pyprof.table.schema.KERNELS
    launch_thread: Ints  # per row: index into threads; -1 without a known launch
    launch_time: Ints  # per row: the launch time; NULL without a known launch
    reason: list[str] = field(default_factory=list)  # distinct reasons for a missing launch, by index
    reason_code: Ints | None = None  # per row: index into reason; -1: the launch is known
    launch_range: Ints | None = None  # per row: its range if the profiler names it; -1: found by launch time
    origin_thread: Ints | None = None  # per row: the thread that captured its CUDA graph node; -1: none
    origin_time: Ints | None = None  # per row: the time of that capture
    graph_launches: GraphLaunches | None = None  # what was captured into graphs, where the nodes have no such origin
    opaque_graph: Ints | None = None  # per row: the graph's number where the row is a whole graph, else NULL
    graphs: list[Capture] = field(default_factory=list)  # of graphs that the rows replay, recorded apart from the rows
    ordered_graphs: frozenset[int] = frozenset()  # pyprof's numbers of graphs whose nodes can run in one order only
    # NVTX start/end ranges belong to the process and may end on any thread, so they contain no launches.
    spans: Ranges = field(default_factory=Ranges.empty)
    outs: dict[int, str] = field(default_factory=dict)  # range -> JSON list of its outputs' shapes, inferred
    compiled: dict[str, str] = field(default_factory=dict)  # records of compiled graphs (compiled_record.py) by number
    unrecorded: dict[str, CompiledRecord] = field(default_factory=dict)  # of graphs that ran without pyprof, by name
    warnings: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)  # why the capture is incomplete
    calls: HostCalls | None = None  # None: the format has none
    memory: MemoryEvents | None = None
    storages: list[RecordedStorage] = field(default_factory=list)
    measured: tuple[MeasuredStep, ...] = ()  # steps that were timed before the profiler started
    cpu: CpuFacts | None = None  # what pyprof recorded of it
    samples: list[GpuSamples] = field(default_factory=list)  # clocks and power of the GPUs, where they were read
    is_host: bool = False  # whether the rows are CPU ops; launch_range is then each op's own range

    def pids(self) -> Ints:
        """The process of each thread."""
        return np.array([pid for pid, _ in self.threads], np.int64)

    def pids_and_tids(self, thread: Indices) -> tuple[Ints, Ints]:
        """Process and thread number of threads by index; ``NULL`` for -1."""
        pairs = np.array([*self.threads, (NULL, NULL)], np.int64)  # index -1 selects the last item
        return pairs[thread, 0], pairs[thread, 1]

    def ints(self, key: str) -> Ints:
        """A column of the rows; ``NULL`` in all of them if the profiler does not provide it."""
        return ints_of(self.columns, key, self.rows)

    def coded(self, key: str) -> Coded:
        """As ``ints``, for a column of texts, which are then empty."""
        return coded_of(self.columns, key, self.rows)
