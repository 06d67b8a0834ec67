"""FBGEMM's table-batched embeddings: T tables in one buffer, looked up by one kernel, updated by another.

N indices in bags, B bags a table, rows of D elements, another D for each table; total_D is their sum. The forward sums
each bag's rows as embedding_bag does; the backward adds the bags' gradients to the rows and lets the optimizer update
them, so that no gradient of a table is ever stored.

Arguments differ between the versions, and are found by what they are: the indices and the offsets of the bags are the
two integer vectors that follow each other and have one type. Two things are not recorded:

* how many lookups each table has. Where all tables have one width, counts are exact; where they may not, each lookup
  counts as the mean width, total_D / T (the output's elements over the bags);
* which rows occur. An index counts as a row of its own, as in embedding, but of no more elements than the tables have:
  an update touches min(N D, all) elements.

read    the gathered rows, indices (and weights); backward the gradient once, the touched rows and their optimizer state
write   the bags' sums; backward the touched rows and their state, which is float32
Sources: FBGEMM 0.2 to 1.8, fbgemm_gpu/codegen: the host templates (arguments), genscript/optimizers.py (the updates).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.model import Parts, Tensor, UnknownArgument, Work, alias, assumes, model
from pyprof.prof.ops.operands import Out, bytes_of, first_output, indices

FAMILY_NAME = "embedding"
SUM, MEAN, NONE = 0, 1, 2  # pooling modes
STATE = 4  # bytes of an element of optimizer state
# SparseType (fbgemm_gpu/split_embedding_configs.py): an output's type as a number
SPARSE_TYPES = {0: "float32", 1: "float16", 2: "uint8", 5: "bfloat16"}


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the arguments of a call tell of it."""

    weights: Tensor  # all tables' elements
    tables: int | None
    total: int | None  # total_D
    widest: int | None  # the largest D
    indices: Tensor
    bags: int
    pooling: int | None
    weighted: Tensor | None  # a factor an index
    rows: int | None  # of all tables, where the optimizer keeps a number a row
    out: str | None  # the output's dtype

    @property
    def count(self) -> int:
        return self.indices.numel

    @property
    def is_even(self) -> bool:
        """Whether all tables are known to have one width."""
        return self.tables == 1 or (
            None not in (self.tables, self.total, self.widest)
            and (self.total == (self.tables or 0) * (self.widest or 0))
        )

    def in_bags(self, shape: tuple[int, ...]) -> bool:
        """Whether a result of this shape holds bags' sums, rather than a row an index."""
        if self.pooling is not None:
            return self.pooling != NONE
        return len(shape) != 2 or shape[0] != self.count or shape[0] * (self.tables or 1) == self.bags

    def width(self, result: Tensor | None) -> Fraction:
        """The mean D of a lookup, by the result or its gradient, else by the widths that are told."""
        if result is not None and result.shape:
            rows = self.bags if self.in_bags(result.shape) else self.count
            if rows:
                return Fraction(result.numel, rows)
        if self.tables and self.total:
            return Fraction(self.total, self.tables)
        if self.rows and self.rows < self.weights.numel and self.weights.dtype != "uint8":
            # an optimizer of a number a row tells the rows: of tables that differ, the longer ones weigh more
            return Fraction(self.weights.numel, self.rows)
        raise UnknownArgument("the capture does not tell the tables' widths")


def _is_whole(argument: Any) -> bool:
    """A vector of whole numbers, or of a type that the capture does not tell."""
    return isinstance(argument, Tensor) and len(argument.shape) == 1 and argument.dtype in ("int32", "int64", "")


