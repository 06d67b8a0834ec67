"""Other libraries' ops: as PyTorch's own of the same work, and values worked by hand."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Work
from tests.prof.ops.op_cases import Row, t, worked

H = "bfloat16"


Q = t(2, 4, 3, 8, dtype=H)  # 2 sequences of 4, 3 heads of 8: 6 * 16 pairs, causal 6 * 10; 192 elements; 24 rows
LSE = t(2, 3, 4)
PACKED, STARTS = t(8, 3, 8, dtype=H), t(3, dtype="int32")  # the same, one after the other; 3 starts, 12 bytes

ROWS: list[Row] = [
    # 2 * 60 pairs * (8 + 8); 3 * 384 bytes read, 384 and 24 * 4 written
    ("flash_attn::_flash_attn_forward", (Q, Q, Q, 0.0, 0.35, True, -1, -1, 0.0, None, False), Work(1920, 1152, 480)),
    ("flash_attn::_flash_attn_forward", (Q, Q, Q, 0.0, 0.35, False, -1, -1), Work(3072, 1152, 480)),
    # one key to the left: 1 + 2 + 2 + 2 pairs a head and sequence: 2 * 42 * 16
    ("flash_attn::_flash_attn_forward", (Q, Q, Q, 0.0, 0.35, True, 1, 0), Work(1344, 1152, 480)),
    # five products: 2 * 60 * (3*8 + 2*8); dout, q, k, v, out 5 * 384 and 96; three gradients
    (
        "flash_attn::_flash_attn_backward",
        (Q, Q, Q, Q, Q, LSE, Q, Q, Q, 0.0, 0.35, True, -1, -1, 0.0, None, False),
        Work(4800, 2016, 1152),
    ),
    (
        "flash_attn::_flash_attn_varlen_forward",
        (PACKED, PACKED, PACKED, STARTS, STARTS, 4, 4, 0.0, 0.35, True),
        Work(1920, 1152 + 24, 480),
    ),
    (
        "flash_attn::_flash_attn_varlen_backward",
        (
            PACKED,
            PACKED,
            PACKED,
            PACKED,
            PACKED,
            t(3, 8),
            PACKED,
            PACKED,
            PACKED,
            STARTS,
            STARTS,
            4,
            4,
            0.0,
            0.35,
            True,
        ),
        Work(4800, 2016 + 24, 1152),
    ),
    (
        "xformers_flash::flash_fwd",
        (Q, Q, Q, None, None, None, 4, 4, 0.0, 0.35, True, -1, -1, False, None),
        Work(1920, 1152, 480),
    ),
    # 7 an element and 2 a row; mean and deviation of each of 4 rows
    ("FusedLayerNormAffineFunction", (t(4, 8), t(8), t(8), (8,), 1e-5), Work(232, 192, 160)),
    ("LigerLayerNormFunction", (t(4, 8), t(8), t(8), 1e-5), Work(232, 192, 160)),
    ("FusedRMSNormAffineFunction", (t(4, 8), t(8), (8,), 1e-5), Work(136, 160, 144)),  # 4 * 32 + 2 * 4
    ("LigerRMSNormFunction", (t(4, 8), t(8), 1e-5, 0.0, "llama", True), Work(136, 160, 144)),
    ("LigerSiLUMulFunction", (t(4, 8), t(4, 8)), Work(128, 256, 128)),
    ("LigerGELUMulFunction", (t(4, 8), t(4, 8)), Work(320, 256, 128)),
    ("LigerRopeFunction", (t(1, 2, 4, 8), t(1, 1, 4, 8), t(1, 4, 8), t(1, 4, 8)), Work(288, 640, 384)),
    # 64 numbers in 32 bytes, one scale of 4 bytes; written in 2 bytes each
    ("bitsandbytes::dequantize_4bit", (t(32, 1, dtype="uint8"), t(1), 64, "nf4", [8, 8], H), Work(64, 36, 128)),
    (
        "bitsandbytes::gemv_4bit",
        (t(1, 8, dtype=H), t(32, 1, dtype="uint8"), [8, 8], t(1), t(16), 64),
        Work(128, 52, 16),
    ),
    ("bitsandbytes::int8_linear_matmul", (t(4, 5, dtype="int8"), t(6, 5, dtype="int8")), Work(240, 50, 96)),
    ("bitsandbytes::int8_vectorwise_quant", (t(4, 5, dtype=H),), Work(20, 40, 36)),
    # FlashInfer: 3 new keys and values of 2 heads of 8 into pages of one byte per element; 3 requests, 3 positions
    (
        "flashinfer::append_paged_kv_cache",
        (*(t(3, 2, 8, dtype=H),) * 2, *(t(3, dtype="int32"),) * 2, *(t(9, 16, 2, 8, dtype="uint8"),) * 2),
        Work(0, 192 + 24, 96),
    ),
    # 3 latent vectors of 16 and 2 elements
    (
        "flashinfer::append_paged_mla_kv_cache",
        (
            *(t(3, 16, dtype=H), t(3, 2, dtype=H), *(t(3, dtype="int32"),) * 2),
            *(t(9, 16, 16, dtype=H), t(9, 16, 2, dtype=H)),
        ),
        Work(0, 108 + 24, 108),
    ),
    # 4 of 8 elements of 3 tokens of 2 and 1 heads rotate: 3 * 72 / 2; 3 positions of 8 bytes, each with 4 angles of 4
    (
        "flashinfer::apply_rope_pos_ids_cos_sin_cache",
        (*(t(3, 2, 8, dtype=H), t(3, 1, 8, dtype=H)) * 2, t(99, 4), t(3, dtype="int64"), False),
        Work(108, 144 + 24 + 48, 144),
    ),
    (
        "flashinfer::apply_rope_pos_ids flashinfer::apply_llama31_rope_pos_ids",
        (*(t(3, 2, 8, dtype=H), t(3, 1, 8, dtype=H)) * 2, t(3, dtype="int64"), 4, False, 1.0, 1e4),
        Work(108, 144 + 24, 144),
    ),
    ("flashinfer::sampling_from_probs", (t(4, 100), None, True), Work(400, 1600, 16)),
    (
        "flashinfer::top_p_sampling_from_probs flashinfer::top_k_sampling_from_probs "
        "flashinfer::min_p_sampling_from_probs flashinfer::top_k_top_p_sampling_from_probs "
        "flashinfer::top_p_renorm_probs flashinfer::top_k_renorm_probs flashinfer::top_k_mask_logits",
        (t(4, 100),),
        UnknownArgument,
    ),
    ("_moe_C::topk_softmax", (t(4, 2), t(4, 2, dtype="int32"), t(4, 2, dtype="int32"), t(4, 3)), Work(44, 48, 64)),
    ("_moe_C::topk_softmax", (t(4, 0), t(4, 0, dtype="int32"), t(4, 0, dtype="int32"), t(4, 0)), Work()),  # no experts
    ("_moe_C::moe_sum", (t(4, 2, 6), t(4, 6)), Work(24, 192, 96)),
    (
        "_moe_C::moe_align_block_size _moe_C::moe_permute _moe_C::moe_unpermute",
        (t(4, 2, dtype="int32"), 3, 16),
        Work(0, 32, 0),
    ),
]


test_worked_by_hand = worked(ROWS)


def test_lengths_that_are_not_known_are_not_guessed() -> None:
    uneven = t(7, 3, 8, dtype=H)
    with pytest.raises(UnknownArgument, match="lengths"):
        evaluate("flash_attn::_flash_attn_varlen_forward", (uneven, uneven, uneven, STARTS, STARTS, 4, 4, 0.0, 1, True))


def test_a_mask_that_is_not_told_is_not_guessed() -> None:
    with pytest.raises(UnknownArgument):
        evaluate("flash_attn::_flash_attn_forward", (Q, Q, Q, UNKNOWN, UNKNOWN, UNKNOWN))
