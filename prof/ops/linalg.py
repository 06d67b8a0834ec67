"""Linear algebra: FLOPs to leading order in n, for real numbers (times 4 for complex numbers).

The FLOPs are estimates: terms of n^2 are left out, and a library may choose another algorithm. For iterative
algorithms (eigenvalues, singular values), which depend on the data, the customary constants are used. Bytes are
exact: each argument once, each result once; a library's workspace is not counted.

Source: Golub and Van Loan, Matrix Computations (4th ed.): Cholesky n^3/3 (4.2), LU 2n^3/3 (3.2), triangular
solve n^2 per right hand side (3.1), Householder QR 2n^2 (m - n/3) (5.2), symmetric eigenvalues 4n^3/3 and with
vectors 9n^3 (8.3), Hessenberg QR 10n^3 and 25n^3 (7.5), singular values 4mn^2 - 4n^3/3 and with thin vectors
14mn^2 + 8n^3 (8.6); LAPACK Working Note 41 for the inverse (LU and 4n^3/3).
"""

import math
from typing import Any

from pyprof.errors import ShapeError
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, broadcast, given, moved
from pyprof.prof.ops.pointwise import priced
from pyprof.prof.ops.result_types import result_dtype

op = Family("linalg")
INFO_BYTES = 4  # int32: one status per matrix, one pivot per row


def scaled(flop: float, a: Tensor) -> int:
    """``flop`` rounded, times 4 for complex numbers."""
    return round(flop * (4 if a.is_complex else 1))


def square(op: str, a: Tensor) -> tuple[int, int]:
    """(number of matrices, n)"""
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(op, "square matrices [..,n,n]", a.shape)
    return math.prod(a.shape[:-2]), a.shape[-1]


def tall(op: str, a: Tensor) -> tuple[int, int, int]:
    """(number of matrices, longer side m, shorter side n)"""
    if len(a.shape) < 2:
        raise ShapeError(op, "matrices [..,m,n]", a.shape)
    return math.prod(a.shape[:-2]), max(a.shape[-2:]), min(a.shape[-2:])


def written(out: Out, otherwise: float) -> float:
    """Bytes of the results as the capture describes them, or else ``otherwise``."""
    return sum(moved(t.numel, t) for t in out if t is not None) if out else otherwise


def columns(a: Tensor, b: Tensor) -> int:
    """The number of right hand sides of a x = b: b is [..,n,k], or a batch of vectors [..,n]."""
    return b.numel // (math.prod(a.shape[:-2]) * a.shape[-1]) if a.numel else 0


FACTORISATIONS = (  # names, thirds of n^3 FLOPs, formula
    ("linalg_cholesky_ex linalg_cholesky cholesky", 1, "A = L L': n^3/3"),
    ("linalg_ldl_factor_ex linalg_ldl_factor", 1, "A = L D L': n^3/3"),
    ("linalg_inv_ex linalg_inv inverse", 6, "LU 2n^3/3, inverse from it 4n^3/3"),
    ("cholesky_inverse", 2, "From L: n^3/3 to invert it, n^3/3 for L'^-1 L^-1"),
    ("_linalg_det _linalg_slogdet linalg_det linalg_slogdet det slogdet logdet", 2, "By LU: 2n^3/3"),
)


def _register(names: str, thirds: int, formula: str) -> None:
    def factorisation(a: Tensor, *, out: Out = None) -> Work:
        batch, n = square(names.split(maxsplit=1)[0], a)
        return Work(scaled(batch * (thirds * n**3 / 3), a), a.nbytes, written(out, moved(a.numel, a)))

    factorisation.__doc__ = formula
    op(names)(factorisation)


for _row in FACTORISATIONS:
    _register(*_row)


@op("linalg_eig _linalg_eigvals linalg_eigvals")
def eig(a: Tensor, *, out: Out = None) -> Work:
    """Hessenberg and QR iteration with vectors: 25n^3; the results are complex, with twice the bytes of real numbers"""
    batch, n = square("eig", a)
    numbers = batch * (n + n * n) * (1 if a.is_complex else 2)
    return Work(scaled(batch * 25 * n**3, a), a.nbytes, written(out, moved(numbers, a)))