def place_of_indices(arguments: tuple[Any, ...]) -> int:
    """Where the indices stand; the offsets follow. Raises ModelError where no two arguments can be them."""
    sizes: set[int] = set()  # of the vectors before: T or T + 1
    for i, (first, second) in enumerate(pairwise(arguments)):
        if not _is_whole(first):
            continue
        told = first.dtype or (i > 0 and not isinstance(arguments[i - 1], (Tensor, tuple)))
        if told and _is_whole(second) and first.dtype == second.dtype:
            third = arguments[i + 2] if i + 2 < len(arguments) else None
            follows = isinstance(third, Tensor) and _is_whole(third) and third.dtype == first.dtype
            return i + 1 if follows and first.numel in sizes else i  # hash_size_cumsum may stand right before
        sizes |= {first.numel, first.numel + 1}
    raise ModelError("no argument looks like the indices and offsets of a lookup")


def understand(arguments: tuple[Any, ...], updates: bool = False) -> Lookup:
    """The arguments of a lookup, in any version's order, without a gradient; or of the op that a backward calls, which
    is told the largest width only."""
    at = place_of_indices(arguments)
    before, after = arguments[:at], arguments[at + 2 :]
    index = indices(arguments[at])
    widths = next((i for i, (a, b) in enumerate(pairwise(before)) if _is_whole(a) and _is_number(b)), None)
    numbers = before[widths + 1 : widths + 3] if widths is not None else ()
    tables = before[widths].numel - 1 if widths is not None else None
    total, widest = (n if type(n) is int else None for n in (*numbers, None, None)[:2])
    if updates and widest is None:
        total, widest = None, total
    later = [a for a in after if isinstance(a, Tensor)]
    weighted = next((a for a in after[:2] if isinstance(a, Tensor) and _is_factor(a, index.numel)), None)
    return Lookup(
        weights=_weights(before, tables),
        tables=tables or None,
        total=total,
        widest=widest,
        indices=index,
        bags=max(arguments[at + 1].numel - 1, 0),
        pooling=after[0] if after and type(after[0]) is int else None,
        weighted=weighted,
        rows=_rows([a for a in later if a is not weighted], [a for a in after if isinstance(a, tuple) and a]),
        out=next((SPARSE_TYPES.get(a) for a in after[1:6] if type(a) is int), None),
    )


def _is_number(argument: Any) -> bool:
    return not isinstance(argument, (Tensor, tuple))


def _is_factor(tensor: Tensor, count: int) -> bool:
    return tensor.shape == (count,) and (tensor.dtype.startswith(("float", "bfloat")) or not tensor.dtype)


def _weights(before: tuple[Any, ...], tables: int | None) -> Tensor:
    """The buffers of the tables' elements, on the device and elsewhere, as one vector."""
    listed = next((a for a in before if isinstance(a, tuple) and a), None)
    found: list[Tensor] = []
    for argument in listed if listed is not None else before:
        if isinstance(argument, Tensor) and len(argument.shape) == 1:
            if argument.dtype in ("int32", "int64") or (not argument.dtype and argument.shape == (tables,) and found):
                break  # placements or offsets of the tables
            found.append(argument)
    told = [t for t in sorted(found, key=lambda t: -t.numel) if t.dtype]
    dtype = told[0].dtype if told else ""
    return Tensor((sum(t.numel for t in found),), dtype)


def _rows(later: list[Tensor], lists: list[Any]) -> int | None:
    """The first state's numbers: a list of its buffers, or the floats that follow the lookup's own arguments."""
    if lists:
        return next((t.numel for t in lists[0] if isinstance(t, Tensor) and t.numel), None)
    floats = [t.numel for t in later if len(t.shape) == 1 and t.dtype.startswith("float") and t.numel]
    return floats[0] if floats else None


def _whole(amount: Fraction | int) -> int:
    return round(amount)


def _moved(amount: Fraction | int, itemsize: float) -> float:
    return bytes_of(round(amount), itemsize)


# --- forward -----------------------------------------------------------------------------------------------------


