"""Mixtures of experts: FLOPs and bytes at the stored width, worked out by hand."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import Work
from tests.prof.ops.op_cases import Row, declare_tested, t, worked

H, F8, I4, U8 = "bfloat16", "float8_e4m3fn", "int32", "uint8"
X8, Y = t(4, 32, dtype=F8), t(4, 16, dtype=H)
WORK, NONE = t(999, dtype=I4), t(0, dtype=I4)
LAYER = t(4, 6, dtype=H), t(4, 3, dtype=H)  # 4 tokens, the scores of 3 experts
CHOICE = t(4, 2), t(4, 2, dtype=I4)  # 4 tokens, 2 experts each: 32 bytes of weights, 32 of places

ROWS: list[Row] = [
    # 4 tokens, each through 2 of 3 experts: 8 picks * 2 * (6*10 + 5*6); all 3 experts' weights, (180 + 90) * 2
    (
        "vllm::inplace_fused_experts vllm::outplace_fused_experts sglang::inplace_fused_experts "
        "sglang::outplace_fused_experts vllm::rocm_aiter_fused_moe",
        (t(4, 6, dtype=H), t(3, 10, 6, dtype=H), t(3, 6, 5, dtype=H), t(4, 2), t(4, 2, dtype="int32")),
        Work(1440, 48 + 64 + 540, 48),
    ),
    # in FP8 with a scale per expert and product: 180 + 90 bytes, 12 + 12 of scales
    (
        "vllm::inplace_fused_experts",
        (t(4, 6, dtype=H), t(3, 10, 6, dtype=F8), t(3, 6, 5, dtype=F8), *CHOICE, "silu", t(3), t(3), None),
        Work(1440, 48 + 64 + 270 + 24, 48),
    ),
    # in 4 bits: the same numbers in half of the last dimension
    (
        "vllm::inplace_fused_experts",
        (t(4, 8, dtype=H), t(3, 12, 4, dtype=U8), t(3, 8, 3, dtype=U8), *CHOICE, t(3, 12, 1, dtype=H)),
        Work(8 * 2 * (8 * 12 + 8 * 6), 64 + 64 + 144 + 72 + 72, 64),
    ),
    # the weights among the views of the op's code: 8 rows * 2 * 6 * (10 + 5); x is viewed, too
    (
        "vllm::moe_forward vllm::moe_forward_shared",
        (*LAYER[:2], None, None, t(4, 6, dtype=H), t(3, 10, 6, dtype=H), t(8, 5, dtype=H), t(3, 6, 5, dtype=H)),
        Work(1440, 48 + 24 + 540, 48),
    ),
    # MXFP4, K in halves: 8 * 2 * 64 * (64 + 32); 6144 + 3072 bytes of weights and one of scale for 32 of their elements
    (
        "vllm::moe_forward",
        (t(4, 64, dtype=H), t(4, 3, dtype=H), None, t(3, 32, 64, dtype=U8), t(8, 32, dtype=H), t(3, 16, 64, dtype=U8)),
        Work(98304, 512 + 24 + 9216 + 576, 512),
    ),
    # Marlin: 4 rows to 2 of 8 experts each, so all 8 may be reached; W[32,16] in 4 bits is [2, 32] of int32
    (
        "_moe_C::moe_wna16_marlin_gemm sgl_kernel::moe_wna16_marlin_gemm",
        (
            *(t(4, 32, dtype=H), None, t(8, 2, 32, dtype=I4), t(8, 2, 16, dtype=H), None, None, None, WORK),
            *(t(64, dtype=I4), t(8, dtype=I4), t(1, dtype=I4), t(4, 2), 8, 2, True, False, 7, 4, 16, 32, True),
        ),
        Work(2 * 8 * 16 * 32, 256 + 8 * 256 + 8 * 64, 2 * 8 * 16),
    ),
    # 4 rows can reach 4 of 8 experts: half of 8 * 512 bytes and of 8 scales
    (
        "_C::cutlass_moe_mm",
        (Y, X8, t(8, 32, 16, dtype=F8), t(4, 1), t(8, 1, 1), t(9, dtype=I4)),
        Work(4096, 128 + 16 + 2048 + 16, 128),
    ),
    (
        "deep_gemm::m_grouped_fp8_gemm_nt_contiguous",
        (X8, t(4, 1), t(8, 16, 32, dtype=F8), t(8, 1, 1), Y, t(4, dtype=I4)),
        Work(4096, 128 + 16 + 2048 + 16, 128),
    ),
    (
        "_C::cutlass_fp4_group_mm",
        (Y, t(4, 16, dtype="uint8"), t(8, 16, 16, dtype="uint8"), t(4, 2, dtype=F8), t(8, 16, 2, dtype=F8)),
        Work(4096, 64 + 8 + 1024 + 128, 128),
    ),
]


test_worked_by_hand = worked(ROWS)
declare_tested("deep_gemm::fp8_m_grouped_gemm_nt_masked")


def test_experts_that_are_spread_over_ranks_are_not_counted():
    """The map from all 8 experts to the 3 of this rank."""
    arguments = (t(4, 6, dtype=H), t(3, 10, 6, dtype=H), t(3, 6, 5, dtype=H), *CHOICE, "silu", t(8, dtype=I4))
    with pytest.raises(UnknownArgument, match="some of the experts"):
        evaluate("vllm::inplace_fused_experts", arguments)


@pytest.mark.parametrize("views", [
    (),
    (t(3, 10, 6, dtype=H), t(8, 5, dtype=H)),  # one of the two weights
    (t(3, 10, 6, dtype=H), t(3, 6, 5, dtype=H)),  # not how many rows there are
    (t(3, 10, 6, dtype=H), t(3, 7, 5, dtype=H), t(8, 5, dtype=H)),  # the second does not give back 6 columns
    (t(2, 10, 6, dtype=H), t(2, 6, 5, dtype=H), t(8, 5, dtype=H)),  # 2 of the 3 experts: the others are on other ranks
])  # fmt: skip
def test_a_layer_whose_weights_are_not_on_record(views):
    with pytest.raises(UnknownArgument, match="not on record"):
        evaluate("vllm::moe_forward", (*LAYER, None, None, *views))


def test_rows_of_a_buffer_that_no_expert_uses_are_not_counted_as_work():
    buffer = (t(8, 64, 32, dtype=F8), t(8, 64, 1), t(8, 16, 32, dtype=F8), t(8, 1, 1), t(8, 64, 16, dtype=H))
    with pytest.raises(UnknownArgument, match="how many rows"):
        evaluate("deep_gemm::fp8_m_grouped_gemm_nt_masked", (*buffer, t(8, dtype=I4), 4))
