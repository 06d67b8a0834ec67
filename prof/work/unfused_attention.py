"""Attention that is not fused, by the order and the names of kernels: what stands between two matrix products."""

from __future__ import annotations

import json
import math

import numpy as np

from pyprof.prof.work.kinds import PRODUCTS, is_loss, is_softmax
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct

__all__ = ["softmaxes_apart"]


def softmaxes_apart(table: Table, what: Coded) -> tuple[int, Bools]:
    """How many softmaxes stand between two products of a stream, and all rows between such products.

    A softmax is one kernel, or the maximum, the exponential and the sum that make one; a loss's does not count.
    ``what``: each row's kind of work (``pyprof.prof.work.kinds``).
    """
    start = table.ints("start")
    names = table.coded("kLongName") if table.coded("kLongName").values else table.coded("kShortName")
    product = what.among(PRODUCTS)
    marks = [
        np.array([*map(test, names.values), False])[names.codes]
        for test in (is_softmax, lambda n: "MaxOps" in n, lambda n: "exp_kernel" in n, lambda n: "sum_functor" in n)
    ]
    losses = [np.array([*map(is_loss, c.values), False])[c.codes] for c in (table.coded("aten"), table.coded("op"))]
    marks[0] = marks[0] & ~losses[0] & ~losses[1]
    count, between = 0, np.zeros(len(table), bool)
    keys, group = distinct(table.ints("pid"), table.ints("device"), table.ints("stream"))
    for number in range(len(keys)):
        rows = np.flatnonzero((group == number) & (start != NULL) & table.coded("kind").among("kernel", ""))
        rows = rows[np.argsort(start[rows], kind="stable")]
        section = np.cumsum(product[rows], dtype=np.int64)  # 0 before the first product
        last = int(section[-1]) if len(rows) else 0
        inside = (section > 0) & (section < last) & ~product[rows]
        whole, *steps = (np.bincount(section[inside & mark[rows]], minlength=last + 1) > 0 for mark in marks)
        softmax = whole & ~_another(table, rows, section, inside & marks[0][rows]) | np.logical_and.reduce(steps)
        count += int(softmax.sum())
        between[rows[inside & softmax[section]]] = True
    return count, between


def _another(table: Table, rows: Ints, section: Ints, softmax: Bools) -> Bools:
    """Sections whose softmax is no attention's: the product that follows does not take its result, where the shapes of
    both are known. Such is a router's of a mixture of experts."""
    sizes = table.coded("sizes")
    found = np.zeros(int(section[-1]) + 1 if len(rows) else 1, bool)
    places = np.flatnonzero(softmax)
    ahead = np.searchsorted(section, section[places] + 1)  # the product that ends the section
    pairs, pair = distinct(sizes.codes[rows[places]], sizes.codes[rows[ahead]])
    texts = [*sizes.values, ""]
    other = np.array([not _takes(texts[b], texts[a]) for a, b in pairs] or [False])
    found[section[places[other[pair]]]] = True
    return found


def _takes(product: str, softmax: str) -> bool:
    """Whether one of a product's operands may be the softmax's result: as many elements, in rows as long."""
    result, operands = _shapes(softmax)[:1], _shapes(product)
    if not result or not result[0] or not any(operands):
        return True  # nobody knows
    return any(math.prod(shape) == math.prod(result[0]) and shape[-1] == result[0][-1] for shape in operands if shape)


def _shapes(text: str) -> list[list[int]]:
    """The shapes of an op's inputs; empty for what is no shape."""
    found = json.loads(text) if text else []
    return [shape if all(type(n) is int for n in shape) else [] for shape in found if isinstance(shape, list)]
