"""Products over rows that were gathered from a table of fewer rows: the product first, and its results gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.alignment import Gemm, product_of
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.rules.gathered_rows import (
    AFTER,
    COPIES,
    FEWER,
    Operand,
    Source,
    forward_rows,
    source_of,
    touches,
)
from pyprof.prof.edits.rules.merged_rows import START_NS
from pyprof.prof.edits.scenario import Scenario
from pyprof.prof.ops.model import Tensor
from pyprof.quantities import rounded

WORTH, LEAST_NS = 1.1, 50_000.0  # a place is named if it takes longer than what is expected by this factor and time
SCATTERS = (
    "_index_put_impl_", "index_add_", "index_add", "scatter_add_", "scatter_add", "embedding_dense_backward",
)  # fmt: skip


LATER = 2000  # rows of the backward pass after a product's, in which an op may take a gradient that it made
Behind = Callable[[int], list[int]]  # the backward rows of a forward row


class Change(NamedTuple):
    """What a row takes afterwards, ns, and the launches that come besides."""

    ns: float
    added: float = 0.0


@dataclass
class Group:
    """The products of one input, of which rows were gathered, and what becomes of the rows that have to do with it."""

    source: Source
    products: list[int]
    width: int  # of the results of all of them
    changes: dict[int, Change] = field(default_factory=dict)

    def shorter_ns(self, run: Run) -> float:
        return sum(float(run.dur[row]) - change.ns for row, change in self.changes.items())

    def is_worth(self, run: Run) -> bool:
        expected = sum(change.ns for change in self.changes.values())
        return self.shorter_ns(run) > max((WORTH - 1) * expected, LEAST_NS)


@edit_rule("gathered_product")
def gathered_product(scenario: Scenario) -> Iterator[Proposal]:
    """Linear layers over rows that were gathered, alone or joined with others, from tables of at most half as many.

    The products with a table's part of the weight are those of its rows, forward and backward; what is gathered, and
    added up in the backward pass, has the width of the result. The concatenation goes, with the copies of its parts'
    gradients. The results are added.
    """
    run = scenario.run
    if not run.has_sizes or run.device is None:
        yield Abstained("gathered_product", "the sizes of ops, or the GPU, are not known")
        return
    groups = list(_groups(run))
    worth = [group for group in groups if group.is_worth(run)]
    if not worth:
        none = f"no product takes rows that are gathered from a table with 1/{FEWER} of them or fewer"
        yield Abstained("gathered_product", "adding what is gathered takes as long" if groups else none)
        return
    yield _edit(run, worth)


def _edit(run: Run, groups: Sequence[Group]) -> Edit:
    changes = {row: change for group in groups for row, change in group.changes.items()}
    rows = np.array(sorted(changes), np.int64)
    ns = np.array([changes[row].ns for row in rows.tolist()])
    first = max(groups, key=lambda group: group.shorter_ns(run))
    table = min(each.table_rows for each in first.source.gathered)
    return Edit(
        rule="gathered_product",
        change=(
            "Multiply the rows of a table before they are gathered: split the weight of the linear layer by the parts "
            "of its input, take each table's product once per row, gather the results, and add them."
        ),
        why=(
            f"{run.number(len(groups), 'product takes', 'products take')} gathered rows, such as "
            f"{rounded(first.source.rows)} rows of a table of {rounded(table)} ({run.trace(first.products[0])}); with "
            f"what belongs to them they take {rounded(run.ms_of(rows))} ms, and {rounded(run.ms(float(ns.sum())))} "
            "are expected"
        ),
        cost=COSTS["gathered_product"],
        rows=rows,
        ns=ns,
        left=(ns > 0).astype(np.float64),
        added=np.array([changes[row].added for row in rows.tolist()]),
        deviation=0.25,
    )


def _groups(run: Run) -> Iterator[Group]:
    backward = _backward(run)
    for rows in forward_rows(run):
        found: dict[int, tuple[Source, list[int]]] = {}  # by the row that made the input
        places = {row: place for place, row in enumerate(rows)}
        for place, row in enumerate(rows):
            source = source_of(run, rows, place) if run.family[row] == "gemm" else None
            if source is not None:
                made = source.join if source.join >= 0 else source.gathered[0].row
                known = found.setdefault(made, (source, []))
                known[1].append(row)
        for source, products in found.values():
            last = places[products[-1]]
            if not _taken_again(run, rows[last + 1 : last + 1 + AFTER], source, products):
                yield _with_changes(run, source, products, backward)


def _taken_again(run: Run, following: Sequence[int], source: Source, products: Sequence[int]) -> bool:
    """Whether another op than the products may take what is joined, which then has to be joined still."""
    made = any(_gemm(run, row).n == source.width for row in products)
    return source.join >= 0 and not made and any(touches(run, row, source.rows * source.width) for row in following)


def _gemm(run: Run, row: int) -> Gemm:
    found = product_of(run, row)
    assert found is not None  # only rows that are products are asked for
    return found


def _backward(run: Run) -> dict[tuple[int, int], list[int]]:
    """The backward rows of each autograd node, without helpers: by GPU and the node's number."""
    found: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero((run.phase == "backward") & (run.role != "aux") & (run.node_number >= 0)).tolist():
        found.setdefault((int(run.lane[row]), int(run.node_number[row])), []).append(row)
    return found


