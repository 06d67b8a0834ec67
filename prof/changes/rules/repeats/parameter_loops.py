"""Python loops over parameters, tensor by tensor: optimizers, clipping and averages, and penalties of the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.base_run import LISTS
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.host_waits import released_by
from pyprof.prof.changes.rules.kernels.optimizer import CHUNKS, TENSORS
from pyprof.quantities import rounded
from pyprof.table.columns import Bools, Ints

MANY = 16  # kernels of one op in a loop; fewer do not matter
SHAPES = 4  # of the tensors of a loop, at least, which begins a step


@edit_rule("parameter_loop")
def parameter_loop(scenario: Scenario) -> Iterator[Proposal]:
    """One op after the other for each parameter, as one op on lists of tensors (torch._foreach_*), or as weight decay.

    Bytes and order of the ops stay as they are; launches become one for each list of 30 tensors or 21 M elements. What
    torch.optim could do by itself, its own rule says (optimizer), and is left out here.

    Refuted by: ops on lists, and loops of torch.optim.
    """
    run = scenario.run
    lines: dict[str, list[int]] = {}
    for row in np.flatnonzero(_after_backward(run)).tolist():
        lines.setdefault(_place(run, row), []).append(row)
    found = [np.array(rows) for rows in lines.values() if _is_loop(run, rows)]
    penalties = [*_penalties(run)]
    if not found and not penalties:
        yield Abstained("parameter_loop", f"no {MANY} kernels of one op and line after the backward pass")
    for rows in found:
        yield _edit(scenario, rows)
    for rows in penalties:
        yield _without_penalty(run, rows)


def _penalties(run: Run) -> Iterator[Ints]:
    """The rows, forward and backward, of each line that sums the squares of tensors of several shapes, one by one.

    An L2 penalty in the loss, as w.pow(2).sum() or w.norm() ** 2 for each weight.
    """
    outside = ~run.names("layer") & run.names("trace") & np.isin(run.phase, ("forward", "other", ""))
    sums = outside & np.isin(run.aten, ("sum", "linalg_vector_norm"))
    squares = Counter(
        run.trace(row) for row in np.flatnonzero(outside & (run.aten == "pow")).tolist() if _squares(run, row)
    )
    lines: dict[str, list[int]] = {}
    for row in np.flatnonzero(_over_tensors(run, sums)).tolist():
        lines.setdefault(run.trace(row), []).append(row)
    many = {line for line, rows in lines.items() if run.count(min(len(rows), squares[line])) >= MANY}
    inside = np.isin(run.phase, ("forward", "backward", "other", "")) & ~run.names("layer")
    for line in many:
        yield np.array([row for row in np.flatnonzero(inside).tolist() if run.trace(row) == line], np.int64)


def _squares(run: Run, row: int) -> bool:
    """Whether a power's exponent is 2."""
    args = run.listed("args", row)
    return len(args) > 1 and str(args[1]) in ("2", "2.0")


