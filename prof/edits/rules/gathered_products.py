"""Products over rows that were gathered from a table of fewer rows: the product first, and its results gathered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
    itemsize_of,
    source_of,
    touches,
)
from pyprof.prof.edits.rules.merged_rows import START_NS
from pyprof.prof.edits.scenario import Scenario
from pyprof.quantities import rounded

WORTH, LEAST_NS = 1.1, 50_000.0  # a place is named if it takes longer than what is expected by this factor and time
SCATTERS = (
    "_index_put_impl_", "index_add_", "index_add", "scatter_add_", "scatter_add", "embedding_dense_backward",
)  # fmt: skip


LATER = 2000  # rows after a product of the backward pass in which another op may read the gradient that it computed
Sizes = tuple[int, int, int]  # of a product: m, k, n


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


@dataclass(frozen=True)
class Products:
    """The products of a run and its backward pass."""

    run: Run
    has_casts: bool = False  # durations include casts that an edit added, of which products of fewer rows need fewer

    def of(self, row: int) -> Gemm:
        found = product_of(self.run, row)
        assert found is not None  # only rows that are products are asked for
        return found

    def behind(self, row: int) -> list[int]:
        """The backward rows of a forward row's autograd node."""
        return self._backward.get((int(self.run.lane[row]), int(self.run.node_number[row])), [])

    @cached_property
    def _backward(self) -> dict[tuple[int, int], list[int]]:
        run = self.run
        found: dict[tuple[int, int], list[int]] = {}
        for row in np.flatnonzero((run.phase == "backward") & (run.role != "aux") & (run.node_number >= 0)).tolist():
            found.setdefault((int(run.lane[row]), int(run.node_number[row])), []).append(row)
        return found

    def pieces_ns(self, row: int, pieces: Sequence[Sizes]) -> float:
        """What these products take in place of a row's, ns: as long as others of the run with the same sizes.

        Without such products, they come as near to the GPU's limits as the row does.
        """
        whole, took = self.of(row), float(self.run.dur[row])
        share = took / self._expected_ns(row, (whole.m, whole.k, whole.n))
        others = (self._durations.get(self._alike(row, sizes)) for sizes in pieces)
        known = zip(pieces, others, strict=True)
        return sum(share * self._expected_ns(row, sizes) if other is None else other for sizes, other in known)

    def _expected_ns(self, row: int, sizes: Sizes) -> float:
        m, k, n = sizes
        code, itemsize = self.run.limits.unit.codes[row], itemsize_of(self.run, row)
        if code < 0:
            return float(m * k * n)
        return self.run.product_ns(
            2.0 * m * k * n, itemsize * (m * k + k * n + m * n), self.run.limits.unit.values[code]
        )

    def _alike(self, row: int, sizes: Sizes) -> tuple[Sizes, str, str, str]:
        run = self.run
        return sizes, str(run.phase[row]), str(run.dtype[row]), str(run.precision[row])

    @cached_property
    def _durations(self) -> dict[tuple[Sizes, str, str, str], float]:
        """The median duration of the products of each size, direction and precision, ns; none if they include casts."""
        found: dict[tuple[Sizes, str, str, str], list[float]] = {}
        mains = (self.run.family == "gemm") & (self.run.role == "main")
        for row in np.flatnonzero(mains & (not self.has_casts)).tolist():
            made = product_of(self.run, row)
            if made is not None and made.batch == 1:
                found.setdefault(self._alike(row, (made.m, made.k, made.n)), []).append(float(self.run.dur[row]))
        return {key: float(np.median(each)) for key, each in found.items()}


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
    groups = list(_groups(scenario))
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


def _groups(scenario: Scenario) -> Iterator[Group]:
    run = scenario.run
    products = Products(run, any(edit.rule == "amp" for edit in scenario.edits))
    for rows in forward_rows(run):
        found: dict[int, Group] = {}  # by the row that made the input
        for place, row in enumerate(rows):
            source = source_of(run, rows, place) if run.family[row] == "gemm" else None
            if source is not None:
                made = source.join if source.join >= 0 else source.gathered[0].row
                group = found.setdefault(made, Group(source, [], 0))
                group.products.append(row)
                group.width += products.of(row).n
        for group in found.values():
            if not _is_taken_again(products, rows, group):
                yield _changed(products, group)


def _is_taken_again(products: Products, rows: list[int], group: Group) -> bool:
    """Whether another op than the products may take what is joined, which then has to be joined still."""
    source = group.source
    if source.join < 0 or any(products.of(row).n == source.width for row in group.products):
        return False
    after = bisect_right(rows, group.products[-1])
    return any(touches(products.run, row, source.rows * source.width) for row in rows[after : after + AFTER])


