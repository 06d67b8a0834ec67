"""Attention: values worked by hand, and the masked pairs against looking at each."""

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.attention import unmasked
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, declare_tested, i32, t, worked


def b(*shape: int, **more: Any) -> Tensor:
    return t(*shape, dtype=more.pop("dtype", "bfloat16"), **more)


# [2,3,4,8] = 192 elements, 384 bytes; 6 heads of 4x4 = 16 pairs, causal 10; 24 queries: 96 bytes of logarithms
Q = b(2, 3, 4, 8)
ALL = Work(3072, 1152, 480)  # 2*96*(8+8); 3*384; 384 + 96
CAUSAL = Work(1920, 1152, 480)  # 2*60*16
BACK = Work(7680, 2016, 1152)  # 2*96*40; Q K V O dO 5*384 + 96; 3*384
BACK_CAUSAL = Work(4800, 2016, 1152)  # 2*60*40
S = b(2, 4, 3, 8)  # the same with the sequence before the heads
LSE = b(2, 3, 4, dtype="float32")
PACKED = b(7, 3, 8)  # sequences of 4 and 3: 25 pairs, causal 10 + 6; 168 elements, 336 bytes; 21 rows: 84
CUM = b(3, dtype="int32", values=(0, 4, 7))
M = b(4, 4)  # 32 bytes
F8 = "float8_e4m3fn"
FP8 = Work(1920, 576 + 72, 480)  # causal; Q, K, V 3 * 192 bytes, scales 3 * 6 * 4, O in bfloat16
PAGES = (b(5, 16, 3, 8), b(5, 16, 3, 8))  # keys and values of a cache in 5 pages of 16