def lookup_work(call: Lookup, out: Tensor | None) -> Work:
    """The gathered rows summed in bags, or copied where there are none."""
    wide = call.width(out)
    bagged = call.in_bags(out.shape) if out is not None else call.pooling != NONE
    rows = call.bags if bagged else call.count
    flop: Fraction | int = 0
    if bagged:
        flop = max(call.count - call.bags, 0) + (call.count if call.weighted else 0)
        flop = (flop + (call.bags if call.pooling == MEAN else 0)) * wide
    dtype = (out.dtype if out is not None else "") or call.out or "float32"  # FBGEMM's default
    read = _moved(call.count * wide, call.weights.itemsize) + call.indices.nbytes
    read += call.weighted.nbytes if call.weighted else 0
    return Work(_whole(flop), read, _moved(rows * wide, Tensor((), dtype).itemsize))


@model("fbgemm::split_embedding_codegen_lookup", family=FAMILY_NAME)
def lookup(*arguments: Any, out: Out = None) -> Work:
    """The sum of each bag's rows: (N - bags) D additions; mean: bags D divisions more; weights: N D products"""
    call = understand(arguments)
    described = first_output(out)
    if call.pooling is None and described is None and call.count != call.bags:
        raise UnknownArgument("the capture does not tell whether the rows are summed: no output, no pooling mode")
    return lookup_work(call, described)


@model("fbgemm::split_embedding_nobag_codegen_forward", family=FAMILY_NAME)
def lookup_rows(*arguments: Any, out: Out = None) -> Work:
    """A copy of N rows of D elements; D is one number"""
    call = understand(arguments)
    described = first_output(out)
    numbers = [a for a in arguments[: place_of_indices(arguments)] if type(a) is int]
    if described is None and numbers:
        described = call.weights.like((call.count, numbers[0]), call.out or "float32")
    return lookup_work(
        Lookup(call.weights, None, None, None, call.indices, call.bags, NONE, None, call.rows, call.out), described
    )


BITS = (2, 4, 8, 16, 32)  # of the kinds of rows that an inference table may have, in the arguments' order


@model("fbgemm::int_nbit_split_embedding_codegen_lookup", family=FAMILY_NAME)
def quantized_lookup(*arguments: Any, out: Out = None) -> Work:
    """The sum of each bag's rows, each element scaled and shifted: 2 N D more; a scale and a bias (4 bytes) a row

    Tables of several precisions are not told apart: then it is unknown. The output is float16 where it is not told.
    """
    at = place_of_indices(arguments)
    numbers = [a for a in arguments[:at] if type(a) is int]
    kinds = [bits for bits, widest in zip(BITS, numbers[1:], strict=False) if widest > 0]
    if len(kinds) != 1 or len(numbers) < 1 + len(BITS):
        raise UnknownArgument("the capture does not tell the tables' precision")
    call, bits = understand(arguments), kinds[0]
    wide = Fraction(numbers[0], call.tables) if call.tables else call.width(out[0] if out else None)
    bagged = call.pooling != NONE
    rows = call.bags if bagged else call.count
    adds = max(call.count - call.bags, 0) if bagged else 0
    scaled = 2 * call.count if bits < 16 else 0
    flop = (adds + scaled + (call.count if call.weighted else 0) + (call.bags if call.pooling == MEAN else 0)) * wide
    row = wide * bits / 8 + (4 if bits < 16 else 0)
    dtype = (out[0].dtype if out and out[0] else "") or call.out or "float16"
    read = round(call.count * row) + call.indices.nbytes + (call.weighted.nbytes if call.weighted else 0)
    return Work(_whole(flop), read, _moved(rows * wide, Tensor((), dtype).itemsize))


# --- backward ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Update:
    """An optimizer: FLOPs of an element and of a row, numbers of state of an element and of a row. Without weight
    decay, which no capture tells; ``why`` takes the sum apart."""

    element: int
    row: int
    states: int
    row_states: int
    why: str
    stores: bool = True  # updates the tables in place; else it writes the rows' gradients


