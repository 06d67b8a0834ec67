"""Which inputs of products were gathered from tables of fewer rows, by the sizes of the ops before them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.advice import Run
from pyprof.prof.advice.alignment import product_of
from pyprof.prof.advice.run_columns import numel

GATHERS = ("index", "index_select", "gather", "embedding")
COPIES = ("copy_", "_to_copy", "clone")  # casts and copies between an op and the one that takes its result
NEAR = 24  # forward rows before a product or concatenation that may have made its operands
AFTER = 24  # and after it, in which something else may take its operand
FEWER = 2  # a table has at most one row for so many that are gathered from it
OWN = 0.05  # how far a gather's bytes may be from those of the rows that it reads and writes


class Operand(NamedTuple):
    """A part of a product's input, by columns."""

    width: int
    table_rows: int = 0  # of the table that its rows come from; 0: none, or one of too many rows
    row: int = -1  # that gathered it; -1: it is a table, expanded


@dataclass(frozen=True)
class Source:
    """What made the input of a product."""

    rows: int  # of the input
    operands: tuple[Operand, ...]
    join: int = -1  # the row that joined them
    casts: tuple[int, ...] = ()  # rows that cast or copy the input

    @property
    def width(self) -> int:
        return sum(each.width for each in self.operands)

    @property
    def gathered(self) -> list[Operand]:
        return [each for each in self.operands if each.table_rows]

    @property
    def rest(self) -> list[Operand]:
        return [each for each in self.operands if not each.table_rows]

    @property
    def parts(self) -> list[Operand]:
        """What is multiplied by itself: what is gathered, part by part, and all the rest at once."""
        rest = sum(each.width for each in self.rest)
        return [*self.gathered, *([Operand(rest)] if rest else [])]

    def rows_of(self, part: Operand) -> int:
        """The rows of a part's product."""
        return part.table_rows or self.rows


def forward_rows(run: Run) -> Iterator[list[int]]:
    """The forward rows of each GPU's step, without helpers."""
    found: dict[tuple[int, int], list[int]] = {}
    steps = run.table.ints("step")
    for row in range(run.rows):
        if run.phase[row] == "forward" and run.role[row] != "aux":
            found.setdefault((int(run.lane[row]), int(steps[row])), []).append(row)
    yield from found.values()


def inputs(run: Run, row: int) -> list[list[int]]:
    """The shapes of a row's tensors, also of those in lists."""
    return run.once(_inputs, row)


def _inputs(run: Run, row: int) -> list[list[int]]:
    found = []
    for each in run.listed("sizes", row):
        found += [each] if numel(each) else [part for part in each if numel(part)] if isinstance(each, list) else []
    return found


def touches(run: Run, row: int, elements: int) -> int:
    """How many of a row's tensors have so many elements."""
    return sum(numel(shape) == elements for shape in inputs(run, row))


def source_of(run: Run, rows: list[int], place: int) -> Source | None:
    """What made the first operand of the product at this place of the forward rows, if part of it was gathered."""
    product = product_of(run, rows[place])
    if product is None or product.batch != 1:
        return None
    count, width = product.m, product.k
    casts: list[int] = []
    for at in range(place - 1, max(place - NEAR, 0) - 1, -1):
        row = rows[at]
        if run.aten[row] == "cat" and (parts := _joined(run, row, count, width)):
            return _with_gathers(run, rows, at, Source(count, parts, row, tuple(casts)))
        if run.aten[row] in GATHERS and (table := table_rows(run, row, count, width)):
            if not _used_elsewhere(run, rows, at, place, count * width):
                return _if_fewer(Source(count, (Operand(width, table, row),), -1, tuple(casts)))
            return None
        if touches(run, row, count * width):
            if run.aten[row] in COPIES:
                casts.append(row)
            elif run.family[row] != "gemm" or product_of(run, row) is None:
                return None
    return None


def _if_fewer(source: Source) -> Source | None:
    return source if any(FEWER * each.table_rows <= source.rows for each in source.gathered) else None