def _with_changes(run: Run, source: Source, products: list[int], backward: dict[tuple[int, int], list[int]]) -> Group:
    group = Group(source, products, sum(_gemm(run, row).n for row in products))

    def behind(row: int) -> list[int]:
        return backward.get((int(run.lane[row]), int(run.node_number[row])), [])

    _forward(run, group)
    wanted = [each for each in source.operands if _has_gradient(run, group, each, behind)]
    for row in products:
        for other in behind(row):
            _change_gradient(run, group, row, other, wanted)
    for part in source.gathered:
        for other in behind(part.row) if part.row >= 0 else ():
            _change_scatter(run, group, part, other)
    return group


def _forward(run: Run, group: Group) -> None:
    source, changes = group.source, group.changes
    itemsize = _itemsize(run, group.products[0])
    if source.join >= 0:
        width = sum(each.width for each in source.rest)
        moved = 2.0 * source.rows * width * itemsize if len(source.rest) > 1 else 0.0
        changes[source.join] = Change(_moving_ns(run, moved))
    for row in source.casts:
        share = sum(_rows(each, source) * each.width for each in source.operands) / (source.rows * source.width)
        changes[row] = Change(float(run.dur[row]) * share)
    for each in source.gathered:
        if each.row >= 0:
            wider = group.width * itemsize / (each.width * _itemsize(run, each.row))
            changes[each.row] = Change(float(run.dur[each.row]) * wider)
    terms = len(_parts(source))
    for row in group.products:
        pieces = [(_rows(each, source), each.width, _gemm(run, row).n) for each in _parts(source)]
        added = _adding_ns(run, source, _gemm(run, row).n * itemsize)
        changes[row] = Change(_pieces_ns(run, row, pieces) + added, 2.0 * (terms - 1))


def _parts(source: Source) -> list[Operand]:
    """What is multiplied by itself: what is gathered, part by part, and all the rest at once."""
    rest = sum(each.width for each in source.rest)
    return [*source.gathered, *([Operand(rest)] if rest else [])]


def _rows(part: Operand, source: Source) -> int:
    return part.table_rows or source.rows


def _itemsize(run: Run, row: int) -> float:
    return Tensor((), run.dtype[row]).itemsize


def _moving_ns(run: Run, nbytes: float) -> float:
    return START_NS + 1e9 * nbytes / run.bandwidth if nbytes else 0.0


def _adding_ns(run: Run, source: Source, row_bytes: float) -> float:
    """What adding the results takes, ns: each addition writes all rows and reads its operands, but expanded tables."""
    terms = _parts(source)
    full = sum(each.row >= 0 or not each.table_rows for each in terms)
    moved = (2 * len(terms) - 3 + full) * source.rows * row_bytes
    return (len(terms) - 1) * START_NS + 1e9 * moved / run.bandwidth if len(terms) > 1 else 0.0


