"""Normalisations. E elements in R rows that are normalised together (R = C channels for batch norm), C parameters.

forward    per element: mean 1, variance 3, (x - mean) * rstd 1 (the difference is reused), together 5; weight 1,
           bias 1; per row: the addition of eps and the root, 2
backward   xhat = (x - mean) * rstd: 2;  g * xhat, and both sums over the row: 3;  dx = rstd * (g - mean(g) - xhat *
           mean(g * xhat)): 4;  together 9 per element: the division per row is offset by the addition that each sum
           saves
bytes      data, statistics and parameters, each in its own dtype. Saved statistics are float32 for half types, as on
           CUDA (the CPU saves them in the data's dtype)

Source of the order of operations: aten/src/ATen/native/cuda/{Normalization.cuh,layer_norm_kernel.cu,
group_norm_kernel.cu}, torch 2.13.
"""

from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, given, moved, number
from pyprof.prof.ops.result_types import accumulator

op = Family("norm")
Wants = tuple[bool, ...]  # which of dx, dweight and dbias are needed


def present(*arguments: Any) -> int:
    """How many of the optional tensors are given."""
    return sum(given(argument) is not None for argument in arguments)


def channels(self: Tensor) -> int:
    """Batch norm's C: the second dimension."""
    return self.shape[1] if len(self.shape) > 1 else self.numel


def statistics(count: int, self: Tensor) -> float:
    """Bytes of ``count`` saved means or reciprocal deviations."""
    return moved(count, Tensor((), accumulator(self.dtype)))


def normalise(
    self: Tensor, rows: int, weight: Any, bias: Any, mean: Any = None, var: Any = None, saved: Tensor | None = None
) -> Work:
    """5E + 2R, weight E, bias E; writes the mean and rstd of each row (``saved``: one of them, if it has a dtype of its
    own), and any running statistics."""
    flop = (5 + present(weight, bias)) * self.numel + 2 * rows
    each = statistics(rows, self) if saved is None else moved(rows, saved)
    written = moved(self.numel, self) + 2 * each + distinct(mean, var)
    return Work(flop, distinct(self, weight, bias, mean, var), written)


@op("_batch_norm_with_update _batch_norm_with_update_functional")
def batch_train(self: Tensor, weight: Any, bias: Any, mean: Any, var: Any) -> Work:
    """7E + 2C with both parameters; running statistics 7C: 2 mul and 1 add for each of the two, and n / (n - 1)"""
    rows, running = channels(self), present(mean, var)
    return normalise(self, rows, weight, bias, mean, var) + Work(7 * rows if running == 2 else 3 * rows * running)


@op("_native_batch_norm_legit_no_training _batch_norm_no_update")
def batch_eval(self: Tensor, weight: Any, bias: Any, mean: Any, var: Any) -> Work:
    """y = a x + b: 2E;  a = w / sqrt(var + eps): 3C;  b = bias - mean a: 2C. Without weight or bias, C less each."""
    flop = 2 * self.numel + (3 + present(weight, bias)) * channels(self)
    return Work(flop, distinct(self, weight, bias, mean, var), moved(self.numel, self))


@op(
    "native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "batch_norm _batch_norm_impl_index"
)
def batch_norm(
    self: Tensor, weight: Any, bias: Any, mean: Any, var: Any = None, training: Any = UNKNOWN, *, out: Out = None
) -> Work:
    """Training uses the batch's statistics, evaluation the running ones; the FLOPs differ by a factor of 3.

    If the capture lacks the flag, saved statistics among the outputs indicate training. Without outputs training is
    assumed, because NVTX ranges with shapes come from autograd, which usually means training steps.
    ``_native_batch_norm_legit.no_stats`` has no running statistics; its flag comes in their place.
    """
    if isinstance(mean, bool):
        return (batch_train if mean else batch_eval)(self, weight, bias, None, None)
    if training is UNKNOWN or training is None:
        saved = out[1] if out and len(out) > 1 else None
        training = not given(mean) or saved is None or saved.numel > 0  # without a running mean, the batch's is used
    return (batch_train if training else batch_eval)(self, weight, bias, mean, var)


@op("cudnn_batch_norm_backward miopen_batch_norm_backward (self, grad, weight, _mean, _var, mean, rstd)")
def batch_train_backward(
    grad: Tensor, self: Tensor, weight: Any, mean: Any, rstd: Any, mask: Any = (True, True, True), *, rows: Any = None
) -> Work:
    """9E for dx, and C for rstd * weight; 5E - 2C if only the parameters' gradients are needed"""
    rows = channels(self) if rows is None else rows
    wants = wanted(mask, weight)
    flop = 9 * self.numel + rows * present(weight) if wants[0] else max(5 * self.numel - 2 * rows, 0)
    saved = [t if given(t) else self.like((rows,), accumulator(self.dtype)) for t in (mean, rstd)]
    return Work(flop, distinct(grad, self, weight, *saved), gradients(self, weight, channels(self), wants))


def batch_eval_backward(grad: Tensor, self: Tensor, weight: Any, mean: Any, var: Any, mask: Any) -> Work:
    """dx = g * (w rstd): E + C;  rstd 2C;  dweight = sum(g (x - mean)) rstd: 3E - C + C;  dbias = sum(g): E - C"""
    rows, count = channels(self), self.numel
    wants = wanted(mask, weight)
    flop = 2 * rows + (count + rows * present(weight) if wants[0] else 0)
    flop += (3 * count if wants[1] else 0) + (max(count - rows, 0) if wants[2] else 0)
    used = [self, mean] if wants[1] else []
    return Work(flop, distinct(grad, *used, weight, var), gradients(self, weight, rows, wants))


