"""Python loops over masks or indices, of which each iteration waits for the number of its elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.host_waits import released_by
from pyprof.prof.changes.rules.kernels.results_of_ops import results
from pyprof.prof.changes.rules.repeats.merged_rows import Merged, alike, merge, place, with_backward
from pyprof.prof.timing.gpus import TO_HOST, named_rows
from pyprof.quantities import rounded
from pyprof.table.columns import Ints

SIZED = ("nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive")  # results as large as data says
ITERATIONS = 4  # of a loop, at least
USUAL = 0.5  # of the iterations have a line that belongs to the loop
WHOLE_RUN = 0.9  # of the rows of a run without marked steps: what repeats is then the step
COMPARES = (
    "eq ne lt gt le ge isin logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not any all".split()
)
GATHERS = ("index", "index_select", "gather", "masked_select", "take", "take_along_dim")
SCATTERS = "index_add_ index_add index_put_ _index_put_impl_ index_copy_ scatter_ scatter_add_ masked_scatter_".split()
LINKS = ("add_", "add", "copy_")  # backward ops on what several iterations have read or written
SAMPLES = ("argmax", "multinomial", "topk", "sort")
# One sort of the labels and what goes with it (counts, offsets, the order's inverse), in place of all masks.
SORT_NS, SORT_LAUNCHES = 40_000.0, 8
CHANGES = {  # by whether iterations multiply, or ask for one label each: label == number
    True: (
        "Replace the loop over masks: sort the elements by their label once (argsort, bincount), gather, multiply "
        "by batched or grouped products (torch.bmm on padded rows, torch.nn.functional.grouped_mm), and scatter "
        "once with index_add_."
    ),
    False: (
        "Replace the loop over masks: take all iterations at once, as one batch. Stack or pad what each takes, and ask "
        "all masks at once for their elements, or multiply by the masks (torch.where); where one label makes all, sort "
        "by it once (argsort, bincount)."
    ),
}

Place = tuple[str, str, str, int]  # an op, as called from a line, and its number among those of an iteration
Sizes = dict[Place, int]


@edit_rule("mask_loop")
def mask_loop(scenario: Scenario) -> Iterator[Proposal]:
    """Iterations of mask, gather, products and scatter, as one sort, one gather, grouped products and one scatter.

    A loop is found by an op whose result's size depends on data, called again and again from one line of a step, and by
    the lines between two such calls. Its backward pass goes along. Left out are loops whose iterations may need what
    the one before has made: masks that change their size, elements taken from a tensor that the iteration before may
    have computed, and sampling, as where words are generated.

    Refuted by: an iteration that may need what the one before has made.
    """
    run = scenario.run
    loops = [loop for anchors in _anchors(run) for loop in _loops(run, anchors)]
    lines: dict[str, list[tuple[list[int], int]]] = {}
    taken: set[int] = set()
    for rows, times in loops:
        if not taken & set(rows):
            taken.update(rows)
            lines.setdefault(place(run, rows[0]), []).append((rows, times))
    if not lines:
        why = f"no line asks {ITERATIONS} times or more within a step for elements whose number the data decide"
        yield Abstained("mask_loop", why)
    for mine in lines.values():
        yield _edit(scenario, mine)


def _anchors(run: Run) -> list[list[int]]:
    """Per op, line and step, the first row of each call of an op whose result's size depends on data.

    By the op that the user called, too: y[mask] = x[mask] @ w asks twice in each iteration, for two reasons.
    """
    found: dict[tuple[str, str, int, int], list[int]] = {}
    before = -2
    steps = run.table.ints("step")
    for row in np.flatnonzero(np.isin(run.aten, SIZED) & (run.phase != "backward")).tolist():
        if row != before + 1:
            found.setdefault((run.op(row), place(run, row), int(run.lane[row]), int(steps[row])), []).append(row)
        before = row
    return sorted((rows for rows in found.values() if len(rows) >= ITERATIONS), key=lambda rows: rows[0])


def _loops(run: Run, anchors: list[int]) -> Iterator[tuple[list[int], int]]:
    """(rows of forward and backward, iterations) of each loop that has these anchors.

    Between two iterations of a loop there are only lines that most of the iterations have.
    """
    ahead = run.phase != "backward"
    bodies = [{place(run, row) for row in range(a, b) if ahead[row]} for a, b in pairwise(anchors)]
    counts = Counter(line for body in bodies for line in body)
    usual = {line for line, count in counts.items() if count >= USUAL * len(bodies)}
    first = 0
    for last, body in enumerate([*bodies, {""}]):
        if body <= usual:
            continue
        if last + 1 - first >= ITERATIONS and _apart(run, anchors[first : last + 1]):
            yield with_backward(run, _extent(run, anchors[first], anchors[last], usual), usual), last + 1 - first
        first = last + 1


def _apart(run: Run, anchors: list[int]) -> bool:
    """Whether nothing speaks for an iteration that needs what another one has made."""
    rows = np.arange(anchors[0], anchors[-1])
    if not run.marked and len(rows) >= WHOLE_RUN * run.rows:
        return False
    equal = len({str(run.shapes(row)[:1]) for row in anchors}) == 1
    passes = bool(np.isin(run.phase[rows], ("backward", "optimizer", "data")).any())
    samples = bool(np.isin(run.aten[rows], SAMPLES).any())
    return equal and not passes and not samples and not _handed_on(run, anchors)


def _handed_on(run: Run, anchors: list[int]) -> bool:
    """Whether an op may make, in each iteration, the tensor from which the next one takes elements.

    If it does, its result has as many elements, each time, as there are at one place of the next iteration that takes
    some. A tensor that an iteration makes and takes elements from itself is not handed on by that.
    """
    bodies = [np.arange(a, b) for a, b in pairwise(anchors)]
    # A mask is copied where it is asked for its elements, if its values do not lie side by side.
    rows = np.arange(anchors[0], anchors[-1])
    asking = {(run.op(row), place(run, row)) for row in rows[np.isin(run.aten[rows], SIZED)].tolist()}
    made = _by_place([_made_in(run, body, asking) for body in bodies[:-1]])
    gathers = [body[np.isin(run.aten[body], GATHERS)] for body in bodies[1:]]
    taken = _by_place([_numbered(run, rows, lambda run, row: int(run.elements[row])) for rows in gathers])
    return any(_meet(mine, following) for mine in made for following in taken)


def _by_place(sizes: list[Sizes]) -> list[list[int | None]]:
    """Per op, its size in each iteration; None where an iteration lacks the op."""
    return [[each.get(place) for each in sizes] for place in dict.fromkeys(place for each in sizes for place in each)]


def _meet(made: list[int | None], taken: list[int | None]) -> bool:
    """Whether all iterations that have both ops have as many elements at the one as the next at the other."""
    pairs = [(mine, following) for mine, following in zip(made, taken, strict=True) if None not in (mine, following)]
    return any(mine for mine, _ in pairs) and all(mine == following for mine, following in pairs)


def _made_in(run: Run, body: Ints, asking: set[tuple[str, str]]) -> Sizes:
    """The elements of what an iteration computes, but for masks, what it takes, sums, and where it scatters."""
    left_out = np.isin(run.aten[body], (*COMPARES, *GATHERS, *SCATTERS, *SIZED)) | (run.role[body] == "aux")
    rows = body[~left_out & ~np.isin(run.family[body], ("fill", "reduction"))].tolist()
    known = [row for row in rows if (run.op(row), place(run, row)) not in asking and not _is_cast_to_sum(run, row)]
    return _numbered(run, np.array(known, np.int64), lambda run, row: [*results(run, row), int(run.largest[row])][0])


def _is_cast_to_sum(run: Run, row: int) -> bool:
    """Whether an op casts what it then sums, as mask.sum() does: only the sum comes out."""
    after = row + 1
    inside = run.family[row] == "copy" and after < run.rows and run.family[after] == "reduction"
    return bool(inside) and (run.op(row), place(run, row)) == (run.op(after), place(run, after))


def _numbered(run: Run, rows: Ints, size: Callable[[Run, int], int]) -> Sizes:
    """A size of each row, by its op, its place, and its number among those of that place."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found: Sizes = {}
    for row in rows.tolist():
        key = str(run.aten[row]), run.op(row), place(run, row)
        found[(*key, seen[key])] = size(run, row)
        seen[key] += 1
    return found


