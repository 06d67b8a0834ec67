"""Where each number of a row comes from: ``prof.py --explain ROW``.

For the reader who doubts a figure: what the profiler recorded, what was inferred and from what, which formula gave the
FLOPs and bytes, how they were shared among the op's kernels, and what the kernel's name proves of tensor cores.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.prof.kernels.name_patterns import find_helper, find_product
from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.ops.evaluation import assumption, find
from pyprof.prof.ops.model import FAMILY, MODELS
from pyprof.prof.timing.collectives import traffic
from pyprof.prof.work.annotate import Annotation, kernel_names, repetition, signatures
from pyprof.prof.work.collective_records import Message, messages
from pyprof.prof.work.count import Counted
from pyprof.prof.work.helpers.rules import file_of, rule_of
from pyprof.prof.work.multi_tensor import explained
from pyprof.table.columns import NULL, Table

Line = tuple[str, str]  # what, and where it comes from


def explain(table: Table, annotation: Annotation, row: int) -> list[Line]:
    """The lines of one row, counted from 0."""
    codes, counted = signatures(table)
    op = counted[int(codes[row])]
    return [
        *_kernel(table, row),
        *_attribution(table, row),
        *_arguments(table, row),
        *_count(op),
        *_collective(table, annotation, row),
        *_own(table, annotation, row, op),
        *_share(table, annotation, row, op),
        *_tensor_cores(table, annotation, row),
    ]


def _text(table: Table, key: str, row: int) -> str:
    column = table.coded(key)
    code = int(column.codes[row])
    return column.values[code] if code >= 0 else ""


def _list(table: Table, key: str, row: int) -> list[str]:
    text = _text(table, key, row)
    return json.loads(text) if text else []


def _kernel(table: Table, row: int) -> list[Line]:
    duration, api = int(table.ints("kDuration")[row]), _text(table, "api", row)
    launch = f"launched by {api}, correlation {table.ints('corr')[row]}" if api else _text(table, "reason", row)
    return [("kernel", f"{_text(table, 'kShortName', row)}, {duration:,} ns on the profiler's clock; {launch}")]


def _attribution(table: Table, row: int) -> list[Line]:
    ops = _list(table, "op", row)
    if not ops:
        return [("op", f"unknown: {_text(table, 'reason', row)}")]
    name = ".".join((*_list(table, "mod", row)[:1], ops[0]))
    marked = _list(table, "marker", row)
    by_nccl = not _list(table, "nodes", row) and bool(_text(table, "comm", row))
    source = "NCCL's range" if by_nccl else "the outermost op that PyTorch recorded"
    source = "the marker around the call" if marked else source
    lines = [("op", f"{name}: {source}")]
    seqs = table.ragged("seqId").lists()[row]
    if _text(table, "dir", row) == "bprop":
        node = next((n for n in _list(table, "nodes", row) if "Backward" in n), "autograd's own range")
        lines.append(("direction", f"bprop: inside {node}; sequence number {seqs} is the forward op's"))
    for key in ("layer", "trace"):
        found = _list(table, key, row)
        if found:
            lines.append((key, (" > " if key == "trace" else ".").join(found)))
    return lines


def _arguments(table: Table, row: int) -> list[Line]:
    aten, sizes, dtypes = (_text(table, key, row) for key in ("aten", "sizes", "dtypes"))
    if not aten:
        return []
    around = _list(table, "nodes", row)
    if not around:  # NCCL's own range
        return [("aten op", f"{aten}: the range around the launch")]
    lines = [("aten op", f"{aten}: the innermost around the launch, of {' > '.join(around)}")]
    lines.append(("shapes", f"{sizes}: recorded" if sizes else "not recorded (record_shapes=True records them)"))
    if dtypes:
        lines.append(("dtypes", f"{dtypes}: recorded"))
    elif sizes:
        long = _text(table, "kLongName", row) or _text(table, "kShortName", row)
        told = kernel_dtypes(long, aten.removeprefix("aten::"), FAMILY.get(find(aten) or "", ""))
        lines.append(("dtypes", f"not recorded; this kernel's name tells {told.rest or dict(told.at) or 'none'}"))
    if _text(table, "outs", row):
        lines.append(("output", f"{_text(table, 'outs', row)}: inferred from what consumed it, or from its gradient"))
    if _text(table, "grads", row):
        lines.append(("lists", "cut by the profiler; taken from the step's gradients where the launch proves them"))
    return lines


def _count(op: Counted) -> list[Line]:
    if not op.name:
        return [("formula", f"none: {op.why}")]
    function = MODELS[op.name]
    formula = (inspect.getdoc(function) or "the model has no docstring").splitlines()[0]
    lines = [("formula", f"{formula} ({_source(function)}: {function.__name__})")]
    for part, (flop, nbytes) in op.parts.items():
        what = f"the op's {part}" if part else "the op"
        lines.append((what, f"{_amount(flop, 'FLOP')}, {_amount(nbytes, 'bytes')}"))
    inferred = assumption(op.name, op.arguments) if op.parts else ""
    lines += [("inferred", inferred)] if inferred else []
    return [*lines, *([("not counted", op.why)] if op.why else [])]


def _source(function: Callable[..., Any]) -> str:
    """The file of a model: ours from the checkout's root, a user's as it is."""
    file = Path(inspect.getsourcefile(function) or "")
    ours = Path(inspect.getsourcefile(find) or "").parent
    return f"prof/ops/{file.name}" if file.parent == ours else str(file)


def _amount(value: int | None, unit: str) -> str:
    return f"unknown {unit}" if value is None else f"{value:,} {unit}"


def _collective(table: Table, annotation: Annotation, row: int) -> list[Line]:
    """The record of a collective, and NCCL's two rates (nccl-tests, PERFORMANCE.md)."""
    told = messages(_text(table, "comm", row))
    if not told:
        return []
    aten = _text(table, "aten", row)
    by = "NCCL's own record" if aten.startswith("nccl") and ":" not in aten else "recorded beside the launch"
    lines = [("collective", f"{'; '.join(map(_message, told))}: {by}")]
    sent, ns = traffic(table, annotation), int(table.ints("kDuration")[row])
    if sent.wire[row] != NULL and ns > 0:
        rates = f"bus {sent.busbw[row]:,.1f} GB/s, algorithm {sent.algbw[row]:,.1f} GB/s"
        lines.append(("bandwidth", f"{rates}: {sent.wire[row]:,} bytes that this rank must send, over {ns:,} ns"))
    return lines