ROWWISE = "squares 2, update 2; a row: mean, sum, sqrt, eps, quotient"
UPDATES = {
    "sgd": Update(2, 0, 0, 0, "p - lr g"),
    "approx_sgd": Update(2, 0, 0, 0, "p - lr g"),
    "adagrad": Update(7, 0, 1, 0, "as _fused_adagrad"),
    "rowwise_adagrad": Update(4, 5, 0, 1, ROWWISE),
    "approx_rowwise_adagrad": Update(4, 5, 0, 1, ROWWISE),
    "rowwise_adagrad_with_weight_decay": Update(4, 5, 0, 1, ROWWISE),
    "approx_rowwise_adagrad_with_weight_decay": Update(4, 5, 0, 1, ROWWISE),
    "rowwise_adagrad_with_counter": Update(4, 7, 0, 3, f"{ROWWISE}, counter and its quotient"),
    "approx_rowwise_adagrad_with_counter": Update(4, 7, 0, 3, f"{ROWWISE}, counter and its quotient"),
    "rowwise_weighted_adagrad": Update(4, 7, 0, 1, f"{ROWWISE}, twice weighted by the step"),
    "rowwise_rmsprop_ar": Update(5, 11, 0, 2, "squares 2, update 3; a row: as rowwise_adagrad, average 2, decay 4"),
    "adam": Update(13, 0, 2, 0, "as _fused_adam"),
    "partial_rowwise_adam": Update(7, 8, 1, 1, "squares 2, m 3, update 2; a row: mean, v 3, denominator 4"),
    "lamb": Update(18, 4, 2, 0, "m 3, v 4, direction 5, two norms 4, update 2; a row: sqrt 2, ratio, lr"),
    "partial_rowwise_lamb": Update(12, 12, 1, 1, "squares 2, m 3, direction 1, norms 4, update 2; a row: v 8, ratio 4"),
    "lars_sgd": Update(8, 5, 1, 0, "two norms 4, m 3, update 1; a row: sqrt 2, rate 3"),
    "none": Update(0, 0, 0, 0, "gradients of the touched rows", stores=False),
    "dense": Update(0, 0, 0, 0, "gradients of the touched rows", stores=False),
}


def touched(call: Lookup, wide: Fraction) -> tuple[Fraction, Fraction]:
    """(elements, rows) of the tables that a backward updates: an index a row, at most all there are."""
    elements = call.count * wide
    if call.weights.numel:
        elements = min(elements, Fraction(call.weights.numel))
    known = call.rows if call.rows and call.rows < call.weights.numel else 0  # a number a row: the rows themselves
    rows = Fraction(known) if known else elements / wide if wide else Fraction(0)
    return elements, min(Fraction(call.count), rows)


def indice_weights_work(call: Lookup, grad: Tensor) -> Work:
    """The gradient of each index's weight: the dot product of its row and its bag's gradient, 2 D - 1"""
    wide = call.width(grad)
    read = grad.nbytes + _moved(call.count * wide, call.weights.itemsize) + call.indices.nbytes
    return Work(_whole(call.count * (2 * wide - 1)), read, _moved(call.count, STATE))


def update_work(call: Lookup, grad: Tensor, rule: Update) -> Work:
    """The bags' gradients added to the rows, then the optimizer's update of the rows that were touched."""
    wide = call.width(grad)
    elements, rows = touched(call, wide)
    each = 2 if call.weighted else 1
    flop = call.count * wide * each + rule.element * elements + rule.row * rows
    flop += grad.numel if call.pooling == MEAN else 0
    state = _moved(rule.states * elements + rule.row_states * rows, STATE)
    tables = _moved(elements, call.weights.itemsize)
    read = grad.nbytes + call.indices.nbytes + (call.weighted.nbytes if call.weighted else 0)
    return Work(_whole(flop), read + (tables + state if rule.stores else 0), tables + state)


def gradient(arguments: tuple[Any, ...]) -> tuple[Tensor, Lookup]:
    """A backward's gradient and the lookup that it belongs to."""
    grad, *rest = arguments
    if not isinstance(grad, Tensor) or not rest:
        raise UnknownArgument("the capture does not tell the forward call that the gradient belongs to")
    return grad, understand(tuple(rest), updates=True)


