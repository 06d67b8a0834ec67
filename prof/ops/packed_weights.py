"""Ops ``quantized::*`` whose weights are packed: PyTorch's int8 modules on a CPU (FBGEMM, QNNPACK, oneDNN).

``pyprof.count`` and markers unpack the weights and give ("packed", weight, stride, padding, dilation, groups,
transposed, output padding), of a linear layer without what follows the weight. A trace without markers does not have
their sizes, so that the work is unknown there.
The count is that of the same op on floats: 2 operations per product of integers, and none for scales.
Source: ATen/native/quantized/library.cpp and cpu/qlinear.cpp, qconv.cpp of PyTorch 2.13.
"""

from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.conv import Window, nominal, output_shape
from pyprof.prof.ops.copies import cat
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, first_output, moved

linear_op, conv_op, pointwise_op, copy_op = Family("gemm"), Family("conv"), Family("pointwise"), Family("copy")
RANKS = (1, 2, 3)


def _unpacked(weight: Any) -> tuple[Any, ...]:
    if not (isinstance(weight, tuple) and weight[:1] == ("packed",) and isinstance(weight[1], Tensor)):
        raise UnknownArgument("packed weights, whose sizes the capture does not have")
    return weight[1:]


def _written(out: Out, count: int, x: Tensor) -> float:
    """Bytes of the result: of the type that the capture shows, or else of the input's."""
    result = first_output(out)
    return moved(count, x if result is None else result)


_LINEAR = "linear linear_relu linear_leaky_relu linear_tanh linear_dynamic linear_relu_dynamic linear_dynamic_fp16"


@linear_op(*(f"quantized::{name}" for name in f"{_LINEAR} linear_relu_dynamic_fp16".split()))
def packed_linear(x: Tensor, weight: Any, *_options: Any, out: Out = None) -> Work:
    """y[..,N] = x[..,K] @ W[N,K]': 2*rows*N*K"""
    (w, *_) = _unpacked(weight)
    rows = x.numel // x.shape[-1] if x.shape and x.shape[-1] else 0
    return Work(2 * rows * w.numel, distinct(x, w), _written(out, rows * w.shape[0], x))


@conv_op(*(f"quantized::conv{rank}d{form}" for rank in RANKS for form in ("", "_relu", "_dynamic")))
@conv_op(*(f"quantized::conv_transpose{rank}d{form}" for rank in RANKS for form in ("", "_dynamic")))
def packed_conv(x: Tensor, weight: Any, *_options: Any, out: Out = None) -> Work:
    """As a convolution of floats: 2 operations for each tap of each output element, padding included"""
    w, *moves, groups, transposed, extra = _unpacked(weight)
    if len(w.shape) == len(x.shape) + 1:  # of one dimension: packed as of two, the first of size 1
        w, moves, extra = w.like((*w.shape[:2], w.shape[3])), [each[1:] for each in moves], extra[1:]
    stride, padding, dilation = moves
    window = Window(stride, padding, dilation, groups, transposed, extra)
    y = x.like(output_shape(x, w, window))
    return Work(nominal(x, w, y, bool(transposed)), distinct(x, w), _written(out, y.numel, x))


@conv_op("quantized::conv2d_add quantized::conv2d_add_relu")
def packed_conv_add(x: Tensor, addend: Tensor, weight: Any, *_options: Any, out: Out = None) -> Work:
    """The same, and an addition per element of the result"""
    return packed_conv(x, weight, out=out) + Work(addend.numel, addend.nbytes)


@pointwise_op(*(f"quantized::{name}" for name in "add add_relu mul mul_relu".split()))
def quantized_binary(a: Tensor, b: Tensor, *_options: Any) -> Work:
    """One operation per element; scaling is not counted"""
    count = max(a.numel, b.numel)
    return Work(count, distinct(a, b), moved(count, a))


@pointwise_op(*(f"quantized::{name}" for name in "add_scalar add_scalar_relu mul_scalar mul_scalar_relu".split()))
def quantized_scalar(a: Tensor, *_options: Any) -> Work:
    """By a number: one operation per element, or none where the scale alone changes"""
    return Work(a.numel, a.nbytes, a.nbytes)


@pointwise_op("quantized::hardswish")
def quantized_hardswish(a: Tensor, *_options: Any) -> Work:
    """3 flop per element, as ``hardswish``; scaling is not counted"""
    return Work(3 * a.numel, a.nbytes, a.nbytes)


@copy_op("quantized::cat quantized::cat_relu")
def quantized_cat(pieces: Any, *_options: Any, out: Out = None) -> Work:
    """As ``cat``; scaling is not counted"""
    return cat(pieces, out=out)