@op("linalg_lu_factor_ex linalg_lu_factor linalg_lu _lu_with_info")
def lu(a: Tensor, *, out: Out = None) -> Work:
    """P A = L U of [m,n]: n^2 (m - n/3) for m >= n"""
    batch, m, n = tall("lu", a)
    pivots = batch * n * INFO_BYTES if a.dtype else math.nan
    return Work(scaled(batch * n * n * (m - n / 3), a), a.nbytes, written(out, moved(a.numel, a) + pivots))


@op("_linalg_solve_ex linalg_solve_ex linalg_solve")
def solve(a: Tensor, b: Tensor) -> Work:
    """A x = b by LU: 2n^3/3, and 2n^2 per right hand side; the factors are not counted as results"""
    batch, n = square("solve", a)
    return Work(scaled(batch * (2 * n**3 / 3 + 2 * n * n * columns(a, b)), a), distinct(a, b), moved(b.numel, b))


@op("linalg_lu_solve lu_solve")
def lu_solve(first: Tensor, second: Tensor, third: Tensor) -> Work:
    """Solves with the factors: 2n^2 per right hand side; linalg_lu_solve(LU, pivots, B), lu_solve(B, LU, pivots)"""
    is_square = second.shape[-1] == second.shape[-2] if len(second.shape) >= len(first.shape) else False
    factors, b = (second, first) if is_square and len(third.shape) < len(second.shape) else (first, third)
    batch, n = square("lu_solve", factors)
    flop = 2 * n * n * columns(factors, b) * batch
    return Work(scaled(flop, factors), distinct(first, second, third), moved(b.numel, b))