ROWS: list[Row] = [
    ("scaled_dot_product_attention", (Q, Q, Q), ALL),
    # a batch of 4 of keys and values only, 4 heads: 16 * 3 * 6 pairs of 8 + 8; O is [4,4,3,8], 192 bytes of logarithms
    (
        "scaled_dot_product_attention",
        (t(4, 3, 8), t(4, 4, 6, 8), t(4, 4, 6, 8)),
        Work(9216, 384 + 2 * 3072, 1536 + 192),
    ),
    ("scaled_dot_product_attention", (Q, Q, Q, None, 0.0, True), CAUSAL),
    ("scaled_dot_product_attention", (Q, Q, Q, M), Work(3072, 1184, 480)),  # the mask read, nothing left out
    ("scaled_dot_product_attention", (Q, Q, Q, None, 0.1), Work(3072, 1152, 496)),  # seed and offset
    (
        "scaled_dot_product_attention",
        (Q, b(2, 1, 4, 8), b(2, 1, 4, 8), None, 0.0, False, None, True),
        Work(3072, 640, 480),
    ),  # 3 query heads share a key head: 384 + 2*128
    (
        "scaled_dot_product_attention",
        (b(1, 2, 2, 8), b(1, 2, 5, 8), b(1, 2, 5, 6), None, 0.0, True),
        Work(168, 344, 64),
    ),  # top left: 1 + 2 pairs; 2*6*14; (32+80+60)*2; 24*2 + 16
    ("scaled_dot_product_attention", (b(4, 8), b(4, 8), b(4, 8)), Work(512, 192, 80)),  # one head, no batch
    ("_scaled_dot_product_flash_attention", (Q, Q, Q, 0.0, True, False), CAUSAL),
    ("_scaled_dot_product_flash_attention", (*(t(2, 3, 4, 8, dtype=F8),) * 3, *(t(2, 3),) * 3, 0.0, True, False), FP8),
    ("_scaled_dot_product_flash_attention", (Q, Q, Q, None, None, None, 0.0, True, False), CAUSAL),
    ("_scaled_dot_product_flash_attention_for_cpu", (Q, Q, Q, 0.0, True, M), Work(1920, 1184, 480)),
    ("_scaled_dot_product_efficient_attention", (Q, Q, Q, M, False, 0.0, False), Work(3072, 1184, 384)),
    ("_scaled_dot_product_cudnn_attention", (Q, Q, Q, None, True, 0.0, True, False), CAUSAL),
    ("_scaled_dot_product_fused_attention_overrideable", (Q, Q, Q, None, 0.0, True), CAUSAL),
    (
        "_scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps",
        (Q, Q, Q, None, 0.0, True),
        CAUSAL,
    ),
    # blocks of 3 and 1: 9 pairs in each of 6 heads, 3 more in 3 of them: 63
    ("flex_attention", (Q, Q, Q, ((6, 0, 0), (3, 1, 0)), (3, 3), (b(6, dtype="int32"),)), Work(2016, 1176, 480)),
    ("flex_attention", (Q, Q, Q, None), ALL),
    ("flex_attention_backward", (Q, Q, Q, ((6, 0, 0), (3, 1, 0)), (3, 3), ()), Work(5040, 2016, 1152)),  # 2*63*40
    # and a mask's list of 5 numbers of 4 bytes, which is read
    (
        "flex_attention_backward",
        (Q, Q, Q, ((6, 0, 0), (3, 1, 0)), (3, 3), (t(5, dtype="int32"),)),
        Work(5040, 2036, 1152),
    ),
    # kernels
    ("_flash_attention_forward", (S, S, S, None, None, 4, 4, 0.0, True, False), CAUSAL),
    (
        "_flash_attention_forward",
        (b(2, 1, 3, 8), S, S, None, None, 1, 4, 0.0, True, False),
        Work(768, 864, 120),
    ),  # bottom right: the last query sees all 4 keys: 2*24*16; 96 + 2*384; 96 + 24
    ("_flash_attention_forward", (S, S, S, None, None, 4, 4, 0.0, False, False, None, 1, 0), Work(1344, 1152, 480)),
    # a window of one key to the left: 1+2+2+2 pairs: 2*42*16
    ("_flash_attention_forward", (PACKED, PACKED, PACKED, CUM, CUM, 4, 4, 0.0, True, False), Work(1536, 1032, 420)),
    # 3*16 pairs: 2*48*16; 3*336 + 2*12; 336 + 84
    ("jagged_attention", (PACKED, PACKED, PACKED, CUM, CUM, 0.0, True), Work(1536, 1032, 420)),
    (
        "jagged_attention",
        (b(4, 3, 8), PACKED, PACKED, b(3, dtype="int32", values=(0, 2, 4)), CUM, 0.0, True),
        Work(576, 888, 240),
    ),  # 2 of 4 and 3 keys: 2 * (1 + 2) pairs, 3 heads: 2*18*16; 192 + 2*336 + 24; 192 + 48
    # fp8: three scales before the scale and the window of one key to the left
    (
        "_flash_attention_forward",
        (*(t(2, 4, 3, 8, dtype=F8),) * 3, None, None, 4, 4, 0.0, False, False, *(t(2, 3),) * 3, None, 1, 0),
        Work(1344, 576 + 72, 480),
    ),
    # sequences of 4 and 3 queries, of whose keys 2 and 3 are used: causal from the bottom right 0+0+1+2 and 1+2+3 pairs
    (
        "_flash_attention_forward",
        (
            PACKED,
            PACKED,
            PACKED,
            CUM,
            CUM,
            4,
            4,
            0.0,
            True,
            False,
            None,
            None,
            None,
            b(2, dtype="int32", values=(2, 3)),
        ),
        Work(2 * 27 * 16, 1032 + 8, 420),
    ),
    ("_flash_attention_forward", (PACKED, *PAGES, CUM, None, 4, 4, 0.0, True, *(None,) * 4, i32(2)), UnknownArgument),
    (
        "_flash_attention_forward",
        (PACKED, *PAGES, CUM, None, 4, 4, 0.0, True, *(None,) * 6, i32(2, 3)),
        UnknownArgument,
    ),
    ("torch_attn::_varlen_attn", (PACKED, PACKED, PACKED, CUM, CUM, 4, 4, True), Work(1536, 1032, 420)),
    (
        "torch_attn::_varlen_attn_out",
        (PACKED, PACKED, PACKED, PACKED, CUM, CUM, 4, 4, False, None, (1, 0)),
        Work(2 * 36 * 16, 1032, 420),  # one key to the left: 1 + 2 + 2 + 2 and 1 + 2 + 2 pairs
    ),
    # 4 and 3 queries with 6 and 20 keys of a cache in pages: 3+4+5+6 and 18+19+20 pairs; 26 keys of 48 bytes, twice
    (
        "torch_attn::_varlen_attn",
        (PACKED, *PAGES, CUM, None, 4, 20, True, None, None, False, b(2, dtype="int32", values=(6, 20)), i32(2, 2)),
        Work(2 * 225 * 16, 336 + 2 * 1248 + 12 + 8 + 16, 420),
    ),
    (
        "torch_attn::_varlen_attn_backward",
        (PACKED, PACKED, PACKED, PACKED, PACKED, t(3, 7), CUM, CUM, 4, 4, False, b(2, dtype="uint64"), None, None),
        Work(6000, 1788, 1008),  # as jagged_attention's
    ),
    ("_flash_attention_forward_no_dropout_inplace", (S, S, S, S, None, None, 4, 4, 0.0, True, False), CAUSAL),
    ("_efficient_attention_forward", (S, S, S, None, None, None, None, None, 0.0, 1, True), CAUSAL),
    ("_efficient_attention_forward", (S, S, S, None, None, None, None, None, 0.0, 0, False), Work(3072, 1152, 384)),
    (
        "_efficient_attention_forward",
        (S, S, S, None, None, None, None, None, 0.0, 2, True, None, None, 2),
        Work(1344, 1152, 480),
    ),  # the window of 2 holds the query itself: as above
    ("_cudnn_attention_forward", (Q, Q, Q, None, None, None, 4, 4, True, 0.0, True, False), CAUSAL),
    (
        "_cudnn_attention_forward",
        (PACKED, PACKED, PACKED, None, CUM, CUM, 4, 4, True, 0.0, False),
        Work(2400, 1032, 420),
    ),
    # bias and scale of [2,3,3*8] before attention: 144 sums, 48 products; 576 and 96 bytes
    ("_transform_bias_rescale_qkv", (t(2, 3, 24), t(24), 2), Work(144 + 48, 576 + 96, 576)),
    # backward
    (
        "jagged_attention.backward",
        (PACKED, PACKED, PACKED, CUM, CUM, 0.0, False),
        Work(6000, 1788, 1008),
    ),  # 2*75*40; 5*336 + 84 + 24
    ("scaled_dot_product_attention.backward", (Q, Q, Q), BACK),
    ("scaled_dot_product_attention.backward", (b(2, 3, 4, 8, grad=False), Q, Q), Work(6144, 2016, 768)),  # no dQ: 32
    (
        "scaled_dot_product_attention.backward",
        (b(2, 3, 4, 8, grad=False), b(2, 3, 4, 8, grad=False), Q),
        Work(3072, 2016, 384),
    ),  # dV needs Q K' and P' dO
    ("scaled_dot_product_attention.backward", (Q, Q, Q, M), Work(7680, 2048, 1184)),  # and the mask's gradient
    (
        "_scaled_dot_product_flash_attention_backward",
        (Q, Q, Q, Q, Q, LSE, None, None, 4, 4, 0.0, True, None, None),
        BACK_CAUSAL,
    ),
    ("_scaled_dot_product_flash_attention_for_cpu_backward", (Q, Q, Q, Q, Q, LSE, 0.0, True), BACK_CAUSAL),
    (
        "_scaled_dot_product_efficient_attention_backward",
        (Q, Q, Q, Q, None, Q, LSE, None, None, 0.0, (True, True, True, False), True),
        BACK_CAUSAL,
    ),
    (
        "_scaled_dot_product_cudnn_attention_backward _cudnn_attention_backward",
        (Q, Q, Q, Q, Q, LSE, None, None, None, b(0), b(0), 4, 4, 0.0, True),
        BACK_CAUSAL,
    ),
    (
        "_scaled_dot_product_fused_attention_overrideable_backward",
        (Q, Q, Q, Q, None, (True, True, True, False), Q, LSE, None, None, 4, 4, 0.0, True),
        BACK_CAUSAL,
    ),
    ("_flash_attention_backward", (S, S, S, S, S, LSE, None, None, 4, 4, 0.0, True, None, None), BACK_CAUSAL),
    (
        "_efficient_attention_backward",
        (S, S, S, S, None, S, None, None, 4, 4, LSE, 0.0, None, None, 1, False),
        BACK_CAUSAL,
    ),
]