@model("fbgemm::split_embedding_codegen_grad_indice_weights", family=FAMILY_NAME)
def grad_indice_weights(*arguments: Any) -> Work:
    """The gradient of each index's weight: the dot product of its row and its bag's gradient, 2 D - 1 an index"""
    grad, call = gradient(arguments)
    return indice_weights_work(call, grad)


def _register(optimizer: str, rule: Update) -> None:
    def backward(*arguments: Any) -> Work:
        grad, call = gradient(arguments)
        return update_work(call, grad, rule)

    def whole(*arguments: Any) -> Work | Parts:
        grad, call = gradient(arguments)
        update = update_work(call, grad, rule)
        return {"indice_weights": indice_weights_work(call, grad), "update": update} if call.weighted else update

    told = f"{rule.element} an element and {rule.row} a row that is updated: {rule.why}"
    backward.__doc__ = f"N D additions (weighted: as many products); {optimizer}: {told}"
    whole.__doc__ = f"{backward.__doc__}. The weights' own gradient: N (2 D - 1)"
    model(f"fbgemm::split_embedding_backward_codegen_{optimizer}", family=FAMILY_NAME)(backward)
    model(f"SplitLookupFunction_{optimizer}", family=FAMILY_NAME)(whole)


for _optimizer, _rule in UPDATES.items():
    _register(_optimizer, _rule)


def may_leave_work(name: str) -> bool:
    """Whether an op does its work itself in some versions of FBGEMM and leaves it to ops of its own in others (0.5)."""
    return name.startswith("SplitLookupFunction_")


# --- names ---------------------------------------------------------------------------------------------------------

_KIND = r"fbgemm::(?:split|dense|ssd)_embedding"
alias(rf"{_KIND}_codegen_(?:lookup|forward)_\w+", "fbgemm::split_embedding_codegen_lookup")
alias(rf"{_KIND}_nobag_codegen_forward_\w+", "fbgemm::split_embedding_nobag_codegen_forward")
alias(rf"{_KIND}_codegen_grad_indice_weights\w*", "fbgemm::split_embedding_codegen_grad_indice_weights")
alias(r"fbgemm::int_nbit_split_embedding\w*_codegen_\w+", "fbgemm::int_nbit_split_embedding_codegen_lookup")
alias(
    rf"{_KIND}(?:_nobag)?_backward_codegen_(\w+?)_(?:(?:un)?weighted|cpu)\w*",
    r"fbgemm::split_embedding_backward_codegen_\1",
)
alias(r"torch::autograd::CppNode<.*?LookupFunction_Dense_Op\w*>", "SplitLookupFunction_dense")
alias(r"torch::autograd::CppNode<.*?LookupFunction_(\w+?)_Op\w*>", r"SplitLookupFunction_\1")


# --- what was assumed ------------------------------------------------------------------------------------------------


def _of_lookup(arguments: tuple[Any, ...]) -> str:
    call = understand(arguments)
    if call.is_even:
        return ""
    return (
        f"each lookup has the mean width of its {call.tables or 'several'} tables: which one it is in, is not recorded"
    )


def _of_backward(arguments: tuple[Any, ...]) -> str:
    _, call = gradient(arguments)
    touches = f"rows updated: one an index, at most the {call.weights.numel:,} elements there are"
    return "; ".join(filter(None, (_of_lookup(tuple(arguments[1:])), touches)))


def _register_assumptions(names: tuple[str, ...], says: Callable[[tuple[Any, ...]], str]) -> None:
    for name in names:
        assumes(name)(says)


_register_assumptions(
    ("fbgemm::split_embedding_codegen_lookup", "fbgemm::int_nbit_split_embedding_codegen_lookup"), _of_lookup
)
_register_assumptions(
    tuple(
        f"{kind}_{name}"
        for name in UPDATES
        for kind in ("fbgemm::split_embedding_backward_codegen", "SplitLookupFunction")
    ),
    _of_backward,
)
