"""Losses. E elements; ``reduction`` is 0 none, 1 mean (the default), 2 sum.

A mean takes E - 1 additions and a division, a sum E - 1 additions; changes of sign count 0. A scalar (the incoming
gradient, or a constant factor) counts 4 bytes and 0 flop.
"""

from typing import Any

from pyprof.prof.ops.model import Family, Parts, Tensor, Work, distinct
from pyprof.prof.ops.operands import broadcast, given, indices, moved, number, numel, required
from pyprof.prof.ops.result_types import result_dtype
from pyprof.prof.ops.softmax import log_softmax, softmax_backward

op = Family("loss")
NONE, MEAN, SUM = 0, 1, 2
NAMES = {"none": NONE, "mean": MEAN, "batchmean": MEAN, "sum": SUM}


def mode(reduction: Any) -> int:
    """The number of the reduction; mean if the capture lacks it."""
    return NAMES[reduction] if isinstance(reduction, str) else int(number(reduction, MEAN))


def reducing(count: int, reduction: Any) -> int:
    """Flop to reduce ``count`` elements."""
    return {NONE: 0, MEAN: max(count - 1, 0) + 1, SUM: max(count - 1, 0)}[mode(reduction)]


def compared(self: Tensor, target: Tensor, flop: int, reduction: Any, *weights: Any) -> Work:
    """A loss on two tensors of the same shape: ``flop`` per element, and the reduction. Reads both, and any weights."""
    count = numel(broadcast("loss", self.shape, target.shape))
    result = Tensor((count if mode(reduction) == NONE else 1,), result_dtype(self, target))
    return Work(flop * count + reducing(count, reduction), distinct(self, target, *weights), result.nbytes)


def compared_backward(self: Tensor, flop: int, *inputs: Any) -> Work:
    """A gradient with self's shape: ``flop`` per element. Reads the inputs."""
    return Work(flop * self.numel, distinct(*inputs), moved(self.numel, self))


def incoming(self: Tensor, reduction: Any) -> Tensor:
    """The gradient that a loss receives: a scalar, or one value per element if nothing was reduced."""
    return self.like(self.shape if mode(reduction) == NONE else ())


@op("nll_loss nll_loss_nd nll_loss_forward nll_loss2d nll_loss2d_forward")
def nll_loss(self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN) -> Work:
    """Gathers N elements and adds them; a mean divides by the total weight, which is also a result.

    With class weights: gathers them, multiplies (N more) and, for a mean, adds them up (N - 1 more).
    """
    count = target.numel
    flop = reducing(count, reduction)
    if given(weight):
        flop += count + (max(count - 1, 0) if mode(reduction) == MEAN else 0)
    gathered = moved(2 * count if given(weight) else count, self)
    written = (count if mode(reduction) == NONE else 1) + 1
    return Work(flop, gathered + indices(target).nbytes, written * self.itemsize)


@op("nll_loss_backward nll_loss2d_backward")
def nll_loss_backward(grad: Tensor, self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN) -> Work:
    """dx is -w g / total_weight at the targets, 0 elsewhere: N divisions (mean), N products with class weights.

    Reads the gradient, the targets and the total weight, not self; writes all of dx.
    """
    count = target.numel
    flop = (count if mode(reduction) == MEAN else 0) + (count if given(weight) else 0)
    weights = moved(count, self) if given(weight) else 0
    scalars = self.itemsize * (required(grad).numel + (1 if mode(reduction) == MEAN else 0))
    return Work(flop, scalars + weights + indices(target).nbytes, moved(self.numel, self))


ENTROPY = "(self, target, weight, reduction, _ignore_index, smoothing)"


def class_dim(self: Tensor) -> int:
    return 1 if len(self.shape) > 1 else 0


def holds_probabilities(self: Tensor, target: Tensor) -> bool:
    """Whether the target has a probability per class and not the class's number."""
    return target.shape == self.shape and (target.dtype or "int64") not in ("int64", "uint8", "int32")


