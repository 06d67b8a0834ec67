"""Activations and their backward ops: FLOPs per element, from the formula that the kernel evaluates.

For every element, the branch with more arithmetic is counted (a leaky ReLU multiplies everywhere). Backward ops read
the incoming gradient and the tensors saved by the forward, and write one gradient.

Source of the formulas: aten/src/ATen/native/cuda/Activation*Kernel.cu, torch 2.13.
"""

from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, elementwise, given, number, output, required
from pyprof.prof.ops.pointwise import apply, op, scaled

TABLE = (  # names, leading arguments that are tensors, FLOPs per element, formula
    ("relu relu6 hardtanh threshold hardshrink", 1, 0, "comparisons"),
    ("sigmoid special_expit", 1, 3, "1 / (1 + exp(-x)): exp, add, div"),
    ("tanh", 1, 1, "one library function"),
    ("silu", 1, 3, "x / (1 + exp(-x)): exp, add, div"),
    ("log_sigmoid log_sigmoid_forward", 1, 3, "min(x, 0) - log(1 + exp(-|x|)): exp, log1p, sub"),
    ("leaky_relu", 1, 1, "x * slope below 0"),
    ("selu", 1, 4, "scale * alpha * (exp(x) - 1): exp, sub, 2 mul"),
    ("mish", 1, 4, "x * tanh(log1p(exp(x))): exp, log1p, tanh, mul"),
    ("hardswish", 1, 3, "x * min(max(x + 3, 0), 6) / 6: add, mul, div"),
    ("hardsigmoid", 1, 2, "min(max(x + 3, 0), 6) / 6: add, div"),
    ("softshrink", 1, 1, "x - lambda"),
    ("softsign", 1, 2, "x / (1 + |x|): add, div"),
    ("tanhshrink", 1, 2, "x - tanh(x): tanh, sub"),
    ("prelu _prelu_kernel", 2, 1, "x * weight below 0"),
    ("rrelu", 1, 1, "x * slope below 0, a random slope in training"),
    ("threshold_backward hardtanh_backward hardshrink_backward softshrink_backward", 2, 0, "g or 0"),
    ("sigmoid_backward", 2, 3, "g * (1 - y) * y: sub, 2 mul"),
    ("tanh_backward", 2, 3, "g * (1 - y * y): 2 mul, sub"),
    ("silu_backward", 2, 8, "s = sigmoid(x): 3; g * s * (1 + x * (1 - s)): 5"),
    ("log_sigmoid_backward", 2, 5, "z = exp(-|x|); g * (d - s * z / (1 + z)): exp, add, div, sub, mul"),
    ("leaky_relu_backward", 2, 1, "g * slope below 0"),
    ("mish_backward", 2, 12, "t = tanh(log1p(exp(x))) 3; s = sigmoid(x) 3; g * (t + x * s * (1 - t * t)) 6"),
    ("hardswish_backward", 2, 3, "g * (x / 3 + 0.5): div, add, mul"),
    ("hardsigmoid_backward", 2, 1, "g / 6"),
    ("logit_backward", 2, 3, "g / (x * (1 - x)): sub, mul, div"),
)
COMPLEX_FLOP = {  # of the few that take complex numbers: exp 5, a sum with 1 is 1, a product 6, a division 11
    "sigmoid": 17,  # exp, sum, division
    "special_expit": 17,
    "silu": 17,  # the same, with z above the line
    "tanh": 9,  # (sinh 2a + i sin 2b) / (cosh 2a + cos 2b): two doublings, four functions, a sum, two divisions
    "sigmoid_backward": 13,  # a difference with 1, two products
    "tanh_backward": 13,
}


def _register(name: str, tensors: int, flop: int, formula: str) -> None:
    complex_flop = COMPLEX_FLOP.get(name)

    def count(*arguments: Any, out: Out = None) -> Work:
        result = "float" if flop else "same"
        return apply(name, arguments[:tensors], flop, complex_flop, result=result, out=out)

    count.__doc__ = f"{flop} flop per element: {formula}"
    count.__name__ = count.__qualname__ = name
    op(name)(count)


for _names, _tensors, _flop, _formula in TABLE:
    for _name in _names.split():
        _register(_name, _tensors, _flop, _formula)