def _message(told: Message) -> str:
    ranks = f" among {told.ranks} ranks" if told.ranks else ""
    read, written = ("unknown" if math.isnan(n) else f"{n:,.0f}" for n in (told.read, told.written))
    return f"{told.op}{ranks}, {read} bytes in, {written} out"


def _own(table: Table, annotation: Annotation, row: int, op: Counted) -> list[Line]:
    """Work that is not a share of the op's: a chore's own bytes, an optimizer's, and what a repetition tells."""
    multi = explained(table, kernel_names(table), row)
    if multi:
        return [("its own", f"{multi} (prof/work/multi_tensor.py)")]
    if not _text(table, "aten", row) and not _list(table, "op", row):
        found = repetition(table, row) if annotation.flops[row] != NULL or annotation.bytes[row] != NULL else None
        if found is None:
            return []
        again, kernels = found
        return [("repetition", f"FLOPs and bytes of row {again}: these {kernels} kernels ran in the same order there, "
                               "on the same grids, with an op")]  # fmt: skip
    name = _text(table, "kLongName", row) or _text(table, "kShortName", row)
    said = rule_of(name)
    chore = annotation.role.texts()[row] == "aux" or not op.parts
    return [("its own", f"{said} ({file_of(name)})")] if said and chore and annotation.bytes[row] != NULL else []


def _share(table: Table, annotation: Annotation, row: int, op: Counted) -> list[Line]:
    role = annotation.role.texts()[row]
    same = (table.ints("opId") == table.ints("opId")[row]) & (table.ints("pid") == table.ints("pid")[row])
    kernels = int(same.sum()) if table.ints("opId")[row] != NULL else 1
    main = int(np.count_nonzero(same & (np.array(annotation.role.texts()) == "main")))
    helper = find_helper(_text(table, "kLongName", row) or _text(table, "kShortName", row))
    why = {
        "main": f"main: does the op's arithmetic, {_alone(main, kernels)}",
        "aux": f"aux: a {helper.kind if helper else 'chore'} by its name, beside {main} main kernels; no FLOPs",
    }.get(role, "none: no op")
    flops, nbytes = int(annotation.flops[row]), int(annotation.bytes[row])
    row_has = (
        f"{_amount(None if flops == NULL else flops, 'FLOP')}, {_amount(None if nbytes == NULL else nbytes, 'bytes')}"
    )
    return [("role", why), ("this row", row_has)]


def _alone(main: int, kernels: int) -> str:
    if main == 1:
        return "alone" if kernels == 1 else f"alone of its {kernels} kernels"
    return f"with {main - 1} others of its {kernels} kernels; they share by duration"


def _tensor_cores(table: Table, annotation: Annotation, row: int) -> list[Line]:
    used, precision = annotation.tc.texts()[row], annotation.tcprec.texts()[row]
    if used == "-":
        return [("tensor cores", "-: the op has no matrix product")]
    name = _text(table, "kLongName", row) or _text(table, "kShortName", row)
    found = find_product(name)
    helper = find_helper(name)
    if helper is not None:
        why = f"a {helper.kind} kernel, seen in {helper.seen}"
    else:
        why = f"its name is of a family seen in {found[0].seen}" if found else "its name is of no known family"
    return [("tensor cores", f"{used}{f' with {precision}' if precision else ''}: {why}")]
