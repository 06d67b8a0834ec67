"""Random numbers and dropout. Random bits are integer work: 0 flop. Generators only write.

Dropout selects by a random mask (0 flop) and scales the kept elements: 1 multiplication per element.
"""

import math
from typing import Any

from pyprof.prof.ops.fills import filled
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, bool_mask, first_output, given, moved, numel, required, tensors
from pyprof.prof.ops.result_types import dtype_name

op = Family("rng")


@op(
    "uniform_ normal_ exponential_ cauchy_ log_normal_ geometric_ random_ bernoulli_ uniform exponential cauchy "
    "log_normal geometric random normal_functional _philox_normal _philox_normal_ _philox_uniform _philox_uniform_"
)
def fill(self: Tensor, p: Any = None) -> Work:
    """Writes random numbers; reads the probabilities or the key if they are a tensor"""
    tensor = required(self)
    return Work(0, distinct(given(p)), moved(tensor.numel, tensor))


@op("bernoulli poisson _standard_gamma binomial _sample_dirichlet")
def sample(self: Tensor, p: Any = None) -> Work:
    """Writes one number per probability or rate in self; bernoulli(self, p) only uses self's shape"""
    return Work(0, 0 if isinstance(p, float) else distinct(self, p), moved(self.numel, self))


def _made(out: Out, size: Any, dtype: Any, default: str) -> Work:
    """The work of writing a new random tensor."""
    if first_output(out) is None and size is UNKNOWN:
        return Work(0, 0, math.nan)
    return filled(out, size, "" if dtype is UNKNOWN else dtype_name(dtype) or default)


@op("rand randn")
def rand(size: Any, dtype: Any = None, *options: Any, out: Out = None) -> Work:
    """Writes a new tensor, float32 unless the call gives a dtype, before which a generator may come"""
    return _made(out, size, _dtype(options) if len(options) > 3 else dtype, "float32")


def _dtype(options: tuple[Any, ...]) -> str | None:
    """The dtype among the arguments after the size: the fourth from the end, before layout, device and pinning.

    Before it some overloads have a generator; others have only ``out=``. None if absent or unknown.
    """
    return dtype_name(options[-4]) if len(options) > 3 else next(map(dtype_name, tensors(options)), None)


@op("normal")
def normal(mean: Any, std: Any = 1, size: Any = None, *options: Any, out: Out = None) -> Work:
    """Normally distributed numbers; if mean or std is a tensor, 1 product and 1 sum per element"""
    parameters = [t for t in (given(mean), given(std)) if t is not None]
    if not parameters:
        return _made(out, size, _dtype(options), "float32")
    count = max(t.numel for t in parameters)
    return Work(2 * count, distinct(*parameters), moved(count, parameters[0]))


@op("randint")
def randint(*arguments: Any, out: Out = None) -> Work:
    """Writes a new int64 tensor; its size is the first list among the arguments"""
    size = next((a for a in arguments if isinstance(a, (list, tuple))), UNKNOWN)
    options = arguments[arguments.index(size) + 1 :] if size is not UNKNOWN else ()
    return _made(out, size, _dtype(options), "int64")


@op("randperm")
def randperm(n: Any, *, out: Out = None) -> Work:
    """Writes a permutation: n int64"""
    return _made(out, n, None, "int64")


@op("randint_like")
def randint_like(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """As ``rand_like``; the dtype comes after one limit or two, and four arguments follow it"""
    return rand_like(self, _dtype(arguments[:-1]), out=out)


@op("rand_like randn_like")
def rand_like(self: Tensor, dtype: Any = None, *, out: Out = None) -> Work:
    """Writes as many random numbers as self has elements; self is not read"""
    return _made(out, self.shape, dtype, self.dtype)


@op("multinomial")
def multinomial(self: Tensor, num_samples: Any = 1, *, out: Out = None) -> Work:
    """int64 samples from each row of probabilities"""
    described = first_output(out)
    count = described.numel if described is not None else numel(self.shape[:-1]) * int(num_samples)
    return Work(0, self.nbytes, 8 * count)


@op("dropout")
def dropout(self: Tensor, p: Any = 0.5, train: Any = True) -> Work:
    """In training same as ``native_dropout``; in evaluation no work"""
    return Work() if train == 0 or p == 0 else native_dropout(self, p, train)


@op("alpha_dropout")
def alpha_dropout(self: Tensor, p: Any = 0.5, train: Any = True) -> Work:
    """a x + b where the element is kept, a constant elsewhere: 2 per element; bytes as ``native_dropout``"""
    return dropout(self, p, train) + Work(0 if train == 0 or p == 0 else self.numel)


def _of_channels(self: Tensor, flop: int, p: Any, train: Any) -> Work:
    """A dropout of whole channels, whose random factors have the data's type."""
    if train == 0 or p == 0:
        return Work()
    factors = math.prod(self.shape[:2])
    return Work(flop * self.numel, self.nbytes, moved(self.numel + factors, self))


@op("feature_dropout")
def feature_dropout(self: Tensor, p: Any = 0.5, train: Any = True) -> Work:
    """x * mask / (1 - p), one random factor for each sample and channel, which is saved: 1 per element"""
    return _of_channels(self, 1, p, train)


@op("feature_alpha_dropout")
def feature_alpha_dropout(self: Tensor, p: Any = 0.5, train: Any = True) -> Work:
    """As ``alpha_dropout``, for whole channels: 2 per element"""
    return _of_channels(self, 2, p, train)


@op("native_dropout _fused_dropout")
def native_dropout(self: Tensor, p: Any = 0.5, train: Any = True) -> Work:
    """x * mask / (1 - p): 1 per element. Writes the result and one mask byte per element. In evaluation nothing
    runs."""
    if train == 0:
        return Work()
    return Work(self.numel, self.nbytes, moved(self.numel, self) + self.numel)


@op("native_dropout_backward _masked_scale")
def native_dropout_backward(grad: Tensor, mask: Tensor) -> Work:
    """g * mask * scale: 1 per element"""
    return Work(grad.numel, distinct(grad, bool_mask(mask)), moved(grad.numel, grad))


@op("dropout.backward")
def dropout_backward(self: Tensor, p: Any = 0.5, train: Any = True) -> Work:
    """In training same as ``native_dropout_backward``; in evaluation no work"""
    if train == 0 or p == 0:
        return Work()
    return native_dropout_backward(Tensor(self.shape, self.dtype), Tensor(self.shape, "bool"))
