"""Networks of equal structure, called or trained one after the other on one input, as one of stacked weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.optimizer import LISTS
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.module_calls import Calls, calls_in_a_row
from pyprof.prof.edits.recurrent_cells import SAMPLED
from pyprof.prof.edits.rules.host_waits import released_by
from pyprof.prof.edits.rules.merged_rows import Merged, alike, at_once_ns, place, with_backward
from pyprof.prof.edits.scenario import Scenario
from pyprof.prof.edits.sizes_of_results import made_by, may_be_one, taken_from_outside
from pyprof.quantities import rounded
from pyprof.table.columns import Ints, numbered

FEWEST = 3  # networks
SUMS = ("add", "add_")
READ = "_local_scalar_dense"
ACCUMULATES = "torch::autograd::AccumulateGrad"  # this node runs once for a parameter in a backward pass
CHOOSES = ("gemm", "conv", "indexing", "embedding", "rng")  # families: more than a loss
STATES = ("lstm", "gru", "rnn", "batch_norm", "dropout", "bernoulli_")
Shapes = Counter[tuple[int, ...]]


class Ensemble(NamedTuple):
    """Networks called in a row, and the loops in which each is updated by itself."""

    calls: Calls
    backward: list[int]
    gradients: list[list[int]]  # rows that add a gradient to the parameters of one shape
    sums: list[int]  # rows that add up the gradients of the one input
    updates: list[list[Ints]]  # per loop and network the rows of forward, backward, optimizer step and values read
    parameters: Shapes  # of one network


@edit_rule("ensemble")
def ensemble(scenario: Scenario) -> Iterator[Proposal]:
    """Each op once for all networks of an ensemble, on stacked weights: forward, backward and optimizer step.

    That their weights differ is known where they are called in a row before one backward pass, which adds gradients to
    as many parameters of each shape as there are calls: autograd does that once for a parameter, and would first add
    up those of one network that is called again. There, too, it adds up the gradients of their input, which is one. No
    network takes what another makes, by the sizes of both. Then in the same step, as many equal updates in a row, each
    with a backward pass and a step of an optimizer, are taken for those of these networks, if nothing but the reading
    of values lies between. What hands a result without any kernel to the next network's loss is not seen.
    """
    found = list(_ensembles(scenario.run))
    if found:
        yield _edit(scenario, found)
        return
    why = f"no backward pass shows that {FEWEST} equal calls in a row are of as many networks, which take one input"
    yield Abstained("ensemble", why)


def _ensembles(run: Run) -> Iterator[Ensemble]:
    words = _words(run)
    for calls in calls_in_a_row(run):
        if len(calls.rows) < FEWEST or any(map(len, calls.gaps)) or not _apart(run, calls.rows[0]):
            continue
        backward = _pass_after(run, calls)
        shapes = _parameters(run, calls.rows[0])
        gradients = [_added_to(run, backward, shape) for shape in shapes]
        as_many = [len(calls.rows) * count for count in shapes.values()]
        sums = _sums(run, calls, backward)
        if shapes and [len(each) for each in gradients] == as_many and len(sums) == len(calls.rows) - 1:
            mine = _with_helpers(run, calls)
            yield Ensemble(
                calls,
                [row for row in mine if run.phase[row] == "backward" and row not in sums and run.layer(row)],
                gradients,
                sums,
                list(_updates(run, calls, words)),
                shapes,
            )


def _words(run: Run) -> Ints:
    """Equal numbers for rows of equal ops."""
    keys = ("layer", "aten", "op", "sizes", "dtypes", "trace", "phase")
    return numbered(*(run.table.coded(key).codes for key in keys))[1]


def _apart(run: Run, call: Ints) -> bool:
    """Whether a network takes nothing that another of its kind may make, and has no state or noise."""
    if any(word in str(name) for name in run.aten[call] for word in STATES):
        return False
    return not may_be_one(made_by(run, int(call[-1])), taken_from_outside(run, call))


def _pass_after(run: Run, calls: Calls) -> Ints:
    """The rows of the first backward pass after the calls, in their step."""
    steps, last = run.table.ints("step"), calls.last
    later = np.flatnonzero((steps == steps[last]) & (run.lane == run.lane[last]) & (np.arange(run.rows) > last))
    of_it = run.phase[later] == "backward"
    if not of_it.any():
        return later[:0]
    begin = int(of_it.argmax())
    length = int((~of_it[begin:]).argmax()) or len(later) - begin
    return later[begin : begin + length]


def _parameters(run: Run, call: Ints) -> Shapes:
    """How many parameters of each shape a network of linear layers has; none if it has other layers."""
    found: Shapes = Counter()
    for row in call[np.isin(run.family[call], ("gemm", "conv"))].tolist():
        shapes = [shape for shape in run.shapes(row) if shape]
        if run.aten[row] != "addmm" or len(shapes) < 3:
            return Counter()
        found.update([(shapes[2][1], shapes[2][0]), tuple(shapes[0])])
    return found


def _added_to(run: Run, rows: Ints, shape: tuple[int, ...]) -> list[int]:
    """The rows that add a gradient to parameters of a shape."""
    mine = rows[np.isin(run.aten[rows], SUMS)].tolist()
    return [row for row in mine if ACCUMULATES in run.listed("nodes", row) and tuple(run.first_shape(row)) == shape]


def _sums(run: Run, calls: Calls, rows: Ints) -> list[int]:
    """The rows in which autograd adds up the gradients of the networks' common input."""
    first = calls.rows[0][0]
    inputs = next(shape for shape in run.shapes(int(first)) if len(shape) > 1)
    bare = [row for row in rows[np.isin(run.aten[rows], SUMS)].tolist() if not _within_node(run, row)]
    return [row for row in bare if run.first_shape(row) == inputs and run.layer(row) == run.layer(int(first))]


