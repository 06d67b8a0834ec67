"""Operands that PyTorch expands before an op reads them, for captures without strides.

A dimension that is expanded has stride 0: its elements are read once. Under nsys, an op's range has its sizes alone, in
which such an operand is as large as what it is expanded to. Where PyTorch's own code expands it, the ops around say so:

* ``index_select``, also an embedding's, gathers with one index per slice, expanded to the result's size
  (ATen/native/cuda/Indexing.cu, index_select_out_cuda);
* ``repeat_interleave`` by a number clones its input with a new dimension (ATen/native/Repeat.cpp);
* the gradient of a mean is divided after it is expanded (FunctionsManual.cpp, mean_backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.marker_arguments import call_arguments
from pyprof.prof.ops.model import Tensor


def with_expanded(
    op: str, around: Sequence[str], markers: Sequence[Marker], arguments: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The arguments with strides of 0 where the ops ``around`` (outermost first) have expanded them."""
    marker = markers[-1] if markers else None
    if op == "gather" and "aten::index_select" in around and len(arguments) > 2:
        position, dims = 2, _besides_the_selected(arguments[0], arguments[2], "aten::embedding" in around)
    elif op == "copy_" and "aten::repeat_interleave" in around and len(arguments) > 1:
        position, dims = 1, _inserted(arguments[1], marker)
    elif op == "div" and any(node.startswith("MeanBackward") for node in around):
        position, dims = 0, _averaged(arguments[0], marker)
    else:
        return arguments
    if not dims:
        return arguments
    return (*arguments[:position], _expanded(arguments[position], dims), *arguments[position + 1 :])


def _expanded(tensor: Tensor, dims: set[int]) -> Tensor:
    """The tensor with stride 0 in these dimensions and without gaps in the others."""
    stored = [1 if dim in dims else size for dim, size in enumerate(tensor.shape)]
    steps = [*accumulate(stored[:0:-1], mul, initial=1)][::-1]
    return replace(tensor, strides=tuple(0 if dim in dims else step for dim, step in enumerate(steps)))


def _besides_the_selected(self: Any, index: Any, first: bool) -> set[int]:
    """All dimensions but the one that indices select along: the first, or the only one whose size differs."""
    if not isinstance(self, Tensor) or not isinstance(index, Tensor) or len(self.shape) != len(index.shape):
        return set()
    differ = [dim for dim, (a, b) in enumerate(zip(self.shape, index.shape, strict=True)) if a != b]
    selected = [0] if first else differ
    return set(range(len(index.shape))) - set(selected) if len(selected) == 1 else set()


def _inserted(source: Any, marker: Marker | None) -> set[int]:
    """The dimension without which the source has the size of the call's tensor."""
    x = _input(marker, "repeat_interleave")
    if x is None or not isinstance(source, Tensor):
        return set()
    found = (dim for dim in range(len(source.shape)) if source.shape[:dim] + source.shape[dim + 1 :] == x.shape)
    return set(list(found)[-1:])  # of equal sizes, whichever


def _averaged(gradient: Any, marker: Marker | None) -> set[int]:
    """The dimensions of the mean whose gradient it is."""
    x = _input(marker, "mean")
    if x is None or marker is None or not isinstance(gradient, Tensor) or gradient.shape != x.shape:
        return set()
    given = {str(argument["name"]): value for argument, value in zip(marker.args, call_arguments(marker), strict=True)}
    dims = given.get("dim", given.get("axis"))
    if dims is None and "" not in given:
        return set(range(len(x.shape)))
    listed = (dims,) if isinstance(dims, int) else dims if isinstance(dims, tuple) else ()
    return {dim % len(x.shape) for dim in listed if isinstance(dim, int)} if x.shape else set()


def _input(marker: Marker | None, op: str) -> Tensor | None:
    """The first argument of the user's call of ``op``."""
    x = next(iter(call_arguments(marker)), None) if marker is not None and marker.op == op else None
    return x if isinstance(x, Tensor) else None
