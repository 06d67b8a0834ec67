"""Products of inference servers with quantised weights: FLOPs, and bytes at the stored width, worked out by hand."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import Work
from tests.prof.ops.op_cases import Row, t, worked

H, F8, I4 = "bfloat16", "float8_e4m3fn", "int32"

# x[4,32] in bfloat16: 256 bytes; W[32,16]: 2 * 4 * 32 * 16 = 4096 FLOPs; the result [4,16]: 128 bytes.
X, X8 = t(4, 32, dtype=H), t(4, 32, dtype=F8)
Y = t(4, 16, dtype=H)
ROWS_SCALE, COLUMNS_SCALE, BIAS = t(4, 1), t(1, 16), t(16, dtype=H)
# INT4 in int32, as Marlin packs it: [K / 16, N * 16 / 8] = [2, 32], 256 bytes for 512 weights; a scale per 16 of K.
PACKED, SCALES = t(2, 32, dtype=I4), t(2, 16, dtype=H)
WORK, ORDER, NONE = t(999, dtype=I4), t(32, dtype=I4), t(0, dtype=I4)
MARLIN = Work(4096, 256 + 256 + 64, 128)

ROWS: list[Row] = [
    # 128 + 512 bytes in FP8, scales of float32, bias
    (
        "_C::cutlass_scaled_mm",
        (Y, X8, t(32, 16, dtype=F8), ROWS_SCALE, COLUMNS_SCALE, BIAS),
        Work(4096, 128 + 512 + 16 + 64 + 32, 128),
    ),
    (
        "_C::cutlass_scaled_mm_azp",
        (Y, t(4, 32, dtype="int8"), t(32, 16, dtype="int8"), ROWS_SCALE, COLUMNS_SCALE, t(16, dtype=I4), None, None),
        Work(4096, 128 + 512 + 16 + 64 + 64, 128),
    ),
    (
        "sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm sgl_kernel::fp8_blockwise_scaled_mm",
        (X8, t(32, 16, dtype=F8), ROWS_SCALE, COLUMNS_SCALE, 15, BIAS),
        Work(4096, 128 + 512 + 16 + 64 + 32, 128),
    ),
    # FP4: two elements in a byte, a scale of one byte per 16
    (
        "_C::cutlass_scaled_fp4_mm sgl_kernel::cutlass_scaled_fp4_mm",
        (Y, t(4, 16, dtype="uint8"), t(16, 16, dtype="uint8"), t(4, 2, dtype=F8), t(16, 2, dtype=F8), t(1)),
        Work(4096, 64 + 256 + 8 + 32 + 4, 128),
    ),
    (
        "deep_gemm::fp8_gemm_nt",
        (X8, t(4, 1), t(16, 32, dtype=F8), t(1, 1), Y),
        Work(4096, 128 + 512 + 16 + 4, 128),
    ),
    (
        "sglang::deep_gemm_fp8_fp8_bf16_nt",
        (X8, t(4, 1), t(16, 32, dtype=F8), t(1, 1), Y),
        Work(4096, 128 + 512 + 16 + 4, 128),
    ),
    (
        "vllm::w8a8_block_fp8_matmul_deepgemm vllm::rocm_aiter_gemm_a8w8 vllm::rocm_aiter_gemm_a8w8_blockscale "
        "vllm::rocm_aiter_triton_gemm_a8w8_blockscale aiter::gemm_a8w8 aiter::gemm_a8w8_blockscale",
        (X8, t(16, 32, dtype=F8), t(4, 1), t(1, 1)),
        Work(4096, 128 + 512 + 16 + 4, 128),
    ),
    ("aiter::gemm_a16w16", (X, t(16, 32, dtype=H), None, 15), Work(4096, 256 + 1024, 128)),
    # three releases of vLLM; the workspace is not read, and an empty order of K neither
    (
        "_C::gptq_marlin_gemm sgl_kernel::gptq_marlin_gemm",
        (X, PACKED, SCALES, NONE, NONE, WORK, 4, 4, 16, 32, True),
        MARLIN,
    ),
    (
        "_C::gptq_marlin_gemm sgl_kernel::gptq_marlin_gemm",
        (X, None, PACKED, SCALES, None, NONE, ORDER, ORDER, WORK, 1125899906843648, 4, 16, 32, True, False, True),
        MARLIN + Work(0, 2 * 128),
    ),
    (
        "_C::gptq_marlin_gemm sgl_kernel::gptq_marlin_gemm",
        (X, Y, PACKED, BIAS, SCALES, None, None, NONE, NONE, NONE, WORK, 7, 4, 16, 32, True, False, True, False),
        MARLIN + Work(0, 32),
    ),
    ("_C::marlin_gemm", (X, PACKED, SCALES, WORK, 4, 16, 32), MARLIN),
    # 2:4 sparsity: half the products; the weights' other half is left out, and their places are 2 bits in int16
    (
        "_C::gptq_marlin_24_gemm",
        (X, t(1, 32, dtype=I4), t(2, 16, dtype="int16"), SCALES, WORK, 7, 4, 16, 32),
        Work(2048, 256 + 128 + 64 + 64, 128),
    ),
    # Machete keeps [K / 8, N] of int32: 4 * 16 * 4 = 256 bytes
    (
        "_C::machete_mm",
        (X, t(4, 16, dtype=I4), 7, None, SCALES, t(2, 16, dtype=H), 16, None, None, None),
        Work(4096, 256 + 256 + 64 + 64, 128),
    ),
    # AWQ packs along N: [32, 2] of int32, and its zeros [2, 2]
    ("_C::awq_gemm", (X, t(32, 2, dtype=I4), SCALES, t(2, 2, dtype=I4), 8), Work(4096, 256 + 256 + 64 + 16, 128)),
]


test_worked_by_hand = worked(ROWS)


def test_the_sizes_of_a_product_of_packed_weights_are_not_guessed():
    with pytest.raises(UnknownArgument, match="sizes"):
        evaluate("_C::gptq_marlin_gemm", (X, PACKED, SCALES, NONE, NONE, WORK, None, None, None, None))
