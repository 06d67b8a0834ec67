"""The columns that the prof command prints: name, header, unit, meaning, and how to get each from the table.

The first twenty are PyProf's, with its names, headers and forms: `mod` and `op` are the outermost call ("na" where
there is none), lists are joined (`layer` by ":", the others by ","; "-" if empty), grids are "128,1,1". There are two
differences: unknown values are empty cells, where PyProf printed 0 or "na", and counts are integers. "na" and "-" occur
only in printed texts; in JSON, Parquet and ``--where`` such a cell is empty.

This module imports nothing heavy: ``prof.py --help`` lists the columns.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pyprof.command.suggestion import resembling
from pyprof.command.terminal_text import Cut
from pyprof.table.schema import first_text, list_texts

if TYPE_CHECKING:
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Coded, Floats, Ints, Table

    # A column's values: texts, integers (NULL if unknown) or floats (NaN if unknown).
    Get = Callable[[Table, Annotation], Coded | Ints | Floats]

Kind = Literal["text", "int", "float"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the printed table. Numbers are aligned right and never cut."""

    name: str  # as given to -c
    header: str  # in CSV, PyProf's; the other forms have the name
    unit: str
    meaning: str
    get: Get
    cut: Cut = "right"
    share: float = 1  # weight in a terminal's width if texts must be cut: kernel names need more than modules
    kind: Kind = "text"
    empty: str = ""  # how an empty text is printed


# How to get a column. Modules that import numpy are loaded only at that point, not together with this one.


@dataclass(frozen=True, slots=True)
class Limit:
    """Gets one column of limits. ``with_limits`` computes all of them in one pass instead of one pass per column."""

    name: str

    def __call__(self, table: Table, annotation: Annotation) -> Coded | Ints | Floats:
        from pyprof.prof.limits.roofline import roofline
        from pyprof.prof.table.limit_columns import limit_cells

        return limit_cells(roofline(table, annotation))[self.name]


def _late(module: str, call: Callable[[Any, Table, Annotation], Any]) -> Get:
    """A getter that imports a module of prof/ when a column needs it, and then calls one of its functions."""
    return lambda table, annotation: call(importlib.import_module(module), table, annotation)


def _number(key: str) -> Get:
    return lambda table, _: table.ints(key)


def _text(key: str) -> Get:
    return lambda table, _: table.coded(key)


def _fused(text: str) -> str:
    from pyprof.compiled_record import fused_text  # imports msgspec

    return fused_text(text)


def _mapped(key: str, change: Callable[[str], str]) -> Get:
    """A getter that applies ``change`` to each distinct text of the column ``key``; empty cells stay empty."""

    def get(table: Table, _: Annotation) -> Coded:
        from pyprof.table.columns import Coded

        column = table.coded(key)
        return Coded(column.codes, [change(text) if text else "" for text in column.values])

    return get


def _first(key: str) -> Get:
    return _mapped(key, first_text)


def _joined(key: str, by: str) -> Get:
    return _mapped(key, lambda text: by.join(list_texts(text)))


def _triple(key: str) -> Get:
    return _mapped(key, lambda text: text.strip("[]").replace(" ", ""))


def _numbers(key: str) -> Get:
    def get(table: Table, _: Annotation) -> Coded:
        from pyprof.table.columns import Coded

        data = table.ragged(key)
        texts = [*map(str, data.values.tolist())]
        return Coded.of(",".join(texts[begin:end]) for begin, end in pairwise(data.offsets.tolist()))

    return get


def _index(table: Table, _: Annotation) -> Ints:
    import numpy as np

    return np.arange(1, len(table) + 1, dtype=np.int64)


def _waiting(field: str) -> Get:
    return _late("pyprof.prof.timing.waiting", lambda module, table, _: getattr(module.waiting(table), field))


def _traffic(field: str) -> Get:
    return _late("pyprof.prof.timing.collectives", lambda module, table, a: getattr(module.traffic(table, a), field))


