"""Optimizers: ops on lists of tensors, fused steps, gradient clipping and scaling.

A foreach op counts as its element-wise op on each tensor. A fused step reads parameter, gradient and state once and
writes parameter and state. Step counters (4 bytes per tensor) are not counted.

A Kineto trace leaves long lists empty, and an NVTX range has no lists at all; in these cases the work is unknown.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops import activation as _activation  # noqa: F401  (fills MODELS)
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import MODELS, Family, Tensor, Work, distinct, total
from pyprof.prof.ops.operands import given, moved, number, tensors
from pyprof.prof.ops.reduction import linalg_vector_norm, powsum

op = Family("optimizer")


def listed(argument: Any) -> tuple[Tensor, ...]:
    """The tensors of a list argument, on which the count depends; raises UnknownArgument if the list is unknown."""
    found = tensors(argument)
    if not found:
        raise UnknownArgument("the capture does not have the list of tensors")
    return found


def one(argument: Any, i: int) -> Any:
    """The argument for the i-th tensor: the i-th value of a list, or the one value that all tensors share."""
    return argument[i] if isinstance(argument, (list, tuple)) else argument


def each(op: str, arguments: tuple[Any, ...]) -> Work:
    """The work of an op over a list of tensors, without the optimizers' step counters (0-d tensors).

    A number may come in place of the first list. A tensor that all share is read once.
    """
    first = next((argument for argument in arguments if not isinstance(argument, (int, float))), ())
    places = [i for i, tensor in enumerate(listed(first)) if tensor.shape]
    calls = (tuple(one(argument, i) for argument in arguments) for i in places)
    work = sum((total(evaluate(op, call)) for call in calls), Work())
    again = distinct(*(a for a in arguments if isinstance(a, Tensor))) * max(len(places) - 1, 0)
    return Work(work.flop, work.read - again, work.write)


ELEMENTWISE = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc "
    "add sub mul div clamp_min clamp_max maximum minimum pow lerp addcdiv"
)


def _register(name: str) -> None:
    def count(*arguments: Any) -> Work:
        return each(name, arguments)

    count.__doc__ = f"``{name}`` on each tensor"
    op(f"_foreach_{name}")(count)


for _name in ELEMENTWISE.split():
    _register(_name)
    if f"{_name}_" in MODELS:
        _register(f"{_name}_")


@op("_foreach_addcmul")
def foreach_addcmul(self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Work:
    """self + value * tensor1 * tensor2

    All of torch's optimizers use it to square the gradient. So if tensor1 and tensor2 have equal descriptions, they are
    assumed to be the same tensor, read once, unless the capture identifies memory (``Tensor.ident``).
    """
    work = Work()
    for i, tensor in enumerate(listed(self)):
        first, second = one(tensor1, i), one(tensor2, i)
        step = total(evaluate("addcmul", (tensor, first, second, one(value, i))))
        same = first == second and not first.ident
        work += Work(step.flop, step.read - (second.nbytes if same else 0), step.write)
    return work


@op("_foreach_clone")
def foreach_clone(self: Any) -> Work:
    """``clone`` of each tensor"""
    return each("clone", (self,))


@op("_foreach_mm")
def foreach_mm(self: Any, other: Any) -> Work:
    """``mm`` of each pair of matrices"""
    return each("mm", (self, other))


@op("_foreach_powsum")
def foreach_powsum(self: Any, order: Any = 2) -> Work:
    """The sum of |x|^p of each tensor, a norm without its root: 2 E - 1 for p = 2"""
    return sum((powsum(t, number(order, 2)) for t in listed(self)), Work())


@op("_foreach_copy")
def foreach_copy(self: Any, source: Any) -> Work:
    """``copy_`` on each tensor: reads source, writes self"""
    return Work(0, distinct(listed(source)), sum(moved(t.numel, t) for t in listed(self)))


@op("_foreach_zero")
def foreach_zero(self: Any) -> Work:
    """Writes every element"""
    return Work(0, 0, sum(moved(t.numel, t) for t in listed(self)))


@op("_foreach_norm")
def foreach_norm(self: Any, order: Any = 2) -> Work:
    """The norm of each tensor: 2 per element for p = 2"""
    return sum((linalg_vector_norm(t, number(order, 2)) for t in listed(self)), Work())


@op("_foreach_max")
def foreach_max(self: Any) -> Work:
    """Comparisons; writes one value per tensor"""
    return Work(0, distinct(listed(self)), sum(moved(1, t) for t in listed(self)))


@op("clip_grad_norm_ clip_grad_norm")
def clip_grad_norm(gradients: Any, _limit: Any = None, order: Any = 2) -> Work:
    """The norm of all gradients, 2 per element (maximum norm: 0), and their scaling, 1 per element, which always runs

    The scalar ops in between (stack, norm, add, div, clamp) are not counted.
    """
    found = listed(gradients)
    count = sum(t.numel for t in found)
    nbytes = sum(moved(t.numel, t) for t in found)
    flop = count if order in (math.inf, "inf") else 3 * count
    return Work(flop, 2 * nbytes, nbytes)


@op("_amp_foreach_non_finite_check_and_unscale_")
def unscale(self: Any, found_inf: Any = None, inv_scale: Any = None) -> Work:
    """g * (1 / scale): 1 per element; the check for inf and nan counts 0"""
    found = listed(self)
    nbytes = sum(moved(t.numel, t) for t in found)
    return Work(sum(t.numel for t in found), nbytes + distinct(found_inf, inv_scale), nbytes + distinct(found_inf))


@op("_amp_update_scale_")
def update_scale(self: Tensor, growth_tracker: Any, found_inf: Any) -> Work:
    """Reads and writes three scalars; 1 flop at most"""
    return Work(1, distinct(given(self), growth_tracker, found_inf), distinct(given(self), growth_tracker))


def is_set(argument: Any) -> bool:
    """Whether an argument is a known nonzero number or a true flag."""
    return isinstance(argument, (bool, int, float)) and bool(argument)


def fused(flop: int, read: tuple[Any, ...], written: tuple[Any, ...], grads: Any, grad_scale: Any) -> Work:
    """A fused step with ``flop`` per parameter. With a gradient scale, gradients are divided by it and written back."""
    count = sum(t.numel for t in listed(grads))
    scaled = given(grad_scale) is not None
    back = distinct(grads) if scaled else 0
    return Work((flop + scaled) * count, distinct(*read), distinct(*written) + back)


@op(
    "_fused_adam _fused_adam_ _fused_adamw _fused_adamw_ (self, grads, means, squares, maxima, _state_steps, _lr, "
    "_beta1, _beta2, weight_decay, _eps, _amsgrad, _maximize, grad_scale)"
)
def fused_adam(
    self: Any, grads: Any, means: Any, squares: Any, maxima: Any = (), weight_decay: Any = 0, grad_scale: Any = None
) -> Work:
    """m = m + (1 - b1) (g - m): 3;  v = b2 v + (1 - b2) g g: 4;  sqrt(v) / c2 + eps: 3;  p - s m / denom: 3

    13 per parameter. With weight decay 2 more: g + w p (Adam) or p - (lr w) p (AdamW). AMSGrad's maximum counts 0.
    Source: aten/src/ATen/native/cuda/fused_adam_utils.cuh, torch 2.13.
    """
    state = (listed(self), listed(means), listed(squares), tensors(maxima))
    return fused(13 + 2 * is_set(weight_decay), (*state, listed(grads)), state, grads, grad_scale)


@op(
    "_fused_sgd _fused_sgd_ (self, grads, momentum_buffers, weight_decay, _momentum, _lr, dampening, nesterov, "
    "_maximize, is_first_step, grad_scale)"
)
def fused_sgd(
    self: Any,
    grads: Any,
    momentum_buffers: Any = (),
    weight_decay: Any = 0,
    dampening: Any = 0,
    nesterov: Any = False,
    is_first_step: Any = False,
    grad_scale: Any = None,
) -> Work:
    """p - lr g: 2;  with momentum also m = mu m + g: 2 (dampening 1 more, Nesterov's g + mu m 2); weight decay 2

    The first step only writes the buffer. Source: aten/src/ATen/native/cuda/FusedSgdKernel.cu, torch 2.13.
    """
    flop = 2 + (2 if is_set(weight_decay) else 0)
    buffers, first = tensors(momentum_buffers), is_set(is_first_step)
    if buffers:
        flop += (0 if first else 2 + (1 if is_set(dampening) else 0)) + (2 if is_set(nesterov) else 0)
    reads = (listed(self), listed(grads), () if first else buffers)
    return fused(flop, reads, (listed(self), buffers), grads, grad_scale)


@op(
    "_fused_adagrad _fused_adagrad_ (self, grads, state_sums, _state_steps, _lr, _lr_decay, weight_decay, _eps, "
    "_maximize, grad_scale)"
)
def fused_adagrad(self: Any, grads: Any, state_sums: Any, weight_decay: Any = 0, grad_scale: Any = None) -> Work:
    """s + g g: 2;  p - lr g / (sqrt(s) + eps): sqrt, add, mul, div, sub: 5;  weight decay 2"""
    state = (listed(self), listed(state_sums))
    return fused(7 + 2 * is_set(weight_decay), (*state, listed(grads)), state, grads, grad_scale)
