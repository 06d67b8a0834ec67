"""Sparse layouts: values worked by hand."""

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import Tensor, Work
from tests.prof.ops.op_cases import Row, worked

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
]
test_worked_by_hand = worked(ROWS)
