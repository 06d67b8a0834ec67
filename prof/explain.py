"""Where each number of a row comes from: ``prof.py --explain ROW``.

It helps to check a figure. It shows what the profiler recorded, what was inferred and from what, which formula gave the
FLOPs and bytes, how they were shared among the op's kernels, and what the kernel's name proves about tensor cores.
"""

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.prof.kernels.name_patterns import Helper, find_helper, find_product
from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.ops.evaluation import assumption, find
from pyprof.prof.ops.model import FAMILY, MODELS
from pyprof.prof.timing.collectives import traffic
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.prof.work.autotuning import ONE_CONVOLUTION
from pyprof.prof.work.calls import Calls, op_calls
from pyprof.prof.work.collective_records import Message, messages
from pyprof.prof.work.count import Counted
from pyprof.prof.work.helpers.registry import rule_for
from pyprof.prof.work.multi_tensor import explained
from pyprof.prof.work.opaque_graphs import CapturedCall, OpaqueGraph, opaque_graphs
from pyprof.prof.work.repeats import repetition
from pyprof.table.columns import NULL, Table

MOST_CAPTURED = 12  # ops and layers of an opaque graph
Line = tuple[str, str]  # (value, its origin)
HOW_MATCHED = {
    "key": "no other kernel has this name, grid, block and op, or as many on both sides, in one order",
    "order": "several kernels are alike, and their order decides; their values are alike, too",
}


def explain(table: Table, annotation: Annotation, row: int) -> list[Line]:
    """The lines of one row, counted from 0."""
    about = _Row(table, annotation, op_calls(table), row)
    parts = (
        _kernel,
        _attribution,
        _captured,
        _arguments,
        _formula,
        _collective,
        _own_work,
        _share,
        _tensor_cores,
        _measured,
    )
    return [line for part in parts for line in part(about)]


@dataclass(frozen=True, slots=True)
class _Row:
    table: Table
    annotation: Annotation
    calls: Calls
    number: int

    @property
    def op(self) -> Counted:
        return self.calls.of(self.number)

    @property
    def kernel(self) -> str:
        """The kernel's name, with template arguments where they are known."""
        return self.text("kLongName") or self.text("kShortName")

    @property
    def ns(self) -> int:
        return int(self.table.ints("kDuration")[self.number])

    @property
    def on_cpu(self) -> bool:
        return self.text("kind") == "cpu"

    @property
    def it(self) -> str:
        """What ops are around."""
        return "it" if self.on_cpu else "the launch"

    @property
    def role(self) -> str:
        return self.annotation.role.take([self.number]).texts()[0]

    def text(self, key: str) -> str:
        return self.table.coded(key).take([self.number]).texts()[0]

    def list(self, key: str) -> list[str]:
        text = self.text(key)
        return json.loads(text) if text else []


def _kernel(row: _Row) -> list[Line]:
    if row.on_cpu:
        return [
            ("CPU op", f"{row.text('kShortName')}, {row.ns:,} ns by the profiler's clock, without the ops inside it")
        ]
    api = row.text("api")
    number = int(row.table.ints("corr")[row.number])
    correlated = f" (correlation id {number})" if number != NULL else ""
    launch = f"launched by {api}{correlated}" if api else row.text("reason")
    return [("kernel", f"{row.text('kShortName')}, {row.ns:,} ns by the profiler's clock; {launch}")]


def _attribution(row: _Row) -> list[Line]:
    ops = row.list("op")
    if not ops:
        return [("op", f"unknown: {row.text('reason')}")]
    name = ".".join((*row.list("mod")[:1], ops[0]))
    lines = [("op", f"{name}: {_source_of_op(row)}")]
    if row.text("dir") == "bprop":
        node = next((n for n in row.list("nodes") if "Backward" in n), "autograd's own range")
        numbers = row.table.ragged("seqId").take([row.number]).values.tolist()
        same = f"; the forward op has the same sequence number ({', '.join(map(str, numbers))})" if numbers else ""
        lines.append(("direction", f"bprop: {'ran' if row.on_cpu else 'launched'} inside {node}{same}"))
    for key, separator in (("layer", "."), ("trace", " > ")):
        if row.list(key):
            lines.append((key, separator.join(row.list(key))))
    return lines


