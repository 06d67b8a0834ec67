"""Quantisation: x to q = round(x / scale) + zero point, and back. Rounding and clamping count 0 flop.

Packed types count with their stored bytes; scales and zero points are read if they are tensors.
"""

from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, elementwise, moved, output
from pyprof.prof.ops.result_types import dtype_name

op = Family("pointwise")


@op("quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic")
def quantize(self: Tensor, scale: Any = None, zero_point: Any = None, *arguments: Any, out: Out = None) -> Work:
    """x * (1 / scale) + zero point: 2 per element"""
    asked = next((dtype_name(a) for a in reversed(arguments) if isinstance(a, str) and dtype_name(a)), None)
    result = output(out, Tensor(self.shape, asked or "qint8"))
    return Work(2 * self.numel, distinct(self, scale, zero_point), moved(result.numel, result))


@op("dequantize")
def dequantize(self: Tensor, *, out: Out = None) -> Work:
    """(q - zero point) * scale: an integer subtraction (0 flop) and a product (1)"""
    return elementwise(self.numel, self.nbytes, output(out, Tensor(self.shape, "float32")))


@op(
    "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
)
def fake_quantize(self: Tensor, scale: Any = None, zero_point: Any = None) -> Work:
    """q = x * (1 / scale) + zero point, then (q - zero point) * scale: 4 per element; writes a mask byte per element"""
    return Work(4 * self.numel, distinct(self, scale, zero_point), moved(self.numel, self) + self.numel)


@op("_fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_channel_affine")
def fake_quantize_learnable(self: Tensor, scale: Tensor, zero_point: Tensor) -> Work:
    """As ``fake_quantize_per_tensor_affine_cachemask``, without a mask: 4 per element"""
    return Work(4 * self.numel, distinct(self, scale, zero_point), moved(self.numel, self))


@op(
    "_fake_quantize_learnable_per_tensor_affine_backward _fake_quantize_learnable_per_channel_affine_backward "
    "(grad, self, scale, zero_point)"
)
def fake_quantize_learnable_backward(grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor) -> Work:
    """dx is g or 0;  dscale = sum(g ((q - zero point) - x / scale)): 4;  dzero = sum(-g scale): 2; an estimate"""
    written = moved(self.numel, self) + distinct(scale, zero_point)
    return Work(6 * self.numel, distinct(grad, self, scale, zero_point), written)


@op("_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional")
def observed_fake_quantize(
    self: Tensor, _observes: Any, _quantises: Any, low: Tensor, high: Tensor, scale: Tensor, zero_point: Tensor
) -> Work:
    """Smallest and largest number: comparisons; then 4 per element, as ``fake_quantize``. Updates the averages"""
    averages = distinct(low, high, scale, zero_point)
    return Work(4 * self.numel, self.nbytes + averages, moved(self.numel, self) + self.numel + averages)


@op("fake_quantize_per_tensor_affine_cachemask_backward fake_quantize_per_channel_affine_cachemask_backward")
def fake_quantize_backward(grad: Tensor, mask: Tensor) -> Work:
    """dx is g where the value was not clamped, 0 elsewhere"""
    return Work(0, distinct(grad) + mask.numel, moved(grad.numel, grad))


@op("_C::static_scaled_fp8_quant _C::dynamic_scaled_fp8_quant")
def scaled_fp8_quant(result: Tensor, self: Tensor, scale: Any = None) -> Work:
    """vLLM: x * (1 / scale): 1 per element (dynamic: the maximum for the scale counts 0)"""
    return Work(self.numel, distinct(self, scale), moved(result.numel, result))


# FBGEMM converts rows before sending them between ranks: to bfloat16, or to 8 bits with a scale and a bias per row

copy_op = Family("copy")


@copy_op("fbgemm::FloatToBfloat16Quantized")
def to_bfloat16(rows: Tensor) -> Work:
    """A cast"""
    return Work(0, rows.nbytes, 2 * rows.numel)


@copy_op("fbgemm::Bfloat16QuantizedToFloat")
def from_bfloat16(rows: Tensor) -> Work:
    """A cast"""
    return Work(0, rows.nbytes, 4 * rows.numel)


SCALES = 8  # bytes per row for scale and bias, in addition to the 8-bit elements


@op(
    "fbgemm::FloatToFused8BitRowwiseQuantized fbgemm::HalfToFused8BitRowwiseQuantized "
    "fbgemm::FloatOrHalfToFused8BitRowwiseQuantized"
)
def to_rows_of_bytes(rows: Tensor) -> Work:
    """(x - min) / scale: 2 per element; writes 1 byte per element and 8 per row"""
    count = rows.numel // rows.shape[-1] if rows.shape and rows.shape[-1] else 0
    return Work(2 * rows.numel, rows.nbytes, rows.numel + SCALES * count)


def _from_bytes(rows: Tensor, dtype: str) -> Work:
    count = rows.numel // rows.shape[-1] if rows.shape and rows.shape[-1] else 0
    numbers = max(rows.numel - SCALES * count, 0)
    return Work(2 * numbers, rows.nbytes, moved(numbers, Tensor((), dtype)))


@op("fbgemm::Fused8BitRowwiseQuantizedToFloat")
def from_rows_of_bytes(rows: Tensor) -> Work:
    """x scale + bias: 2 per element"""
    return _from_bytes(rows, "float32")


@op("fbgemm::Fused8BitRowwiseQuantizedToHalf")
def from_rows_of_bytes_to_half(rows: Tensor) -> Work:
    """x scale + bias: 2 per element"""
    return _from_bytes(rows, "float16")


@op("fbgemm::Fused8BitRowwiseQuantizedToFloatOrHalf")
def from_rows_of_bytes_to(rows: Tensor, dtype: Any = UNKNOWN) -> Work:
    """x scale + bias: 2 per element; SparseType 0 is float32, 1 float16"""
    return _from_bytes(rows, {0: "float32", 1: "float16", 5: "bfloat16"}.get(dtype, "") if type(dtype) is int else "")
