"""The backward of FBGEMM's table-batched embeddings: adds the bags' gradients per row and runs the optimizer on the
rows.

N indices in bags, rows of D elements. The gradient of a table is never stored. The rows themselves are not recorded:
each index counts as a different row, as in embedding, up to the size of the tables. So an update touches
min(N D, all) elements.

read    the gradient once, the indices (and weights), the touched rows and their optimizer state
write   the touched rows and their state, which is float32
Source: FBGEMM 0.2 to 1.8, fbgemm_gpu/codegen/genscript/optimizers.py.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.embedding_call import MEAN, Lookup, understand
from pyprof.prof.ops.embedding_tables import KIND, mean_width, moved_elements
from pyprof.prof.ops.evaluation import alias, assumes
from pyprof.prof.ops.model import Family, Parts, Tensor, Work

op = Family("embedding")
OP = "fbgemm::split_embedding_backward_codegen"  # the op that the autograd node calls
NODE = "SplitLookupFunction"  # the C++ Function to which the whole backward is attributed

STATE = 4  # bytes per element of optimizer state


@dataclass(frozen=True, slots=True)
class Update:
    """An optimizer: FLOPs and state values, per element and per row.

    Weight decay is left out, because no capture records it. ``why`` derives the FLOPs.
    """

    element: int
    row: int
    states: int
    row_states: int
    why: str
    stores: bool = True  # updates the tables in place; False: writes the rows' gradients


ROWWISE = "squares 2, update 2; a row: mean, sum, sqrt, eps, quotient"

TABLE = {
    "sgd approx_sgd": Update(2, 0, 0, 0, "p - lr g"),
    "adagrad": Update(7, 0, 1, 0, "as _fused_adagrad"),
    "rowwise_adagrad approx_rowwise_adagrad": Update(4, 5, 0, 1, ROWWISE),
    "rowwise_adagrad_with_weight_decay approx_rowwise_adagrad_with_weight_decay": Update(4, 5, 0, 1, ROWWISE),
    "rowwise_adagrad_with_counter": Update(4, 7, 0, 3, f"{ROWWISE}, counter and its quotient"),
    "approx_rowwise_adagrad_with_counter": Update(4, 7, 0, 3, f"{ROWWISE}, counter and its quotient"),
    "rowwise_weighted_adagrad": Update(4, 7, 0, 1, f"{ROWWISE}, twice weighted by the step"),
    "rowwise_rmsprop_ar": Update(5, 11, 0, 2, "squares 2, update 3; a row: as rowwise_adagrad, average 2, decay 4"),
    "adam": Update(13, 0, 2, 0, "as _fused_adam"),
    "partial_rowwise_adam": Update(7, 8, 1, 1, "squares 2, m 3, update 2; a row: mean, v 3, denominator 4"),
    "lamb": Update(18, 4, 2, 0, "m 3, v 4, direction 5, two norms 4, update 2; a row: sqrt 2, ratio, lr"),
    "partial_rowwise_lamb": Update(12, 12, 1, 1, "squares 2, m 3, direction 1, norms 4, update 2; a row: v 8, ratio 4"),
    "lars_sgd": Update(8, 5, 1, 0, "two norms 4, m 3, update 1; a row: sqrt 2, rate 3"),
    "none dense": Update(0, 0, 0, 0, "gradients of the touched rows", stores=False),
}
UPDATES = {name: rule for names, rule in TABLE.items() for name in names.split()}


def touched(call: Lookup, wide: Fraction) -> tuple[Fraction, Fraction]:
    """(elements, rows) of the tables that a backward updates: one row per index, at most all rows."""
    elements = call.count * wide
    if call.weights.numel:
        elements = min(elements, Fraction(call.weights.numel))
    if call.rows and call.rows < call.weights.numel:  # the optimizer keeps one number per row
        rows = Fraction(call.rows)
    else:
        rows = elements / wide if wide else Fraction(0)
    return elements, min(Fraction(call.count), rows)


def indice_weights_work(grad: Tensor, call: Lookup) -> Work:
    """The gradient of each index's weight: the dot product of its row and its bag's gradient, 2 D - 1 flop"""
    wide = call.width(grad)
    read = grad.nbytes + moved_elements(call.count * wide, call.weights.itemsize) + call.indices.nbytes
    return Work(round(call.count * (2 * wide - 1)), read, moved_elements(call.count, STATE))


def update_work(grad: Tensor, call: Lookup, rule: Update) -> Work:
    """The work to add the bags' gradients per row, and to run the optimizer on the touched rows."""
    wide = call.width(grad)
    elements, rows = touched(call, wide)
    each = 2 if call.weighted else 1
    flop = call.count * wide * each + rule.element * elements + rule.row * rows
    flop += grad.numel if call.pooling == MEAN else 0
    state = moved_elements(rule.states * elements + rule.row_states * rows, STATE)
    tables = moved_elements(elements, call.weights.itemsize)
    read = grad.nbytes + call.indices.nbytes + (call.weighted.nbytes if call.weighted else 0)
    return Work(round(flop), read + (tables + state if rule.stores else 0), tables + state)


