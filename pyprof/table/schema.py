"""The columns of the kernel table, the memory table and the table of host calls.

A row of the kernel table is a GPU operation (kernel, memcpy, memset, opaque CUDA graph launch) or, in a capture without
a GPU, a CPU op that does work itself. The keys of net.dict, the Parquet schema, the documentation and the tests derive
from ``KERNELS``. The first nineteen keys are PyProf's, with its names and types.

A row of the memory table is one allocation or one free, as the capture recorded it, in order of time. A row of the
table of host calls is one call of the GPU's API on a CPU thread, in order of process, thread and start.
"""

import json
from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "float", "text", "json", "triple", "ints"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in net.dict (and name in Parquet), kind, unit and meaning.

    Kinds: ``int`` and ``float`` (None if unknown), ``text`` (a string, empty where there is none), ``json`` (a list
    or dict), ``triple`` (three integers, a tuple in net.dict), ``ints`` (a list of integers).
    """

    key: str
    kind: Kind
    unit: str
    meaning: str


KERNELS: tuple[Column, ...] = (
    # PyProf's keys
    Column(
        "kShortName",
        "text",
        "",
        "kernel name without template arguments; the whole name where that says nothing (Kernel2)",
    ),
    Column("kDuration", "int", "ns", "silicon time: end - start on the GPU"),
    Column("layer", "json", "", "layer names around the forward op, outermost first"),
    Column("trace", "json", "", "the user's call stack at the forward op, file:line, outermost first"),
    Column("reprMarkers", "json", "", "texts of module repr() markers (PyProf's layer form)"),
    Column("marker", "json", "", "texts of the op markers around the forward op, outermost first"),
    Column("seqMarker", "json", "", "the ranges with an autograd sequence number around the launch, outermost first"),
    Column("seqId", "ints", "", "autograd sequence numbers of seqMarker, each once, ascending"),
    Column("subSeqId", "int", "", "how many kernels of the same sequence number and direction came before"),
    Column("altSeqId", "ints", "", "sequence numbers seen around the launch that are not the row's own"),
    Column("dir", "text", "", "fprop, bprop or empty"),
    Column("mod", "json", "", "module of each op of `op`"),
    Column("op", "json", "", "what the user called, outermost first; a backward kernel has its forward op's"),
    Column("tid", "int", "", "thread that launched it"),
    Column("device", "int", "", "CUDA ordinal as the process saw it"),
    Column("stream", "int", "", "CUDA stream"),
    Column("grid", "triple", "blocks", "launch grid"),
    Column("block", "triple", "threads", "block size"),
    Column("kLongName", "text", "", "kernel name with template arguments"),
    # ours
    Column("kind", "text", "", "kernel, memcpy, memset, graph or cpu"),
    Column("start", "int", "ns", "start, since the capture began; may be negative"),
    Column("pid", "int", "", "process"),
    Column("rank", "int", "", "rank in the distributed job"),
    Column("corr", "int", "", "correlation id of the launch, unique within its process only"),
    Column("api", "text", "", "the CUDA API call that launched it"),
    Column("apiStart", "int", "ns", "start of that call"),
    Column("apiDuration", "int", "ns", "duration of that call"),
    Column(
        "phase", "text", "", "forward, backward, optimizer, data or other; of a server's batch prefill, decode or mixed"
    ),
    Column("step", "int", "", "step of training, or of an inference server, where the capture marks them"),
    Column("reason", "text", "", "why the row has no op, where it has none"),
    Column("aten", "text", "", "innermost aten op around the launch: the op that did it"),
    Column("sizes", "json", "", "shapes of that op's inputs in schema order; [] is a scalar, a 0-d tensor or None"),
    Column("dtypes", "json", "", "their dtypes, torch's names; empty for what is no tensor"),
    Column("strides", "json", "elements", "their strides"),
    Column("args", "json", "", "their values where they are no tensors, as the capture wrote them"),
    Column("comm", "json", "", "what a collective was told: list of op, ranks, bytes in and out, group, root, peer"),
    Column("outs", "json", "", "shapes of the op's outputs, inferred from the ops that consume them"),
    Column("nodes", "json", "", "all aten ops and autograd nodes around the launch, outermost first"),
    Column("opId", "int", "", "number of that op's call within the capture: rows that share it are one op's kernels"),
    Column("registers", "int", "", "registers a thread"),
    Column("staticSmem", "int", "bytes", "static shared memory a block"),
    Column("dynamicSmem", "int", "bytes", "dynamic shared memory a block"),
    Column("occupancy", "float", "%", "estimated achieved occupancy, where the profiler says"),
    Column("graphNode", "int", "", "CUDA graph node"),
    Column("bytes", "int", "bytes", "bytes of a memcpy or memset"),
    Column("gpu", "text", "", "name of the GPU"),
    Column("grads", "json", "", "shapes of the step's gradients, for an optimizer's op with cut lists of tensors"),
    Column(
        "forward", "json", "", "name and arguments of the forward op, for kernels of a C++ autograd Function's node"
    ),
    Column("apiSync", "int", "ns", "duration of the synchronisation of a stream that directly follows that call"),
    Column("gpuInfo", "json", "", "facts of the GPU that the capture has: SMs, clock, bandwidth, compute capability"),
    Column("markStart", "int", "ns", "start of the step's mark, on the host; empty where no mark says when it begins"),
    Column("markEnd", "int", "ns", "start of the next mark; where none follows, the end of the step's own"),
    Column("stepStart", "int", "ns", "when the step begins on the device: at its mark, or later if work is left to do"),
    Column("stepEnd", "int", "ns", "when it ends there: where the next one begins; of the last one with all its work"),
    Column(
        "emptySteps",
        "json",
        "",
        "steps that follow and launch nothing: number, mark, its end; in the first row of the step before them",
    ),
    Column("functions", "json", "", "the functions that the lines of `trace` are in, where the capture has them"),
    Column(
        "graphOps",
        "json",
        "",
        "the calls that an opaque CUDA graph captured; in the first row of each graph (design.md, CUDA graphs)",
    ),
    Column("serving", "text", "", "the inference server's annotation of the batch that launched it, as it stands"),
    Column(
        "views",
        "json",
        "",
        "shape and dtype of the tensors that the op's code views, for an op that takes a layer's name, not its weights",
    ),
    Column(
        "incomplete",
        "json",
        "",
        "what the row's capture has lost: a list of pairs, why it is incomplete and how to record it anew; empty where "
        "no loss is known",
    ),
    Column("fused", "json", "", "for a call in the code of a compiled graph: the operations that it computes"),
    Column(
        "batches",
        "json",
        "",
        "calls for a DataLoader's next batch since the process's launch before: 1 (worker processes) or 0, start, end",
    ),
    Column("part", "int", "", "1 if the row is a CPU op within the op of another row, as sum in std; otherwise empty"),
)

MEMORY: tuple[Column, ...] = (
    Column("time", "int", "ns", "when, since the capture began; may be negative"),
    Column("bytes", "int", "bytes", "allocated; negative where they are freed"),
    Column("address", "int", "", "start of the block, unique among the blocks that are alive on its device"),
    Column("kind", "text", "", "where the memory is: cuda, hip, xpu, cpu, ... (PyTorch's names of devices)"),
    Column("device", "int", "", "number of that device as the process saw it"),
    Column(
        "level",
        "text",
        "",
        "allocator: a block of PyTorch's caching allocator; driver: memory from cudaMalloc and the like, which the "
        "caching allocator holds in reserve; before: a block that was there when the capture began, of which the "
        "capture has no allocation",
    ),
    Column("allocated", "int", "bytes", "in use on the device after this event, as the profiler recorded it"),
    Column("reserved", "int", "bytes", "reserved by the allocator after this event, as the profiler recorded it"),
    Column("peer", "int", "", "row, from 0, of this block's free, or of the allocation of what is freed here"),
    Column("freed", "int", "ns", "when an allocated block is freed; empty: not within the capture"),
    Column("category", "text", "", "what the block holds, where the capture records it"),
    Column("name", "text", "", "the tensor's name in the model, where the capture records it"),
    Column("op", "json", "", "what the user called at that time, outermost first; see the kernel table"),
    Column("layer", "json", "", "layer names around the forward op, outermost first"),
    Column("trace", "json", "", "the user's call stack at that time, file:line, outermost first"),
    Column("dir", "text", "", "fprop, bprop or empty"),
    Column("phase", "text", "", "forward, backward, optimizer, data or other"),
    Column("aten", "text", "", "innermost aten op at that time"),
    Column("seq", "int", "", "autograd's sequence number of that op or backward node"),
    Column("step", "int", "", "training step, where the capture marks them"),
    Column("pid", "int", "", "process"),
    Column("tid", "int", "", "thread"),
    Column("rank", "int", "", "rank in the distributed job"),
)

HOST_CALLS: tuple[Column, ...] = (
    Column("name", "text", "", "the call of CUDA or HIP: cudaLaunchKernel"),
    Column(
        "kind",
        "text",
        "",
        "launch, copy, set or graph: it gives the GPU work; device sync, stream sync or event sync: it waits for the "
        "GPU; record, wait, query: of events; allocate, free; begin capture, end capture; empty: none of these",
    ),
    Column("start", "int", "ns", "start, since the capture began; may be negative"),
    Column("duration", "int", "ns", "duration"),
    Column("pid", "int", "", "process"),
    Column("tid", "int", "", "thread"),
    Column("corr", "int", "", "correlation id, unique within its process only"),
    Column("stream", "int", "", "the stream that it records an event on, makes wait or waits for, where recorded"),
    Column("record", "int", "", "row, from 0, of the call that recorded the event which it waits for, where known"),
    Column(
        "after",
        "int",
        "",
        "row of the last call of another thread that its own thread waited for before it: a hand-over, as between the "
        "threads of the forward and of the backward pass",
    ),
    Column(
        "ranges",
        "int",
        "",
        "ranges (ops, markers, layers) that the process began since the thread's call before, or since `after`",
    ),
    Column(
        "calls",
        "int",
        "",
        "PyTorch calls with a marker that had begun by then, since the capture began; of the process's thread with the "
        "most of them, and without calls inside others",
    ),
    Column("op", "json", "", "what the user called at that time, outermost first; see the kernel table"),
    Column("layer", "json", "", "layer names around the forward op, outermost first"),
    Column("trace", "json", "", "the user's call stack at that time, file:line, outermost first"),
    Column("aten", "text", "", "innermost aten op at that time"),
    Column("phase", "text", "", "forward, backward, optimizer, data or other"),
    Column("step", "int", "", "training step, where the capture marks them"),
    Column("rank", "int", "", "rank in the distributed job"),
)

COLUMN = {column.key: column for column in KERNELS}
REQUIRED = ("kShortName", "kDuration")  # a kernel table must have these keys


def first_text(text: str) -> str:
    """The first item of a JSON list, such as a cell of ``op``, ``layer`` or ``trace``."""
    return list_texts(text)[0]


def outermost(name: str) -> str:
    """The outermost op where ``name`` is a cell of ``op``; any other name, such as a kernel's, as it is.

    >>> outermost('["linear", "addmm"]'), outermost("aten::mm"), outermost('["no list')
    ('linear', 'aten::mm', '["no list')
    """
    try:
        return first_text(name) if name.startswith('["') else name
    except ValueError:  # a name from a file may begin like a list
        return name


def list_texts(text: str) -> list[str]:
    """The items of a JSON list as texts. For an empty list, or if the text is not a list, one empty text."""
    items = json.loads(text)
    if not isinstance(items, list) or not items:
        return [""]
    return [item if isinstance(item, str) else json.dumps(item) for item in items]
