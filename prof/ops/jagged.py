"""Jagged tensors of FBGEMM and PyTorch: sequences of rows, one after the other, with the offset of each sequence.

Lists of offsets are int64 if the capture has no dtypes. Source: fbgemm_gpu/src/jagged_tensor_ops, FBGEMM 0.2 to 1.8;
PyTorch 2.13, aten/src/ATen/native/nested.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import moved, tensors
from pyprof.prof.ops.sparse_features import offsets

copy_op, pointwise_op, reduction_op, gemm_op = Family("copy"), Family("pointwise"), Family("reduction"), Family("gemm")


def sequences(starts: Any) -> int:
    found = tensors(starts)
    if not found:
        raise UnknownArgument("the capture does not have the offsets")
    return found[0].numel - 1


@copy_op(
    "fbgemm::jagged_to_padded_dense fbgemm::jagged_to_padded_dense_forward fbgemm::jagged_2d_to_dense "
    "fbgemm::jagged_1d_to_dense _jagged_to_padded_dense_forward"
)
def padded(values: Tensor, starts: Any, longest: Any) -> Work:
    """Pads sequences of rows to the same length: [B, longest, D]"""
    wide, batch = math.prod(values.shape[1:]), sequences(starts)
    if longest is UNKNOWN:
        raise UnknownArgument("the capture does not have the padded lengths")
    lengths = longest if isinstance(longest, (list, tuple)) else (longest,)
    count = batch * math.prod(map(int, lengths)) * wide
    return Work(0, values.nbytes + offsets(starts), moved(count, values))


@copy_op("fbgemm::jagged_to_padded_dense_backward")
def padded_backward(grad: Tensor, starts: Any, total: Any) -> Work:
    """Copies the rows of a padded gradient that are not padding"""
    wide = grad.shape[-1] if len(grad.shape) > 1 + len(tensors(starts)) else 1
    rows = moved(int(total) * wide, grad)
    return Work(0, rows + offsets(starts), rows)


@copy_op("fbgemm::dense_to_jagged fbgemm::dense_to_jagged_forward _padded_dense_to_jagged_forward")
def unpadded(dense: Tensor, starts: Any, total: Any = None) -> Work:
    """Copies the ``total`` rows of a padded tensor that are not padding"""
    if type(total) is not int:
        raise UnknownArgument("the capture does not say how many rows there are")
    return padded_backward(dense, starts, total)


@pointwise_op("fbgemm::jagged_dense_elementwise_add")
def jagged_add(values: Tensor, starts: Any, dense: Tensor) -> Work:
    """Adds rows to a copy of a padded tensor: 1 per element that is not padding"""
    return Work(values.numel, distinct(values, dense) + offsets(starts), moved(dense.numel, values))


@pointwise_op(
    "fbgemm::jagged_dense_elementwise_add_jagged_output fbgemm::jagged_dense_elementwise_mul "
    "fbgemm::jagged_dense_elementwise_mul_forward"
)
def jagged_elementwise(values: Tensor, starts: Any, dense: Tensor) -> Work:
    """Combines the rows with the same rows of a padded tensor: 1 per element"""
    return Work(values.numel, values.nbytes + moved(values.numel, dense) + offsets(starts), values.nbytes)


@pointwise_op(
    "fbgemm::jagged_dense_dense_elementwise_add_jagged_output "
    "fbgemm::jagged_dense_dense_elementwise_add_jagged_output_forward"
)
def jagged_elementwise_two(values: Tensor, starts: Any, dense: Tensor, other: Tensor) -> Work:
    """Combines the rows with the same rows of two padded tensors: 2 per element"""
    read = values.nbytes + moved(values.numel, dense) + moved(values.numel, other)
    return Work(2 * values.numel, read + offsets(starts), values.nbytes)


@gemm_op("fbgemm::jagged_dense_bmm fbgemm::jagged_dense_bmm_forward")
def jagged_dense_product(values: Tensor, starts: Any, dense: Tensor) -> Work:
    """[L,D] @ [D,T] for each sequence of L rows: 2 D T per row"""
    out = values.numel // dense.shape[1] * dense.shape[2] if dense.shape[1] else 0
    return Work(2 * values.numel * dense.shape[2], distinct(values, dense) + offsets(starts), moved(out, values))


@gemm_op("fbgemm::jagged_jagged_bmm fbgemm::jagged_jagged_bmm_forward")
def jagged_jagged_product(values: Tensor, others: Tensor, starts: Any) -> Work:
    """[D,L] @ [L,T] for each sequence of L rows: 2 D T per row; writes [B,D,T]"""
    rows, wide, other = values.shape[0], values.shape[-1], others.shape[-1]
    out = moved(sequences(starts) * wide * other, values)
    return Work(2 * rows * wide * other, distinct(values, others) + offsets(starts), out)


@reduction_op("fbgemm::segment_sum_csr")
def segment_sum(batch: Any, starts: Tensor, values: Tensor) -> Work:
    """The sum of each segment: 1 addition per value except the segment's first; offsets count in ``batch`` values"""
    segments = max(starts.numel - 1, 0)
    return Work(max(values.numel - segments, 0), distinct(starts, values), moved(segments, values))
