"""What an op's result may be, as far as its operands tell: elements and type; and whether another op may take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.recurrent_cells import READS, made
from pyprof.table.columns import Ints

AS_LARGE = ("pointwise", "norm", "softmax", "copy")  # families whose result is as large as the largest operand
WRITTEN = ("fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_")  # ops that read no tensor
UNKNOWN = -1


class Sized(NamedTuple):
    """A tensor as a capture shows it."""

    size: int  # elements; UNKNOWN: of any size
    dtype: str  # empty: unknown
    shape: tuple[int, ...] = ()  # empty: unknown


def may_be_one(some: Iterable[Sized], others: Iterable[Sized]) -> bool:
    """Whether a tensor of the one may be one of the others, or a part of it.

    Parts of sequences are as wide as the whole; parts of images, such as some of their channels, are not thought of.
    """
    known = list(others)
    return any(_may_be(each, other) for each in some for other in known)


def _may_be(made: Sized, taken: Sized) -> bool:
    if made.size == UNKNOWN:
        return True
    if made.dtype and taken.dtype and made.dtype != taken.dtype:
        return False
    part = taken.size < made.size and len(taken.shape) in (2, 3) and taken.shape[-1:] == made.shape[-1:]
    return made.size == taken.size or part


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
                yield Sized(size, name if isinstance(name, str) else "", tuple(part))


def made_by(run: Run, row: int) -> set[Sized]:
    """The result, in each type that an operand has; UNKNOWN if the operands do not tell its size."""
    operands = list(_operands(run, row))
    if run.aten[row] == "copy_" or run.aten[row] in WRITTEN:
        return set(operands[:1])
    dtypes = {each.dtype for each in operands} or {""}
    return {Sized(size or UNKNOWN, dtype, shape) for size, shape in _results(run, row, operands) for dtype in dtypes}


def _results(run: Run, row: int, operands: list[Sized]) -> list[tuple[int, tuple[int, ...]]]:
    """The sizes that a result may have, each with its shape or the last dimension of it."""
    if run.family[row] == "gemm":
        return [(size, operands[-1].shape[-1:] if operands else ()) for size in made(run, row)]
    if run.family[row] in READS:
        return [(size, operands[0].shape[-1:] if operands else ()) for size in made(run, row)]
    if run.aten[row] in ("cat", "stack") and operands:
        return [(sum(each.size for each in operands), operands[0].shape[-1:])]
    if run.family[row] in AS_LARGE and operands:
        largest = max(operands, key=lambda each: each.size)
        return [(largest.size, largest.shape)]
    return [(UNKNOWN, ())]


def taken_from_outside(run: Run, rows: Ints) -> set[Sized]:
    """What ops read that none of those before them made, but for the weights of products.

    The op after one whose result's size is not known, such as a convolution, may read that as its largest operand.
    """
    outside: set[Sized] = set()
    known: set[tuple[int, str]] = set()
    unknown = False
    for row in rows.tolist():
        taken = _activations(run, row)
        largest = max((each.size for each in taken), default=0)
        if unknown and sum(each.size == largest for each in taken) == 1:
            known |= {(each.size, each.dtype) for each in taken if each.size == largest}
        outside |= {each for each in taken if (each.size, each.dtype) not in known}
        results = made_by(run, row)
        unknown = any(each.size == UNKNOWN for each in results)
        known |= {(each.size, each.dtype) for each in (*results, *taken)}
    return outside


def _activations(run: Run, row: int) -> list[Sized]:
    """What an op reads, without the weight of a product or a table, and without vectors of parameters."""
    taken = [each for each in taken_by(run, row) if len(each.shape) > 1]
    if run.family[row] == "conv":
        return taken[:1]
    if run.family[row] in READS:
        return taken[1:]
    return taken[:-1] if run.aten[row] in ("mm", "addmm", "linear") else taken


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
    shape, dtype = run.first_shape(row), str(run.dtype[row])
    return {Sized(numel(shape) // size, dtype) for size in shape if numel(shape) > size > 0}
