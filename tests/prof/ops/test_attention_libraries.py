"""Attention of AITER and SageAttention: counts by hand, in each version's order of arguments."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.kernels.tensor_cores import find_product
from pyprof.prof.load import load_table
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.model import Work, total
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import begin, call, kernel, op, write
from tests.prof.ops.op_cases import Row, t, worked

H = "bfloat16"
Q = t(2, 4, 3, 8, dtype=H)  # 2 sequences of 4, 3 heads of 8: 2 * 3 * 16 = 96 pairs, causal 2 * 3 * 10 = 60
PACKED, STARTS, LSE = t(8, 3, 8, dtype=H), t(3, dtype="int32"), t(2, 3, 4)
FULL, CAUSAL, WINDOW = 96 * 2 * 16, 60 * 2 * 16, 42 * 2 * 16  # window of one key to the left: 1 + 2 + 2 + 2 pairs
BACKWARD = 60 * 2 * (3 * 8 + 2 * 8)


INT8 = t(2, 4, 3, 8, dtype="int8")
HEADS_FIRST = t(2, 3, 4, 8, dtype="int8")
V, OUT, S = t(2, 4, 3, 8, dtype="float16"), t(2, 4, 3, 8, dtype="float16"), t(2, 3, 1)
LENGTHS = (STARTS, STARTS, 4, 4)
SIX = (PACKED,) * 5
ROWS: list[Row] = [
    # 3 * 384 bytes read, 384 and 24 logarithms of 4 bytes written; packed sequences have 2 * 3 starts of 4 bytes
    ("aiter::mha_fwd", (Q, Q, Q, 0.0, 0.35, True, -1, -1, True, False), Work(CAUSAL, 1152, 480)),
    (
        "aiter::mha_varlen_fwd",
        (PACKED, PACKED, PACKED, *LENGTHS, 0, 0.0, 0.35, 0.0, False, True, -1, -1, True, False),
        Work(CAUSAL, 1152 + 24, 480),
    ),
    # five products; dout, q, k, v, out 5 * 384 and 96 read; three gradients written
    ("aiter::mha_bwd", (Q, Q, Q, Q, Q, LSE, 0.0, 0.35, True, -1, -1, False), Work(BACKWARD, 2016, 1152)),
    (
        "aiter::mha_varlen_bwd",
        (*SIX, LSE, *LENGTHS, 0.0, 0.35, False, True, -1, -1, False),
        Work(BACKWARD, 2016 + 24, 1152),
    ),
    # Q and K 192 bytes each, V 384, two scales of 24; O 384 bytes of fp16 and 24 logarithms of 4
    ("sageattention::attention", (INT8, INT8, V, OUT, S, S, 0, 1, 3, 0.35, 1), Work(CAUSAL, 192 + 192 + 384 + 48, 480)),
]

test_worked_by_hand = worked(ROWS)


def flop(name, *arguments):
    return total(evaluate(find(name), arguments)).flop


@pytest.mark.parametrize(
    ("name", "arguments", "right"),
    [
        ("mha_fwd", (Q, Q, Q, 0.0, 0.35, False, -1, -1, True, False), FULL),
        ("mha_fwd", (Q, Q, Q, 0.0, 0.35, True, -1, -1, True, False, None, None), CAUSAL),
        ("mha_fwd", (Q, Q, Q, 0.0, 0.35, True, 1, 0, 0, True, False), WINDOW),  # with a sink's size, of late 2025
        ("fmha_v3_fwd", (Q, Q, Q, 0.0, 0.35, True, -1, -1, True, False, 2), CAUSAL),
        ("mha_fwd_bf16_nobias", (Q, Q, Q, 0.0, 0.35, True, -1, -1, True, False), CAUSAL),  # of early 2025
        # before and since the argument min_seqlen_q and the logits' cap
        (
            "mha_varlen_fwd",
            (PACKED, PACKED, PACKED, STARTS, STARTS, 4, 4, 0.0, 0.35, False, True, -1, -1, True),
            CAUSAL,
        ),
        (
            "fmha_v3_varlen_fwd",
            (PACKED, PACKED, PACKED, STARTS, STARTS, 4, 4, 0, 0.0, 0.35, 0.0, False, True, -1, -1, True, False, 1),
            CAUSAL,
        ),
        ("mha_varlen_fwd", (PACKED, PACKED, PACKED, STARTS, STARTS, 4, 4, 0.0, 0.35, True, False, -1, -1), FULL),
        ("mha_bwd", (Q, Q, Q, Q, Q, LSE, 0.0, 0.35, True, -1, -1, False), BACKWARD),
        ("fmha_v3_bwd", (Q, Q, Q, Q, Q, LSE, 0.0, 0.35, True, -1, -1, False, True, 2), BACKWARD),
        (
            "fmha_v3_varlen_bwd",
            (PACKED, PACKED, PACKED, PACKED, PACKED, LSE, STARTS, STARTS, 4, 4, 0.0, 0.35, False, True, -1, -1, False),
            BACKWARD,
        ),
    ],
)
def test_aiter(name, arguments, right):
    assert flop(f"aiter::{name}", *arguments) == right


def test_what_the_capture_lacks_of_aiter_is_unknown():
    with pytest.raises(UnknownArgument, match="causal"):
        flop("aiter::mha_fwd", Q, Q, Q, 0.0, 0.35, None, -1, -1)
    with pytest.raises(UnknownArgument, match="lengths"):  # a cache in pages
        pages = t(5, 16, 3, 8, dtype=H)
        flop("aiter::mha_varlen_fwd", PACKED, pages, pages, STARTS, None, 4, 64, 0, 0.0, 0.35, 0.0, False, True, -1, -1)


def test_a_trace_of_packed_sequences(tmp_path):
    """2 sequences of 1024 and 8 heads of 128: 4 * 2 * 8 * 1024^2 * 128 = 8,589,934,592 flop"""
    sizes = [[2048, 8, 128]] * 3 + [[3]] * 2 + [[]] * 6
    types = ["c10::BFloat16"] * 3 + ["int"] * 2 + ["Scalar"] * 6
    values = ["", "", "", "", "", "1024", "1024", "0.", "False", "False", ""]
    given = {"Input_Dims": sizes, "Input_type": types, "Concrete_Inputs": values}
    events = op("aiter::fmha_v3_varlen_fwd", 1010, 50, **given), call(1020, 5), kernel(1100, 40, 5)
    table = correlate(read(write(tmp_path / "net.json", begin(1000), *events)))
    assert annotate(table).flops.tolist() == [8_589_934_592]


@pytest.mark.parametrize(
    ("name", "arguments", "right"),
    [  # layout, causal, granularity, scale, logarithms
        ("f16_accum_f32_attn", (INT8, INT8, V, OUT, S, S, 0, 0, 3, 0.35, 0), FULL),
        ("f16_accum_f16_attn_inst_buf", (INT8, INT8, V, OUT, S, S, 0, 1, 3, 0.35, 0), CAUSAL),
        ("f16_accum_f16_fuse_v_mean_attn", (INT8, INT8, V, OUT, S, S, S, 0, 1, 3, 0.35, 1), CAUSAL),
        # of fp8, V is [batch, size, heads, padded sequence]
        ("f8_accum_f32_fuse_v_scale_attn", (INT8, INT8, t(2, 8, 3, 64), OUT, S, S, S, 0, 1, 3, 0.35, 0), CAUSAL),
        (
            "f8_accum_f32_attn_inst_buf",
            (HEADS_FIRST, HEADS_FIRST, t(2, 3, 8, 64), t(2, 3, 4, 8, dtype="float16"), S, S, 1, 1, 3, 0.35, 0),
            CAUSAL,
        ),
    ],
)
def test_sage_attention(name, arguments, right):
    assert flop(f"sageattention::qk_int8_sv_{name}", *arguments) == right


@pytest.mark.parametrize(
    "name",  # csrc/qattn: qk_int_sv_f16_cuda_sm80.cu, qk_int_sv_f8_cuda_sm89.cuh, qk_int_sv_f8_cuda_sm90.cu
    [
        "void qk_int_sv_f16_attn_kernel<128u, 64u>",
        "void qk_int_sv_f8_attn_kernel<128u>",
        "void qk_int8_sv_f8_attn_kernel<64u>",
    ],
)
def test_the_kernels_of_sage_attention_are_attention(name):
    assert find_product(name)[0].work == "attention"


def test_lengths_of_a_tensor_without_a_type(data):
    """Two sequences of 1024, which the longest length and the number of rows show; cumulative lengths have no type.

    Two products of 8 heads: 2 * 2*8*2*1024*1024*128
    """
    loaded = load_table(data / "round3" / "cases" / "aiter_varlen.json.gz")
    assert annotate(loaded.table).flops.tolist() == [8_589_934_592]