def gradient(arguments: tuple[Any, ...]) -> tuple[Tensor, Lookup]:
    """The gradient that a backward receives, and the lookup that it belongs to."""
    grad, *rest = arguments
    if not isinstance(grad, Tensor) or not rest:
        raise UnknownArgument("the capture does not have the forward call that the gradient belongs to")
    return grad, understand(tuple(rest), updates=True)


@op("fbgemm::split_embedding_codegen_grad_indice_weights")
def grad_indice_weights(*arguments: Any) -> Work:
    """The gradient of each index's weight: the dot product of its row and its bag's gradient, 2 D - 1 per index"""
    return indice_weights_work(*gradient(arguments))


def _register(optimizer: str, rule: Update) -> None:
    def backward(*arguments: Any) -> Work:
        return update_work(*gradient(arguments), rule)

    def whole(*arguments: Any) -> Work | Parts:
        grad, call = gradient(arguments)
        update = update_work(grad, call, rule)
        return {"indice_weights": indice_weights_work(grad, call), "update": update} if call.weighted else update

    price = f"{rule.element} per element and {rule.row} per row that is updated: {rule.why}"
    backward.__doc__ = f"N D additions (weighted: as many products); {optimizer}: {price}"
    whole.__doc__ = f"{backward.__doc__}. The weights' own gradient: N (2 D - 1)"
    op(f"{OP}_{optimizer}")(backward)
    op(f"{NODE}_{optimizer}")(whole)


for _optimizer, _rule in UPDATES.items():
    _register(_optimizer, _rule)


def may_leave_work(name: str) -> bool:
    """Whether an op does its work itself in some versions of FBGEMM and calls other ops for it in others (0.5)."""
    return name.startswith(f"{NODE}_")


alias(rf"{KIND}_codegen_grad_indice_weights\w*", "fbgemm::split_embedding_codegen_grad_indice_weights")
alias(rf"{KIND}(?:_nobag)?_backward_codegen_(\w+?)_(?:(?:un)?weighted|cpu)\w*", rf"{OP}_\1")
alias(r"torch::autograd::CppNode<.*?LookupFunction_Dense_Op\w*>", f"{NODE}_dense")
alias(r"torch::autograd::CppNode<.*?LookupFunction_(\w+?)_Op\w*>", rf"{NODE}_\1")


@assumes(*(f"{OP}_{name}" for name in UPDATES), *(f"{NODE}_{name}" for name in UPDATES))
def touched_rows(arguments: tuple[Any, ...]) -> str:
    """The assumption that each index updates a different row, and the lookup's own assumptions."""
    _, call = gradient(arguments)
    touches = f"rows updated: one per index, at most the {call.weights.numel:,} elements there are"
    return "; ".join(filter(None, (mean_width(tuple(arguments[1:])), touches)))
