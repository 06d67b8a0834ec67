"""Find the arguments of a lookup in FBGEMM's table-batched embeddings, whose order differs between versions.

They are recognised by type and shape: the indices and the offsets of the bags are two consecutive integer vectors of
the same dtype.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pyprof.errors import ModelError, UnknownArgument
from pyprof.prof.ops.model import Tensor
from pyprof.prof.ops.operands import indices

SUM, MEAN, NONE = 0, 1, 2  # pooling modes

# SparseType (fbgemm_gpu/split_embedding_configs.py): the output's dtype as a number
SPARSE_TYPES = {0: "float32", 1: "float16", 2: "uint8", 5: "bfloat16"}


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup, as far as the call's arguments describe it."""

    weights: Tensor  # all tables' elements
    tables: int | None
    total: int | None  # total_D, the sum of D over the tables
    widest: int | None  # the largest D
    indices: Tensor
    bags: int
    pooling: int | None
    weighted: Tensor | None  # a factor per index
    rows: int | None  # of all tables, if the optimizer keeps one number per row
    out: str | None  # the output's dtype

    @property
    def count(self) -> int:
        return self.indices.numel

    @property
    def is_even(self) -> bool:
        """Whether all tables are known to have the same width."""
        if self.tables is None or self.total is None or self.widest is None:
            return self.tables == 1
        return self.tables == 1 or self.total == self.tables * self.widest

    def in_bags(self, shape: tuple[int, ...]) -> bool:
        """Whether a result of this shape holds one sum per bag rather than one row per index."""
        if self.pooling is not None:
            return self.pooling != NONE
        return len(shape) != 2 or shape[0] != self.count or shape[0] * (self.tables or 1) == self.bags

    def width(self, result: Tensor | None) -> Fraction:
        """The mean D of a lookup: from the result or its gradient, otherwise from the widths among the arguments."""
        if result is not None and result.shape:
            rows = self.bags if self.in_bags(result.shape) else self.count
            if rows:
                return Fraction(result.numel, rows)
        if self.tables and self.total:
            return Fraction(self.total, self.tables)
        if self.rows and self.rows < self.weights.numel and self.weights.dtype != "uint8":
            # With one optimizer number per row, the number of rows is known. The mean is weighted by the tables' rows.
            return Fraction(self.weights.numel, self.rows)
        raise UnknownArgument("the capture does not have the tables' widths")


def _is_whole(argument: Any) -> bool:
    """Whether an argument is a vector of integers or of unknown dtype."""
    return isinstance(argument, Tensor) and len(argument.shape) == 1 and argument.dtype in ("int32", "int64", "")


def place_of_indices(arguments: tuple[Any, ...]) -> int:
    """The position of the indices, which the offsets follow. Raises ModelError if no two arguments fit."""
    sizes: set[int] = set()  # sizes of the preceding vectors: T or T + 1
    for i, (first, second) in enumerate(pairwise(arguments)):
        if not _is_whole(first):
            continue
        is_typed = first.dtype or (i > 0 and not isinstance(arguments[i - 1], (Tensor, tuple)))
        if is_typed and _is_whole(second) and first.dtype == second.dtype:
            third = arguments[i + 2] if i + 2 < len(arguments) else None
            follows = isinstance(third, Tensor) and _is_whole(third) and third.dtype == first.dtype
            return i + 1 if follows and first.numel in sizes else i  # hash_size_cumsum may come just before
        sizes |= {first.numel, first.numel + 1}
    raise ModelError("no argument looks like the indices and offsets of a lookup")


def understand(arguments: tuple[Any, ...], updates: bool = False) -> Lookup:
    """Find the arguments of a lookup (without a gradient) in any version's order.

    ``updates``: they belong to the op that a backward calls, whose only width argument is the largest width.
    """
    at = place_of_indices(arguments)
    before, after = arguments[:at], arguments[at + 2 :]
    index = indices(arguments[at])
    pairs = enumerate(pairwise(before))
    widths = next((i for i, (a, b) in pairs if _is_whole(a) and not isinstance(b, (Tensor, tuple))), None)
    numbers = before[widths + 1 : widths + 3] if widths is not None else ()
    tables = before[widths].numel - 1 if widths is not None else None
    total, widest = (n if type(n) is int else None for n in (*numbers, None, None)[:2])
    if updates and widest is None:
        total, widest = None, total
    weighted = next((a for a in after[:2] if isinstance(a, Tensor) and _is_factor(a, index.numel)), None)
    later = [a for a in after if isinstance(a, Tensor) and a is not weighted]
    return Lookup(
        weights=_weights(before, tables),
        tables=tables or None,
        total=total,
        widest=widest,
        indices=index,
        bags=max(arguments[at + 1].numel - 1, 0),
        pooling=after[0] if after and type(after[0]) is int else None,
        weighted=weighted,
        rows=_rows(later, [a for a in after if isinstance(a, tuple) and a]),
        out=next((SPARSE_TYPES.get(a) for a in after[1:6] if type(a) is int), None),
    )


def _is_factor(tensor: Tensor, count: int) -> bool:
    return tensor.shape == (count,) and (tensor.dtype.startswith(("float", "bfloat")) or not tensor.dtype)


def _weights(before: tuple[Any, ...], tables: int | None) -> Tensor:
    """The tables' buffers, on the device and elsewhere, as one vector of all elements."""
    listed = next((a for a in before if isinstance(a, tuple) and a), None)
    found: list[Tensor] = []
    for argument in listed if listed is not None else before:
        if isinstance(argument, Tensor) and len(argument.shape) == 1:
            if argument.dtype in ("int32", "int64") or (not argument.dtype and argument.shape == (tables,) and found):
                break  # reached the tables' placements or offsets
            found.append(argument)
    typed = [t for t in found if t.dtype]
    dtype = max(typed, key=lambda t: t.numel).dtype if typed else ""
    return Tensor((sum(t.numel for t in found),), dtype)


def _rows(later: list[Tensor], lists: list[Any]) -> int | None:
    """The size of the optimizer's first state: a list of buffers, or the floats that follow the lookup's arguments."""
    if lists:
        return next((t.numel for t in lists[0] if isinstance(t, Tensor) and t.numel), None)
    floats = [t.numel for t in later if len(t.shape) == 1 and t.dtype.startswith("float") and t.numel]
    return floats[0] if floats else None
