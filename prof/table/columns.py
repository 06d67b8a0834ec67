"""The columns that the prof command prints: name, header, unit, meaning, and how to get each from the table.

The first twenty are PyProf's, same names, headers and forms: `mod` and `op` are the outermost call ("na" where there is
none), lists are joined (`layer` by ":", the others by ","; "-" where empty), grids are "128,1,1". Two things differ:
what is not known is an empty cell, where PyProf printed 0 or "na", and counts are integers. Only printed texts have
"na" and "-": for JSON, Parquet and ``--where`` they are nothing.

Imports nothing heavy: ``prof.py --help`` lists these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pyprof.command.terminal_text import Cut
from pyprof.table.json_lists import first_text, list_texts

if TYPE_CHECKING:
    from pyprof.table.columns import Coded, Floats, Ints, Table


class Annotation(Protocol):
    """What ``pyprof.prof.work.annotate`` says of each row."""

    @property
    def flops(self) -> Ints: ...
    @property
    def bytes(self) -> Ints: ...
    @property
    def tc(self) -> Coded: ...
    @property
    def tcprec(self) -> Coded: ...
    @property
    def role(self) -> Coded: ...
    @property
    def family(self) -> Coded: ...
    @property
    def uncounted(self) -> dict[str, int]: ...


Data = "Coded | Ints | Floats"  # a column's rows: texts, integers with NULL or numbers with NaN for unknown
Get = Callable[["Table", Annotation], "Coded | Ints | Floats"]
Kind = Literal["text", "int", "float"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the printed table. Numbers are aligned right and never cut."""

    name: str  # what -c takes
    header: str
    unit: str
    meaning: str
    get: Get
    cut: Cut = "right"
    share: float = 1  # of a terminal's width, where the texts are cut: a kernel's name needs more than a module's
    kind: Kind = "text"
    empty: str = ""  # how an empty text is printed


@dataclass(frozen=True, slots=True)
class Limit:
    """Gets a column of limits. ``limits.bound`` computes all of them at once; alone, each would do it again."""

    name: str

    def __call__(self, table: Table, annotation: Any) -> Coded | Ints | Floats:
        from pyprof.prof.limits.roofline import roofline
        from pyprof.prof.table.limit_columns import limit_cells

        return limit_cells(roofline(table, annotation))[self.name]


@dataclass(frozen=True, slots=True)
class Wait:
    """Gets a column of ``waiting``."""

    name: str

    def __call__(self, table: Table, annotation: Any) -> Coded | Ints | Floats:
        from pyprof.prof.timing.waiting import waiting

        found: Coded | Ints = getattr(waiting(table), self.name)
        return found


def _exposed(table: Table, annotation: Any) -> Ints:
    from pyprof.prof.timing.timeline import exposed_rows

    return exposed_rows(table, annotation)


@dataclass(frozen=True, slots=True)
class Sent:
    """Gets a column of ``communication``."""

    name: str

    def __call__(self, table: Table, annotation: Any) -> Coded | Ints | Floats:
        from pyprof.prof.timing.collectives import traffic

        found: Coded | Ints | Floats = getattr(traffic(table, annotation), self.name)
        return found


def _wait(table: Table, annotation: Any) -> Ints:
    from pyprof.prof.timing.stragglers import stragglers

    return stragglers(table, annotation).wait


def _number(key: str) -> Get:
    return lambda table, _: table.ints(key)


def _text(key: str) -> Get:
    return lambda table, _: table.coded(key)


def _first(key: str) -> Get:
    """The outermost of a list."""
    return lambda table, _: _mapped(table.coded(key), first_text)


def _joined(key: str, by: str) -> Get:
    return lambda table, _: _mapped(table.coded(key), lambda text: by.join(list_texts(text)))


def _triple(key: str) -> Get:
    return lambda table, _: _mapped(table.coded(key), lambda text: text.strip("[]").replace(" ", ""))


def _numbers(key: str) -> Get:
    def get(table: Table, _: Annotation) -> Coded:
        from pyprof.table.columns import Coded

        return Coded.of(",".join(map(str, row)) for row in table.ragged(key).lists())

    return get


def _index(table: Table, _: Annotation) -> Ints:
    import numpy as np

    return np.arange(1, len(table) + 1, dtype=np.int64)


