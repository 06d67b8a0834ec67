"""Contractions: ops that PyTorch runs as one or several matrix products.

einsum, tensordot, chains of matrices, bilinear forms, Kronecker products, distances.
"""

import math
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.gemm import bias_gradient, dimensions, gradients, mm, multiplies, op, product
from pyprof.prof.ops.model import UNKNOWN, Parts, Tensor, Work, distinct, model, total
from pyprof.prof.ops.operands import Out, broadcast, elementwise, given, moved, output
from pyprof.prof.ops.result_types import addition_flop


@dataclass(frozen=True, slots=True)
class Labelled:
    """An operand of a contraction, with one label per dimension."""

    labels: str
    tensor: Tensor

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, self.tensor.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Step:
    """A pair of operands contracted into one: ``count`` multiply-adds, or only multiplications if nothing is summed.

    ``before``: the work of summing an operand over labels that nothing else has, before the product.
    """

    left: Tensor
    right: Tensor
    result: Labelled
    count: int
    summed: bool
    before: Work


def parse(equation: Any, tensors: Any) -> tuple[list[Labelled], str]:
    """The operands with one letter per dimension ("..." becomes unused letters), and the result's letters."""
    if not isinstance(equation, str) or not isinstance(tensors, tuple):
        raise ShapeError("einsum", "an equation and a list of tensors", f"{equation!r}")
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ShapeError("einsum", f"{len(terms)} operands for {equation!r}", len(tensors))
    pairs = zip(terms, tensors, strict=True)
    hidden = [len(t.shape) - len(term.replace("...", "")) if "..." in term else 0 for term, t in pairs]
    stretch = "".join([c for c in ascii_letters if c not in equation][: max(hidden, default=0)])
    terms = [term.replace("...", stretch[len(stretch) - n :]) for term, n in zip(terms, hidden, strict=True)]
    if arrow:
        result = right.replace("...", stretch)
    else:
        letters = "".join(terms)
        result = stretch + "".join(c for c in sorted(set(letters)) if letters.count(c) == 1 and c not in stretch)
    return [labelled(term, t) for term, t in zip(terms, tensors, strict=True)], result


def labelled(term: str, tensor: Tensor) -> Labelled:
    """An operand with its labels; a repeated label selects the diagonal, which is a view."""
    if len(term) != len(tensor.shape):
        raise ShapeError("einsum", f"a dimension for each of {term!r}", tensor.shape)
    sizes = dict(zip(term, tensor.shape, strict=True))
    if len(sizes) < len(term):
        tensor = replace(tensor, shape=tuple(sizes.values()), strides=None, ident=0)
    return Labelled("".join(sizes), tensor)


def steps(operands: list[Labelled], result: str, path: Any) -> list[Step]:
    """The contracted pairs in order: from left to right, or by ``path``, which lists the positions of each pair. Its
    result goes to the end."""
    todo, done = list(operands), []
    order = list(path or ())
    while len(todo) > 1:
        i, j = sorted((order.pop(0), order.pop(0))) if len(order) > 1 else (0, 1)
        right, left = todo.pop(j), todo.pop(i)
        later = set(result).union(*(o.labels for o in todo))
        done.append(contracted(left, right, later))
        todo.insert(len(todo) if path else 0, done[-1].result)
    return done


def contracted(left: Labelled, right: Labelled, later: set[str]) -> Step:
    """Contract two operands into one that keeps the labels needed later. Dimensions of size 1 broadcast."""
    left, before_left = alone(left, later | set(right.labels))
    right, before_right = alone(right, later | set(left.labels))
    sizes: dict[str, int] = {}
    for label, size in (*left.sizes.items(), *right.sizes.items()):
        sizes[label] = max(size, sizes.get(label, 1)) if size else 0
    kept = "".join(label for label in sizes if label in later)
    shape = tuple(sizes[label] for label in kept)
    a, b = left.tensor, right.tensor
    result = replace(a, shape=shape, strides=None, ident=0, needs_grad=a.needs_grad or b.needs_grad)
    count, summed = math.prod(sizes.values()), len(kept) < len(sizes)
    return Step(a, b, Labelled(kept, result), count, summed, before_left + before_right)


def alone(operand: Labelled, needed: set[str]) -> tuple[Labelled, Work]:
    """Sum an operand, before the product, over the labels that are not needed."""
    kept = "".join(label for label in operand.labels if label in needed)
    if kept == operand.labels:
        return operand, Work()
    shape = tuple(n for label, n in operand.sizes.items() if label in needed)
    return Labelled(kept, replace(operand.tensor, shape=shape, strides=None, ident=0)), reduced(operand, kept)


@op("einsum")
def einsum(equation: Any, tensors: Any, path: Any = None) -> Work:
    """Contracts pairs of operands one after the other, in the order of the path or from left to right

    flop    2 * (product of all sizes of a pair's labels); 1 * that where a pair has nothing to sum over.
            A label that only one operand has is summed before
    bytes   each pair is read and its result written; so intermediates are written and read
    With one operand: the sum over the labels that the result lacks; a permutation or a diagonal is a view.
    Source: aten/src/ATen/native/Linear.cpp, einsum and sumproduct_pair.
    """
    operands, result = parse(equation, tensors)
    if len(operands) == 1:
        return reduced(operands[0], result)
    return sum((step_work(step) for step in steps(operands, result, path)), Work())


