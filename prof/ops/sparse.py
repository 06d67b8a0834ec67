"""Sparse layouts (COO, CSR, CSC, BSR, BSC): conversions, and products of dense matrices at some places.

nnz is the number of stored elements. Products with a sparse operand are those of ``gemm``. A trace does not record how
many elements a tensor stores; ``pyprof.count`` knows it.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.gemm import dimensions, multiplies, multiply_adds, product
from pyprof.prof.ops.model import Family, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import INDEX_BYTES, Out, first_output, moved, number
from pyprof.prof.ops.result_types import addition_flop

op = Family("sparse")


def stored(tensor: Tensor) -> int:
    """nnz; raises UnknownArgument if the capture does not have it."""
    if not isinstance(tensor.nonzero, int):
        raise UnknownArgument("a sparse operand: the capture does not record how many elements it stores")
    return tensor.nonzero


def written(out: Out) -> Tensor:
    """The result, on whose number of stored elements the bytes depend."""
    result = first_output(out)
    if result is None:
        raise UnknownArgument("the capture does not say how much the result stores")
    return result


@op("_to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc")
def converted(self: Tensor, *, out: Out = None) -> Work:
    """Reads all stored values and indices of the input, writes those of the result"""
    return Work(0, self.nbytes, written(out).nbytes)


@op("_coalesce")
def coalesce(self: Tensor, *, out: Out = None) -> Work:
    """Sorts the indices and adds the values of equal ones: 1 addition per value that the result has fewer"""
    result = written(out)
    return Work((stored(self) - stored(result)) * addition_flop(self), self.nbytes, result.nbytes)


@op("sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> Work:
    """Copies the elements of a dense tensor that the mask stores; reads the mask's indices, and writes them, too"""
    values = moved(stored(mask), self)
    return Work(0, values + mask.index_bytes, values + mask.index_bytes)


@model("_sparse_mm", "_sparse_mm_reduce_impl", family="gemm")
def sparse_mm(a: Tensor, b: Tensor, reduce: Any = "sum", *, out: Out = None) -> Work:
    """C[M,N] = A[M,K] @ B[K,N] where A is sparse; ``reduce`` says how the products of an element of C are combined

    sum           2*nnz*N
    mean          the same, and a division per element of C
    amax, amin    the nnz*N products alone; with gradients enabled, the position of each extreme is written, too
    Source: torch.sparse.mm's documentation; ATen/native/sparse/SparseCsrTensorMath.cpp, _sparse_mm_reduce_impl.
    """
    m, n, _ = dimensions("_sparse_mm", a, b)
    described = first_output(out)
    result = described if described is not None and described.nonzero is None else b.like((m, n))
    work = product(m * n * a.shape[1], (a, b), result)
    if reduce in ("sum", "mean"):
        return work + Work(result.numel if reduce == "mean" else 0)
    if reduce not in ("amax", "amin"):
        raise UnknownArgument("how the products are reduced is not recorded")
    places = math.nan if not out or len(out) < 2 else 0 if out[1] is None else out[1].nbytes
    return Work(multiplies(stored(a) * n, a, b), work.read, work.write + places)


@model("sparse_sampled_addmm", family="gemm")
def sampled_addmm(self: Tensor, a: Tensor, b: Tensor, beta: Any = 1) -> Work:
    """beta * self + (A[M,K] @ B[K,N]) where self, in CSR form, stores an element: 2*nnz*K

    Reads A and B completely, self's indices and, unless beta is 0, its values; writes a result of self's form.
    """
    _, _, k = dimensions("sparse_sampled_addmm", a, b)
    read = self.index_bytes if number(beta, 1) == 0 else self.nbytes
    return Work(multiply_adds(stored(self) * k, a, b), distinct(a, b) + read, self.nbytes)


@op("_convert_indices_from_coo_to_csr")
def coo_to_csr(rows: Tensor, size: int, int32: Any = False) -> Work:
    """From the row of each element to the start of each row: ``size`` + 1 integers"""
    return Work(0, rows.nbytes, (4 if int32 is True else INDEX_BYTES) * (size + 1))


@op("_convert_indices_from_csr_to_coo")
def csr_to_coo(starts: Tensor, columns: Tensor, int32: Any = False) -> Work:
    """From the start of each row to the row of each element; copies the columns"""
    integers = (len(columns.shape) + 1) * columns.numel  # rows, columns, and the indices of a batch
    return Work(0, distinct(starts, columns), (4 if int32 is True else INDEX_BYTES) * integers)
