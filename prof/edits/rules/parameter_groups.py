"""Optimizers with many parameter groups, each of which has lists of its own for the optimizer's ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.optimizer import CHUNKS, TENSORS, class_of
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.rules.merged_rows import START_NS, Merged
from pyprof.prof.edits.scenario import Scenario
from pyprof.quantities import rounded

GROUPS = 8  # within one step of an optimizer, at least
FEWER = 0.5  # of the groups may differ in the numbers that their ops get; with more, they are meant to be apart
OPTIMIZERS = "Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD".split()  # with lists, torch.optim
ON_LISTS = ("_foreach_", "_fused_")


class Call(NamedTuple):
    """An op on lists."""

    rows: list[int]
    form: tuple[str, ...]  # what must be equal in calls that could be one: op, types, numbers among its arguments
    tensors: int  # of its first list; 0: not known
    elements: int


Group = list[Call]


@edit_rule("parameter_groups")
def parameter_groups(scenario: Scenario) -> Iterator[Proposal]:
    """An optimizer of torch.optim that runs its ops on lists once for each of many groups, as one run for all groups.

    What the host does for each tensor remains, and so do groups whose ops get other numbers (learning rate, decay).
    """
    run = scenario.run
    why = f"no optimizer runs its ops on lists for {GROUPS} groups or more"
    found: list[list[Group]] = []
    for calls in _by_place(run):
        groups = _groups(calls)
        if len(groups) < GROUPS:
            continue
        if not all(call.tensors for call in calls):
            why = "the capture does not have the lists of the optimizer's groups"
        elif len({_form(group) for group in groups}) > FEWER * len(groups):
            why = "the optimizer's groups differ in the numbers that their ops get, such as learning rates"
        else:
            found.append(groups)
    if found:
        yield _edit(run, found)
    else:
        yield Abstained("parameter_groups", why)


def _by_place(run: Run) -> Iterator[list[Call]]:
    """The ops on lists of each optimizer's step, in order; optimizers are told apart by class and line."""
    calls: dict[tuple[object, ...], dict[int, list[int]]] = {}
    steps, number = run.table.ints("step"), run.table.ints("opId")
    rows = np.flatnonzero((run.role == "main") & run.mentions("op", '.step"'))
    for row in rows.tolist():
        name = class_of(run, row)
        if name in OPTIMIZERS and str(run.aten[row]).startswith(ON_LISTS):
            key = (int(run.lane[row]), int(steps[row]), name, run.trace(row))
            calls.setdefault(key, {}).setdefault(int(number[row]), []).append(row)
    for each in calls.values():
        yield [_call(run, rows) for rows in each.values()]


def _call(run: Run, rows: list[int]) -> Call:
    lists = [each for each in run.listed("sizes", rows[0]) if each and isinstance(each, list)]
    first = lists[0] if lists and all(isinstance(shape, list) for shape in lists[0]) else []
    dtypes = run.listed("dtypes", rows[0])
    types = sorted({str(one) for each in dtypes for one in (each if isinstance(each, list) else [each])})
    numbers = (_numbers(str(each)) for each in run.listed("args", rows[0]))
    return Call(rows, (str(run.aten[rows[0]]), *types, *numbers), len(first), sum(map(numel, first)))


def _numbers(text: str) -> str:
    """A number, or one for each tensor of the list, which is as long as the list is."""
    return ",".join(sorted({each.strip() for each in text.strip("[]").split(",")}))


def _groups(calls: list[Call]) -> list[Group]:
    """The calls of each group, from one call of the op that is called least often to the next one.

    What follows the last of these calls stands in front, because the groups are equal all around.
    """
    count = Counter(call.form[0] for call in calls)
    ends = [place for place, call in enumerate(calls, 1) if count[call.form[0]] == min(count.values())]
    last = calls[ends[-1] - 1].form[0]
    found: list[Group] = [[]]
    for call in [*calls[ends[-1] :], *calls[: ends[-1]]]:
        found[-1].append(call)
        if call.form[0] == last:
            found.append([])
    return found[:-1]


def _form(group: Group) -> tuple[tuple[str, ...], ...]:
    return tuple(call.form for call in group)


def _edit(run: Run, found: list[list[Group]]) -> Edit:
    merged = Merged([], [], [])
    added: dict[int, float] = {}
    before = after = 0
    for groups in found:
        alike: dict[tuple[tuple[str, ...], ...], list[Group]] = {}
        for group in groups:
            alike.setdefault(_form(group), []).append(group)
        before, after = before + len(groups), after + len(alike)
        for same in alike.values():
            for calls in zip(*same, strict=True):
                _merge(run, sorted(calls), merged)
            # The host looks up each tensor's state, and counts its steps, which takes it as long as a small op.
            first = min(call.rows[0] for group in same for call in group)
            added[first] = float(sum(group[0].tensors for group in same) - same[0][0].tensors)
    rows, ns, left = merged.arrays()
    by = "if none has options of its own, which this capture does not tell"
    if any(run.listed("args", row) for row in rows.tolist()):
        by = "by the numbers that the ops get"
    return Edit(
        rule="parameter_groups",
        change="Give the optimizer its parameters in one group for each set of options, not in a group for each tensor "
        "or layer.",
        why=(
            f"The optimizer runs its ops on lists for {rounded(run.count(before))} groups one after the other, "
            f"{rounded(run.count(len(rows)))} launches per {run.unit}; {by}, {rounded(run.count(after))} would do, "
            f"with {rounded(run.count(int((left > 0).sum())))} launches. What the host does for each tensor remains"
        ),
        cost=COSTS["parameter_groups"],
        rows=rows,
        ns=ns,
        left=left,
        added=np.array([added.get(row, 0.0) for row in rows.tolist()]),
        deviation=0.2,
    )


def _merge(run: Run, calls: list[Call], into: Merged) -> None:
    """The same op of several groups as one call: its launches are those of the first call, then further ones."""
    rows = [*calls[0].rows, *(row for call in calls[1:] for row in call.rows[1:])]
    rows += [call.rows[0] for call in calls[1:]]
    kept = -(-sum(call.tensors for call in calls) // TENSORS) + sum(call.elements for call in calls) // CHUNKS
    kept = min(max(kept, 1), len(rows))
    now, nbytes = float(run.dur[rows].sum()), float(run.nbytes[rows].sum())
    moved = 1e9 * nbytes / run.bandwidth + START_NS * kept if nbytes > 0 and run.bandwidth > 0 else now
    into.put(rows, min(now, moved), kept)
