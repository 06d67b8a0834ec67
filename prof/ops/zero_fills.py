"""Ops that fill their whole output with zeros before they scatter into it.

Such an op writes all of its output, and that is what its model counts. In a capture the fill is an op inside it
(``aten::zero_``), with its own kernel, so the op's other kernels write only what they touch. Counting the fill twice
would put such a kernel at many times the memory's limit: at 17 times for nll_loss_backward of a 50,304-word vocabulary.
Source: ATen/native/cuda/{NLLLoss2d,Loss,DilatedMaxPool3d,EmbeddingBackwardKernel}.cu of torch 2.4 to 2.13.
``max_pool2d_with_indices_backward`` fills first, too, but then writes every element again, in both layouts: on an H200
its kernel wrote 521 MB of a gradient of 537 MB (docs/explanation/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyprof.prof.ops.model import distinct
from pyprof.prof.ops.operands import INDEX_BYTES

# op -> bytes that it reads and writes beside the zeros, from its arguments in schema order
Own = Callable[[tuple[Any, ...]], float]


def _nll(arguments: tuple[Any, ...]) -> float:
    """(grad_output, self, target, weight, reduction, ignore_index, total_weight): writes one element a target"""
    gradient, scores, target, weight = arguments[:4]
    read = distinct(gradient, target, weight, arguments[6] if len(arguments) > 6 else None)
    return float(read + target.numel * scores.itemsize)


def _pool(arguments: tuple[Any, ...]) -> float:
    """(grad_output, self, ...): adds each gradient to the element at its position, at most one an output"""
    gradient, scores = arguments[:2]
    touched = min(gradient.numel, scores.numel)
    return float(gradient.nbytes + INDEX_BYTES * gradient.numel + touched * scores.itemsize)


def _embedding(arguments: tuple[Any, ...]) -> float:
    """(grad_output, indices, ...): writes at most one row an index; how large the table is does not matter"""
    gradient, indices = arguments[:2]
    return float(distinct(gradient, indices) + gradient.numel * gradient.itemsize)


FILLED: dict[str, Own] = {
    "nll_loss_backward": _nll,
    "nll_loss2d_backward": _nll,
    "max_pool3d_with_indices_backward": _pool,
    "embedding_dense_backward": _embedding,
}
