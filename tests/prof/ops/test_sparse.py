"""Sparse layouts: values worked by hand."""

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work
from tests.prof.ops.op_cases import NAN, Row, i, t, worked

DENSE = Tensor((8, 5), "float32")  # 160 bytes
SPARSE = Tensor((8, 5), "float32", nonzero=10, index_bytes=160)  # 10 values, each with two int64: 200 bytes
ROWS: list[Row] = [
    ("_to_dense", (SPARSE,), (DENSE,), Work(0, 200, 160)),
    ("_to_sparse _to_sparse_csc _to_sparse_bsr _to_sparse_bsc", (DENSE,), (SPARSE,), Work(0, 160, 200)),
    ("_to_sparse", (DENSE,), UnknownArgument),  # how much the result stores is in the data
    (
        "_to_sparse_csr",
        (SPARSE,),
        (Tensor((8, 5), "float32", nonzero=10, index_bytes=152),),
        Work(0, 200, 192),
    ),  # 9 + 10
    # 10 stored elements of [8,5], times [5,3]: 2 * 10 * 3; reads 200 and 5*3*4 bytes, writes 8*3*4
    ("_sparse_mm _sparse_mm_reduce_impl", (SPARSE, t(5, 3), "sum"), Work(60, 260, 96)),
    ("_sparse_mm", (SPARSE, t(5, 3)), Work(60, 260, 96)),
    ("_sparse_mm _sparse_mm_reduce_impl", (SPARSE, t(5, 3), "mean"), Work(60 + 24, 260, 96)),  # 24 divisions
    ("_sparse_mm_reduce_impl", (SPARSE, t(5, 3), "amax"), (t(8, 3), i(0)), Work(30, 260, 96)),  # 30 products
    ("_sparse_mm_reduce_impl", (SPARSE, t(5, 3), "amin"), (t(8, 3), i(8, 3)), Work(30, 260, 96 + 192)),
    ("_sparse_mm_reduce_impl", (SPARSE, t(5, 3), "amin"), Work(30, 260, NAN)),  # are gradients recorded?
    ("_sparse_mm_reduce_impl", (SPARSE, t(5, 3), UNKNOWN), UnknownArgument),
    ("_sparse_mm_reduce_impl", (Tensor((8, 5), "float32", nonzero=UNKNOWN), t(5, 3), "sum"), UnknownArgument),
    # Element-wise: 10 values of 40 elements; 40 bytes of values, and 160 of indices, which are copied
    ("sqrt tanh", (SPARSE,), Work(10, 200, 200)),
    ("mul", (SPARSE, 2.0), Work(10, 200, 200)),
    ("relu", (SPARSE,), Work(0, 200, 200)),  # comparisons
    ("mul", (SPARSE, SPARSE), UnknownArgument),  # where both store an element is in the data
    ("add", (DENSE, SPARSE), UnknownArgument),
    ("relu", (Tensor((8, 5), "float32", nonzero=UNKNOWN),), UnknownArgument),
    # [8,4] @ [4,5] at 10 places: 2 * 10 * 4; 128 + 80 bytes, and self's
    ("sparse_sampled_addmm", (SPARSE, t(8, 4), t(4, 5), 1, 1), Work(80, 128 + 80 + 200, 200)),
    ("sparse_sampled_addmm", (SPARSE, t(8, 4), t(4, 5), 0, 1), Work(80, 128 + 80 + 160, 200)),  # only self's indices
    ("sparse_sampled_addmm", (Tensor((8, 5), "float32", nonzero=UNKNOWN), t(8, 4), t(4, 5)), UnknownArgument),
    # 10 values with indices become 7: 3 additions, 7 * 4 + 7 * 16 bytes
    ("_coalesce", (SPARSE,), (Tensor((8, 5), "float32", nonzero=7, index_bytes=112),), Work(3, 200, 140)),
    ("_coalesce", (SPARSE,), UnknownArgument),
    ("sparse_mask", (DENSE, SPARSE), Work(0, 40 + 160, 40 + 160)),
    ("_convert_indices_from_coo_to_csr", (i(10), 8, False), Work(0, 80, 72)),
    ("_convert_indices_from_coo_to_csr", (i(10), 8, True), Work(0, 80, 36)),
    ("_convert_indices_from_csr_to_coo", (i(9), i(10), False, False), Work(0, 72 + 80, 160)),
]
test_worked_by_hand = worked(ROWS)


def test_an_op_in_place_leaves_the_indices_as_they_are() -> None:
    assert evaluate("tanh", (SPARSE,), in_place=True) == Work(10, 40, 40)
