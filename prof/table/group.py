"""``--group``: combine rows that agree in some columns into one row with their count, time, work and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyprof.prof.table.columns import Column

if TYPE_CHECKING:
    from pyprof.prof.table.cells import Data
    from pyprof.table.columns import Floats, Ints

NEEDED = ("sil", "flops", "bytes")  # columns from which the aggregates are computed


def _no_rows(*_: Any) -> Any:
    raise AssertionError("an aggregate has no rows of its own")


AGGREGATES: tuple[Column, ...] = (
    Column("count", "Count", "", "rows", _no_rows, kind="int"),
    Column("time", "Time(ns)", "ns", "their silicon time", _no_rows, kind="int"),
    Column("share", "Share%", "%", "of the time of all rows selected", _no_rows, kind="float"),
    Column("flops", "FLOPs", "flop", "of the rows that are counted", _no_rows, kind="int"),
    Column("bytes", "Bytes", "bytes", "of the rows that are counted", _no_rows, kind="int"),
    Column("tflops", "TFLOP/s", "TFLOP/s", "flops / time of the rows that are counted", _no_rows, kind="float"),
    Column("gbps", "GB/s", "GB/s", "bytes / time of the rows that are counted", _no_rows, kind="float"),
    Column("uncounted", "NoModel%", "%", "share of the group's time in rows without FLOPs", _no_rows, kind="float"),
)


def group_rows(keys: Sequence[Data], values: Mapping[str, Ints]) -> tuple[list[Data], dict[str, Data]]:
    """The groups in order of their first rows: the cells of the keys, and the aggregates by name.

    ``values``: the columns of ``NEEDED``.
    """
    import numpy as np

    from pyprof.table.columns import NULL, Coded

    group_of_row, first_row = _numbered([_merged(key) for key in keys], len(values["sil"]))
    groups = len(first_row)

    def total(amounts: Ints) -> Ints:
        sums = np.zeros(groups, np.int64)
        np.add.at(sums, group_of_row, amounts)
        return sums

    time = np.where(values["sil"] == NULL, 0, values["sil"])
    group_time = total(time)
    count = np.bincount(group_of_row, minlength=groups).astype(np.int64)
    sums: dict[str, Data] = {"count": count, "time": group_time, "share": _ratio(100.0 * group_time, int(time.sum()))}
    for name, rate, scale in (("flops", "tflops", 1e3), ("bytes", "gbps", 1.0)):
        known = values[name] != NULL
        amount = total(np.where(known, values[name], 0))
        counted_time = total(np.where(known, time, 0))
        all_known = total(known.astype(np.int64)) == count
        sums[name] = np.where((amount > 0) | all_known, amount, NULL)  # unknown is not zero
        sums[rate] = np.where(2 * counted_time > group_time, _ratio(amount / scale, counted_time), np.nan)
    sums["uncounted"] = _ratio(100.0 * total(np.where(values["flops"] == NULL, time, 0)), group_time)
    return [key.take(first_row) if isinstance(key, Coded) else key[first_row] for key in keys], sums


def _merged(key: Data) -> Ints:
    """One number per row; equal cells of the column have equal numbers."""
    import numpy as np

    from pyprof.table.columns import Coded

    if not isinstance(key, Coded):
        assert key.dtype.kind == "i"
        return key.astype(np.int64)
    return Coded.concat([key]).codes.astype(np.int64)


def _numbered(keys: list[Ints], rows: int) -> tuple[Ints, Ints]:
    """The group of each row, and the first row of each group; groups are in the order of their first rows."""
    import numpy as np

    from pyprof.table.columns import distinct

    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, number = distinct(*keys)
    _, first = np.unique(number, return_index=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[number], first[order]


def _ratio(part: Any, whole: Any) -> Floats:
    """part / whole; NaN if the whole is 0."""
    import numpy as np

    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    ratio: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return ratio