def wanted(mask: Any, weight: Any) -> Wants:
    """The output mask; if the capture lacks it, dx and the gradients of the existing parameters."""
    has_weight = present(weight) > 0
    mask = number(mask, (True, has_weight, has_weight))
    return bool(mask[0]), bool(mask[1]) and has_weight, bool(mask[2])


def gradients(self: Tensor, weight: Any, count: int, wants: Wants) -> float:
    """Bytes of dx, dweight and dbias; for a missing parameter, the data's dtype is assumed."""
    like = given(weight) or self.like((count,), accumulator(self.dtype))
    return (moved(self.numel, self) if wants[0] else 0) + (wants[1] + wants[2]) * moved(count, like)


@op("native_batch_norm_backward batch_norm_backward")
def native_batch_norm_backward(grad: Tensor, self: Tensor, weight: Any, *rest: Any) -> Work:
    """Training reads the saved statistics, evaluation the running ones

    (grad, self, weight, running_mean, running_var, mean, rstd, train, eps, mask)
    """
    running_mean, running_var, mean, rstd, *flags = rest
    train, _eps, mask = (*flags, None, None, None)[:3]
    if number(train, True):
        return batch_train_backward(grad, self, weight, mean, rstd, mask)
    return batch_eval_backward(grad, self, weight, running_mean, running_var, mask)


@op("batch_norm_stats")
def batch_norm_stats(self: Tensor) -> Work:
    """SyncBatchNorm's first pass: mean and variance 4E, root 2C"""
    rows = channels(self)
    return Work(4 * self.numel + 2 * rows, self.nbytes, 2 * statistics(rows, self))


@op("batch_norm_update_stats")
def batch_norm_update_stats(self: Tensor, mean: Any = None, var: Any = None) -> Work:
    """Mean and variance 4E, running statistics 7C"""
    rows = channels(self)
    flop = 4 * self.numel + (7 * rows if present(mean, var) == 2 else 0)
    return Work(flop, distinct(self, mean, var), 2 * statistics(rows, self) + distinct(mean, var))


@op("batch_norm_gather_stats batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats(
    self: Tensor, mean: Tensor, rstd: Tensor, running_mean: Any = None, running_var: Any = None
) -> Work:
    """Merges the statistics of all ranks: about 10 per rank and channel, an estimate"""
    written = 2 * moved(mean.shape[-1], mean) + distinct(running_mean, running_var)
    return Work(10 * mean.numel, distinct(mean, rstd, running_mean, running_var), written)


@op("batch_norm_elemt")
def batch_norm_elemt(self: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor) -> Work:
    """(x - mean) * rstd * weight + bias"""
    flop = (2 + present(weight, bias)) * self.numel
    return Work(flop, distinct(self, weight, bias, mean, rstd), moved(self.numel, self))


@op("batch_norm_backward_reduce")
def batch_norm_backward_reduce(grad: Tensor, self: Tensor, mean: Tensor, rstd: Tensor, weight: Any = None) -> Work:
    """sum(g) and sum(g (x - mean)): 4E - 2C, and the weight's gradient C"""
    rows = channels(self)
    written = 2 * moved(rows, mean) + 2 * distinct(weight)
    return Work(4 * self.numel - rows, distinct(grad, self, mean, rstd, weight), written)


@op("batch_norm_backward_elemt")
def elemt_backward(grad: Tensor, self: Tensor, mean: Tensor, rstd: Tensor, weight: Any = None, *sums: Any) -> Work:
    """(g - mean(g) - (x - mean) k) * (rstd weight): 5E"""
    return Work(5 * self.numel, distinct(grad, self, mean, rstd, weight, *sums), moved(self.numel, self))


def needs(*arguments: Any) -> Wants:
    """Which of the optional tensors need a gradient."""
    return tuple(isinstance(argument, Tensor) and argument.needs_grad for argument in arguments)


@op("instance_norm")
def instance_norm(
    self: Tensor, weight: Any = None, bias: Any = None, mean: Any = None, var: Any = None, use_input_stats: Any = True
) -> Work:
    """Batch norm over N * C rows: 5E + 2R, weight E, bias E, and 7R if running statistics are kept

    PyTorch runs it as batch norm on repeated parameters, whose copies are not counted.
    """
    if not number(use_input_stats, True):
        return batch_eval(self, weight, bias, mean, var)
    rows = self.shape[0] * channels(self)
    return normalise(self, rows, weight, bias, mean, var) + Work(7 * rows if present(mean, var) else 0)


def _register_backward(name: str, by_sample: bool, formula: str) -> None:
    def backward(
        self: Tensor, weight: Any = None, bias: Any = None, mean: Any = None, var: Any = None, training: Any = True
    ) -> Work:
        grad, mask = self.like(self.shape), needs(self, weight, bias)
        if not number(training, True):
            return batch_eval_backward(grad, self, weight, mean, var, mask)
        rows = channels(self) * (self.shape[0] if by_sample else 1)
        return batch_train_backward(grad, self, weight, None, None, mask, rows=rows)

    backward.__doc__ = formula
    op(name)(backward)


_register_backward(
    "batch_norm.backward", False, "``native_batch_norm_backward`` with float32 statistics, whatever the device saved"
)
_register_backward("instance_norm.backward", True, "Batch norm's backward over N * C rows: 9E, and R for rstd * weight")
