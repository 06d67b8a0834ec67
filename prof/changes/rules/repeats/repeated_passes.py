"""Passes: what a step launches again and again, one time after the other, as the iterations of a loop; and whether a
pass may read what the one before it has made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import INTEGERS
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.rules.kernels.results_of_ops import COMPUTES, READS, results
from pyprof.prof.changes.rules.repeats.recurrent_cells import SAMPLED
from pyprof.table.columns import Ints, numbered

NEXT = 8  # calls of one line in a pass, at most: a product for each gate of a cell, and each of its two operands
PERIODS = 64  # lengths of passes that are tried
NOT_FORWARD = ("backward", "optimizer", "data")
WHOLE_RUN = 0.9  # of the rows of a run without marked steps: what repeats is then the step
NUMBERS = re.compile(r"\d+")
PARTS = 4  # tensors that one result is split into at most, as queries, keys and values are parts of one product's
WEIGHTED = ("aten::linear", "aten::addmm", "aten::conv", "aten::_convolution")  # whose second matrix is a weight
FOLLOWING = 8  # kernels after the last pass, copies aside, among which both results are joined


def repeated_passes(
    run: Run, fewest: int, by: tuple[str, ...] = ("trace", "layer"), left_out: str = ""
) -> Iterator[Ints]:
    """Rows of forward ops that are equal in op, sizes, and these columns, pass by pass: (passes, rows of each).

    ``by``: "siblings" stands for layers whose names differ in numbers alone. Passes have a product, and nothing of
    another phase lies between them. Shorter passes come first, and rows may be in several results. Where in its round a
    pass begins is chance. Helper kernels are left out, and kernels of the family ``left_out``: a cast, which is a copy,
    may stand in the first pass alone.
    """
    apart = np.cumsum(np.isin(run.phase, NOT_FORWARD))
    rows = np.flatnonzero(~np.isin(run.phase, NOT_FORWARD) & (run.role != "aux") & (run.family != left_out))
    columns = [_codes(run, key)[rows] for key in ("aten", "sizes", *by)]
    _, word = numbered(run.table.ints("step")[rows], run.lane[rows], apart[rows], *columns)
    computes = np.isin(run.family, COMPUTES)
    products = np.flatnonzero(computes[rows])
    shorter = np.zeros(len(rows), np.int64)
    for period in _periods(word[products], products, fewest):
        equal = np.concatenate([[0], (word[:-period] == word[period:]).astype(np.int64), [0]])
        changes = np.diff(equal)
        for begin, end in zip(
            np.flatnonzero(changes == 1).tolist(), np.flatnonzero(changes == -1).tolist(), strict=True
        ):
            times = (end - begin) // period + 1
            if times < fewest or (not run.marked and times * period >= WHOLE_RUN * len(rows)):
                continue
            inner = shorter[begin]
            if inner and period % inner == 0 and (shorter[begin : begin + period] == inner).all():
                continue
            found = rows[begin : begin + times * period].reshape(times, period)
            if computes[found[0]].any():
                shorter[begin : begin + times * period] = period
                yield found


def _codes(run: Run, key: str) -> Ints:
    """A number per row, equal where the column's texts are."""
    if key != "siblings":
        return run.table.coded(key).codes.astype(np.int64)
    layer = run.table.coded("layer")
    known: dict[str, int] = {}
    return np.array([*(known.setdefault(NUMBERS.sub("#", text), len(known)) for text in layer.values), -1])[layer.codes]


def _periods(word: Ints, place: Ints, fewest: int) -> list[int]:
    """The distances at which equal products follow each other often, in rising order."""
    order = np.argsort(word, kind="stable")
    far: Counter[int] = Counter()
    for later in range(1, NEXT + 1):
        same = word[order[later:]] == word[order[:-later]]
        far.update((place[order[later:]] - place[order[:-later]])[same].tolist())
    often = [(count, period) for period, count in far.items() if count >= fewest - 1]
    return sorted(period for _, period in sorted(often, reverse=True)[:PERIODS])


def independent(run: Run, passes: Ints) -> str:
    """What shows that no pass reads what the one before it has made; empty if one may.

    What a pass reads and has not made itself comes from outside: a parameter, an input, or the pass before. It cannot
    come from that where the pass makes nothing of this size. Two passes through the same layers, of which one operand
    alone has the size of their result, do not depend on each other either if the next kernel reads both results, as
    guidance takes the difference of a prediction with a condition and one without. And passes whose one input is the
    same, as that of experts, show it in the backward pass.
    """
    rows = passes[0].tolist()
    if np.isin(run.aten[rows], SAMPLED).any() and np.isin(run.family[rows], READS).any():
        return ""  # what is chosen may be what the next pass looks up
    made = {row: results(run, row) for row in rows}
    if not all(made.values()):
        return ""  # a result's size is not known
    sizes = {size for row in rows for size in made[row]} | _stored(run, passes)
    outside = _from_outside(run, rows, made)
    if sizes.isdisjoint(outside):
        return "nothing that a pass makes has the size of an operand that the next one reads"
    carried = [size for size in outside if size in sizes]
    if len(carried) == 1 and _is_shared(run, passes, carried[0], made):
        return "the gradients that go back through them are added up, so they read one tensor"
    once = sum(size in made[rows[-1]] for size in outside) == 1
    if once and len(passes) == 2 and same_layers(run, passes) and _joined(run, passes):
        return "the kernel after them reads the results of both"
    return ""


