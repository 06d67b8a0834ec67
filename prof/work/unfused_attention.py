"""Recognise unfused attention by the order and names of kernels: a softmax between two matrix products."""

import json
import math
import re

import numpy as np

from pyprof.prof.work.kinds import PRODUCTS, is_loss, is_softmax
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct, distinct_texts

STEPS = ("MaxOps", "exp_kernel", "sum_functor")  # functors of the kernels of a softmax that runs as several kernels

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
        attention[_turns_back(table, rows[product[rows]])] = False
        count += int(attention.sum())
        between[rows[inside & attention[section]]] = True
    return count, between


def _turns_back(table: Table, products: Ints) -> Ints:
    """The sections from a product of the forward pass to one of the backward pass. ``products``: rows in order."""
    direction = table.coded("dir")
    forward, backward = direction.among("fprop")[products], direction.among("bprop")[products]
    return np.flatnonzero(forward[:-1] & backward[1:]) + 1


def _softmaxes(table: Table) -> tuple[Bools, list[Bools]]:
    """Masks of the rows that are a whole softmax (not a loss's), and of the rows of each step of a split softmax."""
    long = table.coded("kLongName")
    names = long if long.values else table.coded("kShortName")
    whole = names.where(is_softmax) & ~table.coded("aten").where(is_loss) & ~table.coded("op").where(is_loss)
    return whole, [names.where(re.compile(step).search) for step in STEPS]


def _another(table: Table, rows: Ints, section: Ints, softmax: Bools) -> Bools:
    """Sections whose softmax is not part of attention: shapes show that the next product does not take its result. An
    example is the softmax of a router in a mixture of experts."""
    sizes = table.coded("sizes").take(rows)
    found = np.zeros(int(section[-1]) + 1 if len(rows) else 1, bool)
    places = np.flatnonzero(softmax)
    ahead = np.searchsorted(section, section[places] + 1)  # the product that ends the section
    pairs, pair = distinct_texts(sizes.take(places), sizes.take(ahead))
    other = np.array([not _takes(product, softmax) for softmax, product in pairs] or [False])
    found[section[places[other[pair]]]] = True
    return found


def _takes(product: str, softmax: str) -> bool:
    """Whether one of a product's operands may be the softmax's result: same number of elements and same row length."""
    result, operands = _shapes(softmax)[:1], _shapes(product)
    if not result or not result[0] or not any(operands):
        return True  # shapes are not recorded
    return any(math.prod(shape) == math.prod(result[0]) and shape[-1] == result[0][-1] for shape in operands if shape)


def _shapes(text: str) -> list[list[int]]:
    """The shapes of an op's inputs; an empty list for anything that is not a shape."""
    found = json.loads(text) if text else []
    return [shape if all(type(n) is int for n in shape) else [] for shape in found if isinstance(shape, list)]
