"""FBGEMM's rows in fewer bits, to be sent between ranks: bfloat16, or 8 bits with a scale and a bias for each row."""

from __future__ import annotations

from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work
from pyprof.prof.ops.operands import moved

copy_op, pointwise_op = Family("copy"), Family("pointwise")


@copy_op("fbgemm::FloatToBfloat16Quantized")
def to_bfloat16(rows: Tensor) -> Work:
    """A cast"""
    return Work(0, rows.nbytes, 2 * rows.numel)


@copy_op("fbgemm::Bfloat16QuantizedToFloat")
def from_bfloat16(rows: Tensor) -> Work:
    """A cast"""
    return Work(0, rows.nbytes, 4 * rows.numel)


SCALES = 8  # bytes of a row's scale and bias beside its 8-bit numbers


@pointwise_op(
    "fbgemm::FloatToFused8BitRowwiseQuantized fbgemm::HalfToFused8BitRowwiseQuantized "
    "fbgemm::FloatOrHalfToFused8BitRowwiseQuantized"
)
def to_rows_of_bytes(rows: Tensor) -> Work:
    """(x - min) / scale: 2 per element; a byte per element and 8 per row written"""
    count = rows.numel // rows.shape[-1] if rows.shape and rows.shape[-1] else 0
    return Work(2 * rows.numel, rows.nbytes, rows.numel + SCALES * count)


def _from_bytes(rows: Tensor, dtype: str) -> Work:
    count = rows.numel // rows.shape[-1] if rows.shape and rows.shape[-1] else 0
    numbers = max(rows.numel - SCALES * count, 0)
    return Work(2 * numbers, rows.nbytes, moved(numbers, Tensor((), dtype)))


@pointwise_op("fbgemm::Fused8BitRowwiseQuantizedToFloat")
def from_rows_of_bytes(rows: Tensor) -> Work:
    """x scale + bias: 2 per element"""
    return _from_bytes(rows, "float32")


@pointwise_op("fbgemm::Fused8BitRowwiseQuantizedToHalf")
def from_rows_of_bytes_to_half(rows: Tensor) -> Work:
    """x scale + bias: 2 per element"""
    return _from_bytes(rows, "float16")


@pointwise_op("fbgemm::Fused8BitRowwiseQuantizedToFloatOrHalf")
def from_rows_of_bytes_to(rows: Tensor, dtype: Any = UNKNOWN) -> Work:
    """x scale + bias: 2 per element; SparseType 0 is float32, 1 float16"""
    return _from_bytes(rows, {0: "float32", 1: "float16", 5: "bfloat16"}.get(dtype, "") if type(dtype) is int else "")
