"""Convolution ops of the backends, with their names and argument orders: cuDNN, MIOpen, oneDNN, PyTorch's own kernels.

The counts are those of ``conv``. PyTorch 1.x had a backward op for each backend.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.conv import Call, backward, channels, conv_transpose, convolution, mask_of, nominal, op, touched
from pyprof.prof.ops.model import UNKNOWN, Parts, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, first_output


@op("cudnn_convolution")
def cudnn_convolution(x: Tensor, weight: Tensor, *rest: Any, out: Out = None) -> Work:
    """(x, weight, padding, stride, dilation, groups, ...); before torch 1.8 a bias came after the weight"""
    has_bias = bool(rest) and (rest[0] is None or isinstance(rest[0], Tensor))
    bias, numbers = (rest[0], rest[1:]) if has_bias else (None, rest)
    padding, stride, dilation, groups = (*numbers, *(UNKNOWN,) * 4)[:4]
    return convolution(Call(stride, padding, dilation, groups, x=x, weight=weight, bias=bias), out)


# `convolution` and `conv_transpose` again, with the backends' names and orders of arguments

op(
    "cudnn_convolution_relu miopen_convolution_relu (x, weight, bias, stride, padding, dilation, groups)",
    "cudnn_convolution_add_relu miopen_convolution_add_relu (x, weight, addend, _alpha, bias, stride, padding, "
    "dilation, groups)",
    "miopen_convolution miopen_depthwise_convolution mkldnn_convolution (x, weight, bias, padding, stride, dilation, "
    "groups)",
    "thnn_conv2d thnn_conv2d_forward _slow_conv2d_forward slow_conv3d slow_conv3d_forward (x, weight, _kernel_size, "
    "bias, stride, padding)",
    "slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d thnn_conv_depthwise2d "
    "thnn_conv_depthwise2d_forward (x, weight, _kernel_size, bias, stride, padding, dilation)",
    takes=Call,
)(convolution)


@op("mkldnn::_convolution_pointwise")
def convolution_pointwise(x: Tensor, second: Tensor, third: Any = None, *rest: Any, out: Out = None) -> Work:
    """With an activation: (x, weight, bias, padding, ..);  with a sum: (x, addend, weight, bias, padding, ..)"""
    has_addend = isinstance(third, Tensor) and len(third.shape) > 2
    addend, weight, (bias, *moves) = (second, third, rest) if has_addend else (None, second, (third, *rest))
    padding, stride, dilation, groups = (*moves, *(UNKNOWN,) * 4)[:4]
    call = Call(stride, padding, dilation, groups, x=x, weight=weight, bias=bias, addend=addend)
    return convolution(call, out)


op(
    "cudnn_convolution_transpose (x, weight, padding, output_padding, stride, dilation, groups)",
    "miopen_convolution_transpose mkldnn::_convolution_transpose_pointwise (x, weight, bias, padding, output_padding, "
    "stride, dilation, groups)",
    "slow_conv_transpose2d slow_conv_transpose3d (x, weight, _kernel_size, bias, stride, padding, output_padding, "
    "dilation)",
    takes=Call,
)(conv_transpose)


@op(
    "cudnn_convolution_backward miopen_convolution_backward mkldnn_convolution_backward thnn_conv2d_backward "
    "miopen_depthwise_convolution_backward _slow_conv2d_backward slow_conv3d_backward _conv_depthwise2d_backward "
    "conv_depthwise3d_backward thnn_conv_depthwise2d_backward slow_conv_dilated2d_backward slow_conv_dilated3d_backward"
)
def old_backward(first: Tensor, second: Tensor, weight: Tensor, *rest: Any, out: Out = None) -> Parts:
    """PyTorch 1.x: cuDNN and MIOpen take (x, dy, weight, ..., mask), native ops (dy, x, weight, ..., mask)

    The channels decide which tensor is x: x has Cin, dy has Cout. If these are equal, x is the larger tensor (stride
    above 1), or both have the same size and the order does not matter.
    """
    a, b, cout = channels(first, weight), channels(second, weight), weight.shape[0]
    swapped = a == cout if a != b else first.numel < second.numel
    x, dy = (second, first) if swapped else (first, second)
    return gradients(x, dy, weight, rest, False, out)


@op("cudnn_convolution_transpose_backward miopen_convolution_transpose_backward")
def old_transpose_backward(x: Tensor, dy: Tensor, weight: Tensor, *rest: Any, out: Out = None) -> Parts:
    """PyTorch 1.x: the transposed convolution's gradients"""
    return gradients(x, dy, weight, rest, True, out)


def gradients(x: Tensor, dy: Tensor, weight: Tensor, rest: tuple[Any, ...], transposed: bool, out: Out) -> Parts:
    """The gradients selected by the output mask, which is among the other arguments."""
    output_mask = next((argument for argument in reversed(rest) if is_mask(argument)), UNKNOWN)
    return backward(dy, x, weight, transposed, mask_of(output_mask, out))


def is_mask(argument: Any) -> bool:
    return isinstance(argument, (tuple, list)) and bool(argument) and all(isinstance(b, bool) for b in argument)


@op("cudnn_convolution_backward_input miopen_convolution_backward_input")
def backward_input(size: Any, dy: Tensor, weight: Tensor, *_moves: Any, out: Out = None) -> Work:
    """PyTorch 1.x, dx from dy and weight: the forward's flop for any stride; bytes only if dx's size is known"""
    dx = gradient(size, dy, out)
    return Work(nominal(dy, weight, dy, False), distinct(dy, weight), dx.nbytes if dx else math.nan)


@op("cudnn_convolution_backward_weight miopen_convolution_backward_weight")
def backward_weight(size: Any, dy: Tensor, x: Tensor, *_moves: Any, out: Out = None) -> Work:
    """PyTorch 1.x, dweight from dy and x: the forward's flop, if dweight's size is known"""
    weight = gradient(size, x, out)
    if weight is None:
        raise UnknownArgument("the weight's size decides its gradient's work")
    return Work(nominal(dy, weight, dy, False), distinct(dy, touched(x, weight, dy)), weight.nbytes)


def gradient(size: Any, like: Tensor, out: Out) -> Tensor | None:
    """A gradient of the size given as an argument, or else of that of the forward op's input; None: neither is known"""
    described = first_output(out)
    if isinstance(size, (list, tuple)):
        return like.like(tuple(size))
    return None if described is None else like.like(described.shape)
