"""Interpolation and sampling. Every element of the result is a weighted sum of t taps: t products and t - 1 sums.

nearest 1 tap (a copy, 0 flop), linear 2, bilinear 4, trilinear 8, bicubic 16; computing the weights, which all channels
share, is not counted. The whole input counts as read, even if some elements are not touched.

backward   nearest: adds the gradients that fall on the same element: elements of g - elements of dx;
           others: t products and t sums per element of g, minus one sum per element of dx
"""

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, first_output, moved, number, numel

op = Family("resize")
TAPS = {  # of an element of the result: kinds of interpolation
    1: "nearest1d nearest2d nearest3d _nearest_exact1d _nearest_exact2d _nearest_exact3d",
    2: "linear1d",
    4: "bilinear2d _bilinear2d_aa",
    8: "trilinear3d",
    16: "bicubic2d _bicubic2d_aa",
    36: "_lanczos2d_aa",
}


def weighted(taps: int) -> int:
    """Flop of a weighted sum; a single tap is a copy and counts 0."""
    return 2 * taps - 1 if taps > 1 else 0


def resized(self: Tensor, size: Any, arguments: tuple[Any, ...], out: Out) -> int | None:
    """Elements of the result: from its description, the output size, or the scale factors; None if none is known."""
    described = first_output(out)
    if described is not None:
        return described.numel
    if isinstance(size, (list, tuple)) and size:
        return numel((*self.shape[:2], *size))
    scales = next((a for a in arguments if isinstance(a, (list, tuple)) and a), None)
    if scales is None:
        return None
    return numel((*self.shape[:2], *(math.floor(n * s) for n, s in zip(self.shape[2:], scales, strict=True))))


def _register(kind: str, taps: int) -> None:
    def forward(self: Tensor, size: Any = UNKNOWN, *arguments: Any, out: Out = None) -> Work:
        count = resized(self, size, arguments, out)
        if count is None:
            if taps > 1:
                return Work(weighted(taps) * int(size), 0, 0)  # raises if unknown: the flop depends on it
            return Work(0, self.nbytes, math.nan)
        return Work(weighted(taps) * count, self.nbytes, moved(count, self))

    def backward(grad: Tensor, size: Any = UNKNOWN, input_size: Any = UNKNOWN, *, out: Out = None) -> Work:
        described = first_output(out)
        count = described.numel if described is not None else numel(input_size)
        sums = max(taps * grad.numel - count, 0)
        return Work(sums + (taps * grad.numel if taps > 1 else 0), grad.nbytes, moved(count, grad))

    forward.__doc__ = f"{taps} taps: {weighted(taps)} flop per element of the result"
    backward.__doc__ = f"{taps} taps: products (more than one tap), and sums of what falls on the same element"
    name = f"_upsample{kind}" if kind.startswith("_") else f"upsample_{kind}"
    op(name)(forward)
    op(f"{name}_backward")(backward)


for _taps, _kinds in TAPS.items():
    for _kind in _kinds.split():
        _register(_kind, _taps)


def sampling_taps(grid: Tensor, mode: Any) -> int:
    """Mode 0 is (bi- or tri-)linear, 1 nearest, 2 bicubic; if the capture lacks it, linear, the default."""
    names = {"bilinear": 0, "nearest": 1, "bicubic": 2}
    kind = names[mode] if isinstance(mode, str) else int(number(mode, 0))
    return (int(2 ** (len(grid.shape) - 2)), 1, 16)[kind]


@op("grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler grid_sample _grid_sampler_2d_cpu_fallback")
def grid_sampler(self: Tensor, grid: Tensor, mode: Any = 0) -> Work:
    """A weighted sum for every point and channel: bilinear 4 mul, 3 add. The points' weights are not counted."""
    count = self.shape[0] * self.shape[1] * numel(grid.shape[1:-1])
    return Work(weighted(sampling_taps(grid, mode)) * count, distinct(self, grid), moved(count, self))


@op("grid_sampler_2d_backward grid_sampler_3d_backward _grid_sampler_2d_cpu_fallback_backward")
def grid_sampler_backward(
    grad: Tensor, self: Tensor, grid: Tensor, mode: Any = 0, padding: Any = 0, align: Any = False, mask: Any = None
) -> Work:
    """dx: t products and t sums per point and channel;  dgrid: t more products and t more sums per coordinate

    The grid's gradient is an estimate: factors that depend only on the point are not counted.
    """
    taps, coordinates = sampling_taps(grid, mode), grid.shape[-1]
    wants = [bool(wanted) for wanted in number(mask, (True, True))]
    flop = 2 * taps * grad.numel * (wants[0] + coordinates * (wants[1] if taps > 1 else 0))
    written = (moved(self.numel, self) if wants[0] else 0) + (moved(grid.numel, grid) if wants[1] else 0)
    return Work(flop, distinct(grad, self, grid), written)


@op("grid_sampler.backward")
def grid_sampler_whole_backward(self: Tensor, grid: Tensor, mode: Any = 0) -> Work:
    """Same as ``grid_sampler_2d_backward``, for the tensors that need a gradient"""
    grad = self.like((*self.shape[:2], *grid.shape[1:-1]))
    return grid_sampler_backward(grad, self, grid, mode, 0, False, (self.needs_grad, grid.needs_grad))


@op("affine_grid_generator")
def affine_grid(theta: Tensor, size: Any, *, out: Out = None) -> Work:
    """theta [N, d, d + 1] times each point: d rows of d + 1 products and d sums"""
    described = first_output(out)
    points = described.numel // described.shape[-1] if described is not None else numel((size[0], *size[2:]))
    rows, columns = theta.shape[-2:]
    return Work(points * rows * (2 * columns - 1), theta.nbytes, moved(points * rows, theta))


@op("affine_grid_generator_backward")
def affine_grid_backward(grad: Tensor, size: Any = UNKNOWN) -> Work:
    """dtheta [N, d, d + 1] = g' times each point"""
    rows = grad.shape[-1]
    return Work(2 * grad.numel * (rows + 1), grad.nbytes, moved(grad.shape[0] * rows * (rows + 1), grad))