@op(f"cross_entropy_loss cross_entropy {ENTROPY}")
def cross_entropy(self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN, smoothing: Any = 0) -> Work:
    """log_softmax and nll_loss of N targets

    Label smoothing: the sum of each row E - N (with class weights E products more) and its reduction, then
    a * nll + b * smooth: 3 per result; one more read of E.
    If the target holds probabilities: log_softmax, E products and the sum; smoothing the target 2 E; class weights E.
    """
    logarithms, smooth = log_softmax(self, class_dim(self)), number(smoothing, 0) != 0
    weighted = 1 if given(weight) else 0
    if holds_probabilities(self, target):
        return logarithms + _expected(self, target, 1 + weighted + (2 if smooth else 0), reduction, weight)
    work = logarithms + nll_loss(self, target, weight, reduction)
    if smooth:
        rows = target.numel
        flop = (1 + weighted) * self.numel - rows + reducing(rows, reduction)
        work += Work(flop + 3 * (rows if mode(reduction) == NONE else 1), self.nbytes)
    return work


def _expected(self: Tensor, target: Tensor, flop: int, reduction: Any, weight: Any) -> Work:
    """The sum of the logarithms times the target's probabilities, of each row or of all; ``flop`` per element before"""
    if mode(reduction) != NONE:
        return compared(self, target, flop, reduction, weight)
    rows = self.numel // (self.shape[class_dim(self)] or 1)
    return Work((flop + 1) * self.numel - rows, distinct(self, target, weight), moved(rows, self))


@op(f"cross_entropy_loss.backward cross_entropy.backward {ENTROPY}")
def cross_entropy_backward(
    self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN, smoothing: Any = 0
) -> Work:
    """nll_loss_backward, which writes all of its dx, then log_softmax_backward, which reads it

    Label smoothing adds a number to all of dx: E, with class weights 2 E. Probabilities: -g t, E; class weights E.
    """
    through, weighted = softmax_backward(self, self.like(self.shape), class_dim(self)), 1 if given(weight) else 0
    rows = self.numel // (self.shape[class_dim(self)] or 1)
    grad = self.like((rows,) if mode(reduction) == NONE else ())
    if holds_probabilities(self, target):
        return compared_backward(self, 1 + weighted, grad, target, weight) + through
    smooth = Work((1 + weighted) * self.numel) if number(smoothing, 0) != 0 else Work()
    return nll_loss_backward(grad, self, target, weight, reduction) + through + smooth


PRICES = (  # names, FLOPs per element, formula
    ("mse_loss", 2, "(x - t)^2"),
    (
        "smooth_l1_loss huber_loss",
        4,
        "z = |x - t|; 0.5 z z / beta, the quadratic branch (huber: delta (z - delta / 2))",
    ),
    ("soft_margin_loss", 3, "log1p(exp(-t x))"),
    ("kl_div", 3, "t (log t - x), or exp(t) (t - x)"),
)


def _register(names: str, flop: int, formula: str) -> None:
    def loss(self: Tensor, target: Tensor, reduction: Any = MEAN) -> Work:
        return compared(self, target, flop, reduction)

    loss.__doc__ = f"{formula}: {flop} per element, and the reduction"
    op(names)(loss)


for _row in PRICES:
    _register(*_row)