def _changed(products: Products, group: Group) -> Group:
    """The group with what becomes of its rows."""
    _change_forward(products, group)
    wanted = [each for each in group.source.operands if _has_gradient(products, group, each)]
    for product in group.products:
        for row in products.behind(product):
            _change_gradient(products, group, product, row, wanted)
    for part in group.source.gathered:
        for row in products.behind(part.row) if part.row >= 0 else ():
            _change_scatter(products.run, group, part, row)
    return group


def _change_forward(products: Products, group: Group) -> None:
    run, source, changes = products.run, group.source, group.changes
    itemsize = itemsize_of(run, group.products[0])
    if source.join >= 0:  # the rest stays joined
        width = sum(each.width for each in source.rest) if len(source.rest) > 1 else 0
        changes[source.join] = Change(
            START_NS + 1e9 * 2 * source.rows * width * itemsize / run.bandwidth if width else 0
        )
    cast = sum(source.rows_of(each) * each.width for each in source.operands) / (source.rows * source.width)
    changes.update({row: Change(float(run.dur[row]) * cast) for row in source.casts})
    for each in source.gathered:
        if each.row >= 0:
            share = group.width * itemsize / (each.width * itemsize_of(run, each.row))
            changes[each.row] = Change(float(run.dur[each.row]) * share)
    for row in group.products:
        width = products.of(row).n
        pieces = [(source.rows_of(each), each.width, width) for each in source.parts]
        added = _adding_ns(run, source, width * itemsize)
        changes[row] = Change(products.pieces_ns(row, pieces) + added, 2.0 * (len(pieces) - 1))


def _adding_ns(run: Run, source: Source, row_bytes: float) -> float:
    """What adding the results takes, ns: each addition writes all rows and reads its operands, but expanded tables."""
    terms = len(source.parts)
    full = sum(each.row >= 0 or not each.table_rows for each in source.parts)
    moved = (2 * terms - 3 + full) * source.rows * row_bytes
    return (terms - 1) * START_NS + 1e9 * moved / run.bandwidth if terms > 1 else 0.0


def _has_gradient(products: Products, group: Group, part: Operand) -> bool:
    """Whether the backward pass needs the gradient of a part of the input: whether an op takes it, by its size."""
    run, elements = products.run, group.source.rows * part.width
    if part.row >= 0:
        return any(run.aten[row] in SCATTERS and touches(run, row, elements) for row in products.behind(part.row))
    if part.table_rows:
        return True
    taken = {row for each in group.source.gathered if each.row >= 0 for row in products.behind(each.row)}
    last = max((row for product in group.products for row in products.behind(product)), default=run.rows)
    later = np.arange(last + 1, min(last + 1 + LATER, run.rows))
    steps, first = run.table.ints("step"), group.products[0]
    later = later[
        (run.lane[later] == run.lane[first]) & (steps[later] == steps[first]) & (run.phase[later] == "backward")
    ]
    return any(row not in taken and touches(run, row, elements) for row in later.tolist())


def _change_gradient(products: Products, group: Group, product: int, row: int, wanted: Sequence[Operand]) -> None:
    """Change a backward row of a product: the gradient of its input, of its weight, or of its bias."""
    run, source, whole, made = products.run, group.source, products.of(product), product_of(products.run, row)
    if made is None:
        if run.aten[row] == "sum" and touches(run, row, whole.m * whole.n):  # the bias goes with a table
            share = min(each.table_rows for each in source.gathered) / source.rows
            group.changes[row] = Change(float(run.dur[row]) * share)
        return
    sizes, pieces = (made.m, made.k, made.n), []
    if sizes == (whole.m, whole.n, whole.k):
        inputs = replace(source, operands=tuple(wanted)).parts
        pieces = [(source.rows_of(each), whole.n, each.width) for each in inputs]
    elif sizes == (whole.n, whole.m, whole.k):
        pieces = [(whole.n, source.rows_of(each), each.width) for each in source.parts]
    elif sizes == (whole.k, whole.m, whole.n):
        pieces = [(each.width, source.rows_of(each), whole.n) for each in source.parts]
    if pieces:
        group.changes[row] = Change(products.pieces_ns(row, pieces), len(pieces) - 1)


def _change_scatter(run: Run, group: Group, part: Operand, row: int) -> None:
    """Change a backward row of a gather: what it adds up has the width of the results, and is no part of another."""
    elements, zeros = group.source.rows * part.width, part.table_rows * part.width
    is_gradient = touches(run, row, elements) > 0
    is_sum = is_gradient and run.aten[row] in SCATTERS
    if is_sum or (run.aten[row] == "fill_" and numel(run.first_shape(row)) == zeros):
        group.changes[row] = Change(float(run.dur[row]) * group.width / part.width)
    elif is_gradient and run.aten[row] in COPIES:
        group.changes[row] = Change(0.0)
