"""Products that are too small to fill the GPU and run one after the other."""

import math
from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.product import product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.quantities import rounded

IN_A_ROW = 4
WORTH = 1.5  # least ratio of the products' time to the batched product's expected time
ITEM = {name: ITEM_BYTES[name] for name in ("float32", "bfloat16", "float16", "float64")}


@rule("small_grid")
def small_grid(run: Run) -> Iterator[Finding]:
    """At least four equal products in a row that together take much longer than one batched product.

    No product may use another's result. The sizes prove this: a result [m, n] cannot be an operand of the next product
    if n != k and m != k. Abstains without shapes, strides or a known device.

    Refuted by: products of which one may read another's result, and one batched product.
    """
    if run.device is None:
        return
    groups = [(_members(run, group), _batched_ns(run, group)) for group in _in_a_row(run)]
    rows, saved, count = run.replaced(groups, WORTH)
    if not rows:
        return
    before = run.ms_of(rows)
    why = (
        f"{run.number(rows, 'kernel', 'kernels')} of equal, independent products run one after the other, each too "
        f"small to fill the GPU: {rounded(before)} ms; as {run.number(count, 'batched product', 'batched products')} "
        f"{rounded(before - run.ms(float(saved.sum())))} ms are expected"
    )
    change = "Batch the small products: stack their operands and call torch.bmm (or mm, where they share an operand)."
    yield Finding(np.array(rows), saved, why, change, launches=len(rows) - count)


def _in_a_row(run: Run) -> Iterator[list[int]]:
    """The rows of each series of at least four equal, independent products."""
    main = np.flatnonzero((run.role != "aux") & (run.texts("kind") != "memset"))
    group: list[int] = []
    for row in [*main.tolist(), -1]:
        if group and (row < 0 or not _alike(run, group[-1], row)):
            if len(group) >= IN_A_ROW:
                yield group
            group = []
        if row >= 0 and _independent(run, row):
            group.append(row)


def _independent(run: Run, row: int) -> bool:
    if run.family[row] != "gemm":
        return False
    product = product_of(run, row)
    return product is not None and bool(product.leads) and product.k not in (product.m, product.n)


def _members(run: Run, group: list[int]) -> list[int]:
    """The rows of the group, and the helper kernels between them (fills, and the sums of split products)."""
    return [i for i in range(group[0], group[-1] + 1) if run.lane[i] == run.lane[group[0]]]


def _batched_ns(run: Run, group: list[int]) -> float:
    """Expected time in ns of one product in place of the whole group; NaN if it is unknown."""
    row, count = group[0], len(group)
    product, item, code = product_of(run, row), ITEM.get(run.dtype[row]), run.limits.unit.codes[row]
    if product is None or item is None or code < 0:
        return math.nan
    m, n, k, each = product.m, product.n, product.k, count * product.batch
    nbytes = float(each * item * (m * k + k * n + m * n))
    return run.product_ns(2.0 * each * m * n * k, nbytes, run.limits.unit.values[code])


def _alike(run: Run, a: int, b: int) -> bool:
    same = all(run.table.coded(key).codes[a] == run.table.coded(key).codes[b] for key in ("sizes", "strides", "grid"))
    return bool(same and run.lane[a] == run.lane[b] and run.aten[a] == run.aten[b] and run.phase[a] == run.phase[b])
