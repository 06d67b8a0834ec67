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
from pyprof.prof.ops.operands import Out, broadcast, moved
from pyprof.prof.ops.pointwise import priced
from pyprof.prof.ops.result_types import REAL_OF, result_dtype

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


def solution(op: str, a: Tensor, b: Tensor, vectors: bool = False) -> Tensor:
    """x of a x = b, whose batch dimensions broadcast: b is [..,n,k] or, with ``vectors``, perhaps a batch of [..,n]."""
    size = 1 if vectors and (len(b.shape) == 1 or b.shape == a.shape[:-1]) else 2
    return b.like((*broadcast(op, a.shape[:-2], b.shape[:-size]), *b.shape[-size:]))


def right_hand_sides(x: Tensor, n: int) -> int:
    """The number of vectors of n elements, over all matrices of a batch."""
    return x.numel // n if n else 0


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


@op("linalg_eig")
def eig(a: Tensor, *, out: Out = None) -> Work:
    """Hessenberg and QR iteration with vectors: 25n^3; the results are complex, with twice the bytes of real numbers"""
    return eigenvalues(a, 25, square("eig", a)[1] + 1, out)


@op("_linalg_eigvals linalg_eigvals")
def eigvals(a: Tensor, *, out: Out = None) -> Work:
    """Hessenberg and QR iteration for values: 10n^3; they are complex"""
    return eigenvalues(a, 10, 1, out)


def eigenvalues(a: Tensor, factor: int, results: int, out: Out) -> Work:
    """factor n^3 FLOPs, and ``results`` complex vectors of n elements."""
    batch, n = square("eig", a)
    numbers = batch * n * results * (1 if a.is_complex else 2)
    return Work(scaled(batch * factor * n**3, a), a.nbytes, written(out, moved(numbers, a)))


@op("linalg_lu")
def lu_matrices(a: Tensor, *, out: Out = None) -> Work:
    """P A = L U of [m,n]: n^2 (m - n/3) for m >= n; writes P[m,m], L[m,k] and U[k,n]"""
    factors, (m, n) = lu(a), a.shape[-2:]
    size = math.prod(a.shape[:-2]) * (m * m + min(m, n) * (m + n))
    return Work(factors.flop, factors.read, written(out, moved(size, a)))


@op("linalg_lu_factor_ex linalg_lu_factor _lu_with_info")
def lu(a: Tensor, *, out: Out = None) -> Work:
    """P A = L U of [m,n]: n^2 (m - n/3) for m >= n"""
    batch, m, n = tall("lu", a)
    pivots = batch * n * INFO_BYTES if a.dtype else math.nan
    return Work(scaled(batch * n * n * (m - n / 3), a), a.nbytes, written(out, moved(a.numel, a) + pivots))


@op("_linalg_solve_ex linalg_solve_ex linalg_solve")
def solve(a: Tensor, b: Tensor) -> Work:
    """A x = b by LU: 2n^3/3, and 2n^2 per right hand side; the factors are not counted as results"""
    (batch, n), x = square("solve", a), solution("solve", a, b, vectors=True)
    flop = batch * 2 * n**3 / 3 + 2 * n * n * right_hand_sides(x, n)
    return Work(scaled(flop, a), distinct(a, b), moved(x.numel, x))


@op("linalg_lu_solve lu_solve")
def lu_solve(first: Tensor, second: Tensor, third: Tensor) -> Work:
    """Solves with the factors: 2n^2 per right hand side; linalg_lu_solve(LU, pivots, B), lu_solve(B, LU, pivots)"""
    is_square = second.shape[-1] == second.shape[-2] if len(second.shape) >= len(first.shape) else False
    factors, b = (second, first) if is_square and len(third.shape) < len(second.shape) else (first, third)
    (_, n), x = square("lu_solve", factors), solution("lu_solve", factors, b)
    flop = 2 * n * n * right_hand_sides(x, n)
    return Work(scaled(flop, factors), distinct(first, second, third), moved(x.numel, x))


