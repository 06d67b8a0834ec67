"""Interpolation and sampling. Every element of the result is a weighted sum of t taps: t products and t - 1 sums.

nearest 1 tap (a copy, 0 flop), linear 2, bilinear 4, trilinear 8, bicubic 16, with antialiasing more where an image
shrinks; computing the weights, which all channels
share, is not counted. The whole input counts as read, even if some elements are not touched.

backward   nearest: adds the gradients that fall on the same element: elements of g - elements of dx;
           others: t products and t sums per element of g, minus one sum per element of dx
"""

import math
from typing import Any

from pyprof.errors import ModelError, UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, first_output, moved, number, numel

op = Family("resize")
TAPS = {  # of an element of the result: kinds of interpolation
    1: "nearest1d nearest2d nearest3d _nearest_exact1d _nearest_exact2d _nearest_exact3d",
    2: "linear1d",
    4: "bilinear2d",
    8: "trilinear3d",
    16: "bicubic2d",
}
MOST_RESULTS = 1 << 20  # along one side, of which each is looked at
ANTIALIASED = {"bilinear": 2, "bicubic": 4, "lanczos": 6}  # taps in one dimension, where the image does not shrink


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


def window_taps(size: int, count: int, width: int, align: bool, factor: Any) -> int:
    """The taps of all ``count`` results along one dimension of ``size`` elements, with antialiasing.

    Where an image shrinks by s, the window of ``width`` taps is s times as wide; outside of the image there are none.
    Source: aten/src/ATen/native/cuda/UpSample.cuh, compute_weights_span, torch 2.13.
    """
    step = (size - 1) / max(count - 1, 1) if align else 1 / factor if factor else size / max(count, 1)
    if step <= 1:
        return width * count
    if count > MOST_RESULTS:
        raise ModelError(f"no image has {count} results along one side")
    half = width / 2 * step
    centres = [step * (i + 0.5) for i in range(count)]
    return sum(max(min(int(c + half + 0.5), size) - max(int(c - half + 0.5), 0), 0) for c in centres)


def antialiased_taps(inputs: Any, outputs: Any, width: int, align: Any, factors: tuple[Any, ...]) -> int:
    """The taps of all results of an image and channel."""
    listed = next((f for f in factors if isinstance(f, (list, tuple)) and f), factors)
    each = [f if isinstance(f, (int, float)) else None for f in (*listed, None, None)][:2]
    sides = zip(inputs, outputs, each, strict=True)
    return math.prod(window_taps(n, m, width, number(align, False) is True, f) for n, m, f in sides)


def _register_antialiased(kind: str, width: int) -> None:
    def forward(self: Tensor, size: Any = UNKNOWN, align: Any = False, *factors: Any, out: Out = None) -> Work:
        count = resized(self, size, factors, out)
        if count is None:
            raise UnknownArgument("the size of the result decides how many taps its elements have")
        described = first_output(out)
        scales = next((f for f in factors if isinstance(f, (list, tuple)) and f), ())
        by_scale = tuple(math.floor(n * s) for n, s in zip(self.shape[2:], scales, strict=False))
        shape = described.shape[2:] if described is not None else tuple(size or by_scale)
        taps = math.prod(self.shape[:2]) * antialiased_taps(self.shape[2:], shape, width, align, factors)
        return Work(2 * taps - count, self.nbytes, moved(count, self))

    def backward(
        grad: Tensor, size: Any = UNKNOWN, input_size: Any = UNKNOWN, align: Any = False, *factors: Any, out: Out = None
    ) -> Work:
        described = first_output(out)
        shape = described.shape if described is not None else tuple(input_size)
        taps = math.prod(shape[:2]) * antialiased_taps(shape[2:], grad.shape[2:], width, align, factors)
        return Work(taps + max(taps - numel(shape), 0), grad.nbytes, moved(numel(shape), grad))

    forward.__doc__ = f"{width} taps in each dimension, more where the image shrinks: a product each, and their sum"
    backward.__doc__ = "A product for each tap, and sums of what falls on the same element"
    op(f"_upsample_{kind}2d_aa")(forward)
    op(f"_upsample_{kind}2d_aa_backward")(backward)


for _kind, _width in ANTIALIASED.items():
    _register_antialiased(_kind, _width)


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


@op("cudnn_grid_sampler_backward")
def cudnn_grid_sampler_backward(self: Tensor, grid: Tensor, grad: Tensor) -> Work:
    """Same as ``grid_sampler_2d_backward``, both gradients"""
    return grid_sampler_backward(grad, self, grid)


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


@op("cudnn_affine_grid_generator")
def cudnn_affine_grid(theta: Tensor, *size: int) -> Work:
    """Same as ``affine_grid_generator``; the size comes as four numbers"""
    return affine_grid(theta, size[:4])


@op("affine_grid_generator_backward cudnn_affine_grid_generator_backward")
def affine_grid_backward(grad: Tensor, size: Any = UNKNOWN) -> Work:
    """dtheta [N, d, d + 1] = g' times each point"""
    rows = grad.shape[-1]
    return Work(2 * grad.numel * (rows + 1), grad.nbytes, moved(grad.shape[0] * rows * (rows + 1), grad))
