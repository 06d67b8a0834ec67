"""Attention that is not fused, by the order and the names of kernels: what stands between two matrix products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyprof.prof.kinds import PRODUCTS, is_loss, is_softmax
from pyprof.table import NULL, Coded, Table, distinct

__all__ = ["softmaxes_apart"]

Mask = NDArray[np.bool_]


def softmaxes_apart(table: Table, what: Coded) -> tuple[int, Mask]:
    """How many softmaxes stand between two products of a stream, and all rows between such products.

    A softmax is one kernel, or the maximum, the exponential and the sum that make one; a loss's does not count.
    ``what``: each row's kind of work (``pyprof.prof.kinds``).
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
        section = np.cumsum(product[rows])  # 0 before the first product
        last = int(section[-1]) if len(rows) else 0
        inside = (section > 0) & (section < last) & ~product[rows]
        whole, *steps = (np.bincount(section[inside & mark[rows]], minlength=last + 1) > 0 for mark in marks)
        softmax = whole | np.logical_and.reduce(steps)
        count += int(softmax.sum())
        between[rows[inside & softmax[section]]] = True
    return count, between
