"""The output of the sum that a layer's backward runs for its bias, which no capture records."""

from __future__ import annotations

from collections.abc import Sequence

from pyprof.prof.ops.model import Tensor

__all__ = ["bias_gradient"]


def bias_gradient(gradient: Sequence[int], nodes: Sequence[str], operands: Sequence[Tensor]) -> list[int] | None:
    """The shape of ``sum``'s output where the sum is a bias's gradient: a number per channel. None elsewhere.

    ``gradient``: the shape of what is summed; ``nodes``: the ops around the sum; ``operands``: the tensors of the
    user's call where that is linear or addmm.

    ATen/native/Convolution.cpp (2.4 to 2.13): grad_bias = grad_output.sum over all dimensions but the second.
    layer_norm_kernel.cu: partial sums [blocks, channels] over the first. addmm's gradient [rows, columns] is summed to
    its bias, where the call's marker has one.
    """
    if "aten::convolution_backward" in nodes:
        return [gradient[1]] if len(gradient) > 2 else None
    if len(gradient) != 2:
        return None
    channels = list(gradient[1:])
    has_bias = "AddmmBackward0" in nodes and any(tensor.shape == tuple(channels) for tensor in operands)
    return channels if has_bias or "aten::native_layer_norm_backward" in nodes else None