@op("linalg_solve_triangular", "triangular_solve (b, a)")
def linalg_solve_triangular(a: Tensor, b: Tensor) -> Work:
    """T x = b: n^2 per right hand side; reads the triangle, n (n + 1) / 2 numbers"""
    batch, n = square("solve_triangular", a)
    triangle = moved(batch * n * (n + 1) // 2, a)
    return Work(scaled(batch * n * n * columns(a, b), a), triangle + b.nbytes, moved(b.numel, b))


@op("cholesky_solve")
def cholesky_solve(b: Tensor, a: Tensor) -> Work:
    """L L' x = b: two triangular solves"""
    batch, n = square("cholesky_solve", a)
    triangle = moved(batch * n * (n + 1) // 2, a)
    return Work(scaled(2 * batch * n * n * columns(a, b), a), triangle + b.nbytes, moved(b.numel, b))


@op("linalg_ldl_solve")
def ldl_solve(factors: Tensor, pivots: Tensor, b: Tensor) -> Work:
    """L D L' x = b: two triangular solves, 2n^2 per right hand side; reads the triangle"""
    batch, n = square("ldl_solve", factors)
    triangle = moved(batch * n * (n + 1) // 2, factors)
    flop = 2 * batch * n * n * columns(factors, b)
    return Work(scaled(flop, factors), triangle + distinct(pivots, b), moved(b.numel, b))


@op("lu_unpack")
def lu_unpack(factors: Tensor, pivots: Tensor, data: Any = True, swaps: Any = True) -> Work:
    """Writes P[m,m], L[m,k] and U[k,n] from one matrix: copies and fills"""
    batch, (m, n) = math.prod(factors.shape[:-2]), factors.shape[-2:]
    size = (min(m, n) * (m + n) if data is not False else 0) + (m * m if swaps is not False else 0)
    return Work(0, distinct(factors if data is not False else None, pivots), moved(batch * size, factors))


@op("linalg_cross")
def cross(a: Tensor, b: Tensor) -> Work:
    """a x b: 2 products and 1 subtraction per element = 3; complex 2 * 6 + 2"""
    result = a.like(broadcast("linalg_cross", a.shape, b.shape), result_dtype(a, b))
    price = priced("linalg_cross", 3, 14, result.dtype)
    return Work(price * result.numel, distinct(a, b), moved(result.numel, result))


@op("_linalg_check_errors")
def check_errors(info: Tensor) -> Work:
    """Reads the status of each matrix"""
    return Work(0, info.nbytes, 0)


@op("geqrf")
def geqrf(a: Tensor) -> Work:
    """A = Q R, Q as reflectors: 2n^2 (m - n/3) for m >= n"""
    batch, m, n = tall("geqrf", a)
    return Work(scaled(2 * batch * n * n * (m - n / 3), a), a.nbytes, moved(a.numel + batch * n, a))


@op("linalg_qr qr")
def qr(a: Tensor, mode: Any = "reduced", *, out: Out = None) -> Work:
    """The factorisation, and forming Q: 2n^2 (m - n/3) each; mode "r" does not form Q

    The complete Q of a tall matrix costs 4 (m^2 n - m n^2 + n^3 / 3) instead (Golub and Van Loan 5.2.2 with 5.1.6).
    """
    batch, m, n = tall("qr", a)
    factor = 2 * n * n * (m - n / 3)
    complete = mode == "complete" or mode is False
    form = 4 * (m * m * n - m * n * n + n**3 / 3) if complete else factor
    form = 0.0 if mode == "r" else form
    rows, cols = a.shape[-2:]
    side = rows if complete else min(rows, cols)
    size = batch * (side * cols + (0 if mode == "r" else rows * side))
    return Work(scaled(batch * (factor + form), a), a.nbytes, written(out, moved(size, a)))


@op("linalg_householder_product orgqr")
def householder_product(a: Tensor, tau: Tensor) -> Work:
    """Q from k reflectors, [m,n]: 4mnk - 2 (m + n) k^2 + 4k^3/3"""
    batch, m, n, k = math.prod(a.shape[:-2]), a.shape[-2], a.shape[-1], tau.shape[-1]
    flop = batch * (4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 / 3)
    return Work(scaled(flop, a), distinct(a, tau), moved(a.numel, a))


@op("ormqr")
def ormqr(a: Tensor, tau: Tensor, c: Tensor) -> Work:
    """Q C for C[m,p], k reflectors: 2 p k (2m - k)"""
    batch, m, p, k = math.prod(c.shape[:-2]), c.shape[-2], c.shape[-1], tau.shape[-1]
    return Work(scaled(2 * batch * p * k * (2 * m - k), a), distinct(a, tau, c), moved(c.numel, c))


@op("_linalg_svd linalg_svd svd linalg_svdvals")
def svd(a: Tensor, full: Any = False, vectors: Any = True, *, out: Out = None) -> Work:
    """Values: 4mn^2 - 4n^3/3; with thin vectors: 14mn^2 + 8n^3; with all of U: 4m^2 n + 22n^3"""
    batch, m, n = tall("svd", a)
    flop: float = 14 * m * n * n + 8 * n**3
    if vectors is False:
        flop = 4 * m * n * n - 4 * n**3 / 3
    elif full is not UNKNOWN and full:
        flop = 4 * m * m * n + 22 * n**3
    return Work(scaled(batch * flop, a), a.nbytes, written(out, moved(batch * n * (1 + m + n), a)))


@op("_linalg_eigh linalg_eigh linalg_eigvalsh symeig")
def eigh(a: Tensor, _uplo: Any = "L", vectors: Any = True, *, out: Out = None) -> Work:
    """Tridiagonal form for values: 4n^3/3; with vectors: 9n^3"""
    batch, n = square("eigh", a)
    flop = 4 * n**3 / 3 if vectors is False else 9 * n**3
    return Work(scaled(batch * flop, a), a.nbytes, written(out, moved(batch * (n + n * n), a)))


@op("linalg_lstsq lstsq")
def lstsq(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """By QR: 2n^2 (m - n/3), then 4mn - n^2 per right hand side"""
    batch, m, n = tall("lstsq", a)
    k = b.numel // (batch * a.shape[-2]) if batch and a.shape[-2] else 0
    flop = batch * (2 * n * n * (m - n / 3) + k * (4 * m * n - n * n))
    return Work(scaled(flop, a), distinct(a, given(b)), written(out, moved(batch * a.shape[-1] * k, b)))


@op("linalg_matrix_exp matrix_exp")
def matrix_exp(a: Tensor) -> Work:
    """Taylor polynomial of degree 18 by Bader, Blanes and Casas (2019): 5 products, without the squarings
    for matrices of large norm (they depend on the data)"""
    batch, n = square("matrix_exp", a)
    return Work(scaled(5 * 2 * batch * n**3, a), a.nbytes, moved(a.numel, a))


@op("linalg_pinv pinverse")
def pinv(a: Tensor) -> Work:
    """V S^-1 U': a thin singular value decomposition, 14mn^2 + 8n^3, and a product, 2mn^2"""
    batch, m, n = tall("pinv", a)
    return Work(scaled(batch * (16 * m * n * n + 8 * n**3), a), a.nbytes, moved(a.numel, a))
