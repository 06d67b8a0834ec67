"""Sparse layouts: values worked by hand."""

from __future__ import annotations

import pytest

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.prof.ops.model import FAMILY, Tensor, UnknownArgument, Work, evaluate

DENSE = Tensor((8, 5), "float32")  # 160 bytes
SPARSE = Tensor((8, 5), "float32", nonzero=10, index_bytes=160)  # 10 values, each with two int64: 200 bytes
ROWS = (
    ("_to_dense", SPARSE, DENSE, Work(0, 200, 160)),
    ("_to_sparse", DENSE, SPARSE, Work(0, 160, 200)),
    ("_to_sparse_csr", SPARSE, Tensor((8, 5), "float32", nonzero=10, index_bytes=152), Work(0, 200, 192)),  # 9 + 10
    ("_to_sparse_csc", DENSE, SPARSE, Work(0, 160, 200)),
    ("_to_sparse_bsr", DENSE, SPARSE, Work(0, 160, 200)),
    ("_to_sparse_bsc", DENSE, SPARSE, Work(0, 160, 200)),
)


@pytest.mark.parametrize(("op", "given", "result", "work"), ROWS)
def test_worked_by_hand(op: str, given: Tensor, result: Tensor, work: Work) -> None:
    assert evaluate(op, (given,), (result,)) == work


def test_every_model_has_a_row() -> None:
    assert {op for op, family in FAMILY.items() if family == "sparse"} == {op for op, *_ in ROWS}


def test_what_a_result_stores_is_not_guessed() -> None:
    with pytest.raises(UnknownArgument):
        evaluate("_to_sparse", (DENSE,))
