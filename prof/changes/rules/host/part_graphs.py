"""Parts of a step that are launched again and again in the same way, each as a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.graph_costs import IN_GRAPH, MANY
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.graphs import GRAPHS, LEFT, RECOMPUTED, launches_graphs, recomputes
from pyprof.prof.changes.rules.host.growing_tensors import sizes_of, tensors_grow
from pyprof.prof.changes.rules.products.reduced_precision import PRODUCTS
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST, named_rows
from pyprof.table.columns import NULL, Bools, Coded, Ints, numbered

TIMES = 4  # of a part within a step, at least
PERIODS = 4  # lengths of parts that are tried


@edit_rule("part_graph")
def part_graph(scenario: Scenario) -> Iterator[Proposal]:
    """The same launches four times or more within a step, with nothing between them that a graph cannot hold.

    A part is what lies between copies and pauses of the host, forward and backward pass together, or, where gradients
    are off, a sequence of launches that repeats itself. It has products: loops over parameters are the same launches
    at other addresses. Each time, one launch remains.

    Refuted by: graphs in the capture or graphs being captured; other ops, sizes or layers where the part comes again.
    """
    run = scenario.run
    if launches_graphs(scenario) or run.collectives.any() or run.lanes > 1:
        yield Abstained("part_graph", f"{GRAPHS}, or has collectives or several GPUs")
        return
    if recomputes(scenario):
        yield Abstained("part_graph", RECOMPUTED, "kept_activations")
        return
    groups = _groups(scenario)
    if not groups:
        why = f"no {MANY} launches are repeated {TIMES} times within a step, copies apart"
        yield Abstained("part_graph", why, "static_cache" if tensors_grow(scenario) else "")
        return
    for parts in groups:
        yield _edit(run, parts)


def _edit(run: Run, parts: list[Ints]) -> Edit:
    first, last = int(parts[0][0]), int(parts[0][-1])
    where = run.place(first).innermost or run.op(first)
    until = run.place(last).innermost or run.op(last)
    rows = np.concatenate([part[1:] for part in parts])
    return Edit(
        rule="part_graph",
        change=(
            f"Launch what repeats within the step, from {where} to {until}, as a CUDA graph: record it once with "
            "torch.cuda.graph (an optimizer in it with capturable=True), copy the inputs in, and replay it."
        ),
        why=(
            f"{run.number(len(parts), 'time', 'times')} per {run.unit} the host launches the same {len(parts[0])} "
            "kernels; as a graph, all at once"
        ),
        cost=COSTS["cuda_graph"],
        rows=rows,
        ns=run.dur[rows] * IN_GRAPH,
        left=np.full(len(rows), LEFT),
        deviation=0.05,
        graph=True,
    )


def _groups(scenario: Scenario) -> list[list[Ints]]:
    """The parts that are equal; where in its round a repetition begins is chance."""
    run = scenario.run
    code = _codes(run, sizes_of(scenario))
    with_gradient = graded(run)
    steps = len(np.unique(run.table.ints("step")))
    found: dict[tuple[int, ...], list[Ints]] = {}
    for stretch in _stretches(scenario):
        if len(stretch) < MANY:
            continue
        parts = list(_repeated(stretch, code, with_gradient | (run.phase == "backward")))
        if bool(with_gradient[stretch].any()) == bool((run.phase[stretch] == "backward").any()):
            parts.append(stretch)
        for part in (part for part in parts if np.isin(run.family[part], PRODUCTS).any()):
            found.setdefault(tuple(np.sort(code[part]).tolist()), []).append(part)
    often = sorted(
        (parts for parts in found.values() if len(parts) >= TIMES * steps), key=lambda parts: -sum(map(len, parts))
    )
    taken: set[int] = set()
    groups = []
    for parts in often:
        free = [part for part in parts if not taken.intersection(part.tolist())]
        if len(free) >= TIMES * steps:
            taken.update(row for part in free for row in part.tolist())
            groups.append(free)
    return groups


def _codes(run: Run, sizes: Coded) -> Ints:
    """Per row, a number of what is launched: op, sizes, line and layer, since other weights are other addresses."""
    aten = run.table.coded("aten").codes
    first, place = numbered(*(run.table.coded(key).codes for key in ("trace", "layer")))
    line = Coded.of(f"{run.trace(row)} {run.layer(row)}" for row in first.tolist()).codes[place]
    return numbered(aten, sizes.codes, line)[1]


def graded(run: Run) -> Bools:
    """A mask of the rows of ops that have a gradient.

    An op that has none shares its number with the next one that has: of ops of one number, the last before the
    backward pass is that one.
    """
    numbers, op = run.node_number, run.table.ints("opId").tolist()
    back = run.phase == "backward"
    forward = np.flatnonzero(~back & (numbers != NULL))
    last = {number: op[row] for number, row in zip(numbers[forward].tolist(), forward.tolist(), strict=True)}
    of_node = [last.get(number) == each for number, each in zip(numbers.tolist(), op, strict=True)]
    found: Bools = np.isin(numbers, numbers[back & (numbers != NULL)]) & np.array(of_node, bool)
    return found


def _stretches(scenario: Scenario) -> Iterator[Ints]:
    """The rows of a step between copies from or to the host, and pauses of the host."""
    run, base = scenario.run, scenario.base
    calls = scenario.calls(np.arange(run.rows))
    paused: Bools = (calls >= 0) & base.pauses[calls] & ~scenario.prompt[calls]
    moves = named_rows(run.table, *TO_HOST) | named_rows(run.table, *TO_DEVICE)
    copies: Bools = ((run.texts("kind") == "memcpy") & moves) | (calls < 0)
    step = run.table.ints("step")
    apart = np.cumsum(copies | paused | (np.diff(step, prepend=step[:1]) != 0))
    rows = np.flatnonzero(~copies)
    bounds = np.flatnonzero(np.diff(apart[rows])) + 1
    yield from np.split(rows, bounds)


def _repeated(stretch: Ints, code: Ints, graded: Bools) -> Iterator[Ints]:
    """The parts of a stretch that follow each other and are equal, in which gradients are off.

    ``graded``: what has gradients, and what computes or uses them, which equals nothing.
    """
    word = np.where(graded[stretch], -1 - np.arange(len(stretch)), code[stretch])
    best = (0, 0, 0)
    for period in _periods(word):
        equal = np.concatenate([[0], (word[:-period] == word[period:]).astype(np.int64), [0]])
        begins, ends = np.flatnonzero(np.diff(equal) == 1), np.flatnonzero(np.diff(equal) == -1)
        if len(begins):
            longest = int((ends - begins).argmax())
            length = int(ends[longest] - begins[longest]) + period
            times = length // period
            if times >= TIMES and times * period > best[1] * best[2]:
                best = (int(begins[longest]), period, times)
    begin, period, times = best
    for time in range(times):
        yield stretch[begin + time * period : begin + (time + 1) * period]


def _periods(word: Ints) -> list[int]:
    """The distances at which launches of one kind follow each other most often, from MANY on."""
    order = np.argsort(word, kind="stable")
    same = word[order[1:]] == word[order[:-1]]
    far = (order[1:] - order[:-1])[same]
    return [period for period, _ in Counter(far[far >= MANY].tolist()).most_common(PERIODS)]