@op("l1_loss")
def l1_loss(self: Tensor, target: Tensor, reduction: Any = MEAN) -> Work:
    """|x - t|: 1 per element (complex: a difference 2, |z| 4), and the reduction; the result is real"""
    if not (self.is_complex or target.is_complex):
        return compared(self, target, 1, reduction)
    work = compared(self, target, 6, reduction)
    return Work(work.flop, work.read, work.write // 2)


BACKWARDS = {  # FLOPs per element, and unreduced
    "mse_loss_backward": (2, 3, "(x - t) * (2 g / n): 2 per element; unreduced 2 (x - t) g: 3"),
    "smooth_l1_loss_backward huber_loss_backward": (3, 3, "(x - t) g / (n beta): sub, mul, div an element"),
    "soft_margin_loss_backward": (6, 6, "z = exp(-t x); -t g z / (1 + z): mul, exp, add, 2 mul, div"),
}


def _register_backward(names: str, reduced: int, unreduced: int, formula: str) -> None:
    def backward(grad: Tensor, self: Tensor, target: Tensor, reduction: Any = MEAN) -> Work:
        flop = reduced if reduced == unreduced or mode(reduction) != NONE else unreduced
        return compared_backward(self, flop, required(grad), self, target)

    backward.__doc__ = formula
    op(names)(backward)


for _names, _backward in BACKWARDS.items():
    _register_backward(_names, *_backward)


@op("l1_loss.backward")
def l1_loss_backward(self: Tensor, target: Tensor, reduction: Any = MEAN) -> Parts:
    """sign(x - t) * g: 2 per element (complex: sub 2, z / |z| 6, a product by a number 2)"""
    flop = 10 if self.is_complex or target.is_complex else 2
    inputs = distinct(self, target) + incoming(self, reduction).nbytes
    wanted = {"self": self, "target": target}
    return {name: Work(flop * t.numel, inputs, moved(t.numel, t)) for name, t in wanted.items() if t.needs_grad}


@op("binary_cross_entropy")
def bce(self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN) -> Work:
    """(t - 1) log(1 - x) - t log(x): 2 log, 3 sub, 2 mul = 7 per element, and 1 with a weight"""
    return compared(self, target, 8 if given(weight) else 7, reduction, weight)


@op("binary_cross_entropy_backward")
def bce_backward(grad: Tensor, self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN) -> Work:
    """g (x - t) / ((1 - x) x): 2 sub, 2 mul, div = 5 per element, and 1 with a weight"""
    return compared_backward(self, 6 if given(weight) else 5, required(grad), self, target, weight)


@op("binary_cross_entropy_with_logits")
def bce_logits(self: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: Any = MEAN) -> Work:
    """(1 - t) x - logsigmoid(x): 6 per element. A weight adds 1, a positive weight ((p - 1) t + 1) * 3.

    Bytes are those of a fused kernel; PyTorch runs several kernels.
    """
    flop = 6 + (1 if given(weight) else 0) + (3 if given(pos_weight) else 0)
    return compared(self, target, flop, reduction, weight, pos_weight)


@op("binary_cross_entropy_with_logits.backward")
def bce_logits_backward(
    self: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: Any = MEAN
) -> Work:
    """(sigmoid(x) - t) g: 5 per element. A weight adds 1, a positive weight 3."""
    flop = 5 + (1 if given(weight) else 0) + (3 if given(pos_weight) else 0)
    return compared_backward(self, flop, self, target, weight, pos_weight, incoming(self, reduction))


@op("kl_div.backward")
def kl_div_backward(self: Tensor, target: Tensor, reduction: Any = MEAN, log_target: Any = False) -> Parts:
    """dx = -t g reads t only: 1 per element, 2 where t is a logarithm. dt = g (log t - x + 1): 4 per element."""
    grad = incoming(self, reduction)
    flop = 2 if number(log_target, False) else 1
    parts = {}
    if self.needs_grad:
        parts["self"] = Work(flop * self.numel, distinct(target) + grad.nbytes, moved(self.numel, self))
    if target.needs_grad:
        inputs = distinct(self, target) + grad.nbytes
        parts["target"] = Work(4 * target.numel, inputs, moved(target.numel, target))
    return parts


@op("multi_margin_loss_backward (grad, self, target, _p, _margin, weight)")
@op("multilabel_margin_loss_backward (grad, self, target, _reduction, weight)")
def margin_backward(grad: Tensor, self: Tensor, target: Tensor, weight: Any = None) -> Work:
    """g / C where the margin is violated: 1 per element; an estimate. Reads the weights or, with several labels, the
    forward's mark of the labels."""
    return Work(self.numel, distinct(required(grad), self, indices(target), given(weight)), moved(self.numel, self))


def _lengths(argument: Any) -> tuple[int, ...] | None:
    """The lengths of the sequences, if they are numbers or a tensor with known contents."""
    known = argument.values if isinstance(argument, Tensor) else argument
    return tuple(known) if isinstance(known, (list, tuple)) and known else None


def _states(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> tuple[int, int]:
    """(states that are computed, states that are stored): T (2 S + 1) of each sequence of T steps and S labels.

    Sequences of unknown lengths are taken to be as long as possible. As many states are stored for each as for the
    longest.
    """
    steps, batch = log_probs.shape[:2]
    most = targets.shape[-1] if len(targets.shape) == 2 else -(-targets.numel // max(batch, 1))
    times, sizes = _lengths(input_lengths), _lengths(target_lengths)
    most = max(sizes, default=0) if sizes else most
    if times is None and sizes is None:
        return steps * batch * (2 * most + 1), steps * batch * (2 * most + 1)
    count = len(times or sizes or ())
    pairs = zip(times or (steps,) * count, sizes or (most,) * count, strict=False)
    return sum(t * (2 * s + 1) for t, s in pairs), steps * batch * (2 * most + 1)


@op("_ctc_loss ctc_loss")
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any = None, target_lengths: Any = None) -> Work:
    """alpha[t, s] over T steps and 2 S + 1 states: three exponentials, two sums, a logarithm, a sum: 7 each

    Stores all states. Lengths that the capture does not have are taken to be the longest possible.
    """
    states, stored = _states(log_probs, targets, input_lengths, target_lengths)
    batch = log_probs.shape[1]
    return Work(7 * states, log_probs.nbytes + indices(targets).nbytes, moved(stored + batch, log_probs))


@op("_cudnn_ctc_loss miopen_ctc_loss")
def fused_ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any = None, target_lengths: Any = None) -> Work:
    """The loss and its gradient in one pass: alpha and beta, 7 per state each, and 5 per probability"""
    states, _ = _states(log_probs, targets, input_lengths, target_lengths)
    read = log_probs.nbytes + indices(targets).nbytes
    return Work(14 * states + 5 * log_probs.numel, read, moved(log_probs.numel + log_probs.shape[1], log_probs))


@op("_ctc_loss_backward")
def ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Any = None, target_lengths: Any = None
) -> Work:
    """beta like alpha: 7 per state; per probability (exp(x) - exp(ab + nll - x)) * g: 5; an estimate"""
    forward = ctc_loss(log_probs, targets, input_lengths, target_lengths)
    read = distinct(grad, log_probs) + indices(targets).nbytes + forward.write
    return Work(forward.flop + 5 * log_probs.numel, read, moved(log_probs.numel, log_probs))


@op("multi_margin_loss (self, target, _p, _margin, weight, reduction)")
def multi_margin_loss(self: Tensor, target: Tensor, weight: Any = None, reduction: Any = MEAN) -> Work:
    """max(0, margin - x[y] + x[i]): 3 per element including the row's sum and mean; an estimate"""
    count = target.numel if mode(reduction) == NONE else 1
    return Work(3 * self.numel, distinct(self, indices(target), given(weight)), moved(count, self))


@op("multilabel_margin_loss_forward")
def multilabel_margin_loss(self: Tensor, target: Tensor, reduction: Any = MEAN) -> Work:
    """As ``multi_margin_loss``; also marks the labels, one element per target"""
    count = numel(self.shape[:-1]) if mode(reduction) == NONE else 1
    return Work(3 * self.numel, distinct(self, indices(target)), moved(count + target.numel, self))