def reduced(operand: Labelled, result: str) -> Work:
    """Sum of one operand over the labels that are not in the result."""
    kept, whole = math.prod(n for label, n in operand.sizes.items() if label in result), operand.tensor.numel
    if kept == whole:
        return Work()
    flop = (whole - kept) * addition_flop(operand.tensor)
    return Work(flop, operand.tensor.nbytes, moved(kept, operand.tensor))


def step_work(step: Step) -> Work:
    left, right, result = step.left, step.right, step.result.tensor
    if step.summed:
        return step.before + product(step.count, (left, right), result)
    return step.before + elementwise(multiplies(step.count, left, right), distinct(left, right), result)


@op("einsum.backward")
def einsum_backward(equation: Any, tensors: Any, path: Any = None) -> Work:
    """For each pair, one product of the same size per operand that needs a gradient; a sum's gradient is a view"""
    operands, result = parse(equation, tensors)
    pairs = steps(operands, result, path)
    parts = (gradients(step.left, step.right, step.result.tensor, step.count, None) for step in pairs)
    return sum(map(total, parts), Work())


@op("kron")
def kron(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """Every element of a times every element of b: 1 flop per pair"""
    rank = max(len(a.shape), len(b.shape))
    left, right = ((1,) * (rank - len(t.shape)) + t.shape for t in (a, b))
    result = output(out, a.like(tuple(m * n for m, n in zip(left, right, strict=True))))
    return elementwise(multiplies(result.numel, a, b), distinct(a, b), result)


@op("tensordot")
def tensordot(a: Tensor, b: Tensor, dims_a: Any = UNKNOWN, dims_b: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Products of a and b, summed over dims_a of a and dims_b of b"""
    shape, count = tensordot_sizes(a, b, dims_a, dims_b)
    return product(count, (a, b), output(out, a.like(shape)))


@op("tensordot.backward")
def tensordot_backward(a: Tensor, b: Tensor, dims_a: Any, dims_b: Any) -> Parts:
    """Two products of the forward's size"""
    shape, count = tensordot_sizes(a, b, dims_a, dims_b)
    return gradients(a, b, a.like(shape), count, None)


def tensordot_sizes(a: Tensor, b: Tensor, dims_a: Any, dims_b: Any) -> tuple[tuple[int, ...], int]:
    """(sizes of both operands' dimensions that are not summed, multiply-adds)"""
    summed_a, summed_b = {d % len(a.shape) for d in dims_a}, {d % len(b.shape) for d in dims_b}
    stay_a = tuple(n for i, n in enumerate(a.shape) if i not in summed_a)
    stay_b = tuple(n for i, n in enumerate(b.shape) if i not in summed_b)
    return stay_a + stay_b, a.numel * math.prod(stay_b)


@op("bilinear")
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Any = None, *, out: Out = None) -> Work:
    """y[..,o] = x1[..,i] weight[o,i,j] x2[..,j] + bias[o]

    flop    2 * rows * O * J * (I + 1): first x1 @ weight, then the sum with x2
    """
    o, i, j = weight.shape
    shape = (*x1.shape[:-1], o)
    return product(math.prod(shape) * j * (i + 1), (x1, x2, weight, given(bias)), output(out, x1.like(shape)))


@op("bilinear.backward")
def bilinear_backward(x1: Tensor, x2: Tensor, weight: Tensor, bias: Any = None) -> Parts:
    """Each gradient is the product of the other two, summed: first over one size, then over the other

    dx1 = (weight x2) dy: 2*rows*O*I*(J + 1); dx2 the same with I and J exchanged; dweight = (dy x1)' x2:
    rows*O*I products, then 2*rows*O*I*J
    """
    o, i, j = weight.shape
    rows = math.prod(x1.shape[:-1])
    y = x1.like((*x1.shape[:-1], o))
    parts: Parts = {}
    if x1.needs_grad:
        parts["dx1"] = product(rows * o * i * (j + 1), (y, x2, weight), x1.like(x1.shape))
    if x2.needs_grad:
        parts["dx2"] = product(rows * o * j * (i + 1), (y, x1, weight), x2.like(x2.shape))
    if weight.needs_grad:
        outer = Work(multiplies(rows * o * i, x1))
        parts["wgrad"] = product(rows * o * i * j, (y, x1, x2), weight.like(weight.shape)) + outer
    if isinstance(bias, Tensor) and bias.needs_grad:
        parts["bias"] = bias_gradient(y, bias)
    return parts


@op("_trilinear")
def trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand1: Any, expand2: Any, expand3: Any, summed: Any, *, out: Out = None
) -> Work:
    """The sum over ``summed`` of a * b * c, each with dimensions of size 1 put in where ``expand`` says

    flop    first a and b, summed over what c lacks, then the result and c. bilinear(x1, x2, weight) is
            _trilinear(x1, weight, x2, [1,3], [0], [1,2], [2,3]): 2 * rows * O * J * (I + 1)
    Source: aten/src/ATen/native/Linear.cpp, _trilinear: two calls of sumproduct_pair.
    """
    tensors, expanded = (a, b, c), (expand1, expand2, expand3)
    if not all(isinstance(dims, (list, tuple)) for dims in (*expanded, summed)):
        raise UnknownArgument("the dimensions of the operands are not recorded")
    rank = len(a.shape) + len(expand1)
    operands = []
    for tensor, dims in zip(tensors, expanded, strict=True):
        operands.append(labelled("".join(ascii_letters[d] for d in range(rank) if d not in dims), tensor))
    kept = "".join(ascii_letters[d] for d in range(rank) if d not in summed)
    pairs = steps(operands, kept, None)
    result = output(out, pairs[-1].result.tensor)
    return elementwise(sum(step_work(pair).flop for pair in pairs), distinct(*tensors), result)


