"""Normalisations, counted by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, t, worked


def b(*shape: int) -> Tensor:
    return t(*shape, dtype="bfloat16")


X = t(2, 3, 4, 5)  # 120 elements in 3 channels of 40, 480 bytes
C = t(3)  # 12 bytes
H = t(2, 3, 4, 5, dtype="bfloat16")  # 240 bytes
L = t(4, 6)  # 24 elements in 4 rows, 96 bytes
ALL = [True, True, True]
TRAIN = Work(840 + 27, 480 + 48, 480 + 24 + 24)  # 7 an element, 2 + 7 a channel; statistics saved and updated
EVAL = Work(240 + 15, 480 + 48, 480)  # 2 an element, 5 a channel
BACK = Work(1080 + 3, 960 + 12 + 24, 480 + 24)  # 9 an element, 1 a channel
ROWS: list[Row] = [
    (
        "native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit "
        "_native_batch_norm_legit_functional batch_norm _batch_norm_impl_index",
        (X, C, C, C, C, True, 0.1, 1e-5),
        TRAIN,
    ),
    ("native_batch_norm batch_norm", (X, C, C, C, C, False, 0.1, 1e-5), EVAL),
    ("native_batch_norm", (X, C, C, C, C, UNKNOWN, UNKNOWN, UNKNOWN), TRAIN),  # NVTX: training is assumed
    ("native_batch_norm", (H, C, C, C, C, True, 0.1, 1e-5), Work(867, 240 + 48, 240 + 24 + 24)),  # float32 statistics
    ("native_batch_norm", (X, None, None, None, None, True, 0.1, 1e-5), Work(600 + 6, 480, 480 + 24)),
    ("_native_batch_norm_legit", (X, C, C, True, 0.1, 1e-5), Work(840 + 6, 480 + 24, 480 + 24)),  # no_stats
    ("_native_batch_norm_legit_no_training _batch_norm_no_update", (X, C, C, C, C, 0.1, 1e-5), EVAL),
    ("_batch_norm_with_update _batch_norm_with_update_functional", (X, C, C, C, C, 0.1, 1e-5), TRAIN),
    ("native_batch_norm_backward", (X, X, C, C, C, C, C, True, 1e-5, ALL), BACK),
    (
        "native_batch_norm_backward",
        (X, X, C, C, C, C, C, False, 1e-5, ALL),
        Work(600 + 6, 960 + 36, 480 + 24),
    ),  # 5 an element, 2 a channel; weight, running mean and variance
    ("native_batch_norm_backward", (X, X, C, C, C, C, C, True, 1e-5, [False, True, True]), Work(600 - 6, 996, 24)),
    (
        "native_batch_norm_backward",
        (X, X, None, None, None, C, C, True, 1e-5, [True, False, False]),
        Work(1080, 960 + 24, 480),
    ),
    ("batch_norm_backward", (X, X, C, C, C, C, C, True, 1e-5, ALL, None), BACK),
    ("cudnn_batch_norm_backward", (X, X, C, C, C, C, C, 1e-5, None), BACK),
    ("miopen_batch_norm_backward", (X, X, C, C, C, C, C, 1e-5), BACK),
    ("batch_norm.backward", (X, C, C, C, C, True, 0.1, 1e-5), BACK),
    ("batch_norm.backward", (X, C, C, C, C, False, 0.1, 1e-5), Work(606, 996, 504)),
    ("batch_norm_update_stats", (X, t(3), t(3), 0.1), Work(480 + 21, 480 + 24, 24 + 24)),  # running ones 7 a channel
    ("batch_norm_update_stats", (X, None, None, 0.1), Work(480, 480, 24)),
    ("batch_norm_stats", (X, 1e-5), Work(480 + 6, 480, 24)),
    (
        "batch_norm_gather_stats batch_norm_gather_stats_with_counts",
        (X, t(8, 3), t(8, 3), C, C),
        Work(240, 96 + 96 + 24, 24 + 24),
    ),
    ("batch_norm_elemt", (X, C, C, C, C, 1e-5), Work(480, 480 + 48, 480)),
    ("batch_norm_backward_reduce", (X, X, C, C, C, True, True, True), Work(480 - 3, 960 + 36, 24 + 24)),
    ("batch_norm_backward_elemt", (X, X, C, C, C, C, C, t(8, dtype="int32")), Work(600, 960 + 60 + 32, 480)),
    ("native_layer_norm layer_norm", (L, [6], t(6), t(6), 1e-5), Work(168 + 8, 96 + 48, 96 + 32)),
    ("native_layer_norm", (L, [6], None, None, 1e-5), Work(120 + 8, 96, 128)),
    ("native_layer_norm", (L, [6], t(6), None, 1e-5), Work(144 + 8, 120, 128)),
    ("native_layer_norm", (L, UNKNOWN, t(6), t(6), UNKNOWN), Work(176, 144, 128)),  # rows as long as the weight
    (
        "native_layer_norm_backward",
        (L, L, [6], t(4, 1), t(4, 1), t(6), t(6), ALL),
        Work(240 + 72 - 12, 192 + 24 + 32, 96 + 48),
    ),
    (
        "native_layer_norm_backward",
        (L, L, [6], t(4, 1), t(4, 1), None, None, [True, False, False]),
        Work(216, 192 + 32, 96),
    ),
    # no rows: the parameters' gradients are zeros
    ("native_layer_norm_backward", (t(0, 6), t(0, 6), [6], t(0, 1), t(0, 1), t(6), t(6), ALL), Work(0, 24, 48)),
    ("native_layer_norm_backward", (L, L, UNKNOWN, t(4, 1), t(4, 1), t(6), t(6), UNKNOWN), Work(300, 248, 144)),
    # over all 24 elements, with one mean: 240 + 2 * 24 - 24 + 24 - 24
    ("native_layer_norm_backward", (L, L, [4, 6], t(1), t(1), L, L, ALL), Work(264, 3 * 96 + 8, 96 + 2 * 96)),
    ("layer_norm.backward", (L, [6], t(6), t(6), 1e-5), Work(300, 248, 144)),
    # 6 channels in 2 groups: 2 * 2 rows
    ("native_group_norm", (t(2, 6, 5), t(6), t(6), 2, 6, 5, 2, 1e-5), Work(420 + 8, 240 + 48, 240 + 32)),
    ("group_norm", (t(2, 6, 5), 2, t(6), t(6), 1e-5), Work(428, 288, 272)),
    # 4 means and deviations in the data's type, or in float32 if the parameters are; 60 elements of 2 bytes
    ("group_norm", (b(2, 6, 5), 2, b(6), b(6), 1e-5), Work(428, 120 + 24, 120 + 16)),
    ("group_norm", (b(2, 6, 5), 2, t(6), t(6), 1e-5), Work(428, 120 + 48, 120 + 32)),
    ("group_norm.backward", (b(2, 6, 5), 2, b(6), b(6), 1e-5), Work(768, 240 + 12 + 16, 120 + 24)),
    # saved statistics count in the type that the capture shows: 12 rows of 5
    (
        "native_layer_norm_backward",
        (b(12, 5), b(12, 5), [5], b(12, 1), b(12, 1), None, None, [True, False, False]),
        Work(540, 240 + 48, 120),
    ),
    (
        "native_group_norm_backward",
        (t(2, 6, 5), t(2, 6, 5), t(2, 2), t(2, 2), t(6), 2, 6, 5, 2, ALL),
        Work(600 + 180 - 12, 480 + 24 + 32, 240 + 48),
    ),
    ("group_norm.backward", (t(2, 6, 5), 2, t(6), t(6), 1e-5), Work(768, 536, 288)),
    (
        "native_layer_norm_backward",
        (L, L, [6], t(4, 1), t(4, 1), t(6), t(6), [False, True, True]),
        Work(72 - 12, 192 + 32, 48),
    ),  # the weight is not read
    ("_weight_norm _weight_norm_interface", (L, t(4, 1), 0), Work(72 + 4, 96 + 16, 96 + 16)),  # 4 rows
    ("_weight_norm_interface_backward", (L, L, t(4, 1), t(4, 1), 0), Work(120 + 12, 192 + 32, 96 + 16)),
    ("_weight_norm.backward", (L, t(4, 1), 0), Work(132, 224, 112)),
    ("rms_norm _fused_rms_norm", (L, [6], t(6), None), Work(96 + 8, 96 + 24, 96 + 16)),
    ("rms_norm", (L, [6], None, None), Work(72 + 8, 96, 112)),
    ("_fused_rms_norm_backward", (L, L, [6], t(4, 1), t(6), [True, True]), Work(168 + 48 - 6, 192 + 24 + 16, 96 + 24)),
    ("rms_norm.backward", (L, [6], t(6), None), Work(210, 232, 120)),
    ("rms_norm.backward", (L, [6], None, None), Work(144, 192 + 16, 96)),
    ("instance_norm", (X, C, C, None, None, True, 0.1, 1e-5), Work(840 + 12, 480 + 24, 480 + 48)),  # 6 rows
    ("instance_norm.backward", (X, C, C, None, None, True, 0.1, 1e-5), Work(1080 + 6, 960 + 12 + 48, 480 + 24)),
    (
        "_C::rms_norm sgl_kernel::rmsnorm aiter::rmsnorm flashinfer::rmsnorm flashinfer::rmsnorm_quant",
        (L, L, t(6), 1e-5),
        Work(96 + 8, 120, 96),
    ),
    ("aiter::rms_norm", (L, t(6), 1e-5, 0), Work(96 + 8, 120, 96)),
    (
        "sgl_kernel::gemma_rmsnorm flashinfer::gemma_rmsnorm",
        (L, L, t(6), 1e-5),
        Work(120 + 8, 120, 96),
    ),  # 1 + w: 1 more per element
    (
        "sgl_kernel::gemma_fused_add_rmsnorm flashinfer::gemma_fused_add_rmsnorm",
        (L, L, t(6), 1e-5),
        Work(144 + 8, 216, 192),
    ),
    ("aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add_ck", (L, L, L, L, t(6), 1e-5), Work(120 + 8, 216, 192)),
    (
        "_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm flashinfer::fused_add_rmsnorm",
        (L, L, t(6), 1e-5),
        Work(120 + 8, 216, 192),
    ),
]
test_worked_by_hand = worked(ROWS)


def test_saved_statistics_that_are_empty_say_evaluation() -> None:
    arguments = (X, C, C, C, C, UNKNOWN, UNKNOWN, UNKNOWN)
    assert evaluate("native_batch_norm", arguments, (X, t(0), t(0))) == EVAL


def test_rows_of_layer_norm_are_not_guessed() -> None:
    with pytest.raises(UnknownArgument):
        evaluate("native_layer_norm", (L, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN))
    assert total(evaluate("native_layer_norm", (L, *[UNKNOWN] * 4), (L, t(4, 1), t(4, 1)))) == Work(128, 96, 128)


def test_flop_does_not_need_types() -> None:
    work = total(evaluate("native_layer_norm", (Tensor((4, 6)), UNKNOWN, Tensor((6,)), Tensor((6,)), UNKNOWN)))
    assert work.flop == 176
    assert math.isnan(work.nbytes)


@given(groups=st.integers(1, 5), size=st.integers(1, 9))
def test_group_norm_of_one_sample_counts_as_layer_norm_of_its_groups(groups: int, size: int) -> None:
    group = total(evaluate("native_group_norm", (t(1, groups, size), None, None, 1, groups, size, groups, 1e-5)))
    layer = total(evaluate("native_layer_norm", (t(groups, size), [size], None, None, 1e-5)))
    assert group == layer