def _extent(run: Run, first: int, last: int, usual: set[str]) -> range:
    """From the mask before the first anchor to the end of the last iteration, as long as the lines are the loop's."""
    while first > 0 and _belongs(run, first - 1, last, usual):
        first -= 1
    while last + 1 < run.rows and _belongs(run, last + 1, last, usual):
        last += 1
    return range(first, last + 1)


def _belongs(run: Run, row: int, other: int, usual: set[str]) -> bool:
    steps = run.table.ints("step")
    same = run.lane[row] == run.lane[other] and steps[row] == steps[other] and run.phase[row] == run.phase[other]
    return bool(same) and place(run, row) in usual


def _links(run: Run, rows: list[int], times: int) -> set[int]:
    """The rows that join the gradients of one iteration with those of the next.

    Of a tensor that all iterations read, they are added up, and of one that all write, copied: once less than there are
    iterations, and never for a tensor that is read or written once.
    """
    found: set[int] = set()
    whole = [row for row in rows if run.phase[row] == "backward" and run.aten[row] in LINKS]
    for group in alike(run, whole, lambda run, row: f"{place(run, row)} {run.shapes(row)}"):
        found |= set(group) if len(group) == times - 1 else set()
    return found


def _edit(scenario: Scenario, loops: list[tuple[list[int], int]]) -> Edit:
    run = scenario.run
    merged = Merged([], [], [])
    sorts: list[int] = []
    for rows, times in loops:
        asks = [row for row in rows if run.aten[row] in (*SIZED, "_local_scalar_dense")]
        merged.put(asks[:1], min(SORT_NS, float(run.dur[asks].sum())), 1)
        merged.put(asks[1:], 0.0, 0)
        sorts += asks[:1]
        others = [row for row in rows if run.aten[row] not in (*SIZED, "_local_scalar_dense")]
        links = _links(run, others, times)
        merged.put(sorted(links), 0.0, 0)
        merge(run, [row for row in others if row not in links], times, merged)
    rows_, ns, left = merged.arrays()
    before = run.ms_of([row for rows, _ in loops for row in rows])
    reads = rows_[(run.texts("kind") == "memcpy")[rows_] & named_rows(run.table, *TO_HOST)[rows_]]
    times = sum(times for _, times in loops)
    each = sum(len(rows) for rows, _ in loops) / times  # kernels of an iteration, with its backward pass
    added = np.where(np.isin(rows_, sorts), float(SORT_LAUNCHES), 0.0)
    return Edit(
        rule="mask_loop",
        change=CHANGES[bool(((run.family[rows_] == "gemm") | (run.aten[rows_] == "eq")).any())],
        why=(
            f"{run.number(len(loops), 'loop', 'loops')} of {rounded(times / len(loops))} iterations: each waits for "
            f"the number of its elements, and launches {rounded(each)} kernels, {rounded(before)} ms in "
            f"all; at once, {rounded(run.ms(float(ns.sum())))} ms are expected. No iteration may need what another one "
            "has written"
        ),
        cost=COSTS["mask_loop"],
        rows=rows_,
        place=place(run, loops[0][0][0]),
        ns=ns,
        left=left,
        added=added,
        deviation=0.4,
        released=released_by(scenario, reads),
    )
