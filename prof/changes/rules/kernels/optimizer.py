"""Optimizers that read and write their state more often than the single pass of a fused optimizer."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.base_run import LIST_NS
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import CALL_NS, STREAMED, Run
from pyprof.quantities import rounded
from pyprof.table.columns import Floats, Ints

# Share of the bandwidth. Fused AdamW on an H200: GPT-2's 124 M parameters 1.00 ms, 24 × 2048² 0.79 ms: 0.72 and 0.74.
REACHED = 0.72
WORTH = 1.15
UNKNOWN = 0.02  # of the step's time: what may add to step counters or to a group of small tensors
STEPS = ('.step"',)  # part of a step's marker: ["AdamW.step", "_foreach_mul_"]
# multi_tensor_apply (ATen/native/cuda/MultiTensorApply.cuh): a launch takes 320 chunks of 65536 elements, 30 tensors
CHUNKS, TENSORS = 320 * 65536, 30


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of optimizer, recognised by the ops of its step."""

    name: str
    mark: tuple[str, ...]  # the ops that run once per parameter
    mark_values: int  # values that these ops read and write per parameter
    fused_values: int  # values that one fused pass reads and writes per parameter


# Adam reads p, g, m, v and writes p, m, v: 7 values per parameter, 28 bytes in fp32. addcdiv_(p, m, denom) reads 3 and
# writes 1. SGD with momentum reads p, g, m and writes p, m; its mul_(m, momentum) reads 1 and writes 1. Plain
# SGD is one add_.
ADAM = Kind("Adam", ("_foreach_addcdiv_", "addcdiv_"), 4, 7)
MOMENTUM = Kind("SGD with momentum", ("mul_",), 2, 5)
PLAIN = Kind("SGD", ("add_",), 3, 3)


@rule("optimizer")
def optimizer(run: Run) -> Iterator[Finding]:
    """Adam that runs as single ops or on lists of tensors, or SGD as single ops, instead of one fused pass.

    The saving is bytes, at the bandwidth that the fused kernel reaches, and launches. Abstains if a fused kernel runs,
    if bytes or device are unknown, and for other optimizers, such as Adagrad, whose fused kernel was for the CPU only
    until 2026 (2.13's is for CUDA, too). (SGD with momentum moves 20 to 24 bytes per parameter on lists and 20 fused,
    so there is nothing to gain.)
    Optimizers of several classes are judged apart.

    Refuted by: a fused kernel in the same optimizer's step.
    """
    classes: dict[str, list[int]] = {}  # such as SGD for tables and AdamW for the rest; "" where none is named
    for row in _of_step(run).tolist():
        classes.setdefault(class_of(run, row), []).append(row)
    for name, found in classes.items():
        yield from _of_class(run, name, np.array(found))


def class_of(run: Run, row: int) -> str:
    """The class of the optimizer to whose step a row belongs: "AdamW"; empty if the capture does not name it."""
    called = run.listed("op", row)
    name = str(called[0]) if called else ""
    return name.removesuffix(".step") if name.endswith(".step") else ""


def _of_class(run: Run, name: str, rows: Ints) -> Iterator[Finding]:
    ops = Counter(run.aten[rows].astype(str).tolist())
    kind = _kind(ops, {name} - {""})
    unknown = rows[np.isnan(run.nbytes[rows])]
    of_little = float(run.dur[unknown].sum()) <= UNKNOWN * float(run.dur[rows].sum())
    counts = of_little and bool((run.aten[unknown] == "_foreach_add_").all())
    if kind is None or any(op.startswith("_fused_") for op in ops) or not counts:
        return
    rows = rows[~np.isin(run.aten[rows], ("zero_", "_foreach_zero_", "fill_"))]
    mark = rows[np.isin(run.aten[rows], kind.mark)]
    loop = not any(op.startswith("_foreach_") for op in ops)
    yield from _finding(run, kind, rows, mark, loop)


def _of_step(run: Run) -> Ints:
    """The kernels of the optimizer's step, without those that clip or scale gradients, if the capture can tell.

    Clipping and scaling are in the same phase, but outside of the step's marker (``AdamW.step``).
    """
    rows = np.flatnonzero((run.phase == "optimizer") & (run.role == "main") & (run.texts("kind") == "kernel"))
    within = rows[run.mentions("op", *STEPS)[rows]]
    return within if len(within) else rows


def _kind(ops: Counter[str], names: set[str]) -> Kind | None:
    """The kind of optimizer that runs these ops, by its class if that is known.

    By its ops, Adam is what keeps a mean of the gradient (lerp_, or mul_ and add_, with div for its correction) and of
    the square (addcmul_), and divides once (addcdiv_). Adagrad and RMSprop keep no mean, Adamax no square, and NAdam
    divides twice: torch/optim of 2.13.
    """
    count = Counter[str]()
    for op, rows in ops.items():
        count[op.removeprefix("_foreach_").rstrip("_")] += rows
    divided, mean = count["addcdiv"], count["lerp"] or (count["mul"] and count["div"])
    if names <= {"Adam", "AdamW"} and mean and 0 < divided < 1.5 * count["addcmul"]:
        return ADAM
    if names <= {"SGD"} and ops and ops.keys() <= {"mul_", "add_", "zero_", "fill_"} and "add_" in ops:
        return MOMENTUM if "mul_" in ops else PLAIN
    return None


def _finding(run: Run, kind: Kind, rows: Ints, mark: Ints, loop: bool) -> Iterator[Finding]:
    item = 2 if len(mark) and run.dtype[mark[0]] in HALF else 4  # bytes; the states have the parameter's dtype
    parameters = float(np.nansum(run.nbytes[mark])) / (kind.mark_values * item)
    expected = 1e9 * parameters * kind.fused_values * item / (REACHED / STREAMED * run.bandwidth)
    now = float(run.dur[rows].sum())
    if not (loop or now > WORTH * expected) or not parameters or not now:
        return
    tensors = len(mark) if loop else 0  # on lists, the fused kernel has as many launches as the mark's op
    after = parameters / CHUNKS + tensors / TENSORS if loop else float(len(mark))
    saved: Floats = run.dur[rows] * max(1 - expected / now, 0.0)
    launches = max(len(rows) - after, 0.0)
    how = "single ops" if loop else "lists of tensors (foreach)"
    why = (
        f"{kind.name} by {how} moves {float(np.nansum(run.nbytes[rows])) / parameters:.0f} bytes per parameter in "
        f"{run.number(rows, 'kernel', 'kernels')}; a fused one moves {kind.fused_values * item} in about "
        f"{rounded(run.count(1) * max(after, 1), 2)}. It takes {rounded(run.ms(now))} ms; "
        f"{rounded(run.ms(min(expected, now)))} ms are expected for "
        f"{rounded(parameters / run.steps / run.lanes / 1e6)} M parameters"
    )
    change = f"Use the fused optimizer: torch.optim.{'Adam or AdamW' if kind is ADAM else 'SGD'} with fused=True."
    number = run.table.ints("opId")  # of the calls, two remain for each group: the fused one, and one that counts steps
    kept = 2 * len(np.unique(number[mark]))
    calls = launches if loop else min(max(len(np.unique(number[rows])) - kept, 0) * LIST_NS / CALL_NS, len(rows) - kept)
    yield Finding(rows, saved, why, change, launches=launches, calls=calls)