def _pieces_ns(run: Run, row: int, pieces: Sequence[tuple[int, int, int]]) -> float:
    """What these products take, ns, of (m, k, n) each, if they come as near to the GPU's limits as the row does."""
    whole, took = _gemm(run, row), float(run.dur[row])
    code = run.limits.unit.codes[row]
    if code < 0:
        return took * sum(m * k * n for m, k, n in pieces) / (whole.m * whole.k * whole.n)
    expected = partial(_expected_ns, run, run.limits.unit.values[code], _itemsize(run, row))
    return took * sum(expected(*piece) for piece in pieces) / expected(whole.m, whole.k, whole.n)


def _expected_ns(run: Run, unit: str, itemsize: float, m: int, k: int, n: int) -> float:
    return run.product_ns(2.0 * m * k * n, itemsize * (m * k + k * n + m * n), unit)


def _has_gradient(run: Run, group: Group, part: Operand, behind: Behind) -> bool:
    """Whether the backward pass needs the gradient of a part of the input: whether an op takes it, by its size."""
    elements = group.source.rows * part.width
    if part.row >= 0:
        return any(run.aten[row] in SCATTERS and touches(run, row, elements) for row in behind(part.row))
    if part.table_rows:
        return True
    taken = {row for each in group.source.gathered if each.row >= 0 for row in behind(each.row)}
    last = max((row for product in group.products for row in behind(product)), default=run.rows)
    steps, lane = run.table.ints("step"), run.lane[group.products[0]]
    for row in range(last + 1, min(last + 1 + LATER, run.rows)):
        if run.lane[row] != lane or steps[row] != steps[group.products[0]] or run.phase[row] == "optimizer":
            break
        if row not in taken and run.phase[row] == "backward" and touches(run, row, elements):
            return True
    return False


def _change_gradient(run: Run, group: Group, product: int, row: int, wanted: Sequence[Operand]) -> None:
    """Change a backward row of a product: the gradient of its input, of its weight, or of its bias."""
    source, whole, made = group.source, _gemm(run, product), product_of(run, row)
    pieces: list[tuple[int, int, int]] = []
    if made is None:
        if run.aten[row] == "sum" and touches(run, row, whole.m * whole.n):  # the bias goes with a table
            share = min(each.table_rows for each in source.gathered) / source.rows
            group.changes[row] = Change(float(run.dur[row]) * share)
        return
    sizes = (made.m, made.k, made.n)
    if sizes == (whole.m, whole.n, whole.k):
        rest = sum(each.width for each in wanted if not each.table_rows)
        pieces = [(each.table_rows, whole.n, each.width) for each in wanted if each.table_rows]
        pieces += [(source.rows, whole.n, rest)] if rest else []
    elif sizes == (whole.n, whole.m, whole.k):
        pieces = [(whole.n, _rows(each, source), each.width) for each in _parts(source)]
    elif sizes == (whole.k, whole.m, whole.n):
        pieces = [(each.width, _rows(each, source), whole.n) for each in _parts(source)]
    if pieces:
        group.changes[row] = Change(_pieces_ns(run, row, pieces), len(pieces) - 1)


def _change_scatter(run: Run, group: Group, part: Operand, row: int) -> None:
    """Change a backward row of a gather: what it adds up has the width of the results, and is no part of another."""
    elements, zeros = group.source.rows * part.width, part.table_rows * part.width
    is_gradient = touches(run, row, elements) > 0
    is_sum = is_gradient and run.aten[row] in SCATTERS
    if is_sum or (run.aten[row] == "fill_" and numel(run.first_shape(row)) == zeros):
        group.changes[row] = Change(float(run.dur[row]) * group.width / part.width)
    elif is_gradient and run.aten[row] in COPIES:
        group.changes[row] = Change(0.0)
