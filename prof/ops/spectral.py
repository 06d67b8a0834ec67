"""Fourier transforms, by the convention of benchFFT: a complex transform of n points is 5 n log2(n) flop.

n is the product of the transformed dimensions; the other dimensions are the batch. A transform from or to real numbers
counts half of a complex one of the same *real* size: 2.5 n log2(n). This is a nominal count (of the radix-2 algorithm)
for comparing rates; actual algorithms need fewer or more. Bytes: the input once, the output once, however many passes
a large or multidimensional transform makes. Scaling by 1/n is not counted. Source: fftw.org/speed, benchFFT
methodology.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work
from pyprof.prof.ops.operands import Out, elementwise, moved, output

op = Family("fft")
REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
COMPLEX = {real: name for name, real in REAL.items()}


def transforms(batch_numel: int, points: int, factor: float) -> int:
    """Flop of transforming ``batch_numel`` elements, in transforms of ``points`` points each."""
    return round(factor * batch_numel * math.log2(points)) if points > 1 else 0


def points_of(shape: tuple[int, ...], dims: Any) -> int:
    return math.prod(shape[d] for d in dims)


@op("_fft_c2c")
def c2c(x: Tensor, dims: Any) -> Work:
    """Complex to complex, forward or inverse"""
    return Work(transforms(x.numel, points_of(x.shape, dims), 5), x.nbytes, moved(x.numel, x))


@op("_fft_r2c")
def r2c(x: Tensor, dims: Any, _normalization: Any = 0, onesided: Any = True, *, out: Out = None) -> Work:
    """Real to complex; if one-sided, writes n/2 + 1 elements in the last dimension"""
    flop = transforms(x.numel, points_of(x.shape, dims), 2.5)
    shape, last = list(x.shape), dims[-1]
    half = onesided is not UNKNOWN and onesided
    shape[last] = shape[last] // 2 + 1 if half else shape[last]
    return elementwise(flop, x.nbytes, output(out, x.like(tuple(shape), COMPLEX.get(x.dtype, ""))))


@op("_fft_c2r")
def c2r(x: Tensor, dims: Any, _normalization: Any = 0, last_size: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Complex to real: the result's last dimension has ``last_size`` elements"""
    shape = list(x.shape)
    if last_size is not UNKNOWN:
        shape[dims[-1]] = last_size
    elif not out:
        raise UnknownArgument("the size of the last dimension of the result")
    result = output(out, x.like(tuple(shape), REAL.get(x.dtype, "")))
    flop = transforms(math.prod(result.shape), points_of(result.shape, dims), 2.5)
    return Work(flop, x.nbytes, moved(result.numel, result))