def _is_shared(run: Run, passes: Ints, size: int, made: dict[int, tuple[int, ...]]) -> bool:
    """Whether the one operand from outside, of this size, is the same for all passes: autograd adds up its gradients
    after each pass but the first. In a chain, of which nothing of this size is read twice, it has nothing to add.

    The sum after the last pass that goes back may be another one's, as of a connection around the chain.
    """
    rows = passes[0].tolist()
    reads, makes = sum(_read(run, row).count(size) for row in rows), sum(size in made[row] for row in rows)
    if len(passes) < 3 or reads != makes:
        return False
    each = [rows for rows in backward_of(run, passes) if len(rows)]
    if len(each) < len(passes):
        return False
    between = np.arange(min(rows[0] for rows in each), max(rows[-1] for rows in each))
    sums = np.isin(run.aten[between], ("add", "add_")) & (run.largest[between] == size)
    sums &= (run.phase[between] == "backward") & (run.lane[between] == run.lane[passes[0, 0]])
    alone = ~run.mentions("nodes", "Backward", "AccumulateGrad")[between]
    return int((sums & alone).sum()) >= len(passes) - 2


def backward_of(run: Run, passes: Ints) -> list[Ints]:
    """The rows of the backward pass that have the numbers of each pass's ops.

    An op that calls others has the number of the first; so a pass has the numbers up to those of the next one.
    """
    numbers, steps = run.table.ragged("seqId"), run.table.ints("step")
    mine = [numbers.take(np.arange(rows[0], rows[-1] + 1)).values for rows in passes]
    if not all(map(len, mine)):
        return []
    owner = np.repeat(np.arange(run.rows), np.diff(numbers.offsets))
    first = passes[0, 0]
    backward = (run.phase == "backward") & (steps == steps[first]) & (run.lane == run.lane[first])
    owner, values = owner[backward[owner]], numbers.values[backward[owner]]
    begins = [int(each.min()) for each in mine]
    ends = [*begins[1:], 2 * begins[-1] - begins[-2]]
    return [np.unique(owner[(values >= a) & (values < b)]) for a, b in zip(begins, ends, strict=True)]


def same_layers(run: Run, passes: Ints) -> bool:
    """Whether all passes run through the same layers: a chain within a model runs through others."""
    layers = run.table.coded("layer").codes[passes]
    return bool((layers == layers[0]).all() and run.names("layer")[passes[0]].all())


def _stored(run: Run, passes: Ints) -> set[int]:
    """The elements of what copies between the first pass's kernels and the next pass write, but for casts: a copy may
    put a result into the tensor that the next pass reads."""
    between = np.arange(passes[0, 0], passes[1, 0])
    copies = between[run.family[between] == "copy"].tolist()
    return {int(run.largest[row]) for row in copies if run.second_dtype(row) in ("", str(run.dtype[row]))}


def _from_outside(run: Run, rows: list[int], made: dict[int, tuple[int, ...]]) -> list[int]:
    """The elements of each operand that these ops have not made before, but for parameters and single numbers."""
    known: set[int] = set()
    found = []
    for row in rows:
        sizes = [size for size in _read(run, row) if size > 1]
        found += [size for size in sizes if not any(whole % size == 0 and whole // size <= PARTS for whole in known)]
        known.update(made[row])
    return found


def _read(run: Run, row: int) -> list[int]:
    """The elements of an op's operands that may be results of arithmetic: no weights, biases, tables and indices."""
    dtypes = run.listed("dtypes", row)
    shapes = [
        shape
        for place, shape in enumerate(run.shapes(row))
        if numel(shape) and not (place < len(dtypes) and dtypes[place] in INTEGERS)
    ]
    if run.family[row] in COMPUTES:
        matrices = [shape for shape in shapes if len(shape) > 1]
        weighted = run.once(is_weighted, row) or run.family[row] == "conv"
        return [numel(shape) for place, shape in enumerate(matrices) if not (weighted and place == 1)]
    if "aten::embedding" in run.texts("nodes")[row] or run.aten[row] == "embedding":
        return []
    first = run.family[row] == "norm" or run.family[row] in READS  # then weights; indices, and what the result goes to
    return [numel(shape) for shape in (shapes[:1] if first else shapes)]


def is_weighted(run: Run, row: int) -> bool:
    nodes = run.texts("nodes")[row]
    return run.aten[row] in ("addmm", "_addmm_activation") or any(name in nodes for name in WEIGHTED)


def _joined(run: Run, passes: Ints) -> bool:
    """Whether the next kernel after two passes, copies aside, reads two tensors of their result's size."""
    last = int(passes[-1, -1])
    for row in range(last + 1, min(last + 1 + FOLLOWING, run.rows)):
        if run.family[row] != "copy" and run.role[row] != "aux":
            operands = [numel(shape) for shape in run.shapes(row)]
            return run.lane[row] == run.lane[last] and any(operands.count(size) > 1 for size in results(run, last))
    return False
