"""Pooling and interpolation, counted by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import ModelError, UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from pyprof.prof.ops.pooling import overlap, spans
from tests.prof.ops.op_cases import Row, i, t, worked

X = t(1, 2, 4, 4)  # 32 elements, 128 bytes
X8 = t(1, 2, 8, 8)  # 128 elements, 512 bytes
X1, X3 = t(1, 2, 4), t(1, 2, 4, 4, 4)  # 8 and 128 elements
ROWS: list[Row] = [
    ("max_pool1d_with_indices max_pool1d", (X1, [2], [2], [0], [1], False), Work(0, 32, 16 + 32)),
    ("max_pool1d", (Tensor((1, 2, 4), "float32", needs_grad=False), [2]), Work(0, 32, 16)),  # no positions
    ("max_pool2d_with_indices max_pool2d", (X, [2, 2], [], [0, 0], [1, 1], False), Work(0, 128, 32 + 64)),
    ("max_pool2d", (replace(X, needs_grad=False), [2, 2]), Work(0, 128, 32 + 64)),
    ("max_pool2d_with_indices", (X, 3, 2, 1, 1, False), Work(0, 128, 32 + 64)),  # (4 + 2 - 3) // 2 + 1 = 2
    ("max_pool2d_with_indices", (X, [3], [2], [0], [1], True), Work(0, 128, 32 + 64)),  # ceil(1 / 2) + 1 = 2
    ("max_pool3d_with_indices max_pool3d", (X3, [2], [2], [0], [1], False), Work(0, 512, 64 + 128)),
    (
        "max_pool2d_with_indices_backward",
        (t(1, 2, 2, 2), X, [2, 2], [], [0, 0], [1, 1], False, i(1, 2, 2, 2)),
        Work(8, 32 + 64, 128),
    ),
    (
        "max_pool3d_with_indices_backward",
        (t(1, 2, 2, 2, 2), X3, [2], [2], [0], [1], False, i(1, 2, 2, 2, 2)),
        Work(16, 64 + 128, 512),
    ),
    (
        "adaptive_max_pool2d_backward fractional_max_pool2d_backward",
        (t(1, 2, 2, 2), X, i(1, 2, 2, 2)),
        Work(8, 96, 128),
    ),
    (
        "adaptive_max_pool3d_backward fractional_max_pool3d_backward",
        (t(1, 2, 2, 2, 2), X3, i(1, 2, 2, 2, 2)),
        Work(16, 192, 512),
    ),
    ("adaptive_max_pool1d", (X1, [2]), Work(0, 32, 16 + 32)),
    ("adaptive_max_pool2d", (X, [2, 2]), Work(0, 128, 32 + 64)),
    ("adaptive_max_pool3d", (X3, [2, 2, 2]), Work(0, 512, 64 + 128)),
    ("adaptive_avg_pool1d", (X1, [2]), Work(8, 32, 16)),
    ("adaptive_avg_pool2d _adaptive_avg_pool2d", (X, [1, 1]), Work(32, 128, 8)),  # 15 additions, a division, twice
    ("adaptive_avg_pool2d", (X, [3, 3]), Work(2 * 36, 128, 72)),  # windows 0-2 1-3 2-4: 6 a dimension
    ("adaptive_avg_pool2d", (X, [2, None]), Work(2 * 4 * 4, 128, 64)),  # None keeps the dimension
    ("adaptive_avg_pool3d _adaptive_avg_pool3d", (X3, [2, 2, 2]), Work(128, 512, 64)),
    ("adaptive_avg_pool1d.backward", (X1, [2]), Work(4, 16, 32)),
    ("adaptive_avg_pool2d.backward", (X, [1, 1]), Work(2, 8, 128)),
    ("adaptive_avg_pool3d.backward", (X3, [2, 2, 2]), Work(16, 64, 512)),
    ("_adaptive_avg_pool2d_backward", (t(1, 2, 3, 3), X), Work(18 + 72 - 32, 72, 128)),
    ("_adaptive_avg_pool3d_backward", (t(1, 2, 2, 2, 2), X3), Work(16, 64, 512)),
    ("avg_pool1d", (X1, [2], [2], [0]), Work(8, 32, 16)),  # 4 results: an addition, a division
    ("avg_pool2d", (X, [2, 2], [], [0, 0], False, True, None), Work(32, 128, 32)),
    ("avg_pool2d", (X, [3, 3], [2, 2], [1, 1], False, True, None), Work(72, 128, 32)),  # 8 results, 9 each
    ("avg_pool3d", (X3, [2], [2], [0]), Work(128, 512, 64)),
    ("avg_pool2d", (t(1, 2, 4, 4, dtype="int64"), [2, 2], [], [0, 0], False, True, None), Work(0, 256, 64)),
    ("avg_pool1d.backward", (X1, [2], [2], [0]), Work(4, 16, 32)),
    ("avg_pool2d_backward", (t(1, 2, 2, 2), X, [2, 2], [], [0, 0], False, True, None), Work(8, 32, 128)),
    # windows 0-2 and 1-4 of each dimension: 5 elements, 4 of them different
    (
        "avg_pool2d_backward",
        (t(1, 2, 2, 2), X, [3, 3], [2, 2], [1, 1], False, True, None),
        Work(8 + 2 * (25 - 16), 32, 128),
    ),
    ("avg_pool3d_backward", (t(1, 2, 2, 2, 2), X3, [2], [2], [0]), Work(16, 64, 512)),
    ("max_unpool2d", (t(1, 2, 2, 2), i(1, 2, 2, 2), [4, 4]), Work(0, 32 + 64, 128)),
    ("max_unpool3d", (t(1, 2, 2, 2, 2), i(1, 2, 2, 2, 2), [4, 4, 4]), Work(0, 64 + 128, 512)),
    ("fractional_max_pool2d", (X, [2, 2], [2, 2], t(1, 2, 2)), Work(0, 128, 32 + 64)),
    ("fractional_max_pool3d", (X3, [2, 2, 2], [2, 2, 2], t(1, 2, 3)), Work(0, 512, 64 + 128)),
    ("upsample_nearest1d _upsample_nearest_exact1d", (X1, [8], None), Work(0, 32, 64)),
    ("upsample_nearest2d _upsample_nearest_exact2d", (X, [8, 8], None, None), Work(0, 128, 512)),
    ("upsample_nearest2d", (X, None, [2.0, 1.5]), Work(0, 128, 2 * 8 * 6 * 4)),  # by scale factors
    ("upsample_nearest3d _upsample_nearest_exact3d", (X3, [8, 8, 8], None), Work(0, 512, 4096)),
    ("upsample_linear1d", (X1, [8], False, None), Work(48, 32, 64)),  # 2 products, a sum
    ("upsample_bilinear2d _upsample_bilinear2d_aa", (X, [8, 8], False, None, None), Work(896, 128, 512)),  # 7
    ("upsample_trilinear3d", (X3, [8, 8, 8], False, None), Work(15360, 512, 4096)),  # 15
    ("upsample_bicubic2d _upsample_bicubic2d_aa", (X, [8, 8], False, None, None), Work(3968, 128, 512)),  # 31
    # halved with antialiasing: windows of 4, at both ends 3, of 8: 14 of each side's 4 results; 2 * 14 * 14 taps in all
    ("_upsample_bilinear2d_aa", (X8, [4, 4], False, None, None), Work(2 * 392 - 32, 512, 128)),
    ("_upsample_bilinear2d_aa", (X8, None, False, [0.5, 0.5]), Work(2 * 392 - 32, 512, 128)),
    ("_upsample_bilinear2d_aa", (X8, UNKNOWN, UNKNOWN), (t(1, 2, 4, 4),), Work(2 * 392 - 32, 512, 128)),
    # only the height is halved: 14 * 2 * 8 taps of each channel
    ("_upsample_bilinear2d_aa", (X8, [4, 8], False, None, None), Work(2 * 448 - 64, 512, 256)),
    # windows of 8 around 1, 3, 5, 7 of 8: 5, 7, 7, 5
    ("_upsample_bicubic2d_aa", (X8, [4, 4], False, None, None), Work(2 * 2 * 24 * 24 - 32, 512, 128)),
    ("_upsample_bilinear2d_aa", (X8, UNKNOWN, UNKNOWN), UnknownArgument),
    (
        "_upsample_bilinear2d_aa_backward",
        (t(1, 2, 4, 4), [4, 4], [1, 2, 8, 8], False, None, None),
        Work(392 + 392 - 128, 128, 512),
    ),
    ("_upsample_lanczos2d_aa", (X, [8, 8], False, None, None), Work(71 * 128, 128, 512)),
    ("upsample_nearest1d_backward _upsample_nearest_exact1d_backward", (t(1, 2, 8), [8], [1, 2, 4]), Work(8, 64, 32)),
    (
        "upsample_nearest2d_backward _upsample_nearest_exact2d_backward",
        (t(1, 2, 8, 8), [8, 8], [1, 2, 4, 4]),
        Work(96, 512, 128),
    ),  # 3 sums an element
    (
        "upsample_nearest3d_backward _upsample_nearest_exact3d_backward",
        (t(1, 2, 8, 8, 8), [8] * 3, [1, 2, 4, 4, 4]),
        Work(896, 4096, 512),
    ),
    ("upsample_linear1d_backward", (t(1, 2, 8), [8], [1, 2, 4]), Work(64 - 8, 64, 32)),
    (
        "upsample_bilinear2d_backward _upsample_bilinear2d_aa_backward",
        (t(1, 2, 8, 8), [8, 8], [1, 2, 4, 4], False),
        Work(1024 - 32, 512, 128),
    ),  # 4 products and 4 sums an element of g
    (
        "upsample_trilinear3d_backward",
        (t(1, 2, 8, 8, 8), [8] * 3, [1, 2, 4, 4, 4], False),
        Work(16384 - 128, 4096, 512),
    ),
    (
        "upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward",
        (t(1, 2, 8, 8), [8, 8], [1, 2, 4, 4], False),
        Work(4096 - 32, 512, 128),
    ),
    ("_upsample_lanczos2d_aa_backward", (t(1, 2, 8, 8), [8, 8], [1, 2, 4, 4], False), Work(72 * 128 - 32, 512, 128)),
    # 9 points, 2 channels
    (
        "grid_sampler grid_sampler_2d cudnn_grid_sampler grid_sample _grid_sampler_2d_cpu_fallback",
        (X, t(1, 3, 3, 2), 0, 0, False),
        Work(126, 128 + 72, 72),
    ),
    ("grid_sampler", (X, t(1, 3, 3, 2), 1, 0, False), Work(0, 200, 72)),  # nearest
    ("grid_sampler", (X, t(1, 3, 3, 2), "bicubic"), Work(31 * 18, 200, 72)),
    ("grid_sampler_3d", (X3, t(1, 3, 3, 3, 3), 0, 0, False), Work(15 * 54, 512 + 324, 216)),
    (
        "grid_sampler_2d_backward _grid_sampler_2d_cpu_fallback_backward",
        (t(1, 2, 3, 3), X, t(1, 3, 3, 2), 0, 0, False, [True, True]),
        Work(8 * 18 * 3, 72 + 200, 128 + 72),
    ),
    ("grid_sampler_2d_backward", (t(1, 2, 3, 3), X, t(1, 3, 3, 2), 0, 0, False, [True, False]), Work(144, 272, 128)),
    (
        "grid_sampler_3d_backward",
        (t(1, 2, 3, 3, 3), X3, t(1, 3, 3, 3, 3), 0, 0, False, [True, True]),
        Work(16 * 54 * 4, 216 + 512 + 324, 512 + 324),
    ),
    ("grid_sampler.backward", (X, Tensor((1, 3, 3, 2), "float32", needs_grad=False), 0, 0, False), Work(144, 272, 128)),
    # both gradients: 4 products and 4 sums of each of 18 for dx, twice as many for dgrid; X, the grid and g
    ("cudnn_grid_sampler_backward", (X, t(1, 3, 3, 2), t(1, 2, 3, 3)), Work(144 + 288, 272, 128 + 72)),
    ("cudnn_affine_grid_generator", (t(1, 2, 3), 1, 2, 4, 4), Work(16 * 2 * 5, 24, 128)),
    ("cudnn_affine_grid_generator_backward", (t(1, 4, 4, 2), 1, 2, 4, 4), Work(192, 128, 24)),
    ("affine_grid_generator", (t(1, 2, 3), [1, 2, 4, 4], False), Work(16 * 2 * 5, 24, 128)),  # 3 products, 2 sums
    ("affine_grid_generator_backward", (t(1, 4, 4, 2), [1, 2, 4, 4], False), Work(192, 128, 24)),
]
test_worked_by_hand = worked(ROWS)


def test_a_window_that_is_not_told() -> None:
    assert total(evaluate("max_pool2d_with_indices", (X, *[UNKNOWN] * 5))).flop == 0  # whatever the window
    assert math.isnan(total(evaluate("max_pool2d_with_indices", (X, *[UNKNOWN] * 5))).write)
    with pytest.raises(UnknownArgument):
        evaluate("avg_pool2d", (X, *[UNKNOWN] * 5))
    with pytest.raises(UnknownArgument):
        evaluate("upsample_bilinear2d", (X, *[UNKNOWN] * 4))


def test_outputs_that_are_told_give_the_size() -> None:
    assert evaluate("upsample_nearest2d", (X, UNKNOWN), (t(1, 2, 8, 8),)) == Work(0, 128, 512)
    assert evaluate("max_pool2d_with_indices", (X, UNKNOWN), (t(1, 2, 2, 2), i(1, 2, 2, 2))) == Work(0, 128, 96)


SIZES = st.integers(1, 12)


@given(size=SIZES, kernel=st.integers(1, 4), stride=st.integers(1, 4), padding=st.integers(0, 2))
def test_overlap_equals_its_definition(size: int, kernel: int, stride: int, padding: int) -> None:
    padding = min(padding, kernel // 2)
    count = max((size + 2 * padding - kernel) // stride + 1, 0)
    windows = [
        {j for j in range(i * stride - padding, i * stride - padding + kernel) if 0 <= j < size} for i in range(count)
    ]
    assert overlap(size, count, kernel, stride, padding) == (sum(map(len, windows)), len(set().union(*windows)))


@given(size=SIZES)
def test_adaptive_pooling_to_its_own_size_is_a_division_each(size: int) -> None:
    assert total(evaluate("adaptive_avg_pool2d", (t(1, 1, size, size), [size, size]))).flop == size * size


@given(size=st.integers(0, 40), count=st.integers(0, 40))
def test_adaptive_windows_are_those_that_one_sees(size: int, count: int) -> None:
    ends = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    assert spans([size], [count]) == sum(end - begin for begin, end in ends)


HUGE = 1 << 40


@pytest.mark.parametrize(
    ("op", "arguments", "flop"),
    [
        # windows of 2 or 3 of 9 along one side, 9 + 4 - 1 elements in 4; along the other 9 + 2^40 - 1 in 2^40
        ("adaptive_avg_pool2d", (t(1, 1, 9, 9), [HUGE, 4]), 12 * (HUGE + 8)),
        ("avg_pool2d_backward", (t(1, 1, HUGE, 4), t(1, 1, 2 * HUGE, 8), [2, 2], [2, 2], [0, 0]), 4 * HUGE),
    ],
)
def test_sizes_that_no_loop_could_count_to(op: str, arguments: Row, flop: int) -> None:
    assert total(evaluate(op, arguments)).flop == flop


def test_more_results_than_an_image_has_are_not_looked_at_one_by_one() -> None:
    with pytest.raises(ModelError, match="no image has 1099511627776 results"):
        evaluate("_upsample_bilinear2d_aa", (t(1, 1, 2 * HUGE, 8), [HUGE, 4], False))