# E = 8 in 2 heads of 4, batch 2, sequence 3; x 48 elements; in_proj 2*6*24*8 = 2304, out_proj 2*6*8*8 = 768;
# attention 4 heads of 9 pairs: 2*36*8 = 576
E8 = {
    "in_proj": Work(2304, 1056, 576),  # (48+192+24)*4; 144*4
    "attention": Work(576, 576, 240),  # 3*48*4; 48*4 + 12*4
    "out_proj": Work(768, 480, 192),  # (48+64+8)*4
}


PARAMETERS = (t(24, 8), t(24), t(8, 8), t(8))
X = t(2, 3, 8, ident=1)
MHA = (t(3, 2, 8, ident=1),) * 3
OPTIONS = (t(24, 8), t(24), None, None, False, 0.0, t(8, 8), t(8), True, None, False)


MULTI_HEAD: list[Row] = [
    ("multi_head_attention_forward", (*MHA, 8, 2, *OPTIONS), E8),
    ("_native_multi_head_attention _triton_multi_head_attention", (X, X, X, 8, 2, *PARAMETERS, None, False), E8),
]
test_worked_by_hand = worked(ROWS, MULTI_HEAD)
declare_tested("multi_head_attention_forward.backward _transformer_encoder_layer_fwd")


def test_returned_weights_are_written() -> None:
    parts = evaluate("_native_multi_head_attention", (X, X, X, 8, 2, *PARAMETERS, None, True, True))
    assert isinstance(parts, dict)
    assert parts["attention"].write == 312  # + 2 batches of 9 averaged weights * 4

    options = (*OPTIONS[:10], True)
    parts = evaluate("multi_head_attention_forward", (*MHA, 8, 2, *options))
    assert isinstance(parts, dict)
    assert parts["attention"].write == 240 + 2 * 3 * 3 * 4  # the sequence comes first: 2 batches of 3


