"""Products whose last wave of tiles leaves most of the GPU idle, so that more rows would take no longer."""

import math
import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from pyprof.prof.advice.alignment import product_of
from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run
from pyprof.quantities import rounded

TILE = re.compile(r"nvjet_sm\d+_\w+?_(\d+)x(\d+)_\d+x\d+_")  # cuBLAS on Hopper and later; seen in 12.8 and 13.0
SPLIT = ("splitK", "streamK")
MOST = 4  # most waves; with more waves, the last wave is a small part
WORTH = 0.12  # least saving as a share of the products' time
SHARE = 0.2  # least share of the GPU's time for the products with the same number of rows
FURTHER = 1.5  # the most by which the number of rows is multiplied


def waves(m: int, n: int, tile: tuple[int, int], sms: int) -> float:
    """The number of tiles of a result per SM. The tile's orientation is not in the name, so the orientation with more
    tiles is used.

    >>> waves(1152, 4096, (192, 192), 132), round(waves(1664, 4096, (256, 128), 132), 2)
    (1.0, 1.7)
    """
    return max(math.ceil(m / a) * math.ceil(n / b) for a, b in (tile, tile[::-1])) / sms


@lru_cache(maxsize=4096)
def rows_that_fit(m: int, n: int, tile: tuple[int, int], sms: int) -> int:
    """The largest number of rows, up to half more, that takes the same number of waves."""
    most = math.ceil(waves(m, n, tile, sms))
    rows = range(m, int(FURTHER * m) + 1, min(tile))
    return max((row for row in rows if math.ceil(waves(row, n, tile, sms)) <= most), default=m)


@rule("tail_wave")
def tail_wave(run: Run) -> Iterator[Finding]:
    """Products that would take no longer with more rows.

    The saving comes from computing the same number of samples in fewer, larger batches. Only for cuBLAS kernels with
    the tile in their name and one to four waves, and only if these products are a large part of the step.

    Refuted by: a last wave that fills the GPU; other products that take most of the time.
    """
    if run.device is None or not run.device.sms:
        return
    groups: dict[int, list[tuple[int, int]]] = {}
    for row in np.flatnonzero((run.family == "gemm") & (run.role == "main")).tolist():
        name = run.name[row]
        match, product = TILE.search(name), product_of(run, row)
        if match is None or product is None or any(word in name for word in SPLIT) or product.batch > 1:
            continue
        tile = (int(match[1]), int(match[2]))
        if 1 < waves(product.m, product.n, tile, run.device.sms) < MOST:
            fits = rows_that_fit(product.m, product.n, tile, run.device.sms)
            groups.setdefault(product.m, []).append((row, fits))
    for rows, members in groups.items():
        yield from _finding(run, rows, members)


def _finding(run: Run, rows: int, members: list[tuple[int, int]]) -> Iterator[Finding]:
    found = np.array([row for row, _ in members])
    more = min(fits for _, fits in members)  # the number of rows for which no product takes longer
    now = float(run.dur[found].sum())
    gain = 1 - rows / more
    if gain < WORTH or now < SHARE * run.busy_ns * run.steps * run.lanes:
        return
    assert run.device is not None
    why = (
        f"{run.number(found, 'product', 'products')} of {rows} rows ended in a wave of tiles that fills only part of "
        f"the {run.device.sms} SMs. {more} rows would take as long: {rounded(run.ms(now))} ms"
    )
    change = (
        f"Use {more} rows (samples × tokens) in place of {rows}, where the batch or the sequence can be chosen. The "
        "saving is that of computing as many samples in fewer steps."
    )
    yield Finding(found, run.dur[found] * gain, why, change, "low")