def _within_node(run: Run, row: int) -> bool:
    """Whether a node of autograd runs the op, and not the engine, to add up two gradients."""
    return any("Backward" in str(node) or node == ACCUMULATES for node in run.listed("nodes", row))


def _with_helpers(run: Run, calls: Calls) -> list[int]:
    """The calls and their backward passes."""
    forward = np.arange(calls.rows[0][0], calls.last + 1).tolist()
    return with_backward(run, forward, {place(run, row) for row in forward})


def _updates(run: Run, calls: Calls, words: Ints) -> Iterator[list[Ints]]:
    """Each loop of as many equal updates in a row as there are networks: the rows of each."""
    first, times, steps = calls.rows[0], len(calls.rows), run.table.ints("step")
    keys = numbered(*(run.table.coded(key).codes for key in ("layer", "aten", "op", "sizes", "dtypes")))[1]
    begins = np.flatnonzero((keys == keys[first[0]]) & (run.phase == "forward") & (steps == steps[first[0]]))
    begins = begins[run.lane[begins] == run.lane[first[0]]]
    at = 0
    while at + 1 < len(begins):
        length = int(begins[at + 1] - begins[at])
        count = _equal(words, int(begins[at]), length, times + 1)
        rows = [np.arange(begin, begin + length) for begin in begins[at : at + times].tolist()]
        if count == times and len(rows) == times and _is_update(run, rows[0], first, keys):
            yield rows
        at += max(count, 1)


def _equal(words: Ints, begin: int, length: int, most: int) -> int:
    """How often, up to ``most`` times, the same ops stand in a row."""
    first, count = words[begin : begin + length], 1
    while count < most and np.array_equal(first, words[begin + count * length : begin + (count + 1) * length]):
        count += 1
    return count