def _joined(run: Run, row: int, count: int, width: int) -> tuple[Operand, ...]:
    """The parts that a concatenation joins to an input of these sizes, by columns; none if it does not."""
    shapes = (run.listed("sizes", row) or [[]])[0]
    if not shapes or not all(numel(each) and numel(each[:-1]) == count for each in shapes):
        return ()
    if sum(each[-1] for each in shapes) != width:
        return ()
    strides = (run.strides(row) or [[]])[0]
    steps = strides if len(strides) == len(shapes) else [None] * len(shapes)
    return tuple(Operand(shape[-1], _expanded(shape, step)) for shape, step in zip(shapes, steps, strict=True))


def _expanded(shape: list[int], strides: Any) -> int:
    """The rows of a table that is expanded to this shape; 0 if it is not."""
    if not isinstance(strides, list) or len(strides) != len(shape) or strides[-1] == 0:
        return 0
    stored = math.prod(n for n, stride in zip(shape[:-1], strides[:-1], strict=True) if stride)
    return stored if FEWER * stored <= numel(shape[:-1]) else 0


def _with_gathers(run: Run, rows: list[int], at: int, source: Source) -> Source | None:
    """The source with the gathers that made its parts, each of which makes one."""
    found: list[Operand] = []
    taken: set[int] = set()
    for part in source.operands:
        for before in range(max(at - NEAR, 0), at):
            row = rows[before]
            table = 0 if row in taken or part.table_rows else table_rows(run, row, source.rows, part.width)
            if FEWER * table <= source.rows and table and not _changed(run, rows, before, at, source.rows * part.width):
                taken.add(row)
                part = Operand(part.width, table, row)
        found.append(part)
    return Source(source.rows, tuple(found), source.join, source.casts) if any(p.table_rows for p in found) else None


def _changed(run: Run, rows: list[int], first: int, last: int, elements: int) -> bool:
    """Whether an op between these places may have taken what was gathered at the first one, and made it another."""
    between = (row for row in rows[first + 1 : last] if run.aten[row] not in (*GATHERS, *COPIES))
    return any(touches(run, row, elements) for row in between)


def itemsize_of(run: Run, row: int) -> float:
    """Bytes per element of a row's first tensor; NaN if its type is unknown."""
    return ITEM_BYTES.get(run.dtype[row], math.nan)


def table_rows(run: Run, row: int, count: int, width: int) -> int:
    """The rows of the table from which a row gathers ``count`` rows of this width; 0 if it does something else.

    The capture has no sizes of the indices of ``x[indices]``, so that its bytes say how many rows are gathered.
    """
    shapes = run.shapes(row)
    if run.aten[row] not in GATHERS or not shapes or not numel(shapes[0]) or shapes[0][-1] != width:
        return 0
    moved = 2.0 * count * width * itemsize_of(run, row)
    indices = 16.0 * count
    known = (1 - OWN) * moved <= run.nbytes[row] <= (1 + OWN) * moved + indices
    return numel(shapes[0]) // width if known and len(shapes[0]) > 1 else 0


def _used_elsewhere(run: Run, rows: list[int], at: int, place: int, elements: int) -> bool:
    """Whether something else than the product may take what was gathered, by the number of elements.

    If the product takes another tensor of as many, a later op of the same layer takes what was gathered. Tensors of
    that size that were made since explain as many operands.
    """
    made, layer = int(_makes(run, rows[place], elements)), run.layer(rows[at]).split(":")
    for row in rows[place + 1 :]:
        if run.layer(row).split(":")[: len(layer)] != layer:
            break
        taken = touches(run, row, elements)
        if taken > made:
            return True
        made += int(_makes(run, row, elements)) - taken
    return False


def _makes(run: Run, row: int, elements: int) -> bool:
    product = product_of(run, row)
    if product is not None:
        return product.batch * product.m * product.n == elements
    return max(map(numel, inputs(run, row)), default=0) == elements and run.family[row] != "reduction"