@model("cdist", "_cdist_forward", family="distance")
def cdist(x1: Tensor, x2: Tensor, p: Any = 2.0, *, out: Out = None) -> Work:
    """y[..,P,R]: the p-norm of the difference between each row of x1[..,P,M] and each row of x2[..,R,M]

    flop    per pair and element: 1 subtraction, 1 power (p = 2: a product; p = 1, 0, inf: none), 1 addition;
            per pair: 1 addition fewer, 1 root (p = 2 and other powers)
    ``_euclidean_dist`` computes the same by a matrix product; its traces show ``mm`` or ``bmm`` with K = M +
    2.
    """
    shape = (*broadcast("cdist", x1.shape[:-2], x2.shape[:-2]), x1.shape[-2], x2.shape[-2])
    m, pairs = x1.shape[-1], math.prod(shape)
    plain = p in (0, 1, math.inf) if p is not UNKNOWN else bool(p)
    flop = pairs * (2 * m - 1 if plain else 3 * m) if m else 0
    return elementwise(flop, distinct(x1, x2), output(out, x1.like(shape)))


@model("_cdist_backward", family="distance")
def cdist_backward(dy: Tensor, x1: Tensor, x2: Tensor, p: Any = 2.0, y: Any = None) -> Work:
    """dx1, per pair and element: the difference times dy (p = 2: dy / y, one division per pair), summed over x2"""
    pairs, m = dy.numel, x1.shape[-1]
    divided = p is not UNKNOWN and p in (0, 1, math.inf)
    flop = pairs * (2 * m + (0 if divided else 1)) + max(0, pairs * m - x1.numel)
    return Work(flop, distinct(dy, x1, x2, given(y)), moved(x1.numel, x1))


@model("pdist", "_pdist_forward", family="distance")
def pdist(x: Tensor, p: Any = 2.0) -> Work:
    """The distances between all pairs of N rows: N (N - 1) / 2 pairs, each counted as in cdist"""
    n, m = x.shape
    whole = cdist(x, x, p).flop
    pairs = n * (n - 1) // 2
    return Work(whole // (n * n) * pairs if m and n else 0, x.nbytes, moved(pairs, x))


@model("_pdist_backward", family="distance")
def pdist_backward(dy: Tensor, x: Tensor, p: Any = 2.0, y: Any = None) -> Work:
    """A pair's gradient goes to both of its rows: counted as in cdist, for N (N - 1) ordered pairs"""
    m, pairs = x.shape[-1], 2 * dy.numel
    divided = p is not UNKNOWN and p in (0, 1, math.inf)
    flop = pairs * (2 * m + (0 if divided else 1)) + max(0, pairs * m - x.numel)
    return Work(flop, distinct(dy, x, given(y)), moved(x.numel, x))


@op("chain_matmul linalg_multi_dot")
def chain_matmul(matrices: tuple[Tensor, ...]) -> Work:
    """A1 @ A2 @ ... in the cheapest order; each intermediate is written and read

    The order minimises multiply-adds by dynamic programming (Cormen et al., section 15.2), as linalg.multi_dot does.
    """
    ends = [m if len(m.shape) > 1 else m.like((*m.shape, 1) if i else (1, *m.shape)) for i, m in enumerate(matrices)]
    best: dict[tuple[int, int], tuple[int, Work, Tensor]] = {(i, i): (0, Work(), m) for i, m in enumerate(ends)}
    for width in range(1, len(ends)):
        for i in range(len(ends) - width):
            chains = [joined(best[i, s], best[s + 1, i + width]) for s in range(i, i + width)]
            best[i, i + width] = min(chains, key=lambda chain: chain[0])
    return best[0, len(ends) - 1][1]


def joined(left: tuple[int, Work, Tensor], right: tuple[int, Work, Tensor]) -> tuple[int, Work, Tensor]:
    """Join two chains by the product of their results: (multiply-adds, work, result)."""
    m, n, k = dimensions("chain_matmul", left[2], right[2])
    return left[0] + right[0] + m * n * k, left[1] + right[1] + mm(left[2], right[2]), left[2].like((m, n))
