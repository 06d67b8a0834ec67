"""The indices that ``x[...]`` gives to aten::index and index_put, from the marker of the user's call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.marker_calls import call_arguments
from pyprof.prof.ops.model import UNKNOWN, Tensor

__all__ = ["SUBSCRIPTS", "subscript"]

SUBSCRIPTS = ("__getitem__", "__setitem__")
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?:([1-9]\d{0,17})?", re.ASCII)


def subscript(call: Marker, self: Any) -> Any:
    """The indices that ``x[...]`` gives to aten::index and index_put: tensors, and None for a dimension that is kept.

    ``call`` is of x and the key, ``self`` is what is indexed: a view of x, without what whole numbers choose and what
    slices leave out. The answer is UNKNOWN where that view's shape is another, or where the key holds what a marker
    does not record (lists, numbers that are tensors). Source: applySlicing in
    torch/csrc/autograd/python_variable_indexing.cpp.
    """
    x, key = (*call_arguments(call), UNKNOWN, UNKNOWN)[:2]
    if not isinstance(x, Tensor) or not isinstance(self, Tensor) or key is UNKNOWN or call.args[1]["type"] == "list":
        return UNKNOWN
    view = _View(list(x.shape))
    items = key if isinstance(key, tuple) else (key,)
    kept = max(len(x.shape) - sum(map(_dimensions, items)), 0)  # that an ellipsis stands for
    if not all(view.takes(item, kept) for item in items):
        return UNKNOWN
    if tuple(view.shape + view.left) != self.shape or all(index is None for index in view.indices):
        return UNKNOWN
    return tuple(view.indices)


@dataclass(slots=True)
class _View:
    """The view of x that is indexed, as far as the key's items are read: its shape, and an index per dimension."""

    left: list[int]  # sizes of x's dimensions that no item has taken yet
    shape: list[int] = field(default_factory=list)
    indices: list[Tensor | None] = field(default_factory=list)

    def takes(self, item: Any, kept: int) -> bool:
        """Read one item of the key; False where it has none of the forms that are understood."""
        if item is None:
            self._append([1], None)
        elif item == "Ellipsis":
            self._append(self._taken(kept), *[None] * kept)
        elif isinstance(item, Tensor) and item.shape and len(self.left) >= _dimensions(item):
            self._append(self._taken(_dimensions(item)), item)
        elif not self.left:
            return False
        elif isinstance(item, int) and not isinstance(item, bool):
            self._taken(1)
        elif isinstance(item, str) and (bounds := _SLICE.fullmatch(item)):
            self._append([_sliced(bounds, self._taken(1)[0])], None)
        else:
            return False
        return True

    def _append(self, sizes: list[int], *indices: Tensor | None) -> None:
        self.shape += sizes
        self.indices += indices

    def _taken(self, count: int) -> list[int]:
        sizes, self.left = self.left[:count], self.left[count:]
        return sizes


def _sliced(bounds: re.Match[str], size: int) -> int:
    """How many of ``size`` elements a slice keeps; sizes may be larger than any memory."""
    start, stop, step = slice(*(int(bound) if bound else None for bound in bounds.groups())).indices(size)
    return max(-(-(stop - start) // step), 0)


def _dimensions(item: Any) -> int:
    """How many dimensions of x an item of the key takes."""
    if item is None or item == "Ellipsis":
        return 0
    return len(item.shape) if isinstance(item, Tensor) and item.dtype in ("bool", "uint8") else 1
