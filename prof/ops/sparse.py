"""Conversions of sparse layouts: the stored elements and their indices are read and written. Products: ``gemm``."""

from __future__ import annotations

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import Family, Tensor, Work
from pyprof.prof.ops.operands import Out

op = Family("sparse")
# ops that run a product of a sparse operand inside them
PRODUCTS = frozenset({"aten::_sparse_mm", "aten::_sparse_addmm", "aten::_sparse_sparse_matmul"})


@op("_to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc")
def converted(self: Tensor, *, out: Out = None) -> Work:
    """All that is stored is read, all that is stored then is written"""
    result = out[0] if out else None
    if result is None:
        raise UnknownArgument("the capture does not say how much the result stores")
    return Work(0, self.nbytes, result.nbytes)