def _is_update(run: Run, rows: Ints, call: Ints, keys: Ints) -> bool:
    """Whether these rows are a network's forward pass and its loss, a backward pass, an optimizer's step, and reads."""
    phases, main = run.phase[rows], run.role[rows] != "aux"
    forward, stepping = np.flatnonzero((phases == "forward") & main), np.flatnonzero(phases == "optimizer")
    back = np.flatnonzero(phases == "backward")
    if not len(stepping) or not len(back) or not forward[-1] < back[0] <= back[-1] < stepping[0]:
        return False
    after, loss = rows[stepping[-1] + 1 :], rows[forward[len(call) :]]
    alone = np.array_equal(keys[rows[forward[: len(call)]]], keys[call])
    chooses = np.isin(run.aten[loss], SAMPLED) | np.isin(run.family[loss], CHOOSES)
    return alone and bool((run.aten[after] == READ).all()) and not chooses.any()


def _edit(scenario: Scenario, found: list[Ensemble]) -> Edit:
    run = scenario.run
    merged = Merged([], [], [])
    taken: set[int] = set()
    for each in found:
        for rows in _at_once(run, each):
            if not taken & set(rows):
                _put(run, merged, rows, len(each.calls.rows))
                taken.update(rows)
    rows_, ns, left = merged.arrays()
    times, name = len(found[0].calls.rows), ":".join(found[0].calls.module)
    reads = rows_[(run.aten[rows_] == READ) & (left == 0)]
    return Edit(
        rule="ensemble",
        change=(
            f"Make one network of {rounded(times)} of equal structure, {name}: stack their weights "
            "(torch.func.stack_module_state and vmap, or torch.baddbmm), sum their losses for one backward pass, and "
            "give one optimizer the stacked weights."
        ),
        why=(
            f"{rounded(times)} networks of their own weights take one input, one after the other, and "
            f"{run.number(sum(len(each.updates) for each in found), 'loop updates', 'loops update')} each by itself: "
            f"{rounded(run.count(len(rows_)))} kernels per {run.unit}, {rounded(run.ms_of(rows_))} ms; at once "
            f"{rounded(run.count(round(float(left.sum()))))} remain. By the sizes of what they take and make, none "
            "needs another's result"
        ),
        cost=COSTS["ensemble"],
        rows=rows_,
        ns=ns,
        left=left,
        deviation=0.3,
        released=released_by(scenario, reads),
    )


def _at_once(run: Run, found: Ensemble) -> Iterator[list[int]]:
    """The rows that become one for each ensemble's worth of them."""
    for loop in found.updates:
        yield from (list(rows) for rows in zip(*(rows.tolist() for rows in loop), strict=True))
    calls = np.arange(found.calls.rows[0][0], found.calls.last + 1).tolist()
    yield from alike(run, [*calls, *found.backward], lambda run, row: f"{run.layer(row)} {run.shapes(row)}")
    yield from found.gradients
    yield found.sums
    yield from _loops_over(run, found)


def _loops_over(run: Run, found: Ensemble) -> Iterator[list[int]]:
    """The ops of lines that go over all parameters of the networks one by one, such as averages of weights."""
    steps, first = run.table.ints("step"), found.calls.rows[0][0]
    near = (steps == steps[first]) & (run.lane == run.lane[first]) & np.isin(run.aten, list(LISTS))
    lines: dict[tuple[str, str], dict[tuple[int, ...], list[int]]] = {}
    for row in np.flatnonzero(near & (run.phase != "backward")).tolist():
        if not run.layer(row):
            line = lines.setdefault((run.trace(row), str(run.aten[row])), {})
            line.setdefault(tuple(run.first_shape(row)), []).append(row)
    for line in lines.values():
        times = {len(rows) / (found.parameters[shape] or np.nan) for shape, rows in line.items()}
        if line.keys() == found.parameters.keys() and len(times) == 1 and times.pop() % len(found.calls.rows) == 0:
            yield from line.values()


def _put(run: Run, merged: Merged, rows: list[int], times: int) -> None:
    kept = round(len(rows) / times)
    now = float(run.dur[rows].sum())
    reads = bool(rows) and run.aten[rows[0]] == READ
    if kept and kept * times == len(rows):
        merged.put(rows, now / times if reads else min(now, at_once_ns(run, rows, kept)), kept)
    elif len(rows) == times - 1:  # sums of the gradients of one input: the stacked product's are summed once
        merged.put(rows, now / len(rows), 1)
