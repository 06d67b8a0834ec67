"""Recognise unfused attention by the order and names of kernels: a softmax between two matrix products."""

import json
import math
import re

import numpy as np

from pyprof.prof.work.kinds import PRODUCTS, is_loss, is_softmax
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct, distinct_texts

STEPS = ("MaxOps", "exp_kernel", "sum_functor")  # functors of the kernels of a softmax that runs as several kernels

EARLIER = 3  # products before a softmax of which one makes its scores: attention may add those of distances (DeBERTa's)
PLAIN = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")  # products of the last two matrices of their inputs

# What chooses experts after a router's softmax, or with it in one kernel: TensorRT-LLM's routingCustom and ATen's topk;
# vLLM's topkGatingSoftmax.
ROUTER = re.compile(r"top_?k|\bgating|router|routing|\bmoe\b", re.IGNORECASE)


def softmaxes_apart(table: Table, what: Coded) -> tuple[int, Bools]:
    """The number of softmaxes between two products of a stream, and the mask of all rows between such products.

    A softmax is one kernel, or separate kernels for maximum, exponential and sum. Softmaxes of losses do not count, nor
    those of a model's output: after them come a loss or the backward pass, and no product that takes their result. Nor
    do those of a router, which chooses experts before the next product.
    ``what``: each row's kind of work (``pyprof.prof.work.kinds``).
    """
    start, product, loss = table.ints("start"), what.among(PRODUCTS), what.among("loss")
    kernel = (start != NULL) & table.coded("kind").among("kernel", "")
    whole, steps = _softmaxes(table)
    chooses = np.logical_or.reduce(
        [table.coded(key).where(ROUTER.search) for key in ("kLongName", "kShortName", "aten")]
    )
    count, between = 0, np.zeros(len(table), bool)
    keys, group = distinct(table.ints("pid"), table.ints("device"), table.ints("stream"))
    for number in range(len(keys)):
        rows = np.flatnonzero((group == number) & kernel)
        rows = rows[np.argsort(start[rows], kind="stable")]
        section = np.cumsum(product[rows], dtype=np.int64)  # 0 before the first product
        last = int(section[-1]) if len(rows) else 0
        inside = (section > 0) & (section < last) & ~product[rows]
        masks = (inside & mask[rows] for mask in (whole, *steps))
        has_whole, *has_step = (np.bincount(section[mask], minlength=last + 1) > 0 for mask in masks)
        attention = has_whole & ~_another(table, rows, section, inside & whole[rows])
        attention |= np.logical_and.reduce(has_step)
        attention &= np.bincount(section[inside & loss[rows]], minlength=last + 1) == 0
        attention &= np.bincount(section[inside & chooses[rows]], minlength=last + 1) == 0
        attention[_turns(table, rows[product[rows]])] = False
        count += int(attention.sum())
        between[rows[inside & attention[section]]] = True
    return count, between


def _turns(table: Table, products: Ints) -> Ints:
    """The sections between a product of the forward pass and one of the backward pass. ``products``: rows in order."""
    direction = table.coded("dir")
    forward, backward = direction.among("fprop")[products], direction.among("bprop")[products]
    return np.flatnonzero((forward[:-1] & backward[1:]) | (backward[:-1] & forward[1:])) + 1


def _softmaxes(table: Table) -> tuple[Bools, list[Bools]]:
    """Masks of the rows that are a whole softmax (not a loss's), and of the rows of each step of a split softmax."""
    long = table.coded("kLongName")
    names = long if long.values else table.coded("kShortName")
    whole = names.where(is_softmax) & ~table.coded("aten").where(is_loss) & ~table.coded("op").where(is_loss)
    return whole, [names.where(re.compile(step).search) for step in STEPS]


def _another(table: Table, rows: Ints, section: Ints, softmax: Bools) -> Bools:
    """Sections whose softmax is not part of attention: shapes show that the next product does not take its result, or
    that none of those before has the scores. An example is the softmax of a router in a mixture of experts."""
    sizes, aten = table.coded("sizes").take(rows), table.coded("aten").take(rows)
    found = np.zeros(int(section[-1]) + 1 if len(rows) else 1, bool)
    places = np.flatnonzero(softmax)
    after, *before = (  # each section begins with its product
        np.searchsorted(section, np.maximum(section[places] - back, 1)) for back in range(-1, EARLIER)
    )
    columns = [column.take(product) for product in before for column in (aten, sizes)]
    texts, number = distinct_texts(sizes.take(places), sizes.take(after), *columns)
    other = np.array([not _between(*each) for each in texts] or [False])
    found[section[places[other[number]]]] = True
    return found


def _between(softmax: str, after: str, *before: str) -> bool:
    """Whether a softmax may stand between a product and those before it: of these, op and shapes in turn."""
    pairs = zip(before[::2], before[1::2], strict=True)
    return _takes(after, softmax) and any(_has_scores(op, shapes, softmax) for op, shapes in pairs)


def _takes(product: str, softmax: str) -> bool:
    """Whether one of a product's operands may be the softmax's result: same number of elements and same row length."""
    result, operands = _shapes(softmax)[:1], _shapes(product)
    if not result or not result[0] or not any(operands):
        return True  # shapes are not recorded
    return any(math.prod(shape) == math.prod(result[0]) and shape[-1] == result[0][-1] for shape in operands if shape)


def _has_scores(op: str, product: str, softmax: str) -> bool:
    """Whether a product may have made what a softmax takes; or, backward, may take its result, as for the values.

    A linear layer with a bias, as a gate has it, makes no scores.
    """
    result, operands = _shapes(softmax)[:1], [shape for shape in _shapes(product) if len(shape) > 1][-2:]
    if op == "aten::addmm" and [len(shape) for shape in _shapes(product)[:3]] == [1, 2, 2]:
        return False
    if op not in PLAIN or len(operands) < 2 or not result or not result[0]:
        return True  # shapes are not recorded, or do not show what the product makes
    (*rows, _), (*_, columns) = operands
    return any(
        math.prod(shape) == math.prod(result[0]) and result[0][-1] in shape[-2:]
        for shape in (*operands, [*rows, columns])
    )


def _shapes(text: str) -> list[list[int]]:
    """The shapes of an op's inputs; an empty list for anything that is not a shape."""
    found = json.loads(text) if text else []
    return [shape if all(type(n) is int for n in shape) else [] for shape in found if isinstance(shape, list)]