def triangular(op: str, a: Tensor, b: Tensor, times: int, *also: Tensor) -> Work:
    """``times`` n^2 per right hand side; reads the triangle, n (n + 1) / 2 numbers per matrix."""
    (batch, n), x = square(op, a), solution(op, a, b)
    triangle = moved(batch * n * (n + 1) // 2, a)
    flop = times * n * n * right_hand_sides(x, n)
    return Work(scaled(flop, a), triangle + distinct(b, *also), moved(x.numel, x))


@op("linalg_solve_triangular")
def linalg_solve_triangular(a: Tensor, b: Tensor) -> Work:
    """T x = b: n^2 per right hand side; reads the triangle, n (n + 1) / 2 numbers"""
    return triangular("solve_triangular", a, b, 1)


@op("triangular_solve")
def triangular_solve(b: Tensor, a: Tensor) -> Work:
    """As ``linalg_solve_triangular``; a copy of the whole matrix is a second result"""
    x, batch = triangular("triangular_solve", a, b, 1), solution("triangular_solve", a, b).shape[:-2]
    return Work(x.flop, distinct(a, b), x.write + moved(math.prod((*batch, *a.shape[-2:])), a))


@op("cholesky_solve _cholesky_solve_helper")
def cholesky_solve(b: Tensor, a: Tensor) -> Work:
    """L L' x = b: two triangular solves"""
    return triangular("cholesky_solve", a, b, 2)


@op("linalg_ldl_solve")
def ldl_solve(factors: Tensor, pivots: Tensor, b: Tensor) -> Work:
    """L D L' x = b: two triangular solves, 2n^2 per right hand side; reads the triangle"""
    return triangular("ldl_solve", factors, b, 2, pivots)


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


@op("_linalg_svd linalg_svd")
def svd(a: Tensor, full: Any = False, vectors: Any = True, *, out: Out = None) -> Work:
    """Values: 4mn^2 - 4n^3/3; with thin vectors: 14mn^2 + 8n^3; with all of U: 4m^2 n + 22n^3. Values are real."""
    batch, m, n = tall("svd", a)
    flop, size, square_u = 14 * m * n * n + 8 * n**3, n * (m + n), full is not UNKNOWN and full
    if vectors is False:
        return svdvals(a, out=out)
    if square_u:
        flop, size = 4 * m * m * n + 22 * n**3, m * m + n * n
    nbytes = moved(batch * size, a) + moved(batch * n, real(a))
    return Work(scaled(batch * flop, a), a.nbytes, written(out, nbytes))


@op("linalg_svdvals")
def svdvals(a: Tensor, *, out: Out = None) -> Work:
    """Values: 4mn^2 - 4n^3/3"""
    batch, m, n = tall("svd", a)
    flop = batch * (4 * m * n * n - 4 * n**3 / 3)
    return Work(scaled(flop, a), a.nbytes, written(out, moved(batch * n, real(a))))


@op("svd")
def old_svd(a: Tensor, some: Any = True, vectors: Any = True, *, out: Out = None) -> Work:
    """As ``linalg_svd``; ``some`` are the thin vectors"""
    return svd(a, UNKNOWN if some is UNKNOWN else not some, vectors, out=out)


def real(a: Tensor) -> Tensor:
    """A real number of a's precision."""
    return Tensor((), REAL_OF.get(a.dtype, a.dtype))


@op("_linalg_eigh linalg_eigh symeig")
def eigh(a: Tensor, _uplo: Any = "L", vectors: Any = True, *, out: Out = None) -> Work:
    """Tridiagonal form for values: 4n^3/3; with vectors: 9n^3. Values are real."""
    if vectors is False:
        return eigvalsh(a, out=out)
    batch, n = square("eigh", a)
    nbytes = moved(batch * n * n, a) + moved(batch * n, real(a))
    return Work(scaled(batch * 9 * n**3, a), a.nbytes, written(out, nbytes))


@op("linalg_eigvalsh")
def eigvalsh(a: Tensor, *, out: Out = None) -> Work:
    """Tridiagonal form for values: 4n^3/3"""
    batch, n = square("eigh", a)
    return Work(scaled(batch * 4 * n**3 / 3, a), a.nbytes, written(out, moved(batch * n, real(a))))


@op("linalg_lstsq lstsq")
def lstsq(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """By QR: 2n^2 (m - n/3), then 4mn - n^2 per right hand side"""
    batch, m, n = tall("lstsq", a)
    is_vectors = len(b.shape) == len(a.shape) - 1 and b.shape == a.shape[:-1]
    batches = math.prod(broadcast("lstsq", a.shape[:-2], b.shape[: -1 if is_vectors else -2]))
    sides = batches * (1 if is_vectors else b.shape[-1])
    flop = batch * 2 * n * n * (m - n / 3) + sides * (4 * m * n - n * n)
    return Work(scaled(flop, a), distinct(a, b), written(out, moved(a.shape[-1] * sides, a)))


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
