"""Whole backward passes of element-wise ops (``"mul.backward"``): a table of FLOPs per element, and ops with options.

Each gradient reads the incoming gradient g and the tensors in its formula, and has the shape of its operand. If the
operand was broadcast, a sum follows: (elements of g - elements of the operand) additions.
"""

from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.model import Family, Parts, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, bool_mask, broadcast, elementwise, moved, output, required, tensors
from pyprof.prof.ops.pointwise import (
    COMPLEX_ADD,
    COMPLEX_DIV,
    COMPLEX_MUL,
    COMPLEX_POWER,
    complex_power,
    power,
    priced,
    scaled,
    typed,
)
from pyprof.prof.ops.result_types import result_dtype

op = Family("pointwise")


@op("mul.backward multiply.backward")
def mul_backward(self: Tensor, other: Any, *, out: Out = None) -> Parts:
    """da = g * b, db = g * a: 1 per element each

    If an operand was broadcast, its gradient is summed: elements of g - elements of the operand more.
    """
    factors = {"self": (self, other), "other": (other, self)}
    grad = _grad_of("gradient", out, *tensors((self, other)))
    return {
        name: _into(t, grad, 1, COMPLEX_MUL, distinct(grad, factor))
        for name, (t, factor) in factors.items()
        if isinstance(t, Tensor) and t.needs_grad
    }


@op("div.backward divide.backward true_divide.backward")
def div_backward(self: Tensor, other: Any, *mode: Any, out: Out = None) -> Parts:
    """da = g / b (1 per element); db = -g * ((a / b) / b) (3: the sign counts 0), fused: reads g, a, b once

    If an operand was broadcast, its gradient is summed: elements of g - elements of the operand more.
    A quotient that is rounded has no slope: its gradients are filled with zeros.
    """
    wanted = [t for t in tensors((self, other)) if t.needs_grad]
    if "floor" in mode or "trunc" in mode:
        return {"zeros": Work(0, 0, sum(moved(t.numel, t) for t in wanted))}
    shape = broadcast("div", *(operand.shape for operand in tensors((self, other))))
    grad = output(out, Tensor(shape, typed(result_dtype(self, other), "float")))
    parts = {}
    if self.needs_grad:
        parts["self"] = _into(self, grad, 1, COMPLEX_DIV, distinct(grad, other))
    if isinstance(other, Tensor) and other.needs_grad:
        parts["other"] = _into(other, grad, 3, 2 * COMPLEX_DIV + COMPLEX_MUL, distinct(grad, self, other))
    return parts


def _into(operand: Tensor, grad: Tensor, flop: int, complex_flop: int, inputs: float) -> Work:
    """The gradient of an operand: ``flop`` per element of g, then summed over the dimensions that were broadcast."""
    adds = max(grad.numel - operand.numel, 0) * priced("add", 1, COMPLEX_ADD, grad.dtype)
    price = priced("div", flop, complex_flop, grad.dtype)
    return Work(price * grad.numel + adds, inputs, moved(operand.numel, operand))


GRADIENTS = (  # names, FLOPs per element of dx from g and one saved tensor, formula
    ("abs absolute", 1, "g * sign(x)"),
    ("sqrt", 2, "g / (2 y)"),
    ("rsqrt", 4, "-0.5 * g * y * y * y"),
    ("reciprocal", 2, "-g * y * y"),
    ("square", 2, "2 * x * g"),
    ("sin cos sinh cosh", 2, "g * cos(x)"),
    ("tan", 3, "g * (1 + y * y)"),
    ("atan atanh arctan arctanh", 3, "g / (1 + x * x)"),
    ("asin acos asinh acosh arcsin arccos arcsinh arccosh", 4, "g / sqrt(1 - x * x)"),
    ("log2 log10", 2, "g / (x * ln 2)"),
    ("log1p special_log1p", 2, "g / (1 + x)"),
    ("expm1 special_expm1", 2, "g * (y + 1)"),
    ("exp2 special_exp2", 2, "g * y * ln 2"),
    ("erf erfc special_erf special_erfc erfinv special_erfinv", 4, "g * c * exp(-x * x)"),
    ("lgamma special_gammaln digamma special_digamma special_psi i0 special_i0", 2, "g * digamma(x)"),
    ("sinc special_sinc", 8, "g * (z * cos(z) - sin(z)) / (x * z), z = pi * x"),
    ("mish", 12, "t = tanh(log1p(exp(x))), s = sigmoid(x), g * (t + x * s * (1 - t * t))"),
    ("nan_to_num", 0, "g or 0"),
    ("clamp clip clamp_min clamp_max", 0, "g or 0"),
)


def _register_gradient(name: str, flop: int, formula: str) -> None:
    def count(self: Tensor, *limits: Any, out: Out = None) -> Work:
        result = required(self)
        if result.is_complex or any(t.needs_grad or t.numel > result.numel for t in tensors(limits)):
            raise ModelError(f"{name}.backward: complex numbers, and gradients of limits, count by the ops that run")
        nbytes = distinct(result, *limits) + moved(result.numel, result)
        return elementwise(flop * result.numel, nbytes, Tensor(result.shape, result.dtype))

    count.__doc__ = f"{flop} flop per element: {formula}, fused: reads g and the saved x or y, writes dx"
    count.__name__ = count.__qualname__ = f"{name}.backward"
    op(f"{name}.backward")(count)