def test_other_keys_are_projected_apart() -> None:
    memory = t(5, 2, 8, ident=2)
    parts = evaluate("multi_head_attention_forward", (MHA[0], memory, memory, 8, 2, *OPTIONS))
    assert isinstance(parts, dict)
    # queries: 2*6*8*8, (48+64+8)*4, 48*4; keys and values: 2*10*16*8, (80+128+16)*4, 160*4
    assert parts["in_proj"] == Work(3328, 1376, 832)


def test_a_learned_key_and_a_zero_are_attended_to() -> None:
    options = (OPTIONS[0], OPTIONS[1], t(1, 1, 8), t(1, 1, 8), True, *OPTIONS[5:])
    parts = evaluate("multi_head_attention_forward", (*MHA, 8, 2, *options))
    assert isinstance(parts, dict)
    # 4 heads of 3 queries and 5 keys: 2*60*8; 192 of Q, 2*(2*5*8)*4 of K and V; 192, and 12 queries' logarithms
    assert parts["attention"] == Work(960, 832, 240)


def test_multi_head_attention_backward() -> None:
    parts = evaluate("multi_head_attention_forward.backward", (*MHA, 8, 2, *OPTIONS))
    flop = {name: work.flop for name, work in parts.items()}  # type: ignore[union-attr]
    # twice the products and the biases' sums, 5*24 and 5*8; five of attention's: 2*36*20
    assert flop == {"in_proj": 4728, "attention": 1440, "out_proj": 1576}


