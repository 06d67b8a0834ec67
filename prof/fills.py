"""Ops that fill their whole output with zeros before they scatter into it.

As an op they write all of it, and that is what their models count. In a capture the fill is an op of its own inside
of them (``aten::zero_``), with a kernel of its own: there the rest of the op writes only what it touches, and counting
the fill twice would put the kernel at many times the memory's limit (nll_loss_backward of a 50,304-word vocabulary: 17
times). ATen/native/cuda/{NLLLoss2d,Loss,DilatedMaxPool2d,EmbeddingBackwardKernel}.cu of torch 2.4 to 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyprof.prof.model import Tensor

# op -> (its output, how many elements of it it touches), from its arguments in schema order
Filled = Callable[[tuple[Any, ...]], tuple[Tensor, int]]


def _nll(arguments: tuple[Any, ...]) -> tuple[Tensor, int]:
    """(grad_output, self, target, ...): one element a target"""
    return arguments[1], arguments[2].numel


def _pool(arguments: tuple[Any, ...]) -> tuple[Tensor, int]:
    """(grad_output, self, ...): at most one element an output"""
    return arguments[1], min(arguments[0].numel, arguments[1].numel)


def _embedding(arguments: tuple[Any, ...]) -> tuple[Tensor, int]:
    """(grad_output, indices, num_weights, ...): at most one row an index"""
    gradient, _, rows = arguments[:3]
    width = gradient.shape[-1]
    return gradient.like((int(rows), width)), min(gradient.numel, int(rows) * width)


FILLED: dict[str, Filled] = {
    "nll_loss_backward": _nll,
    "nll_loss2d_backward": _nll,
    "max_pool2d_with_indices_backward": _pool,
    "max_pool3d_with_indices_backward": _pool,
    "embedding_dense_backward": _embedding,
}


def without_fill(op: str, arguments: tuple[Any, ...], nbytes: float) -> float:
    """The op's bytes less those of the zeros that another kernel writes; as they are for any other op."""
    find = FILLED.get(op)
    if find is None:
        return nbytes
    output, touched = find(arguments)
    return nbytes - output.nbytes + touched * output.itemsize
