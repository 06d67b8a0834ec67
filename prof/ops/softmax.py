"""Softmax and its logarithm. E elements in R rows; the R (C - 1) comparisons of the row maxima are not counted.

read    the input (backward: the gradient and the saved result)
write   the result
"""

from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, bool_mask, elementwise, given, moved, output
from pyprof.prof.ops.reduction import rows
from pyprof.prof.ops.result_types import dtype_name

op = Family("softmax")


def _typed(self: Tensor, option: Any, out: Out) -> Tensor:
    """The description of the result: ``option`` is ``half_to_float`` in ``_softmax`` and a dtype in ``softmax``."""
    cast = "" if option is UNKNOWN else "float32" if option is True else dtype_name(option) or self.dtype
    return output(out, Tensor(self.shape, cast))


@op("softmax _softmax _safe_softmax special_softmax softmin")
def softmax(self: Tensor, dim: Any, half_to_float: Any = None, *, out: Out = None) -> Work:
    """exp(x - max) / sum: sub, exp, div E each; sum E - R"""
    result = _typed(self, half_to_float, out)
    return Work(4 * self.numel - rows(self, dim), self.nbytes, moved(result.numel, result))


@op("log_softmax _log_softmax special_log_softmax")
def log_softmax(self: Tensor, dim: Any, half_to_float: Any = None, *, out: Out = None) -> Work:
    """x - max - log(sum(exp(x - max))): sub, exp, sub E each; sum E - R; log R"""
    result = _typed(self, half_to_float, out)
    return Work(4 * self.numel, self.nbytes, moved(result.numel, result))


@op("_softmax_backward_data _log_softmax_backward_data _softmax_backward")
def softmax_backward(grad: Tensor, output_: Tensor, dim: Any, input_dtype: Any = None, *, out: Out = None) -> Work:
    """y * (g - sum(g * y)): mul, sub, mul E each, sum E - R;  logarithm: g - exp(y) * sum(g): exp, mul, sub E each"""
    cast = "" if input_dtype is UNKNOWN else dtype_name(input_dtype) or grad.dtype
    return elementwise(4 * grad.numel - rows(grad, dim), distinct(grad, output_), output(out, Tensor(grad.shape, cast)))


@op("_masked_softmax")
def masked_softmax(self: Tensor, mask: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """A softmax that also reads a mask; masked elements are counted too"""
    return Work(4 * self.numel - rows(self, dim), distinct(self, bool_mask(mask)), moved(self.numel, self))


@op("_masked_softmax_backward")
def masked_softmax_backward(grad: Tensor, output_: Tensor, mask: Any, dim: Any = None) -> Work:
    """A softmax's backward that also reads a mask"""
    masks = bool_mask(mask) if given(mask) else None
    return Work(4 * grad.numel - rows(grad, dim), distinct(grad, output_, masks), moved(grad.numel, grad))
