"""Look-ups, gathers, scatters and masks, counted by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, i, t, worked

W = t(10, 6)  # a table of 60 elements, 240 bytes
X = t(4, 6)  # 24 elements, 96 bytes
M = t(4, 6, dtype="bool")  # 24 bytes
ROWS: list[Row] = [
    ("embedding", (W, i(2, 3), -1, False, False), Work(0, 6 * 24 + 48, 144)),
    ("embedding", (W, Tensor((2, 3))), Work(0, 192, 144)),  # NVTX: indices are taken for int64
    ("embedding", (W, t(2, 3, dtype="int32")), Work(0, 168, 144)),
    (
        "embedding_dense_backward embedding_backward embedding_sparse_backward",
        (t(2, 3, 6), i(2, 3), 10, -1, False),
        Work(36, 144 + 48, 240),
    ),
    ("embedding_dense_backward", (t(2, 3, 6), i(2, 3), 10, -1, True), Work(72, 192, 240)),
    ("embedding_renorm", (W, i(3), 1.0, 2.0), Work(54, 72 + 24, 72)),
    ("renorm", (X, 2, 0, 1.0), Work(72, 96, 96)),
    (
        "embedding_bag _embedding_bag _embedding_bag_forward_only",
        (W, i(5), i(2), False, 0, False, None, False),
        Work(18, 120 + 40, 48),
    ),  # 5 rows in 2 bags: 3 * 6 additions
    ("_embedding_bag", (W, i(5), i(2), False, 1, False, None, False), Work(18 + 12, 160, 48)),  # mean
    ("_embedding_bag", (W, i(5), i(2), False, 2, False, None, False), Work(0, 160, 48)),  # max
    ("_embedding_bag", (W, i(5), i(2), False, 0, False, t(5), False), Work(18 + 30, 180, 48)),
    ("_embedding_bag", (W, i(5), i(3), False, 0, False, None, True), Work(18, 160, 48)),  # the last offset is the end
    ("embedding_bag", (W, i(2, 3), None, False, "sum"), Work(24, 144 + 48, 48)),
    (
        "embedding_bag.backward _embedding_bag.backward",
        (W, i(5), i(2), False, 0, False, None, False),
        Work(30, 48 + 40, 240),
    ),
    ("_embedding_bag_per_sample_weights_backward", (t(2, 6), W, i(5), i(2), i(5), 0), Work(60, 120 + 48 + 40, 20)),
    # with weights that need a gradient: 2 * 30 for the table and 60 for them
    (
        "embedding_bag.backward",
        (W, i(5), i(2), False, 0, False, t(5), False),
        Work(60 + 60, 48 + 40 + 20 + 208, 240 + 20),
    ),
    (
        "_embedding_bag_dense_backward",
        (t(2, 6), i(5), i(5), i(2), i(2), 10, False, 1, None, -1),
        Work(30 + 12, 88, 240),
    ),
    (
        "_embedding_bag_backward",
        (t(2, 6), i(5), i(2), i(5), i(2), i(2), 10, False, 0, False, None, -1),
        Work(30, 88, 240),
    ),
    ("index_select", (X, 1, i(2)), Work(0, 32 + 16, 32)),
    ("index_select", (t(9), UNKNOWN, i(2)), Work(0, 8 + 16, 8)),  # there is one dimension only
    ("index_select.backward", (X, 1, i(2)), Work(8, 32 + 16, 96)),
    ("index_select_backward", (t(4, 2), [4, 6], 1, i(2)), Work(8, 48, 96)),
    ("gather", (X, 1, i(4, 2)), Work(0, 32 + 64, 32)),
    ("take_along_dim", (X, i(4, 2), 1), Work(0, 96, 32)),
    ("take_along_dim", (X, i(1, 2), 1), Work(0, 32 + 16, 32)),  # for each of 4 rows
    ("gather_backward", (t(4, 2), X, 1, i(4, 2), False), Work(8, 96, 96)),
    ("gather.backward", (X, 1, i(4, 2), False), Work(8, 96, 96)),
    ("take", (X, i(3)), Work(0, 12 + 24, 12)),
    ("take.backward", (X, i(3)), Work(3, 36, 96)),
    ("scatter", (X, 1, i(4, 2), t(4, 2)), Work(0, 96 + 64 + 32, 96)),
    ("scatter", (X, 1, i(4, 2), 1.0), Work(0, 160, 96)),
    ("scatter", (X, 1, i(4, 2), t(4, 2), "add"), Work(8, 192, 96)),
    ("scatter", (X, 1, i(4, 2), X), Work(0, 192, 96)),  # of a larger source only so much is read
    ("scatter_", (X, 1, i(4, 2), t(4, 2)), Work(0, 64 + 32, 32)),
    ("scatter_add", (X, 1, i(4, 2), t(4, 2)), Work(8, 192, 96)),
    ("scatter_reduce", (X, 1, i(4, 2), t(4, 2), "sum", True), Work(8, 192, 96)),
    ("scatter_reduce", (X, 1, i(4, 2), t(4, 2), "amax", True), Work(0, 192, 96)),
    ("scatter_reduce", (X, 1, i(4, 2), t(4, 2), "mean", True), Work(8 + 24, 192, 96)),  # a division for each of X
    ("scatter_add_", (X, 1, i(4, 2), t(4, 2)), Work(8, 96 + 32, 32)),  # in place: touched elements
    ("scatter_reduce_", (X, 1, i(4, 2), t(4, 2), "prod", True), Work(8, 128, 32)),
    # Kineto records no strings: None stands for the reduction's name; a tensor is out=
    ("scatter_reduce", (X, 1, i(4, 2), t(4, 2), None, True), Work(8, 192, 96)),
    ("scatter", (X, 1, i(4, 2), t(4, 2), None), Work(8, 192, 96)),
    ("scatter_add", (X, 1, i(4, 2), t(4, 2), X), Work(8, 192, 96)),
    ("scatter", (X, 1, i(4, 2), t(4, 2), X), Work(0, 192, 96)),
    ("scatter_reduce_", (X, 1, i(4, 2), t(4, 2), "amax", True), Work(0, 96 + 32, 32)),  # compares what is there
    ("index_reduce", (X, 0, i(2), t(2, 6), "amax", True), Work(0, 160, 96)),
    ("index_reduce", (X, 0, i(2), t(2, 6), "mean", True), Work(12 + 24, 160, 96)),
    ("index_reduce_", (X, 0, i(2), t(2, 6), "amax", True), Work(0, 16 + 48 + 48, 48)),
    ("index_add", (X, 0, i(2), t(2, 6), 1), Work(12, 96 + 16 + 48, 96)),
    ("index_add", (X, 0, i(2), t(2, 6), 2), Work(24, 160, 96)),
    ("index_reduce", (X, 0, i(2), t(2, 6), "prod", True), Work(12, 160, 96)),
    ("index_add_", (X, 0, i(2), t(2, 6), 1), Work(12, 16 + 48 + 48, 48)),
    ("index_add_", (X, 0, i(10), t(10, 6), 1), Work(60, 80 + 240 + 96, 96)),  # repeated rows: not more than all of self
    ("scatter_", (X, 1, i(4, 9), 1.0), Work(0, 288, 96)),
    ("index_reduce_", (X, 0, i(2), t(2, 6), "prod", True), Work(12, 112, 48)),
    ("index_copy", (X, 0, i(2), t(2, 6)), Work(0, 160, 96)),
    ("index_copy_", (X, 0, i(2), t(2, 6)), Work(0, 64, 48)),
    ("index_fill", (X, 0, i(2), 1.0), Work(0, 112, 96)),
    ("index_fill_", (X, 0, i(2), 1.0), Work(0, 16, 48)),
    ("put", (X, i(3), t(3), False), Work(0, 96 + 24 + 12, 96)),
    ("put_", (X, i(3), t(3), True), Work(3, 24 + 12 + 12, 12)),
    ("index _unsafe_index _index", (X, (i(3),)), Work(0, 72 + 24, 72)),
    ("index", (X, (None, i(2))), Work(0, 32 + 16, 32)),
    # 3 rows of 6 where a mask of 3 numbers is set; then as many values are added to a copy
    ("_unsafe_masked_index", (X, t(3, 1, dtype="bool"), (i(3),), 0.0), Work(0, 72 + 24 + 3, 72)),
    (
        "_unsafe_masked_index_put_accumulate",
        (X, t(3, 1, dtype="bool"), (i(3),), t(3, 6)),
        Work(18, 96 + 3 + 24 + 72, 96),
    ),
    ("index", (X, (i(3, 1), i(2))), Work(0, 24 + 40, 24)),  # 3 x 2 elements
    ("index_put _unsafe_index_put", (X, (i(3),), t(3, 6), True), Work(18, 96 + 24 + 72, 96)),
    ("index_put", (X, (i(3),), t(3, 6), False), Work(0, 192, 96)),
    ("index_put", (X, (i(3),), t(1), True), Work(18, 96 + 24 + 4, 96)),  # one value to all 18
    ("index_put_ _index_put_impl_", (X, (i(3),), t(3, 6), True), Work(18, 24 + 72 + 72, 72)),
    ("index_put_", (X, (i(3),), t(3, 6), False), Work(0, 96, 72)),
    ("index_put index_put_", (X, (M,), t(), False), Work(0, 96 + 24 + 4, 96)),  # x[mask] = 0 is masked_fill
    ("index_put index_put_", (X, (t(4, dtype="bool"),), t()), Work(0, 96 + 4 + 4, 96)),  # a mask of the rows
    ("index.backward", (X, (i(3),)), Work(18, 72 + 24, 96)),
    ("index.backward", (t(4, 6, dtype="complex64"), (i(3),)), Work(36, 144 + 24, 192)),  # two additions each
    ("index.backward", (t(4, 6, dtype="int64"), (i(3),)), Work(0, 144 + 24, 192)),
    ("masked_fill masked_fill_", (X, M, 0.0), Work(0, 120, 96)),
    ("masked_fill", (X, t(6, dtype="bool"), t()), Work(0, 96 + 6 + 4, 96)),
    ("masked_fill", (X, Tensor((4, 6)), UNKNOWN), Work(0, 120, 96)),  # NVTX: a mask is bool
    ("masked_scatter", (X, M, X), Work(0, 216, 96)),
    ("masked_scatter", (t(6), M, X), Work(0, 24 + 24 + 96, 96)),  # self is broadcast
    ("masked_scatter_backward", (X, M, [5]), Work(0, 120, 20)),
    ("isin", (i(4), i(2)), Work(0, 48, 4)),
    ("one_hot", (i(4), 5), Work(0, 32, 160)),
    ("select_backward", (t(6), [4, 6], 0, 1), Work(0, 24, 96)),
    ("slice_backward", (t(2, 6), [4, 6], 0, 1, 3, 1), Work(0, 48, 96)),
    ("diagonal_backward _narrow_backward", (t(4), [4, 6]), Work(0, 16, 96)),
    # windows of 3 at every element of 4: two in each of 5 rows cover it, 6 gradients fall on 4 elements
    ("unfold_backward", (t(5, 2, 3), [5, 4], 1, 3, 1), Work(10, 120, 80)),
    ("unfold_backward", (t(5, 2, 2), [5, 5], 1, 2, 3), Work(0, 80, 100)),  # apart from each other
    ("unfold_backward", (t(5, 2, 3), [5, 4], -1, 3, 1), Work(10, 120, 80)),  # the last dimension of x, not of g
    ("select_scatter slice_scatter diagonal_scatter as_strided_scatter", (X, t(2, 6)), Work(0, 48 + 48, 96)),
]
WITH_OUTPUTS: list[Row] = [  # what only the outputs tell
    ("masked_select", (X, M), (t(5),), Work(0, 120, 20)),
    ("masked_select.backward masked_scatter.backward", (X, M), (t(5),), Work(0, 20 + 24, 96)),
    ("nonzero argwhere", (X,), (i(5, 2),), Work(0, 96, 80)),
    ("index", (X, (M,)), (t(5),), Work(0, 20 + 24, 20)),  # a mask as an index
    ("index_select", (X, UNKNOWN, i(2)), (t(2, 6),), Work(0, 48 + 16, 48)),
]
test_worked_by_hand = worked(ROWS, WITH_OUTPUTS)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("nonzero", (X,)),
        ("masked_select", (X, M)),
        ("index", (X, (M,))),
        ("index", (X, UNKNOWN)),
        ("index_select", (X, UNKNOWN, i(2))),
        ("embedding_dense_backward", (t(2, 3, 6), i(2, 3), UNKNOWN, UNKNOWN, UNKNOWN)),
    ],
)
def test_sizes_that_are_not_told_are_not_zero(op: str, args: tuple[Any, ...]) -> None:
    assert math.isnan(total(evaluate(op, args)).nbytes)


def test_flop_of_an_embedding_gradient_needs_no_table() -> None:
    assert total(evaluate("embedding_dense_backward", (Tensor((2, 3, 6)), Tensor((2, 3)), *[UNKNOWN] * 3))).flop == 36


@given(first=st.integers(0, 30), second=st.integers(0, 30))
def test_gathers_add_up_over_their_indices(first: int, second: int) -> None:
    both, one, other = (total(evaluate("embedding", (W, i(n)))) for n in (first + second, first, second))
    assert both == one + other