@op("gelu")
def gelu(self: Tensor, approximate: Any = "none", *, out: Out = None) -> Work:
    """0.5 x (1 + erf(x / sqrt 2)): 3 mul, add, erf = 5;  0.5 x (1 + tanh(b (x + k x^3))): 6 mul, 2 add, tanh = 9

    An NVTX range does not record ``approximate``: the exact form, PyTorch's default, is assumed.
    """
    return apply("gelu", (self,), 9 if approximate == "tanh" else 5, out=out)


@op("gelu_backward")
def gelu_backward(grad: Tensor, self: Tensor, approximate: Any = "none", *, out: Out = None) -> Work:
    """exact: cdf = 0.5 (1 + erf(c x)) 4, pdf = k exp(-0.5 x x) 4, g (cdf + x pdf) 3: 11;  tanh form: 18

    The tanh form recomputes the forward without its last product (8) and adds 1 - t t (2), b (1 + 3 k x x) (3), and the
    products and sums of both branches (5); 3 k is one constant.
    """
    return apply("gelu_backward", (grad, self), 18 if approximate == "tanh" else 11, out=out)


@op("elu")
def elu(self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1, *, out: Out = None) -> Work:
    """alpha * (exp(x) - 1): exp, sub, mul = 3, and 1 more for each scale, of x or of the result, that is not 1"""
    return apply("elu", (self,), 3 + scaled(scale) + scaled(input_scale), out=out)


@op("celu")
def celu(self: Tensor, alpha: Any = 1, *, out: Out = None) -> Work:
    """alpha * (exp(x / alpha) - 1): exp, sub, mul = 3, and the division where alpha is not 1"""
    return apply("celu", (self,), 3 + scaled(alpha), out=out)


@op("elu_backward")
def elu_backward(grad: Tensor, *rest: Any, out: Out = None) -> Work:
    """g * alpha * exp(x), or g * (y + alpha): 3. Reads the gradient, and x or y (the argument after the numbers)."""
    saved = next((argument for argument in rest if isinstance(argument, Tensor)), UNKNOWN)
    return apply("elu_backward", (grad, saved), 3, result="float", out=out)


@op("softplus")
def softplus(self: Tensor, beta: Any = 1, *, out: Out = None) -> Work:
    """log1p(exp(x)): 2;  log1p(exp(x * beta)) / beta: 4 where beta is not 1"""
    return apply("softplus", (self,), 2 + 2 * scaled(beta), out=out)


@op("softplus_backward")
def softplus_backward(grad: Tensor, self: Tensor, beta: Any = 1, *, out: Out = None) -> Work:
    """z = exp(x * beta); g * z / (z + 1): exp, mul, add, div = 4, and 1 more for the product where beta is not 1"""
    return apply("softplus_backward", (grad, self), 4 + scaled(beta), out=out)


@op("glu")
def glu(self: Tensor, dim: Any = -1, *, out: Out = None) -> Work:
    """a * sigmoid(b), a and b the halves of x: 4 flop per element of the result"""
    half = required(self).numel // 2
    return elementwise(4 * half, self.nbytes, output(out, Tensor((half,), self.dtype)))


@op("glu_backward")
def glu_backward(grad: Tensor, self: Tensor, dim: Any = -1, *, out: Out = None) -> Work:
    """s = sigmoid(b): 3; da = g s: 1; db = g a s (1 - s): 4; so 8 per element of g. Reads g and x, writes dx."""
    return elementwise(8 * grad.numel, distinct(grad, self), output(out, self.like(self.shape)))


@op("_prelu_kernel_backward")
def prelu_backward(grad: Tensor, self: Tensor, weight: Tensor) -> Work:
    """dx = g * w below 0 and dw = g * x below 0, each with x's shape; dw is summed by another op"""
    return Work(2 * self.numel, distinct(grad, self, weight), 2 * self.numel * self.itemsize)


@op("rrelu_with_noise rrelu_with_noise_functional")
def rrelu_with_noise(self: Tensor, noise: Any = None) -> Work:
    """x * slope below 0, the slope drawn at random and saved as noise"""
    return Work(self.numel, self.nbytes, 2 * self.numel * self.itemsize)


@op("rrelu_with_noise_backward (grad, self, noise, _lower, _upper, training)")
def rrelu_backward(grad: Tensor, self: Tensor, noise: Any, training: Any = True) -> Work:
    """g * noise in training, a leaky ReLU's backward otherwise"""
    saved = given(noise) if number(training, True) else self
    return elementwise(grad.numel, distinct(grad, saved), grad.like(grad.shape))
