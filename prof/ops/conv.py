"""Convolutions, forward and backward, for every name and argument order that PyTorch has for them.

flop    nominal: each output point sums Cin/groups * kernel products, padding zeros included
            2 * N * Cout * out * (Cin/groups) * kernel  =  2 * (elements of y) * (elements of weight / Cout)
        a transposed convolution is the data gradient of a convolution: each *input* point scatters
        Cout/groups * kernel products
            2 * N * Cin * in * (Cout/groups) * kernel   =  2 * (elements of x) * (elements of weight / Cin)
        so the number of groups is not needed. Complex numbers: 8 where the above has 2. A bias adds nothing.
read    x, weight, bias, each once; of x only what the kernel touches, if the stride is larger than the kernel
write   y
Backward, one kernel per gradient:
dgrad   reads dy, weight, writes dx;  wgrad   reads dy, x, writes dweight: each the flop of the forward
bias    reads dy, writes dbias: one addition per element of dy, minus one per channel

Source: torch/utils/flop_counter.py, conv_flop and conv_backward_flop; the latter counts the weight gradient of a
grouped convolution ``groups`` times.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.gemm import multiply_adds
from pyprof.prof.ops.model import UNKNOWN, Family, Parts, Possible, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, elementwise, first_output, given, moved, output

op = Family("conv")
Mask = tuple[bool, bool, bool]  # whether dx, dweight and dbias were computed
# How the kernel moves, in the order of the convolution ops that have all of it, of their backwards, of transposed ones
MOVES = "stride, padding, dilation, transposed, output_padding, groups"
BACKWARD_MOVES = "_stride, _padding, _dilation, transposed, _output_padding, _groups, output_mask"
TRANSPOSED_MOVES = "stride, padding, output_padding, groups, dilation"


@dataclass(frozen=True, slots=True)
class Window:
    """How the kernel moves over the input. One number applies to all dimensions; padding may be "same" or "valid"."""

    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: Any = 1
    transposed: Any = False
    output_padding: Any = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Window):
    """The arguments of a forward op; ``addend`` is the second operand of a fused addition."""

    x: Tensor
    weight: Tensor
    bias: Any = None
    addend: Any = None


def spread(value: Any, rank: int) -> tuple[int, ...]:
    """Expand a number, or a list of one, to all spatial dimensions."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def paddings(window: Window, kernel: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(before, after) for each dimension. "same" pads dilation * (k - 1) in total; if that is odd, one more after."""
    if window.padding == "valid":
        return ((0, 0),) * len(kernel)
    if window.padding == "same":
        whole = [d * (k - 1) for d, k in zip(spread(window.dilation, len(kernel)), kernel, strict=True)]
        return tuple((n // 2, n - n // 2) for n in whole)
    return tuple((p, p) for p in spread(window.padding, len(kernel)))


def output_shape(x: Tensor, weight: Tensor, window: Window) -> tuple[int, ...]:
    """The shape of y; an input without a batch dimension gives an output without one."""
    rank = len(weight.shape) - 2
    batch, spatial, kernel = x.shape[: -rank - 1], x.shape[-rank:], weight.shape[2:]
    strides, dilations = spread(window.stride, rank), spread(window.dilation, rank)
    dimensions = zip(spatial, strides, paddings(window, kernel), dilations, kernel, strict=True)
    if not window.transposed:
        return (*batch, weight.shape[0], *((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, s, p, d, k in dimensions))
    extra = spread(window.output_padding, rank)
    sizes = [(n - 1) * s - sum(p) + d * (k - 1) + e + 1 for (n, s, p, d, k), e in zip(dimensions, extra, strict=True)]
    if window.groups is UNKNOWN:
        raise UnknownArgument("the groups of a transposed convolution decide its output's channels")
    return (*batch, weight.shape[1] * int(window.groups), *sizes)


def channels(x: Tensor, weight: Tensor) -> int:
    return x.shape[-(len(weight.shape) - 1)]


def check(op: str, x: Tensor, weight: Tensor) -> None:
    rank = len(weight.shape) - 2
    if rank < 1 or len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(op, "x[N,Cin,..], weight[Cout,Cin/groups,..]", f"{x.shape}, {weight.shape}")


def is_transposed(x: Tensor, weight: Tensor, y: Tensor | None, flag: Any) -> bool:
    """Whether a convolution is transposed: by the flag, or by the shapes if there is none.

    x has weight[1] * groups channels in a convolution, weight[0] in a transposed one. Where both fit (equal numbers of
    input and output channels), the sizes decide: in practice, a convolution does not enlarge its input, and a
    transposed one does not shrink it. If only the channels are known, raises UnknownArgument.
    """
    if flag is not UNKNOWN:
        return bool(flag)
    cin, (cout, per_group) = channels(x, weight), weight.shape[:2]
    forward = cin % per_group == 0 and (y is None or channels(y, weight) == cout)
    transposed = cin == cout and (y is None or channels(y, weight) % per_group == 0)
    if forward != transposed:
        return transposed
    rank = len(weight.shape) - 2
    if forward and y is not None and math.prod(y.shape[-rank:]) <= math.prod(x.shape[-rank:]):
        return False
    raise UnknownArgument("a convolution or a transposed one: both fit the shapes")


def result_of(x: Tensor, weight: Tensor, window: Window, out: Out) -> Tensor:
    """y from the capture, or else computed from the arguments, with x's dtype."""
    return x.like(output_shape(x, weight, window)) if first_output(out) is None else output(out, x)


def touched(x: Tensor, weight: Tensor, y: Tensor) -> Tensor:
    """x without the elements that a stride larger than the kernel jumps over (1x1 with stride 2).

    So each position of y reads elements of its own: as many as there are taps, and one or more are left out between
    two positions. Without gaps x counts as read completely, with the few elements at its end that no tap may reach.
    """
    rank = len(weight.shape) - 2
    sizes = zip(x.shape[-rank:], y.shape[-rank:], weight.shape[2:], strict=True)
    spatial = tuple(n * taps if size - n * taps >= max(n - 1, 1) else size for size, n, taps in sizes)
    if spatial == x.shape[-rank:]:
        return x
    return Tensor((*x.shape[:-rank], *spatial), x.dtype, ident=x.ident)


def nominal(x: Tensor, weight: Tensor, y: Tensor, transposed: bool) -> int:
    """Flop of a convolution, products with padding zeros included."""
    return multiply_adds((x if transposed else y).numel * math.prod(weight.shape[1:]), x, weight)


def backward(dy: Tensor, x: Tensor, weight: Tensor, transposed: bool, mask: Mask | None) -> Parts:
    """The gradients that the mask (dx, dweight, dbias) selects.

    Without a mask (NVTX ranges), those of weight and data are possible: a network's first layer has no data gradient.
    The bias gradient is left out: it exists only if the forward had a bias, and most convolutions before a
    normalisation have none.
    """
    dx, dweight, dbias = (True, True, False) if mask is None else mask
    flop = nominal(x, weight, dy, transposed)
    parts: Parts = Possible() if mask is None else {}
    read = (touched(dy, weight, x), x) if transposed else (dy, touched(x, weight, dy))
    if dx:
        parts["dgrad"] = Work(flop, distinct(read[0], weight), moved(x.numel, x))
    if dweight:
        parts["wgrad"] = Work(flop, distinct(*read), moved(weight.numel, weight))
    if dbias:
        size = channels(dy, weight)
        parts["bias"] = Work(dy.numel - size if dy.numel else 0, dy.nbytes, moved(size, weight))
    return parts


def mask_of(output_mask: Any, out: Out) -> Mask | None:
    """Which gradients were computed: by the output mask, or the recorded outputs; None if the capture has neither."""
    if output_mask is not UNKNOWN and output_mask is not None:
        return _three(bool(wanted) for wanted in output_mask)
    return _three(isinstance(t, Tensor) for t in out) if out else None


def _three(wanted: Iterable[bool]) -> Mask:
    """The flags of dx, dweight and dbias; old ops had no bias."""
    dx, dweight, dbias = (*wanted, False, False, False)[:3]
    return dx, dweight, dbias


@op(f"convolution_backward (dy, x, weight, _bias_sizes, {BACKWARD_MOVES})")
@op(f"convolution_backward_overrideable (dy, x, weight, {BACKWARD_MOVES})")
def convolution_backward(
    dy: Tensor, x: Tensor, weight: Tensor, transposed: Any = UNKNOWN, output_mask: Any = UNKNOWN, out: Out = None
) -> Parts:
    """dgrad, wgrad and bias, selected by output_mask; the flop needs only the shapes"""
    check("convolution_backward", x, weight)
    return backward(dy, x, weight, is_transposed(x, weight, dy, transposed), mask_of(output_mask, out))


@op("conv1d.backward conv2d.backward conv3d.backward (x, weight, bias, stride, padding, dilation, groups)", takes=Call)
def whole_backward(call: Call, out: Out = None) -> Parts:
    """dgrad, wgrad and bias as needed, for the unpadded input, even if another kernel pads it ("same")"""
    x, weight, bias = call.x, call.weight, given(call.bias)
    check("convolution", x, weight)
    mask = (x.needs_grad, weight.needs_grad, bias is not None and bias.needs_grad)
    y = result_of(x, weight, call, out)
    return backward(replace(y, strides=None, ident=0), x, weight, False, mask)


# Forward ops, with PyTorch 2's orders of arguments; the backends' ops are in conv_backends


@op(f"convolution _convolution convolution_overrideable (x, weight, bias, {MOVES})", takes=Call)
@op("conv1d conv2d conv3d _convolution_mode (x, weight, bias, stride, padding, dilation, groups)", takes=Call)
def convolution(call: Call, out: Out = None) -> Work:
    """Each output point sums Cin/groups * kernel products; padding may be "same" or "valid"

    A fused addend is read too; its addition is part of the multiply-adds. A fused ReLU is a comparison, no flop.
    """
    x, weight = call.x, call.weight
    check("convolution", x, weight)
    if call.transposed is UNKNOWN:
        call = replace(call, transposed=is_transposed(x, weight, first_output(out), UNKNOWN))
    moves = (call.stride, call.padding, call.dilation, call.output_padding, call.groups)
    if call.transposed and first_output(out) is None and UNKNOWN in moves:  # the flop needs only x
        return Work(nominal(x, weight, x, True), math.nan, math.nan)
    y = result_of(x, weight, call, out)
    read_x = x if call.transposed else touched(x, weight, y)
    read = distinct(read_x, weight, given(call.bias), given(call.addend))
    return elementwise(nominal(x, weight, y, bool(call.transposed)), read, y)


@op(f"conv_transpose1d conv_transpose2d conv_transpose3d (x, weight, bias, {TRANSPOSED_MOVES})", takes=Call)
def conv_transpose(call: Call, out: Out = None) -> Work:
    """Each input point scatters Cout/groups * kernel products"""
    return convolution(replace(call, transposed=True), out)


@op("conv_tbc")
def conv_tbc(x: Tensor, weight: Tensor, bias: Any = None, pad: Any = 0) -> Work:
    """x[T,B,Cin], weight[k,Cin,Cout] -> y[T + 2*pad - k + 1, B, Cout]"""
    kernel, cin, cout = weight.shape
    y = x.like((x.shape[0] + 2 * pad - kernel + 1, x.shape[1], cout))
    return Work(multiply_adds(y.numel * cin * kernel, x), distinct(x, weight, given(bias)), moved(y.numel, y))
