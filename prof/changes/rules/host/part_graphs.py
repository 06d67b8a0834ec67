"""Parts of a step that are launched again and again in the same way, each as a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.edit import Abstained, Proposal, edit_rule
from pyprof.prof.changes.effect.graph_costs import MANY
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.graphs import GRAPHS, RECOMPUTED, as_graph, launches_graphs, recomputes
from pyprof.prof.changes.rules.host.growing_tensors import sizes_of, tensors_grow
from pyprof.prof.changes.rules.host.host_waits import copies
from pyprof.prof.changes.rules.products.reduced_precision import PRODUCTS
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST
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
    groups = list(_groups(scenario))
    if not groups:
        why = f"no {MANY} launches are repeated {TIMES} times within a step, copies apart"
        yield Abstained("part_graph", why, "static_cache" if tensors_grow(scenario) else "")
        return
    for parts in groups:
        begin, end = (run.place(row).innermost or run.op(row) for row in parts[0][[0, -1]].tolist())
        change = (
            f"Launch what repeats within the step, from {begin} to {end}, as a CUDA graph: record it once with "
            "torch.cuda.graph (an optimizer in it with capturable=True), copy the inputs in, and replay it."
        )
        why = (
            f"{run.number(len(parts), 'time', 'times')} per {run.unit} the host launches the same {len(parts[0])} "
            "kernels; as a graph, all at once"
        )
        yield as_graph(scenario, "part_graph", change, why, np.concatenate([part[1:] for part in parts]))


def _groups(scenario: Scenario) -> Iterator[list[Ints]]:
    """The parts that are equal, those of most rows first; where in its round a repetition begins is chance."""
    run, found = scenario.run, dict[tuple[int, ...], list[Ints]]()
    code, graded, back = _codes(run, sizes_of(scenario)), _graded(run), run.phase == "backward"
    for stretch in _stretches(scenario):
        whole = [stretch] if graded[stretch].any() == back[stretch].any() else []
        for part in [*_repeated(stretch, code, graded | back), *whole]:
            if np.isin(run.family[part], PRODUCTS).any():
                found.setdefault(tuple(np.sort(code[part]).tolist()), []).append(part)
    least, taken = TIMES * len(np.unique(run.table.ints("step"))), set[int]()
    for parts in sorted(found.values(), key=lambda parts: -sum(map(len, parts))):
        free = [part for part in parts if taken.isdisjoint(part.tolist())]
        if len(free) >= least:
            taken.update(np.concatenate(free).tolist())
            yield free


def _codes(run: Run, sizes: Coded) -> Ints:
    """Per row, a number of what is launched: op, sizes, line and layer, since other weights are other addresses."""
    return numbered(sizes.codes, *(run.table.coded(key).codes for key in ("aten", "trace", "layer")))[1]


def _graded(run: Run) -> Bools:
    """A mask of the rows of ops that have a gradient, and of those before them that share their number."""
    numbers = run.node_number
    found: Bools = np.isin(numbers, numbers[(run.phase == "backward") & (numbers != NULL)])
    return found


def _stretches(scenario: Scenario) -> Iterator[Ints]:
    """The rows of a step between copies from or to the host, and pauses of the host, where they are many."""
    run, base = scenario.run, scenario.base
    calls = scenario.calls(np.arange(run.rows))
    paused: Bools = (calls >= 0) & base.pauses[calls] & ~scenario.prompt[calls]
    apart: Bools = copies(run, *TO_HOST, *TO_DEVICE) | (calls < 0)
    step = run.table.ints("step")
    stretch = np.cumsum(apart | paused | (np.diff(step, prepend=step[:1]) != 0))
    rows = np.flatnonzero(~apart)
    bounds = np.flatnonzero(np.diff(stretch[rows])) + 1
    yield from (each for each in np.split(rows, bounds) if len(each) >= MANY)


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