def test_encoder_layer() -> None:
    norm = (t(8),) * 4
    args = (X, 8, 2, *PARAMETERS, False, False, 1e-5, *norm, t(16, 8), t(16), t(8, 16), t(8))
    parts = evaluate("_transformer_encoder_layer_fwd", args)
    assert isinstance(parts, dict)
    assert {name: parts[name] for name in E8} == E8
    assert (parts["up"].flop, parts["down"].flop) == (1536, 1536)  # 2*6*16*8
    assert parts["residual"].flop == 96  # two sums of 48


def test_shapes_alone_need_to_know_whether_it_is_causal() -> None:
    q = Tensor(Q.shape)
    work = total(evaluate("_scaled_dot_product_cudnn_attention", (q, q, q, UNKNOWN, UNKNOWN, UNKNOWN, False)))
    assert work.flop == 3072 and math.isnan(work.nbytes)
    with pytest.raises(UnknownArgument):
        evaluate("_scaled_dot_product_cudnn_attention", (q, q, q, *(UNKNOWN,) * 6))


def test_packed_sequences_of_unknown_lengths_are_not_guessed() -> None:
    cum = b(3, dtype="int32")
    even = b(8, 3, 8)  # two of at most 4 fill 8: both have 4
    assert total(evaluate("_flash_attention_forward", (even, even, even, cum, cum, 4, 4, 0.0, True))).flop == 1920
    keys = b(6, 3, 8)  # two of at most 3
    assert total(evaluate("_flash_attention_forward", (even, keys, keys, cum, cum, 4, 3, 0.0, False))).flop == 2304
    for q, k, max_q, max_k in ((PACKED, PACKED, 4, 4), (even, PACKED, 4, 4), (PACKED, even, 4, 4)):
        with pytest.raises(UnknownArgument):
            evaluate("_flash_attention_forward", (q, k, k, cum, cum, max_q, max_k, 0.0, True))


length = st.integers(0, 12)
limit = st.none() | st.integers(0, 6)


@given(q=length, k=length, left=limit, right=limit, shift=st.integers(-8, 8))
def test_pairs_are_those_that_one_sees(q: int, k: int, left: int | None, right: int | None, shift: int) -> None:
    seen = sum(
        (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right)
        for i, j in product(range(q), range(k))
    )
    assert unmasked(q, k, left, right, shift) == seen


@given(size=st.integers(1, 4), more=st.integers(1, 4), h=st.integers(1, 4), n=st.integers(1, 9), causal=st.booleans())
def test_flop_adds_over_a_split_of_the_batch(size: int, more: int, h: int, n: int, causal: bool) -> None:
    def flop(batch: int) -> int:
        x = b(batch, h, n, 8)
        return total(evaluate("scaled_dot_product_attention", (x, x, x, None, 0.0, causal))).flop

    assert flop(size) + flop(more) == flop(size + more)


def test_as_many_sequences_as_no_list_could_hold() -> None:
    many = 1 << 40
    ends, q = b(many + 1, dtype="int32"), b(2 * many, 1, 8)  # sequences of 2: 3 pairs of 8 + 8 each
    assert total(evaluate("_flash_attention_forward", (q, q, q, ends, ends, 2, 2, 0.0, True))).flop == 2 * 3 * 16 * many
    s = b(many, 2, 1, 8)
    assert total(evaluate("_flash_attention_forward", (s, s, s, None, None, 2, 2, 0.0, True))).flop == 2 * 3 * 16 * many