def _without_penalty(run: Run, rows: Ints) -> Edit:
    """The optimizer adds the penalty's gradient: it reads weights and gradients, and writes these, by ops on lists."""
    weights = rows[np.isin(run.aten[rows], ("sum", "linalg_vector_norm")) & (run.phase[rows] != "backward")]
    elements = float(run.elements[weights].sum())
    launches = -(-len(weights) // TENSORS) + elements // CHUNKS
    ns, left = np.zeros(len(rows)), np.zeros(len(rows))
    ns[0] = min(1e9 * 12 * elements / run.bandwidth + 2000.0 * launches, float(run.dur[rows].sum()))
    left[0] = min(launches, float(len(rows)))
    return Edit(
        rule="parameter_loop",
        change=(
            "Leave the sum of squares out of the loss, and give its factor, doubled, as weight_decay to SGD or Adam of "
            "torch.optim, which add its gradient themselves (AdamW decays weights in another way)."
        ),
        why=(
            f"The loss has the squares of {rounded(run.count(len(weights)))} tensors, one after the other: "
            f"{rounded(run.count(len(rows)))} kernels per {run.unit}, forward and backward, {rounded(run.ms_of(rows))} "
            "ms of the GPU and a launch by the host for each"
        ),
        cost="the loss that is printed has no penalty; AdamW, and optimizers of one's own, need another form",
        rows=rows,
        place=run.trace(int(rows[0])),
        ns=ns,
        left=left,
        deviation=0.2,
    )


def _after_backward(run: Run) -> Bools:
    torch_optim = run.mentions("op", ".step") & run.mentions("op", "Adam", "SGD")
    late = (run.phase == "optimizer") | behind(run)
    own = ~run.mentions("mod", "distributed")  # DistributedDataParallel copies each gradient from and to its buckets
    found: Bools = late & np.isin(run.aten, tuple(LISTS)) & (run.role != "aux") & ~torch_optim & own
    return found


def behind(run: Run) -> Bools:
    """A mask of the rows outside of layers after the last backward pass of their step, as averages of the weights.

    Where steps end with the optimizer's, such work begins the next one, so what goes over tensors of several shapes
    before a step's first layer belongs to it, too; and so does what comes after an optimizer where a step has several
    updates, before the next one's layers. Where the capture has no lines, only that tells a loop over parameters from
    metrics of many tasks.
    """
    steps, rows = run.table.ints("step"), np.arange(run.rows)
    backward = run.phase == "backward"
    inside = run.names("layer")
    outside = ~inside & np.isin(run.phase, ("forward", "other", ""))
    found, early = np.zeros((2, run.rows), bool)
    between = outside & _after_optimizer(run, inside | backward)
    for step in np.unique(steps[backward]).tolist():
        mine = steps == step
        found |= mine & outside & (rows > int(np.flatnonzero(mine & backward)[-1]))
        if (mine & inside).any():
            early |= mine & outside & (rows < int(np.flatnonzero(mine & inside)[0]))
        early |= mine & between
    lined = run.names("trace")
    return (found & lined) | _over_tensors(run, early | (found & ~lined))


def _after_optimizer(run: Run, others: Bools) -> Bools:
    """A mask of the rows between an optimizer's and the next of these others of the same step."""
    updates, rows = run.phase == "optimizer", np.arange(run.rows)
    last = np.maximum.accumulate(np.where(updates | others, rows, -1))
    steps = run.table.ints("step")
    found: Bools = (last >= 0) & updates[last] & (steps[last] == steps)
    return found


def _over_tensors(run: Run, chosen: Bools) -> Bools:
    """Of these rows, those whose line has an op on tensors of several shapes, as parameters are and inputs are not."""
    shapes: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    keys = {row: (str(run.aten[row]), run.trace(row)) for row in np.flatnonzero(chosen).tolist()}
    for row, key in keys.items():
        shapes.setdefault(key, set()).add(tuple(run.first_shape(row)))
    found = np.zeros(run.rows, bool)
    found[[row for row, key in keys.items() if len(shapes[key]) >= SHAPES]] = True
    return found


def _place(run: Run, row: int) -> str:
    """The call of the function that has the loop: the lines that lead to it, and the file of the innermost line;
    clipping and other library calls by their line."""
    lines = [str(line) for line in run.listed("trace", row)]
    called = run.listed("op", row)
    name = str(called[0]) if called and "clip" in str(called[0]) else ""
    return " ".join([name, *lines[:-1], *(line.rpartition(":")[0] for line in lines[-1:])])


def _is_loop(run: Run, rows: list[int]) -> bool:
    count = Counter((run.aten[row], run.trace(row)) for row in rows)
    return run.count(max(count.values())) >= MANY


def reads_of(run: Run, rows: Ints) -> Ints:
    """The values that the loop reads from the GPU, one for each tensor or so, for each of which the host waits."""
    places = {_place(run, row) for row in rows.tolist()}
    asked = np.flatnonzero((run.aten == "_local_scalar_dense") & ((run.phase == "optimizer") | behind(run)))
    lines = Counter(run.trace(row) for row in asked.tolist() if _place(run, row) in places)
    # Other lines of the same file read a loss or so once per step.
    looped = {line for line, count in lines.items() if run.count(count) >= MANY}
    return np.array([row for row in asked.tolist() if run.trace(row) in looped], np.int64)


def _edit(scenario: Scenario, rows: Ints) -> Edit:
    run = scenario.run
    reads = reads_of(run, rows)
    ops = Counter(str(run.aten[row]) + run.trace(row) for row in rows.tolist())
    each = run.count(len(rows))
    elements = float(run.elements[rows].sum()) / run.steps / run.lanes
    after = sum(-(-run.count(count) // TENSORS) for count in ops.values()) + elements // CHUNKS
    after = min(after, each)
    share = after / each
    nbytes = float(np.nan_to_num(run.nbytes[rows]).sum())
    moved = 1e9 * nbytes / run.bandwidth if nbytes else np.nan
    now = float(run.dur[rows].sum())
    remaining = min(now, moved + 2000.0 * after * run.steps * run.lanes) if moved == moved else now
    names = ", ".join(dict.fromkeys(str(run.aten[row]).rstrip("_") for row in rows.tolist()))
    clips = "linalg_vector_norm" in run.aten[rows]
    change = "Update all parameters by ops on lists of tensors: torch._foreach_mul_(list, ...) and the like, or an "
    change += "optimizer of torch.optim with fused=True."
    if clips:
        change = "Clip gradients by ops on lists: clip_grad_norm_(..., foreach=True), or torch._foreach_norm."
    return Edit(
        rule="parameter_loop",
        change=change,
        why=(
            f"A loop runs {names} for each parameter: {rounded(each)} kernels per {run.unit}, {rounded(run.ms(now))} "
            f"ms of the GPU and a launch by the host for each; on lists about {rounded(after)} remain"
            + (
                f"; the host waits {rounded(run.count(len(reads)))} times for a value that the loop reads"
                if len(reads)
                else ""
            )
        ),
        cost=COSTS["parameter_loop"],
        rows=np.append(rows, reads),
        place=_place(run, int(rows[0])),
        ns=np.append(run.dur[rows] * (remaining / max(now, 1.0)), np.zeros(len(reads))),
        left=np.append(np.full(len(rows), share), np.zeros(len(reads))),
        deviation=0.2,
        released=released_by(scenario, reads),
    )
