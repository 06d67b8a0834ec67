"""Modules of a list that take the same input one after the other, as the heads of attention do, as one module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.rules.mask_loops import with_backward
from pyprof.prof.edits.rules.merged_rows import Merged, merge, place
from pyprof.prof.edits.scenario import Scenario
from pyprof.quantities import rounded

FEWEST = 3  # modules
JOINS = ("cat", "stack")
NUMBERED = re.compile(r"(.+)\.(\d+)")


class Parallel(NamedTuple):
    """Modules of one list, called one after the other."""

    name: str  # of the list
    rows: list[int]  # of the forward pass
    count: int


@edit_rule("parallel_modules")
def parallel_modules(scenario: Scenario) -> Iterator[Proposal]:
    """The modules of an nn.ModuleList that run equal ops on equal shapes, and whose results are joined at once.

    That each takes the same input, and not the result of the one before, follows from the width of what they make:
    another one than that of what they take. Each op then runs once, on the weights of all.
    """
    run = scenario.run
    found = list(_parallel(run))
    if not found:
        why = f"no {FEWEST} modules of a list make equal results of another width than their input, joined by torch.cat"
        yield Abstained("parallel_modules", why)
        return
    merged = Merged([], [], [])
    every: list[int] = []
    for modules in found:
        within = re.compile(rf"\b{re.escape(modules.name)}\.\d+")
        where = partial(_without_number, within)
        rows = with_backward(run, modules.rows, {place(run, row) for row in modules.rows})
        mine = [row for row in rows if within.search(run.layer(row))]
        merge(run, mine, modules.count, merged, where)
        every += mine
    rows_, ns, left = merged.arrays()
    yield Edit(
        rule="parallel_modules",
        change=(
            "Make one module of those in a list that take the same input: one nn.Linear for the weights of all, and a "
            "dimension for the modules in the products that follow, as attention has for its heads."
        ),
        why=(
            f"{rounded(found[0].count)} modules of {found[0].name} run the same ops one after the other, in "
            f"{run.number(len(found), 'place', 'places')}: {rounded(run.count(len(every)))} kernels per {run.unit}, "
            f"{rounded(run.ms_of(every))} ms; at once {rounded(run.count(float(left.sum())))} remain"
        ),
        cost=COSTS["parallel_modules"],
        rows=rows_,
        ns=ns,
        left=left,
        deviation=0.3,
    )


def _without_number(module: re.Pattern[str], run: Run, row: int) -> str:
    """Where a row's op is called, whichever module of the list calls it."""
    return module.sub("", f"{run.layer(row)} {run.trace(row)}")


def _parallel(run: Run) -> Iterator[Parallel]:
    forward = np.flatnonzero(run.phase == "forward")
    steps = run.table.ints("step")[forward].tolist()
    lanes = run.lane[forward].tolist()
    lists: dict[tuple[int, int, str], list[tuple[int, int]]] = {}  # (place among the forward rows, module)
    for at, (row, lane, step) in enumerate(zip(forward.tolist(), lanes, steps, strict=True)):
        for part in run.layer(row).split(":"):
            if numbered := NUMBERED.fullmatch(part):
                lists.setdefault((lane, step, numbered[1]), []).append((at, int(numbered[2])))
    for (_, _, name), members in lists.items():
        for called in _calls(members):
            modules = [[forward[at] for at, _ in each] for _, each in groupby(called, key=lambda member: member[1])]
            following = called[-1][0] + 1
            joined = following < len(forward) and run.aten[forward[following]] in JOINS
            if joined and len(modules) >= FEWEST and _are_parallel(run, modules):
                yield Parallel(name, [int(row) for module in modules for row in module], len(modules))


def _calls(members: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The members of a list from the first module to the last, without other rows between them."""
    call: list[tuple[int, int]] = []
    for member in members:
        follows = bool(call) and member[0] == call[-1][0] + 1 and member[1] - call[-1][1] in (0, 1)
        if call and not follows:
            yield call
            call = []
        call.append(member)
    if call:
        yield call


def _are_parallel(run: Run, modules: list[list[int]]) -> bool:
    """Whether they run the same ops on the same shapes, and make something of another width than they take."""
    same = {tuple((run.op(row), run.aten[row], str(run.shapes(row))) for row in module) for module in modules}
    products = [row for row in modules[0] if run.family[row] == "gemm" and len(run.shapes(row)) > 1]
    if len(same) != 1 or not products:
        return False
    taken = _flat(run, products[0])[0][-1]
    last = modules[0][-1]
    made = _flat(run, last)[-1][-1] if run.family[last] == "gemm" else run.first_shape(last)[-1]
    return bool(taken != made)


def _flat(run: Run, row: int) -> list[list[int]]:
    """The two operands of a product, without a bias."""
    return [shape for shape in run.shapes(row) if len(shape) > 1][:2]