def _params(table: Table, _: Annotation) -> Coded:
    from pyprof.prof.table.params import params

    return params(table)


def _args(table: Table, _: Annotation) -> Coded:
    from pyprof.prof.table.params import aten_params

    return aten_params(table)


def _dtype(table: Table, annotation: Any) -> Coded:
    from pyprof.prof.limits.roofline import dtype_of_rows

    return dtype_of_rows(table, annotation.family)


def _advice(table: Table, annotation: Any) -> Coded:
    from pyprof.prof.advice import Run, row_rules
    from pyprof.table.columns import Coded

    return Coded.of(row_rules(Run(table, annotation), len(table)))


def _mapped(data: Coded, change: Callable[[str], str]) -> Coded:
    """The column with each distinct text changed once; rows without a text stay so."""
    from pyprof.table.columns import Coded

    return Coded(data.codes, [change(text) if text else "" for text in data.values])


COLUMNS: tuple[Column, ...] = (
    # PyProf's, in its order
    Column("idx", "Idx", "", "number of the row, from 1", _index, kind="int"),
    Column("seq", "SeqId", "", "autograd sequence numbers", _numbers("seqId"), empty="-"),
    Column("altseq", "AltSeqId", "", "sequence numbers around the launch, not the row's own",
           _numbers("altSeqId"), empty="-"),
    Column("tid", "TId", "", "thread that launched the kernel", _number("tid"), kind="int"),
    Column("layer", "Layer", "", "layers around the forward op, outermost first",
           _joined("layer", ":"), "left", empty="-"),
    Column("trace", "Trace", "", "call stack at the forward op, innermost last",
           _joined("trace", ","), "left", empty="-"),
    Column("dir", "Direction", "", "fprop, bprop or empty", _text("dir")),
    Column("sub", "Sub", "", "kernels of the same sequence number and direction before this one",
           _number("subSeqId"), kind="int"),
    Column("mod", "Module", "", "module of the op", _first("mod"), "left", 0.7, empty="na"),
    Column("op", "Op", "", "what the user called, outermost; of a backward kernel its forward op",
           _first("op"), empty="na"),
    Column("kernel", "Kernel", "", "kernel name without template arguments", _text("kShortName"), "middle", 1.6),
    Column("params", "Params", "", "the op's tensors T=[shapes],dtype and other arguments", _params, share=1.6),
    Column("sil", "Sil(ns)", "ns", "silicon time: how long the kernel ran", _number("kDuration"), kind="int"),
    Column("tc", "TC", "", "tensor cores: 1 used, 0 not, ? not known, - no matrix product", lambda _, a: a.tc),
    Column("device", "Device", "", "GPU, as the process numbers them", _number("device"), kind="int"),
    Column("stream", "Stream", "", "CUDA stream", _number("stream"), kind="int"),
    Column("grid", "Grid", "blocks", "launch grid x,y,z", _triple("grid")),
    Column("block", "Block", "threads", "block size x,y,z", _triple("block")),
    Column("flops", "FLOPs", "flop", "floating-point operations of the algorithm, an FMA is 2",
           lambda _, a: a.flops, kind="int"),
    Column("bytes", "Bytes", "bytes", "bytes that the algorithm must read and write", lambda _, a: a.bytes, kind="int"),
    # ours
    Column("role", "Role", "", "main: does the op's arithmetic; aux: layout change, fill, cast", lambda _, a: a.role),
    Column("aten", "Aten", "", "innermost aten op around the launch", _text("aten")),
    Column("phase", "Phase", "", "forward, backward, optimizer, data or other", _text("phase")),
    Column("family", "Family", "", "kind of op: gemm, conv, attention, pointwise, ...", lambda _, a: a.family),
    Column("tcprec", "TCPrec", "", "number format that entered the tensor cores", lambda _, a: a.tcprec),
    Column("kind", "Kind", "", "kernel, memcpy, memset, graph or cpu", _text("kind")),
    Column("start", "Start(ns)", "ns", "start, since the capture began", _number("start"), kind="int"),
    Column("pid", "PId", "", "process", _number("pid"), kind="int"),
    Column("rank", "Rank", "", "rank in the distributed job", _number("rank"), kind="int"),
    Column("step", "Step", "", "training step", _number("step"), kind="int"),
    Column("reason", "Reason", "", "why the row has no op", _text("reason")),
    Column("sizes", "Sizes", "", "shapes of the aten op's inputs, JSON", _text("sizes")),
    Column("dtypes", "DTypes", "", "their dtypes, JSON", _text("dtypes")),
    Column("dtype", "DType", "", "dtype that the row computes with: its first operand's, or its kernel's", _dtype),
    Column("args", "Args", "", "inputs of the aten op, as params shows the user's call", _args, share=1.6),
    Column("api", "API", "", "CUDA API call that launched the kernel", _text("api")),
    Column("longname", "LongName", "", "kernel name with template arguments", _text("kLongName"), "middle", 1.6),
    # how far from the hardware's limit (prof/limits/roofline.py, prof/limits/occupancy.py)
    Column("ai", "AI", "FLOP/byte", "arithmetic intensity: flops / bytes", Limit("ai"), kind="float"),
    Column("tflops", "TFLOP/s", "TFLOP/s", "rate: flops / sil", Limit("tflops"), kind="float"),
    Column("gbps", "GB/s", "GB/s", "rate: bytes / sil", Limit("gbps"), kind="float"),
    Column("unit", "Unit", "", "what did the arithmetic: fp32 vector unit, tc_bf16 tensor cores", Limit("unit")),
    Column("sol_ns", "SOL(ns)", "ns", "max(flops / peak of the unit, bytes / bandwidth)", Limit("sol_ns"), kind="int"),
    Column("sol", "SOL%", "%", "speed of light: sol_ns / sil", Limit("sol"), kind="float"),
    Column("bound", "Bound", "", "compute or memory: the greater limit; latency: neither", Limit("bound")),
    Column("occ", "Occ%", "%", "theoretical occupancy: share of the SM's warps that can be resident",
           Limit("occ"), kind="float"),
    Column("occ_limit", "OccLimit", "", "threads, registers, shared memory or blocks", Limit("occ_limit")),
    Column("occ_est", "EstOcc%", "%", "estimated achieved occupancy, as torch.profiler defines it",
           Limit("occ_est"), kind="float"),
    Column("waves", "Waves", "", "blocks / (SMs × blocks that fit an SM)", Limit("waves"), kind="float"),
    Column("tail", "Tail%", "%", "share of the waves' slots that stay empty", Limit("tail"), kind="float"),
    Column("sm_eff", "SMEff%", "%", "estimated SM efficiency: SMs that have a block", Limit("sm_eff"), kind="float"),
    # what waited (prof/timing/waiting.py)
    Column("queue", "Queue(ns)", "ns", "from the end of the launching call to the start on the GPU", Wait("queue_ns"),
           kind="int"),
    Column("idle", "Idle(ns)", "ns", "before the row its GPU did nothing", Wait("idle_ns"), kind="int"),
    Column("idle_why", "IdleWhy", "", "why: launch, sync, data, copy, host, queued", Wait("cause")),
    Column("exposed", "Exposed(ns)", "ns", "of communication: nothing else ran on its GPU", _exposed, kind="int"),
    # what went over a link (prof/timing/collectives.py)
    Column("comm", "Comm", "", "collective: all_reduce, all_gather, ...", Sent("op")),
    Column("ranks", "Ranks", "", "how many ranks take part in it", Sent("ranks"), kind="int"),
    Column("wire", "Wire", "bytes", "that this rank must send for it", Sent("wire"), kind="int"),
    Column("algbw", "AlgBW", "GB/s", "algorithm bandwidth: the whole buffer / sil", Sent("algbw"), kind="float"),
    Column("busbw", "BusBW", "GB/s", "bus bandwidth: wire / sil, to compare with a link's speed", Sent("busbw"),
           kind="float"),
    Column("wait", "Wait(ns)", "ns", "of a collective: until the last rank came, where the table has all ranks", _wait,
           kind="int"),
    Column("advice", "Advice", "", "rules of the advice that concern the row, the greatest saving first", _advice),
)  # fmt: skip
COLUMN = {column.name: column for column in COLUMNS}
DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"  # PyProf's
