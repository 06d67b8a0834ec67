"""Matrix products by their sizes, strides and layouts, as recorded arguments and kernels' names show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyprof.marker import parse_marker
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.kernels.operand_layouts import contiguous_dimensions

LINE = 16  # bytes that a thread of a tensor-core kernel loads at once
VOCABULARY = 16384  # an output layer of at least this width is assumed to be a language model's vocabulary


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[batch, m, n] = A[batch, m, k] @ B[batch, k, n]"""

    batch: int
    m: int
    n: int
    k: int
    leads: tuple[tuple[str, int], ...] = ()  # (dimension, leading stride in elements) of A, B, C; empty: no strides
    layout: tuple[str, ...] = ()  # the contiguous dimension of A and B, by strides or the kernel's name; empty: unknown

    def of(self, name: str) -> int:
        return {"m": self.m, "n": self.n, "k": self.k}[name]

    def fills(self, unit: int) -> bool:
        """Whether all leading strides are multiples of so many elements; without strides, those of packed matrices."""
        leads = self.leads or (("n", self.n), ("k", self.k))
        return all(size % unit == 0 or self.of(dim) == 1 for dim, size in leads)

    def __str__(self) -> str:
        batch = f"{self.batch} × " if self.batch > 1 else ""
        return f"{batch}[{self.m}, {self.k}] @ [{self.k}, {self.n}]"


def product_of(run: Run, row: int) -> Gemm | None:
    """The product that a row's op computes; None if its recorded arguments do not show it."""
    return run.once(_product, row)


def _product(run: Run, row: int) -> Gemm | None:
    found = gemm(run.aten[row], run.shapes(row), run.strides(row))
    if found is None:
        return None
    layout = tuple(name for name, _ in found.leads[:2]) or contiguous_dimensions(run.name[row]) or ()
    leads = tuple((name, found.of(name)) for name in (*layout, "n")) if layout and _is_packed(run, row) else ()
    return replace(found, leads=found.leads or leads, layout=layout)


def _is_packed(run: Run, row: int) -> bool:
    """Whether the user's call got no tensor that is a part of another: markers have the strides of these."""
    marker = parse_marker(str((run.listed("marker", row) or [""])[-1]))
    given = [each for argument in marker.args for each in argument.get("items", [argument])] if marker else []
    tensors = [each for each in given if each.get("type") == "tensor"]
    return bool(tensors) and not any("stride" in each for each in tensors)


def gemm(aten: str, sizes: Any, strides: Any) -> Gemm | None:
    """The product that an op computes, from its recorded arguments; None if they do not show it."""
    first = {"mm": 0, "bmm": 0, "_scaled_mm": 0, "_int_mm": 0, "addmm": 1, "baddbmm": 1}.get(aten)
    if first is None or not isinstance(sizes, list) or len(sizes) < first + 2:
        return None
    a, b = sizes[first : first + 2]
    if len(a) != len(b) or len(a) not in (2, 3) or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    steps = strides[first : first + 2] if isinstance(strides, list) and len(strides) >= first + 2 else [None, None]
    leads = (_lead("mk", a, steps[0]), _lead("kn", b, steps[1]))
    known = (*(lead for lead in leads if lead), ("n", b[-1])) if all(leads) else ()
    return Gemm(math.prod(a[:-2]), a[-2], b[-1], a[-1], known)


def _lead(names: str, shape: Sequence[int], stride: Any) -> tuple[str, int] | None:
    """The contiguous dimension of a matrix, and the stride of the other one."""
    if not isinstance(stride, list) or len(stride) != len(shape):
        return None
    rows, columns = stride[-2:]
    if type(rows) is not int or type(columns) is not int:
        return None
    if columns == 1 or rows != 1:  # PyTorch copies a matrix without a contiguous dimension: contiguous by rows
        return names[1], rows if columns == 1 and shape[-2] > 1 else shape[-1]
    return names[0], columns if shape[-1] > 1 else shape[-2]


def weight_shape(run: Run, row: int) -> list[int]:
    """The shape of a convolution's weight, the second argument (the third of the backward); empty if unknown."""
    shapes, place = run.shapes(row), 2 if run.aten[row] == "convolution_backward" else 1
    return shapes[place] if len(shapes) > place else []
