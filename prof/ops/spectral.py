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
from pyprof.prof.ops.result_types import COMPLEX_OF, REAL_OF

op = Family("fft")


def transforms(x: Tensor, dims: Any, factor: float) -> int:
    """Flop of all transforms of a tensor along ``dims``: ``factor`` n log2(n) for each of n points."""
    points = math.prod(x.shape[d] for d in dims)
    return round(factor * x.numel * math.log2(points)) if points > 1 else 0


@op("_fft_c2c")
def c2c(x: Tensor, dims: Any) -> Work:
    """Complex to complex, forward or inverse"""
    return Work(transforms(x, dims, 5), x.nbytes, moved(x.numel, x))


@op("_fft_r2c")
def r2c(x: Tensor, dims: Any, _normalization: Any = 0, onesided: Any = True, *, out: Out = None) -> Work:
    """Real to complex; if one-sided, writes n/2 + 1 elements in the last dimension"""
    flop = transforms(x, dims, 2.5)
    shape, last = list(x.shape), dims[-1]
    if onesided is not UNKNOWN and onesided:
        shape[last] = shape[last] // 2 + 1
    return elementwise(flop, x.nbytes, output(out, x.like(tuple(shape), COMPLEX_OF.get(x.dtype, ""))))


@op("_fft_c2r")
def c2r(x: Tensor, dims: Any, _normalization: Any = 0, last_size: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Complex to real: the result's last dimension has ``last_size`` elements"""
    shape = list(x.shape)
    if last_size is not UNKNOWN:
        shape[dims[-1]] = last_size
    elif not out:
        raise UnknownArgument("the size of the last dimension of the result")
    result = output(out, x.like(tuple(shape), REAL_OF.get(x.dtype, "")))
    return elementwise(transforms(result, dims, 2.5), x.nbytes, result)
