"""The table of layers: each with everything below it, in the order in which they first ran."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyprof.prof.notebook.frame_columns import Columns, own_column, ratio
from pyprof.prof.table.cells import Data
from pyprof.prof.timing.steps import PHASES
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import NULL, Coded, Ints

LAYER = (
    own_column(
        "layer", "", "path of module names, outermost first, joined by a colon; missing: rows without a layer", "text"
    ),
    own_column("depth", "", "parts of the path"),
    own_column("count", "", "rows in the layer and below it"),
    own_column("time", "ns", "their silicon time"),
    own_column("own", "ns", "of it, in the layer itself and in none below it; these sum to all time"),
    own_column("share", "%", "time, of the time of all rows", "float"),
    own_column("forward", "ns", "of time, in the forward pass"),
    own_column("backward", "ns", "of time, in the backward pass"),
    own_column("flops", "flop", "of the rows that are counted"),
    own_column("bytes", "bytes", "of the rows that are counted"),
    own_column("tflops", "TFLOP/s", "flops / time of the rows that are counted", "float"),
    own_column("gbps", "GB/s", "bytes / time of the rows that are counted", "float"),
    own_column("uncounted", "%", "share of the time in rows without FLOPs", "float"),
)
# What is summed per layer, in the columns of an array: rows and time, and of each amount its sum, time and rows.
AMOUNTS = ("flops", "flops_ns", "flops_rows", "bytes", "bytes_ns", "bytes_rows")
SUMS = ("count", "time", "forward", "backward", *AMOUNTS)
TIME = SUMS.index("time")
Path = tuple[str, ...]


def layer_columns(layer: Coded, phase: Coded, start: Ints, time: Ints, flops: Ints, nbytes: Ints) -> Columns:
    """One row per layer and per layer that contains one, in the order in which they first ran.

    Times in ns; NULL is unknown. ``layer``: JSON texts of the kernel table.
    """
    paths = [layer_parts(text) for text in layer.values]
    codes = np.where(np.array([*map(bool, paths), False])[layer.codes], layer.codes, -1)
    time = np.where(time == NULL, 0, time)
    sums_of_path = _sums(codes, len(paths), phase, time, {"flops": flops, "bytes": nbytes})
    in_order = [code for code in _first_run(codes, len(paths), start) if sums_of_path[code, 0]]
    rows = _rows([paths[code] for code in in_order])
    place = {path: i for i, path in enumerate(rows)}
    sums = np.zeros((len(rows), len(SUMS)), np.int64)
    own = np.zeros(len(rows), np.int64)
    for code in in_order:
        path = paths[code]
        for size in range(1, len(path) + 1):
            sums[place[path[:size]]] += sums_of_path[code]
        own[place[path]] += sums_of_path[code, TIME]
    names, depth = [":".join(path) for path in rows], [len(path) for path in rows]
    without = sums_of_path[-1]
    if without[0]:  # rows without a layer come last
        names, depth = [*names, ""], [*depth, 0]
        sums, own = np.vstack([sums, without]), np.append(own, without[TIME])
    return _columns(names, depth, own, sums, int(time.sum()))


def _sums(codes: Ints, size: int, phase: Coded, time: Ints, amounts: dict[str, Ints]) -> Ints:
    """``SUMS`` of each path's own rows; the last row is of those without a layer."""
    values = {"count": np.ones(len(time), np.int64), "time": time}
    values |= {name: np.where(phase.among(name), time, 0) for name in PHASES[:2]}
    for name, amount in amounts.items():
        known = amount != NULL
        values[name] = np.where(known, amount, 0)
        values[f"{name}_ns"] = np.where(known, time, 0)
        values[f"{name}_rows"] = known.astype(np.int64)
    sums = np.zeros((size + 1, len(SUMS)), np.int64)
    for place, name in enumerate(SUMS):
        np.add.at(sums[:, place], codes, values[name])
    return sums


def _first_run(codes: Ints, size: int, start: Ints) -> list[int]:
    """The paths by their first start; by their first row where starts are unknown."""
    first = np.full(size + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, codes, np.where(start == NULL, np.arange(len(start)), start))
    order: list[int] = np.argsort(first[:-1], kind="stable").tolist()
    return order


def _rows(paths: Sequence[Path]) -> list[Path]:
    """The paths and all that contain them, each before what it contains."""
    number: dict[Path, int] = {}
    for path in paths:
        for size in range(1, len(path) + 1):
            number.setdefault(path[:size], len(number))
    return sorted(number, key=lambda path: [number[path[: i + 1]] for i in range(len(path))])


def _columns(names: Sequence[str], depth: Sequence[int], own: Ints, sums: Ints, whole: int) -> Columns:
    summed = {name: sums[:, place] for place, name in enumerate(SUMS)}
    time = summed["time"]
    data: dict[str, Data] = {
        **summed,
        "layer": Coded.of(names),
        "depth": np.array(depth, np.int64),
        "own": own,
        "share": ratio(100.0 * time, np.full(len(names), whole)),
        "uncounted": ratio(100.0 * (time - summed["flops_ns"]), time),
    }
    for name, rate, scale in (("flops", "tflops", 1e3), ("bytes", "gbps", 1.0)):
        amount, known_ns = summed[name], summed[f"{name}_ns"]
        known = (amount > 0) | (summed[f"{name}_rows"] == summed["count"])
        data[name] = np.where(known, amount, NULL)  # unknown is not zero
        data[rate] = np.where(2 * known_ns > time, ratio(amount / scale, known_ns), np.nan)
    return [(column, data[column.name]) for column in LAYER]
