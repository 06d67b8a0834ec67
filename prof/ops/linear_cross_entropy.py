"""F.linear_cross_entropy with ``options``: the last layer's product and the loss, for one part of the batch at a time.

x [N,F], W [C,F], E = N C logits, which are never stored as a whole. Without ``options`` the function calls ``linear``
and ``cross_entropy``, which count by themselves. Without a reduction, the backward's ops count one by one.

loss        logits 2 E F;  exp(z - max) and its sum: sub E, exp E, sum E - N;  its logarithm and the difference with the
            target's logit 2 N;  the reduction, as in ``nll_loss``
gradients   dz = softmax * w / sum - w at the target: E products, N divisions, N subtractions;  dx = dz @ W and
            dW = dz' @ x: 2 E F each;  dbias: sums of dz, E - C
read        x, W, bias, targets and class weights, each once
write       the loss and the gradients that are computed, in x's dtype

Source: torch/nn/modules/linear_cross_entropy.py, 2.13.
"""

from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.gemm import linear, op, product
from pyprof.prof.ops.loss import MEAN, NONE, nll_loss
from pyprof.prof.ops.model import Tensor, Work, distinct
from pyprof.prof.ops.operands import given, indices, moved


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of both ops; ``wants_x``, ``wants_weight`` and ``wants_bias``: the gradients that it computes."""

    x: Tensor
    weight: Tensor
    target: Tensor
    bias: Any = None
    class_weights: Any = None
    reduction: Any = NONE
    wants_x: Any = False
    wants_weight: Any = False
    wants_bias: Any = False

    @property
    def logits(self) -> Tensor:
        return self.x.like((self.x.shape[0], self.weight.shape[0]))

    @property
    def inputs(self) -> float:
        """Bytes of what every pass reads."""
        return distinct(self.x, self.weight, given(self.bias), indices(self.target), given(self.class_weights))

    def exponentials(self) -> int:
        """FLOPs of the logits, of their exponentials and the sum of each row."""
        return linear(self.x, self.weight, self.bias).flop + 3 * self.logits.numel - self.logits.shape[0]

    def gradients(self, x: bool, weight: bool, bias: bool) -> Work:
        """From the exponentials and their sums to the gradients, which are written."""
        z, size = self.logits, self.x.shape[1]
        work = Work(z.numel + 2 * z.shape[0]) if x or weight or bias else Work()
        for wanted, like in ((x, self.x), (weight, self.weight)):
            work += product(z.numel * size, (), self.x.like(like.shape)) if wanted else Work()
        classes = self.weight.shape[0]
        return work + (Work(max(z.numel - classes, 0), 0, moved(classes, self.x)) if bias else Work())


@op(
    "torch_nn::_linear_cross_entropy_batch_chunked (x, weight, target, bias, class_weights, reduction, _ignored, "
    "_smoothing, _chunk, _policy, _dtype, _retain, wants_x, wants_weight, wants_bias)",
    takes=Call,
)
def reduced(call: Call) -> Work:
    """The loss, 2 E F + 3 E + N and its reduction; in the same pass the gradients: E + 2 N, and 2 E F each"""
    rows, reduction = call.logits.shape[0], call.reduction or MEAN  # a trace leaves strings out; the op always reduces
    loss = call.exponentials() + 2 * rows + nll_loss(call.logits, call.target, call.class_weights, reduction).flop
    gradients = call.gradients(bool(call.wants_x), bool(call.wants_weight), bool(call.wants_bias))
    return Work(loss, call.inputs, moved(1, call.x)) + gradients


@op("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction (x, weight, target, bias, class_weights)", takes=Call)
def per_row(call: Call) -> Work:
    """The loss of each row: 2 E F + 3 E + N, and N products with class weights"""
    rows = call.logits.shape[0]
    flop = call.exponentials() + 2 * rows + (rows if given(call.class_weights) else 0)
    return Work(flop, call.inputs, moved(rows, call.x))
