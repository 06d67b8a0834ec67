"""Kernels around cuDNN's convolutions: cleared buffers, layouts, padded channels."""

import math

from pyprof.prof.ops.conv import Window, output_shape
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work
from pyprof.prof.work.helpers.products import covered_result, possible_results
from pyprof.prof.work.helpers.registry import HelperCall, rule


@rule(r"scale(?:Packed)?Tensor_kernel")
def cleared(call: HelperCall) -> Work | None:
    """cuDNN clears a gradient to which a kernel then adds: at least writes it"""
    gradient = covered_result(possible_results(call), call.kernel.threads)
    return Work(0, 0, gradient.numel * gradient.itemsize) if gradient else None


@rule(r"init_device_workspace_kernel")
def counter(call: HelperCall) -> Work:
    """cuDNN: one thread clears a counter: writes at least 4 bytes"""
    return Work(0, 0, 4)


LAYOUT_TILE = 32  # number of pixels and of channels that a block of cuDNN's layout kernels moves


@rule(r"nchwToNhwcKernel|nhwcToNchwKernel")
def layout(call: HelperCall) -> Work | None:
    """cuDNN: changes the layout of one of the convolution's tensors: reads and writes it; the grid (blocks of pixels,
    blocks of channels, images) shows which one"""
    for tensor in _tensors_of_convolution(call):
        image = math.prod(tensor.shape[2:])
        blocks = (-(-image // LAYOUT_TILE), -(-tensor.shape[1] // LAYOUT_TILE), tensor.shape[0])
        if blocks == call.kernel.grid:
            size = tensor.numel * tensor.itemsize
            return Work(0, size, size)
    return None


def _tensors_of_convolution(call: HelperCall) -> list[Tensor]:
    tensors = [a for a in call.arguments if isinstance(a, Tensor) and len(a.shape) > 2]
    if call.op == "cudnn_convolution" and len(tensors) == 2:
        x, weight = tensors
        padding, stride, dilation = (*call.arguments[2:5], *(UNKNOWN,) * 3)[:3]
        if call.outputs:
            tensors.append(x.like(call.outputs[0].shape))
        elif not any(value is UNKNOWN or value is None for value in (padding, stride, dilation)):
            tensors.append(x.like(output_shape(x, weight, Window(stride, padding, dilation))))
    return tensors


@rule(r"nhwcAddPaddingKernel")
def padded(call: HelperCall) -> Work | None:
    """cuDNN pads channels to a multiple of at least 4, first the image's, then the weight's; after the product it
    removes the padding of the result. In a backward the order does not show which tensor it is."""
    before = call.before.name if call.before else ""
    tensors = _tensors_of_convolution(call) if call.op == "cudnn_convolution" else []
    if before and "AddPadding" not in before:
        tensors = tensors[2:]
    elif before:
        tensors = tensors[1:]
    if not tensors or len(tensors[0].shape) < 3:
        return None
    tensor = tensors[0]
    wide = -(-tensor.shape[1] // 4) * 4 * (tensor.numel // tensor.shape[1] if tensor.shape[1] else 0)
    return Work(0, tensor.numel * tensor.itemsize, wide * tensor.itemsize)
