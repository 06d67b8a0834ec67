"""Reductions, scans and sorts, counted by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, i, t, worked

X = t(4, 6)  # 24 elements, 96 bytes
XC = t(4, 6, dtype="complex64")  # 192 bytes
ROWS: list[Row] = [
    ("sum nansum prod", (X,), Work(23, 96, 4)),
    ("sum nansum", (X, [1], False, None), Work(20, 96, 16)),  # 24 - 4
    ("sum", (X, [1]), Work(20, 96, 16)),
    ("sum", (X, [1], False, "float64"), Work(20, 96, 32)),  # 4 numbers of 8 bytes
    ("sum", (X, [0, -1], True, None), Work(23, 96, 4)),
    ("sum", (X, [], False, None), Work(23, 96, 4)),  # an empty list is all dimensions
    ("sum", (X, UNKNOWN), Work(23, 96, 4)),  # one unknown argument: the type
    ("sum", (X, "float64"), Work(23, 96, 8)),
    ("sum", (i(4, 6), [1], False, None), Work(0, 192, 32)),  # integers are free
    ("sum", (t(4, 6, dtype="bool"),), Work(0, 24, 8)),  # to int64
    ("sum", (t(4, 6, dtype="complex64"),), Work(46, 192, 8)),
    ("sum", (Tensor((4, 6), "float32", (0, 1)), [0]), Work(18, 24, 24)),  # an expanded row is stored once
    ("sum", (i(4, 6), [1], False, None, i(4)), Work(0, 192, 32)),  # out=
    ("sum", (X, [1], False, None, t(4, dtype="float64")), Work(20, 96, 32)),
    ("prod", (XC,), Work(138, 192, 8)),  # 23 complex products of 6
    ("cumprod _cumprod", (XC, 1), Work(120, 192, 192)),
    # complex: |z|^2 is two squares and a sum, and then a sum; |z| takes a root besides
    ("linalg_vector_norm", (XC, 2, [1], False, None), Work(96, 192, 16)),  # 4 * 24 - 4 + 4 roots; real results
    ("linalg_vector_norm", (XC, 2, [1], False, "complex128"), Work(96, 192, 32)),
    ("linalg_vector_norm", (XC, 1, [1], False, None), Work(116, 192, 16)),  # 4 * 24, and 20 sums
    ("linalg_vector_norm", (XC, float("inf"), [1], False, None), Work(96, 192, 16)),
    ("dist", (XC, XC), Work(144, 384, 4)),  # 24 differences of 2
    ("prod", (X, 1, False, None), Work(20, 96, 16)),
    ("hash_tensor", (X,), Work(0, 96, 8)),  # one integer of 64 bits
    ("hash_tensor", (X, [1], False, 0), Work(0, 96, 32)),  # four of them
    ("hash_tensor", (X, UNKNOWN), UnknownArgument),
    ("trace", (t(6, 4),), Work(3, 16, 4)),  # the diagonal alone is read
    ("mean nanmean", (X,), Work(24, 96, 4)),
    ("mean", (X, [1], True, None), Work(24, 96, 16)),
    ("var", (X, [1], 1, False), Work(96, 96, 16)),  # 4 an element
    ("var", (X, True), Work(96, 96, 4)),
    ("std", (X, [1]), Work(100, 96, 16)),  # and 4 roots
    # complex: the mean 2, a difference 2, two squares and their sum, the sum and division of real numbers 1; real
    ("var", (XC, [1]), Work(24 * 8, 192, 16)),
    ("std_mean", (XC, [1]), Work(24 * 8 + 4, 192, 16 + 32)),
    ("var_mean", (X, [1]), Work(96, 96, 32)),
    ("std_mean", (X, [1]), Work(100, 96, 32)),
    ("var.backward", (X, [1]), Work(72 + 4, 96 + 16, 96)),
    ("std.backward", (X, [1]), Work(72 + 8, 96 + 32, 96)),
    ("amax.backward amin.backward", (X, [1], False), Work(4, 96 + 32, 96)),
    ("norm", (X, 2), Work(48, 96, 4)),
    ("norm", (X, 2, [1], False), Work(48, 96, 16)),
    ("linalg_vector_norm linalg_norm", (X, 2, [1], False, None), Work(48, 96, 16)),
    ("frobenius_norm", (X, [1], False), Work(48, 96, 16)),
    ("linalg__powsum", (X, 2, [1], False, None), Work(44, 96, 16)),  # without the 4 roots
    ("linalg__powsum", (X, 1, None, False, None), Work(23, 96, 4)),
    ("linalg_norm", (X, None, None, False, None), Work(48, 96, 4)),
    ("linalg_norm", (X, "fro", None, False, None), Work(48, 96, 4)),
    ("linalg_norm", (X, 2, None, False, None), UnknownArgument),  # of a matrix: by its singular values
    ("linalg_matrix_norm", (X, "fro", [-2, -1], False, None), Work(48, 96, 4)),
    ("linalg_matrix_norm", (X, "nuc", [-2, -1], False, None), UnknownArgument),
    ("linalg_vector_norm.backward norm.backward", (X, 3, [1], False), UnknownArgument),
    ("linalg_vector_norm.backward norm.backward", (XC, 2, [1], False), Work(52, 192 + 64, 192)),
    ("logsumexp", (XC, [1], False), Work(9 * 24 + 6 * 4, 192, 32)),  # 2 + 5 + 2 an element, 6 + 2 - 2 a row
    ("logsumexp.backward", (XC, [1], False), Work(13 * 24, 192 + 64, 192)),
    ("linalg_vector_norm", (X, 1, [1]), Work(20, 96, 16)),
    ("linalg_vector_norm", (X, float("inf"), [1]), Work(0, 96, 16)),
    ("linalg_vector_norm", (X, 0, [1]), Work(0, 96, 16)),
    ("linalg_norm.backward", (X, None, None, False), Work(25, 96 + 8, 96)),
    ("linalg_norm.backward", (X, 2, (1,), False), Work(28, 96 + 32, 96)),
    ("linalg_vector_norm.backward norm.backward", (X, 2, [1], False), Work(28, 96 + 32, 96)),  # 4 divisions
    ("dist", (X, X, 2), Work(72, 192, 4)),
    ("dist", (X, X), Work(72, 192, 4)),  # of two, by default
    ("logsumexp special_logsumexp", (X, [1], False), Work(76, 96, 16)),  # 72 - 4 + 8
    ("logsumexp.backward special_logsumexp.backward", (X, [1], False), Work(72, 96 + 32, 96)),
    ("amax amin", (X, [1], False), Work(0, 96, 16)),
    ("aminmax _aminmax", (X, 1, False), Work(0, 96, 32)),
    ("max min median nanmedian", (X,), Work(0, 96, 4)),
    ("max min median nanmedian mode", (X, 1, False), Work(0, 96, 16 + 32)),  # positions
    ("max min", (X, t(6)), Work(0, 120, 96)),  # element-wise
    ("kthvalue", (X, 2, 1, False), Work(0, 96, 48)),
    ("argmax argmin", (X, 1, False), Work(0, 96, 32)),
    ("argmax", (X, None, False), Work(0, 96, 8)),
    ("any all", (t(4, 6, dtype="bool"),), Work(0, 24, 1)),
    ("any all", (t(4, 6, dtype="bool"), 1, False), Work(0, 24, 4)),
    ("equal", (X, X), Work(0, 192, 1)),
    ("allclose", (X, X), Work(72, 192, 1)),  # |a - b| <= atol + rtol |b|: 3 per element
    ("count_nonzero", (X, None), Work(0, 96, 8)),
    ("value_selecting_reduction_backward", (t(4), 1, i(4), [4, 6], False), Work(0, 48, 96)),
    ("max.backward min.backward median.backward nanmedian.backward mode.backward", (X, 1, False), Work(0, 48, 96)),
    ("max.backward", (X,), Work(0, 96 + 8, 96)),
    ("max.backward", (X, t(6)), Work(18, 2 * (96 + 96 + 24), 96 + 24)),  # 24 - 6 sums for the broadcast one
    ("kthvalue.backward", (X, 2, 1), Work(0, 48, 96)),
    ("cumsum cumprod _cumsum _cumprod cumsum.backward", (X, 1), Work(20, 96, 96)),
    ("cumsum", (i(4, 6), 0), Work(0, 192, 192)),
    ("cumsum", (X, 1, "float64"), Work(20, 96, 192)),
    ("logcumsumexp _logcumsumexp", (X, 1), Work(80, 96, 96)),
    ("logcumsumexp", (XC, 1), Work(320, 192, 192)),  # sub 2, exp 5, log1p 7, add 2 for 20
    ("cummax cummin _cummax_helper _cummin_helper", (X, 1), Work(0, 96, 96 + 192)),
    ("sort msort", (X, 1, False), Work(0, 96, 96 + 192)),
    ("sort.backward", (X, 1, False), Work(0, 96 + 192, 96)),
    ("argsort", (X, 1, False), Work(0, 96, 192)),
    ("topk", (X, 2, 1, True, True), Work(0, 96, 32 + 64)),
    ("topk.backward", (X, 2, 1), Work(0, 32 + 64, 96)),
    ("searchsorted", (t(9), X), Work(0, 132, 192)),
    ("bucketize", (X, t(9)), Work(0, 132, 192)),
    ("searchsorted", (t(9), X, True), Work(0, 132, 96)),  # int32 positions
    ("bucketize", (X, t(9), True), Work(0, 132, 96)),
    ("histc", (X, 10), Work(0, 96, 40)),
]
WITH_OUTPUTS: list[Row] = [  # what only the outputs tell
    (
        "unique _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive",
        (X,),
        (t(5), i(24)),
        Work(0, 96, 20 + 192),
    ),
    ("bincount", (i(24), X, 0), (t(7),), Work(24, 192 + 96, 28)),
    ("sum", (X, UNKNOWN, UNKNOWN, UNKNOWN), (t(6),), Work(18, 96, 24)),
    ("argmax", (X, UNKNOWN, UNKNOWN), (i(4),), Work(0, 96, 32)),
]
test_worked_by_hand = worked(ROWS, WITH_OUTPUTS)


@pytest.mark.parametrize("op", ["sum", "mean", "amax", "linalg_vector_norm"])
def test_dimensions_that_are_not_told_stay_uncounted(op: str) -> None:
    order = (UNKNOWN,) if op == "linalg_vector_norm" else ()
    with pytest.raises(UnknownArgument):
        evaluate(op, (X, *order, UNKNOWN, UNKNOWN, UNKNOWN))


def test_how_many_values_are_distinct_is_not_guessed() -> None:
    assert math.isnan(total(evaluate("unique", (X,))).write)


@given(rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_sums_over_all_dimensions_one_by_one(rows: int, columns: int) -> None:
    """Summing columns, then the rest, takes the additions of summing all at once."""
    first, second = evaluate("sum", (t(rows, columns), [1])), evaluate("sum", (t(rows),))
    assert total(first).flop + total(second).flop == rows * columns - 1
