"""What an op's result may be, as far as its operands tell: elements and type; and whether another op may take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.recurrent_cells import made
from pyprof.table.columns import Ints

AS_LARGE = ("pointwise", "norm", "softmax", "copy")  # families whose result is as large as the largest operand
WRITTEN = ("fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_")  # ops that read no tensor
UNKNOWN = -1


class Sized(NamedTuple):
    """A tensor as a capture shows it."""

    size: int  # elements; UNKNOWN: of any size
    dtype: str  # empty: unknown


def may_be_one(some: Iterable[Sized], others: Iterable[Sized]) -> bool:
    """Whether a tensor of the one may be one of the others."""
    known: dict[int, set[str]] = {}
    for each in others:
        known.setdefault(each.size, set()).add(each.dtype)
    for each in some:
        dtypes = known.get(each.size, set())
        if each.size == UNKNOWN or each.dtype in dtypes or (dtypes and not each.dtype) or "" in dtypes:
            return True
    return False


def taken_by(run: Run, row: int) -> list[Sized]:
    """The tensors that an op reads."""
    if run.aten[row] in WRITTEN:
        return []
    found = list(_operands(run, row))
    return found[1:] if run.aten[row] == "copy_" else found  # a copy writes its first argument


def _operands(run: Run, row: int) -> Iterator[Sized]:
    dtypes = run.listed("dtypes", row)
    for at, shape in enumerate(run.listed("sizes", row)):
        dtype = dtypes[at] if at < len(dtypes) else ""
        parts = shape if isinstance(shape, list) and shape and isinstance(shape[0], list) else [shape]
        names = dtype if isinstance(dtype, list) else [dtype] * len(parts)
        for part, name in zip(parts, names, strict=False):
            if size := numel(part):
                yield Sized(size, name if isinstance(name, str) else "")


def made_by(run: Run, row: int) -> set[Sized]:
    """The result, in each type that an operand has; UNKNOWN if the operands do not tell its size."""
    operands = list(_operands(run, row))
    if run.aten[row] == "copy_" or run.aten[row] in WRITTEN:
        return set(operands[:1])
    dtypes = {each.dtype for each in operands} or {""}
    sizes: tuple[int, ...] = (UNKNOWN,)
    if run.family[row] == "gemm":
        sizes = made(run, row)
    elif run.aten[row] in ("cat", "stack") and operands:
        sizes = (sum(each.size for each in operands),)
    elif run.family[row] in AS_LARGE and operands:
        sizes = (max(each.size for each in operands),)
    return {Sized(size or UNKNOWN, dtype) for size in sizes for dtype in dtypes}


def taken_from_outside(run: Run, rows: Ints) -> set[Sized]:
    """What ops read that none of those before them made, by size and type: inputs and parameters.

    The op after one whose result's size is not known, such as a convolution, may read that result.
    """
    outside: set[Sized] = set()
    inside: set[Sized] = set()
    any_size = False
    for row in rows.tolist():
        taken = set(taken_by(run, row))
        if not any_size:
            outside |= taken - inside
        results = made_by(run, row)
        any_size = any(each.size == UNKNOWN for each in results)
        inside |= results | taken
    return outside


def traced(run: Run, rows: Ints, results: set[Sized]) -> set[Sized]:
    """The results, and what these rows make of them or of tensors of their sizes."""
    found = set(results)
    for row in np.asarray(rows).tolist():
        sizes = {each.size for each in found}
        if any(each.size in sizes for each in taken_by(run, row)) or UNKNOWN in sizes:
            found |= _reduced(run, row) if run.family[row] == "reduction" else made_by(run, row)
    return found


def _reduced(run: Run, row: int) -> set[Sized]:
    """What a reduction of one dimension leaves; the sum of all elements is the input of no module."""
    shape, dtype = run.first_shape(row), run.dtype[row]
    return {Sized(numel(shape) // size, dtype) for size in shape if numel(shape) > size > 0}