_exposed = _late("pyprof.prof.timing.timeline", lambda module, table, a: module.exposed_rows(table, a))
_wait = _late("pyprof.prof.timing.stragglers", lambda module, table, a: module.stragglers(table, a).wait)
_params = _late("pyprof.prof.table.params", lambda module, table, _: module.params(table))
_args = _late("pyprof.prof.table.params", lambda module, table, _: module.aten_params(table))
_dtype = _late("pyprof.prof.limits.roofline", lambda module, table, a: module.dtype_of_rows(table, a.family))


def _counted(name: str, kind: Kind = "int") -> Get:
    """A getter of what Nsight Compute measured; unknown in every row if no report was joined (--ncu)."""

    def get(table: Table, annotation: Annotation) -> Coded | Ints | Floats:
        from pyprof.table.columns import blank

        counters = annotation.counters
        if counters is None:
            return blank(kind, len(table))  # type: ignore[return-value] # not a column of lists
        return counters.whole(name) if kind == "int" else counters.values[name]

    return get


def _compared(field: str, kind: Kind) -> Get:
    """A getter of what follows from the counters, their row and its annotation."""

    def get(table: Table, annotation: Annotation) -> Coded | Ints | Floats:
        from pyprof.table.columns import blank

        if annotation.counters is None:
            return blank(kind, len(table))  # type: ignore[return-value] # not a column of lists
        return annotation.counters.column(field, annotation)

    return get


def _registers(table: Table, annotation: Annotation) -> Ints:
    """The registers per thread by the capture, and where it does not say, by the report."""
    import numpy as np

    from pyprof.table.columns import NULL

    own = table.ints("registers")
    return own if annotation.counters is None else np.where(own != NULL, own, annotation.counters.whole("regs"))


def _advice(table: Table, annotation: Annotation) -> Coded:
    """As ``load_annotated`` has asked for them; without the host's calls, those of the GPU's work alone."""
    if annotation.advice is not None:
        return annotation.advice
    from pyprof.prof.changes.effect.run import Run
    from pyprof.prof.changes.find_changes import without_replay

    return without_replay(Run(table, annotation), "").of_rows(len(table))


def _int(name: str, header: str, unit: str, meaning: str, get: Get) -> Column:
    return Column(name, header, unit, meaning, get, kind="int")


def _list(name: str, header: str, meaning: str, get: Get, cut: Cut = "right") -> Column:
    return Column(name, header, "", meaning, get, cut, empty="-")


def _float(name: str, header: str, unit: str, meaning: str, get: Get) -> Column:
    return Column(name, header, unit, meaning, get, kind="float")


