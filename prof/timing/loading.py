"""Copies between host and device, including those before the first kernel, which load the model.

If loading takes long compared to the rest of the run, it is reported and left out of all other figures.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST, device_rows, named_rows
from pyprof.prof.work.annotate import Annotation, sum_known
from pyprof.prof.work.kinds import COPIES, kinds
from pyprof.table.columns import NULL, Bools, Table

LOADING = 0.02  # share of the remaining time; longer loading is left out of the other figures
WAYS = (("host-to-device", TO_DEVICE), ("device-to-host", TO_HOST))


@dataclass(frozen=True, slots=True)
class Leading:
    """Figures for all copies between host and device, and for those before the device's first kernel."""

    rows: Annotated[int, doc("copies between host and device")]
    ns: Annotated[int, doc("their time")]
    nbytes: Annotated[int | None, doc("bytes that they moved; null if no size is known")]
    before_rows: Annotated[int, doc("copies before the device's first kernel: the loading of a model")]
    before_ns: Annotated[int, doc("their time")]
    before_nbytes: Annotated[int | None, doc("bytes that they moved; null if no size is known")]
    ways: Annotated[tuple[str, ...], doc("their directions: host-to-device, device-to-host")]
    apart: Annotated[bool, doc("whether the copies before the first kernel are left out of all other figures")]


def without_loading(table: Table, annotation: Annotation) -> tuple[Table, Annotation, Leading | None]:
    """The run without the copies that load a model, if these take long, and figures for all copies."""
    copies, before = _copies(table, annotation)
    if copies is None or not copies.apart:
        return table, annotation, copies
    kept = np.flatnonzero(~before)
    return table.take(kept), annotation.take(kept), copies


def loading(table: Table, annotation: Annotation) -> Bools:
    """Mask of the copies before a device's first kernel, if they take long; otherwise no row."""
    copies, before = _copies(table, annotation)
    return before if copies is not None and copies.apart else np.zeros(len(table), bool)


def _copies(table: Table, annotation: Annotation) -> tuple[Leading | None, Bools]:
    """The copies between host and device, and the mask of those before their device's first kernel."""
    moved = kinds(table, annotation).among(COPIES)
    if not moved.any():
        return None, moved
    start, duration, size = (table.ints(key) for key in ("start", "kDuration", "bytes"))
    before = _before_first_kernel(table, moved)
    rows, ns = (int(values[moved].sum()) for values in (moved, duration))
    before_rows, before_ns = (int(values[before].sum()) for values in (before, duration))
    ways = tuple(way for way, words in WAYS if bool((named_rows(table, *words) & moved).any()))
    rest = ~before & (start != NULL)
    span = int((start + duration)[rest].max() - start[rest].min()) if rest.any() else 0
    apart = before_ns > LOADING * max(span, 1) and not bool(before.all())
    nbytes, before_nbytes = sum_known(size[moved]), sum_known(size[before])
    return Leading(rows, ns, nbytes, before_rows, before_ns, before_nbytes, ways, apart), before


def _before_first_kernel(table: Table, moved: Bools) -> Bools:
    start = table.ints("start")
    kernel = ~moved & ~table.coded("kind").among("memset")
    before = np.zeros(len(table), bool)
    outside = table.ints("markStart") == NULL  # a copy in a marked step brings its input
    for _, rows in device_rows(table):
        kernels, copies = rows[kernel[rows]], rows[moved[rows] & outside[rows]]
        if len(kernels):
            before[copies] = start[copies] < start[kernels].min()
    return before