def _captured(row: _Row) -> list[Line]:
    """What an opaque CUDA graph captured, by op and layer, most FLOPs first."""
    graphs = opaque_graphs(row.table, annotate) if row.text("kind") == "graph" else []
    graph = next((graph for graph in graphs if row.number in graph.rows), None)
    if graph is None or not graph.calls:
        return []
    parts: dict[tuple[str, str], list[CapturedCall]] = {}
    for call in graph.calls:
        parts.setdefault((call.layer, call.op), []).append(call)
    groups = [(key, OpaqueGraph(graph.name, graph.rows, tuple(calls))) for key, calls in parts.items()]
    groups.sort(key=lambda group: -(group[1].flop or 0))
    lines = [("captured", f"{graph.launches:,} launches of {sum(c.calls for c in graph.calls):,} calls, as follows")]
    for (layer, op), part in groups[:MOST_CAPTURED]:
        where = f" in {layer}" if layer else ""
        launches = f"{part.launches:,} launch{'es' if part.launches > 1 else ''}"
        lines.append(("", f"{op}{where}: {launches}, {_flop_and_bytes(part.flop, part.nbytes)}"))
    left = len(groups) - MOST_CAPTURED
    return [*lines, ("", f"and {left:,} more ops and layers")] if left > 0 else lines


def _source_of_op(row: _Row) -> str:
    if row.list("marker"):
        return "from PyProf's marker around the call"
    if not row.list("nodes") and row.text("comm"):
        return "from NCCL's own range around the launch"
    return f"the outermost op that PyTorch recorded around {row.it}"


def _arguments(row: _Row) -> list[Line]:
    aten, sizes = row.text("aten"), row.text("sizes")
    if not aten:
        return []
    around = row.list("nodes")
    if not around:
        return [("aten op", f"{aten}: NCCL's own range around the launch")]
    lines = [("aten op", f"{aten}: the innermost op around {row.it}; all of them: {' > '.join(around)}")]
    lines.append(("shapes", f"{sizes}: recorded" if sizes else "not recorded: profile with record_shapes=True"))
    if row.text("dtypes"):
        lines.append(("dtypes", f"{row.text('dtypes')}: recorded"))
    elif sizes:
        lines.append(("dtypes", _dtypes_by_name(row, aten)))
    if row.text("outs"):
        lines.append(("output", f"{row.text('outs')}: inferred from the op that read it, or from its gradient"))
    if row.text("grads"):
        lines.append(("lists", "cut by the profiler; taken from the step's gradients where the launch proves them"))
    return lines


def _dtypes_by_name(row: _Row, aten: str) -> str:
    dtypes = kernel_dtypes(row.kernel, aten.removeprefix("aten::"), FAMILY.get(find(aten) or "", ""))
    by_name = dtypes.rest or ", ".join(f"{dtype} for argument {i}" for i, dtype in dtypes.at if dtype)
    return f"not recorded; the kernel's name says {by_name}" if by_name else "not recorded, nor in the kernel's name"


def _formula(row: _Row) -> list[Line]:
    op = row.op
    if not op.name:
        return [("formula", f"none: {op.why}")]
    function = MODELS[op.name]
    formula = " ".join((inspect.getdoc(function) or "the model has no docstring").partition("\n\n")[0].split())
    lines = [("formula", f"{formula} ({_source(function)}: {op.name})")]
    for part, amounts in op.parts.items():
        lines.append((f"the op's {part}" if part else "the op", _flop_and_bytes(*amounts)))
    inferred = assumption(op.name, op.arguments) if op.parts else ""
    return [*lines, *((what, text) for what, text in (("inferred", inferred), ("not counted", op.why)) if text)]


def _source(function: Callable[..., Any]) -> str:
    """The file of a model or rule. A file of pyprof is relative to the checkout's root; a user's file is unchanged."""
    file = Path(inspect.getsourcefile(function) or "")
    ours = Path(__file__).parent
    return f"prof/{file.relative_to(ours).as_posix()}" if file.is_relative_to(ours) else str(file)


def _flop_and_bytes(flop: int | None, nbytes: int | None) -> str:
    amounts = (flop, "FLOP"), (nbytes, "bytes")
    return ", ".join(f"unknown {unit}" if n is None or n == NULL else f"{n:,} {unit}" for n, unit in amounts)


def _collective(row: _Row) -> list[Line]:
    """The record of a collective, and NCCL's two rates (nccl-tests, PERFORMANCE.md)."""
    records = messages(row.text("comm"))
    if not records:
        return []
    aten = row.text("aten")
    source = "by NCCL's own record" if aten.startswith("nccl") and ":" not in aten else "recorded beside the launch"
    lines = [("collective", f"{'; '.join(map(_message, records))}: {source}")]
    sent = traffic(row.table, row.annotation)
    wire = int(sent.wire[row.number])
    if wire != NULL and row.ns > 0:
        rates = f"bus {sent.busbw[row.number]:,.1f} GB/s, algorithm {sent.algbw[row.number]:,.1f} GB/s"
        lines.append(("bandwidth", f"{rates}: this rank must send {wire:,} bytes, and the kernel ran {row.ns:,} ns"))
    return lines


def _message(record: Message) -> str:
    ranks = f" among {record.ranks} ranks" if record.ranks else ""
    read, written = ("unknown" if math.isnan(n) else f"{n:,.0f}" for n in (record.read, record.written))
    return f"{record.op}{ranks}, {read} bytes in, {written} bytes out"