for _names, _flop, _formula in GRADIENTS:
    for _name in _names.split():
        _register_gradient(_name, _flop, _formula)


@op("maximum.backward minimum.backward fmax.backward fmin.backward")
def maximum_backward(self: Tensor, other: Tensor, *, out: Out = None) -> Parts:
    """The gradient is g where the operand was chosen, else 0: comparisons. Each gradient reads g and both operands."""
    grad = _grad_of("gradient", out, self, other)
    inputs = grad.nbytes + distinct(self, other)
    wanted = {"self": self, "other": other}
    return {name: _into(t, grad, 0, 0, inputs) for name, t in wanted.items() if t.needs_grad}


@op("where.backward")
def where_backward(condition: Tensor, self: Any, other: Any, *, out: Out = None) -> Parts:
    """The gradient is g where the operand was chosen, else 0. Each gradient reads g and the condition."""
    sides = {name: t for name, t in (("self", self), ("other", other)) if isinstance(t, Tensor)}
    shape = broadcast("where", condition.shape, *(t.shape for t in sides.values()))
    grad = output(out, Tensor(shape, result_dtype(self, other)))
    inputs = grad.nbytes + distinct(bool_mask(condition))
    return {name: _into(t, grad, 0, 0, inputs) for name, t in sides.items() if t.needs_grad}


@op("pow.backward")
def pow_backward(self: Any, exponent: Any, *, out: Out = None) -> Parts:
    """dx = g * (n * x ** (n-1)): 2 products and the smaller power, fused: reads g and x, writes dx

    For a tensor exponent also dn = g * x**n * log(x): 3 per element; reads g, the result and x.
    """
    grad = _grad_of("pow", out, self, exponent)
    parts = {}
    if isinstance(self, Tensor) and self.needs_grad:
        lower = 2 if isinstance(exponent, Tensor) else 1
        lower_complex = COMPLEX_POWER + (COMPLEX_ADD if isinstance(exponent, Tensor) else 0)
        if isinstance(exponent, (int, float)):
            lower, lower_complex = power(exponent - 1), complex_power(exponent - 1)
        inputs = distinct(self, exponent) + grad.nbytes
        parts["self"] = _into(self, grad, 2 + lower, 2 * COMPLEX_MUL + lower_complex, inputs)
    if isinstance(exponent, Tensor) and exponent.needs_grad:
        parts["exponent"] = _into(exponent, grad, 3, 3 * COMPLEX_MUL, 2 * grad.nbytes + distinct(self))
    return parts


@op("addcmul.backward")
def addcmul_backward(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1, *, out: Out = None) -> Parts:
    """dt1 = value * g * t2, dt2 = value * g * t1: 1 product per element, 2 if value is not 1; dself is g"""
    grad, flop = _grad_of("gradient", out, self, tensor1, tensor2), 1 + scaled(value)
    parts = _summed(self, grad)
    if tensor1.needs_grad:
        parts["tensor1"] = _into(tensor1, grad, flop, COMPLEX_MUL * flop, grad.nbytes + distinct(tensor2))
    if tensor2.needs_grad:
        parts["tensor2"] = _into(tensor2, grad, flop, COMPLEX_MUL * flop, grad.nbytes + distinct(tensor1))
    return parts


@op("addcdiv.backward")
def addcdiv_backward(self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1, *, out: Out = None) -> Parts:
    """dt1 = value * g / t2 (1), dt2 = -value * g * ((t1 / t2) / t2) (3); 1 more each if value is not 1"""
    grad, times = _grad_of("gradient", out, self, tensor1, tensor2), scaled(value)
    parts = _summed(self, grad)
    if tensor1.needs_grad:
        inputs = grad.nbytes + distinct(tensor2)
        parts["tensor1"] = _into(tensor1, grad, 1 + times, COMPLEX_DIV + COMPLEX_MUL * times, inputs)
    if tensor2.needs_grad:
        inputs = grad.nbytes + distinct(tensor1, tensor2)
        parts["tensor2"] = _into(tensor2, grad, 3 + times, 2 * COMPLEX_DIV + COMPLEX_MUL * (1 + times), inputs)
    return parts


def _grad_of(op: str, out: Out, *operands: Any) -> Tensor:
    """The gradient of the result, with the broadcast shape and the promoted dtype."""
    shape = broadcast(op, *(operand.shape for operand in tensors(operands)))
    return output(out, Tensor(shape, result_dtype(*operands)))


def _summed(operand: Tensor, grad: Tensor) -> Parts:
    """The gradient of an operand of an addition: g itself, or the sum of g over the dimensions that were broadcast."""
    if not operand.needs_grad or operand.shape == grad.shape:
        return {}
    return {"self": _into(operand, grad, 0, 0, grad.nbytes)}
