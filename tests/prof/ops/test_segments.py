"""Reductions of segments, and histograms: values worked out by hand."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import assumption
from pyprof.prof.ops.model import Work
from tests.prof.ops.op_cases import Row, i, t, worked

X, S = t(10, 3), t(4, 3)  # 30 elements in 4 segments of rows of 3: 12 results; 120 and 48 bytes
LENGTHS, OFFSETS = i(4), i(5)  # 32 and 40 bytes
POINTS, EDGES = t(50, 2), (t(6), t(4))  # 400 bytes; 5 * 3 cells, 40 bytes of edges

ROWS: list[Row] = [
    ("segment_reduce", (X, "sum", LENGTHS, None, None, 0, False, None), Work(18, 120 + 32, 48)),  # 30 - 12
    ("segment_reduce", (X, "mean", None, None, OFFSETS, 0, False, None), Work(18 + 12, 120 + 40, 48)),
    ("segment_reduce", (X, "max", LENGTHS, None, None, 0, False, None), Work(0, 120 + 32, 48)),
    ("segment_reduce", (t(2, 10, 3), "sum", i(2, 4), None, None, 1, False, None), Work(60 - 24, 240 + 64, 96)),
    ("segment_reduce", (t(10, 3, dtype="int32"), "sum", LENGTHS), Work(0, 120 + 32, 48)),
    ("segment_reduce", (X, None, LENGTHS, None, None, 0), Work(18, 120 + 32, 48)),  # a trace has no names
    ("segment_reduce", (X, "sum", None, None, None, 0), UnknownArgument),
    ("_segment_reduce_backward", (S, S, X, "sum", LENGTHS, None, 0, None), Work(0, 48 + 32, 120)),
    ("_segment_reduce_backward", (S, S, X, "mean", LENGTHS, None, 0, None), Work(12, 48 + 32, 120)),
    ("_segment_reduce_backward", (S, S, X, "max", LENGTHS, None, 0, None), Work(12, 48 + 48 + 120 + 32, 120)),
    ("_segment_reduce_backward", (S, S, X, "prod", None, OFFSETS, 0, None), Work(12 + 30, 48 + 48 + 120 + 40, 120)),
    ("histogram", (t(50), 8, None, None, False), Work(0, 200, 32 + 36)),
    # 50 additions; of 8 bins 7 sums, then 8 widths, products and divisions
    ("histogram", (t(50), 8, (0.0, 1.0), t(50), True), Work(50 + 31, 400, 32 + 36)),
    ("histogram", (t(50), t(9), t(50), False), Work(50, 200 + 200 + 36, 32 + 36)),
    ("_histogramdd_from_bin_cts", (POINTS, (5, 3), None, None, False), Work(0, 400, 60)),
    ("_histogramdd_from_bin_tensors", (POINTS, EDGES, t(50), True), Work(50 + 59, 400 + 200 + 40, 60)),
    ("_histogramdd_bin_edges", (POINTS, (5, 3), None, None, False), Work(0, 400, 40)),
    ("_histogramdd_bin_edges", (POINTS, (5, 3), (0.0, 1.0, 0.0, 1.0), None, False), Work(0, 0, 40)),
]
test_worked_by_hand = worked(ROWS)


@pytest.mark.parametrize(("reduce", "assumed"), [("sum", False), (None, True)])
def test_a_reduction_without_a_name_is_an_assumption(reduce: str | None, assumed: bool) -> None:
    assert bool(assumption("segment_reduce", (X, reduce, LENGTHS))) is assumed