def _own_work(row: _Row) -> list[Line]:
    """Work that is not a share of the op's work: a helper kernel's bytes, an optimizer's work, a repetition's work."""
    by_gradients = explained(row.table, row.calls.names, row.number)
    if by_gradients:
        return [("kernel's own work", f"{by_gradients} (prof/work/multi_tensor.py)")]
    flops, nbytes = row.annotation.flops[row.number], row.annotation.bytes[row.number]
    if not row.text("aten") and not row.list("op"):
        run = repetition(row.table, row.calls.names, row.number) if flops != NULL or nbytes != NULL else None
        if run is None:
            return []
        same = f"there the same {run[1]} kernels ran in the same order, on the same grids"
        return [("repetition", f"FLOPs and bytes are those of row {run[0]}, which has an op: {same}")]
    rule = rule_for(row.kernel)
    if rule is None or nbytes == NULL or (row.role != "aux" and row.op.parts):
        return []
    return [("kernel's own work", f"{' '.join((rule.__doc__ or '').split())} ({_source(rule)})")]


def _share(row: _Row) -> list[Line]:
    calls, processes = row.table.ints("opId"), row.table.ints("pid")
    same = (calls == calls[row.number]) & (processes == processes[row.number])
    kernels = int(same.sum()) if calls[row.number] != NULL else 1
    main = int(np.count_nonzero(same & row.annotation.role.among("main")))
    helper = find_helper(row.kernel)
    role = {
        "main": f"main: {_main_share(main, kernels)}",
        "aux": f"aux: {_aux(row, helper)} beside {main} main {'kernel' if main == 1 else 'kernels'}; it gets no FLOPs",
    }.get(row.role, "none: no op")
    amounts = int(row.annotation.flops[row.number]), int(row.annotation.bytes[row.number])
    recorded = row.text("kind") in ("memcpy", "memset") and row.table.ints("bytes")[row.number] != NULL
    source = ": by the profiler's record of the copy, at the GPU's end" if recorded else ""
    whole = [("this row", _flop_and_bytes(*amounts) + source)]
    return whole if row.on_cpu else [("role", role), *whole]


def _aux(row: _Row, helper: Helper | None) -> str:
    if helper is None and ONE_CONVOLUTION.fullmatch(row.text("aten")) and find_product(row.kernel):
        return "a trial of cuDNN's autotuning, which runs each algorithm once and the fastest again,"
    return f"a helper kernel ({helper.kind if helper else 'by its name'})"


def _main_share(main: int, kernels: int) -> str:
    if kernels == 1:
        return "the op's only kernel"
    if main == 1:
        return f"of the op's {kernels} kernels the only one that does its arithmetic"
    return f"one of {main} of the op's {kernels} kernels that do its arithmetic; they share it by duration"


def _tensor_cores(row: _Row) -> list[Line]:
    if row.on_cpu:
        return []
    cores = hardware_words("tensor cores", filter(None, [row.text("gpu")]))
    used, precision = (column.take([row.number]).texts()[0] for column in (row.annotation.tc, row.annotation.tcprec))
    if used == "-":
        known = (
            "the op has no"
            if row.op.name or row.list("op") or row.text("aten")
            else "no op is known, and the name is of no"
        )
        return [(cores, f"-: {known} matrix product")]
    helper, product = find_helper(row.kernel), find_product(row.kernel)
    if helper is not None:
        why = f"a helper kernel ({helper.kind}); its name is known from {helper.seen}"
    elif product is not None:
        why = f"the kernel's name is of a family of matrix products, known from {product[0].seen}"
    else:
        why = "the kernel's name is of no known family of matrix products"
    return [(cores, f"{used}{f' with {precision}' if precision else ''}: {why}")]


def _measured(row: _Row) -> list[Line]:
    """What Nsight Compute measured of the kernel, beside what its algorithm needs; nothing without a report."""
    counters = row.annotation.counters
    if counters is None:
        return []
    one = counters.take([row.number])
    how = one.certainty.texts()[0]
    if not how:
        return [("measured", f"nothing: {one.reason.texts()[0] or 'Nsight Compute measures kernels only'}")]
    lines = [("measured", f"by Nsight Compute, matched by {how} ({HOW_MATCHED[how]})")]
    for what, name, ratio, unit in (
        ("DRAM", "dram", one.bytes_ratio(row.annotation.take([row.number])), "bytes"),
        ("executed", "exec_flops", one.flops_ratio(row.annotation.take([row.number])), "FLOP"),
    ):
        amount = float(one.values[name][0])
        times = "" if math.isnan(ratio[0]) else f", {ratio[0]:.3g} times what the algorithm needs"
        lines.append((what, "unknown" if math.isnan(amount) else f"{amount:,.0f} {unit}{times}"))
    stalls = one.stall_texts().texts()[0]
    return [*lines, *([("stalls", f"{stalls} of the warps' time")] if stalls else [])]