COLUMNS: tuple[Column, ...] = (
    # PyProf's columns, in PyProf's order
    _int("idx", "Idx", "", "number of the row, from 1", _index),
    _list("seq", "SeqId", "autograd sequence numbers", _numbers("seqId")),
    _list("altseq", "AltSeqId", "sequence numbers around the launch, not the row's own", _numbers("altSeqId")),
    _int("tid", "TId", "", "thread that launched the kernel", _number("tid")),
    _list("layer", "Layer", "layers around the forward op, outermost first", _joined("layer", ":"), "left"),
    _list("trace", "Trace", "call stack at the forward op, innermost last", _joined("trace", ","), "left"),
    Column("dir", "Direction", "", "fprop, bprop or empty", _text("dir")),
    _int("sub", "Sub", "", "kernels of the same sequence number and direction before this one", _number("subSeqId")),
    Column("mod", "Module", "", "module of the op", _first("mod"), "left", 0.7, empty="na"),
    Column(
        "op", "Op", "", "what the user called, outermost; of a backward kernel its forward op", _first("op"), empty="na"
    ),
    Column(
        "kernel",
        "Kernel",
        "",
        "kernel name without template arguments, unless it is a wrapper's (Kernel2)",
        _text("kShortName"),
        "middle",
        1.6,
    ),
    Column("params", "Params", "", "the op's tensors T=[shapes],dtype and other arguments", _params, share=1.6),
    _int("sil", "Sil(ns)", "ns", "silicon time: how long the kernel ran", _number("kDuration")),
    Column("tc", "TC", "", "tensor cores: 1 used, 0 not, ? not known, - no matrix product", lambda _, a: a.tc),
    _int("device", "Device", "", "GPU, as the process numbers them", _number("device")),
    _int("stream", "Stream", "", "CUDA stream", _number("stream")),
    Column("grid", "Grid", "blocks", "launch grid x,y,z", _triple("grid")),
    Column("block", "Block", "threads", "block size x,y,z", _triple("block")),
    _int("flops", "FLOPs", "flop", "floating-point operations of the algorithm, an FMA is 2", lambda _, a: a.flops),
    _int("bytes", "Bytes", "bytes", "bytes that the algorithm must read and write", lambda _, a: a.bytes),
    # ours
    Column("role", "Role", "", "main: does the op's arithmetic; aux: layout change, fill, cast", lambda _, a: a.role),
    Column("aten", "Aten", "", "innermost aten op around the launch", _text("aten")),
    Column("phase", "Phase", "", "forward, backward, optimizer, data, prefill, decode, mixed or other", _text("phase")),
    Column("family", "Family", "", "kind of op: gemm, conv, attention, pointwise, ...", lambda _, a: a.family),
    Column("tcprec", "TCPrec", "", "number format that entered the tensor cores", lambda _, a: a.tcprec),
    Column("kind", "Kind", "", "kernel, memcpy, memset, graph or cpu", _text("kind")),
    _int("start", "Start(ns)", "ns", "start, since the capture began", _number("start")),
    _int("pid", "PId", "", "process", _number("pid")),
    _int("rank", "Rank", "", "rank in the distributed job", _number("rank")),
    _int("step", "Step", "", "training step", _number("step")),
    Column(
        "fused",
        "Fused",
        "",
        "the operations that a compiled kernel computes, in order, each with its layer",
        _mapped("fused", _fused),
    ),
    Column("serving", "Serving", "", "the server's annotation of the batch that launched the row", _text("serving")),
    Column("reason", "Reason", "", "why the row has no op", _text("reason")),
    Column("sizes", "Sizes", "", "shapes of the aten op's inputs, JSON", _text("sizes")),
    Column("dtypes", "DTypes", "", "their dtypes, JSON", _text("dtypes")),
    Column("dtype", "DType", "", "dtype that the row computes with: its first operand's, or its kernel's", _dtype),
    Column("args", "Args", "", "inputs of the aten op, as params shows the user's call", _args, share=1.6),
    Column("api", "API", "", "CUDA API call that launched the kernel", _text("api")),
    Column("longname", "LongName", "", "kernel name with template arguments", _text("kLongName"), "middle", 1.6),
    # how far from the hardware's limit (prof/limits/roofline.py, prof/limits/occupancy.py)
    _float("ai", "AI", "FLOP/byte", "arithmetic intensity: flops / bytes", Limit("ai")),
    _float("tflops", "TFLOP/s", "TFLOP/s", "rate: flops / sil", Limit("tflops")),
    _float("gbps", "GB/s", "GB/s", "rate: bytes / sil", Limit("gbps")),
    Column("unit", "Unit", "", "what did the arithmetic: fp32 vector unit, tc_bf16 tensor cores", Limit("unit")),
    _int("sol_ns", "SOL(ns)", "ns", "max(flops / peak of the unit, bytes / bandwidth)", Limit("sol_ns")),
    _float("sol", "SOL%", "%", "speed of light: sol_ns / sil", Limit("sol")),
    Column("bound", "Bound", "", "compute or memory: the greater limit; latency: neither", Limit("bound")),
    _float("occ", "Occ%", "%", "theoretical occupancy: share of the SM's warps that can be resident", Limit("occ")),
    Column("occ_limit", "OccLimit", "", "threads, registers, shared memory or blocks", Limit("occ_limit")),
    _float("occ_est", "EstOcc%", "%", "estimated achieved occupancy, as torch.profiler defines it", Limit("occ_est")),
    _float("waves", "Waves", "", "blocks / (SMs × blocks that fit an SM)", Limit("waves")),
    _float("tail", "Tail%", "%", "share of the waves' slots that stay empty", Limit("tail")),
    _float("sm_eff", "SMEff%", "%", "estimated SM efficiency: SMs that have a block", Limit("sm_eff")),
    # waiting and its causes (prof/timing/waiting.py)
    _int(
        "queue", "Queue(ns)", "ns", "from the end of the launching call to the start on the GPU", _waiting("queue_ns")
    ),
    _int("idle", "Idle(ns)", "ns", "before the row its GPU did nothing", _waiting("idle_ns")),
    Column("idle_why", "IdleWhy", "", "why: launch, sync, data, copy, host, queued", _waiting("cause")),
    _int("exposed", "Exposed(ns)", "ns", "of communication: nothing else ran on its GPU", _exposed),
    # bytes sent over links (prof/timing/collectives.py)
    Column("comm", "Comm", "", "collective: all_reduce, all_gather, ...", _traffic("op")),
    _int("ranks", "Ranks", "", "how many ranks take part in it", _traffic("ranks")),
    _int("wire", "Wire", "bytes", "that this rank must send for it", _traffic("wire")),
    _float("algbw", "AlgBW", "GB/s", "algorithm bandwidth: the whole buffer / sil", _traffic("algbw")),
    _float("busbw", "BusBW", "GB/s", "bus bandwidth: wire / sil, to compare with a link's speed", _traffic("busbw")),
    _int("wait", "Wait(ns)", "ns", "of a collective: until the last rank came, where the table has all ranks", _wait),
    # what Nsight Compute measured, with --ncu (prof/counters/measured.py)
    _int("dram_rd", "DRAMRd", "bytes", "measured: read from DRAM", _counted("dram_rd")),
    _int("dram_wr", "DRAMWr", "bytes", "measured: written to DRAM", _counted("dram_wr")),
    _int("dram", "DRAM", "bytes", "measured: read from DRAM and written to it", _counted("dram")),
    _int("l2_rd", "L2Rd", "bytes", "measured: read from the L2 cache", _counted("l2_rd")),
    _int("l2_wr", "L2Wr", "bytes", "measured: written to the L2 cache", _counted("l2_wr")),
    _int("inst", "Inst", "", "measured: instructions executed, counted by warp", _counted("inst")),
    _int("exec_flops", "ExecFLOPs", "flop", "measured: FLOPs executed, of what was counted", _counted("exec_flops")),
    _float("tensor_pct", "Tensor%", "%", "measured: of the tensor pipe's peak", _counted("tensor_pct", "float")),
    _float("dram_pct", "DRAM%", "%", "measured: of the DRAM's peak bandwidth", _counted("dram_pct", "float")),
    _float("occ_achieved", "AchOcc%", "%", "measured: achieved occupancy", _counted("occ_achieved", "float")),
    _int("regs", "Regs", "", "registers per thread", _registers),
    Column("stalls", "Stalls", "", "measured: what warps waited for, % of their time", _compared("stalls", "text")),
    _float("bytes_ratio", "BytesRatio", "", "measured / algorithmic: dram / bytes", _compared("bytes_ratio", "float")),
    _float(
        "flops_ratio", "FLOPsRatio", "", "executed / algorithmic: exec_flops / flops", _compared("flops_ratio", "float")
    ),
    Column("matched", "Matched", "", "how the row found its launch: key, order", _compared("matched", "text")),
    Column("unmatched", "Unmatched", "", "why the kernel has no counters", _compared("unmatched", "text")),
    Column("advice", "Advice", "", "rules of the advice that concern the row, the greatest saving first", _advice),
)
COLUMN = {column.name: column for column in COLUMNS}
ADVICE = COLUMN["advice"]  # which takes a replay, so that it is computed where it is asked for


def meant_column(name: str, known: Mapping[str, Column]) -> str:
    """The end of a message that there is no such column: those that it resembles, by name or header, or else all."""
    by_either = {text: column.name for column in known.values() for text in (column.header, column.name)}
    found = dict.fromkeys(by_either[text] for text in resembling(name, by_either))
    return f": did you mean {' or '.join(map(repr, found))}?" if found else f"; there are: {', '.join(known)}"


# Beside them with --ncu: in text for reading, and in CSV, JSON and Parquet.
MEASURED_BRIEF = "dram,bytes_ratio,flops_ratio"
MEASURED = (
    "dram_rd,dram_wr,dram,l2_rd,l2_wr,inst,exec_flops,tensor_pct,dram_pct,occ_achieved,regs,stalls,bytes_ratio,"
    "flops_ratio,matched,unmatched"
)
DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"  # PyProf's default
