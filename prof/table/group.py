"""``--group``: rows that agree in some columns as one row, with their count, time, work and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyprof.prof.table.columns import Column

if TYPE_CHECKING:
    from pyprof.prof.table.cells import Data
    from pyprof.table.columns import Floats, Ints

__all__ = ["AGGREGATES", "NEEDED", "group_rows"]

NEEDED = ("sil", "flops", "bytes")  # columns that the aggregates are made of


def _no_rows(*_: Any) -> Any:
    raise AssertionError("an aggregate has no rows of its own")


AGGREGATES: tuple[Column, ...] = (
    Column("count", "Count", "", "rows", _no_rows, kind="int"),
    Column("time", "Time(ns)", "ns", "their silicon time", _no_rows, kind="int"),
    Column("share", "Share%", "%", "of the time of all rows selected", _no_rows, kind="float"),
    Column("flops", "FLOPs", "flop", "of the rows that are counted", _no_rows, kind="int"),
    Column("bytes", "Bytes", "bytes", "of the rows that are counted", _no_rows, kind="int"),
    Column(
        "tflops",
        "TFLOP/s",
        "TFLOP/s",
        "flops / time of the rows that are counted",
        _no_rows,
        kind="float",
    ),
    Column(
        "gbps",
        "GB/s",
        "GB/s",
        "bytes / time of the rows that are counted",
        _no_rows,
        kind="float",
    ),
    Column("uncounted", "NoModel%", "%", "share of the group's time in rows without FLOPs", _no_rows, kind="float"),
)


def group_rows(keys: Sequence[Data], values: Mapping[str, Ints]) -> tuple[list[Data], dict[str, Data]]:
    """The groups by their first row's place: what they agree in, and their aggregates by name.

    ``values``: the columns of ``NEEDED``.
    """
    import numpy as np

    from pyprof.table.columns import NULL, Coded

    number, first = _numbered([_merged(key) for key in keys], len(values["sil"]))
    groups = len(first)

    def total(amounts: Ints) -> Ints:
        sums = np.zeros(groups, np.int64)
        np.add.at(sums, number, amounts)
        return sums

    time = np.where(values["sil"] == NULL, 0, values["sil"])
    spent = total(time)
    count = np.bincount(number, minlength=groups).astype(np.int64)
    found: dict[str, Data] = {"count": count, "time": spent, "share": _ratio(100.0 * spent, int(time.sum()))}
    for name, rate in (("flops", "tflops"), ("bytes", "gbps")):
        known = values[name] != NULL
        amount = total(np.where(known, values[name], 0))
        counted = total(np.where(known, time, 0))
        all_known = total(known.astype(np.int64)) == count
        found[name] = np.where((amount > 0) | all_known, amount, NULL)  # unknown is not zero
        ratio = _ratio(amount / (1e3 if name == "flops" else 1.0), counted)
        found[rate] = np.where(2 * counted > spent, ratio, np.nan)
    found["uncounted"] = _ratio(100.0 * total(np.where(values["flops"] == NULL, time, 0)), spent)
    taken = [key.take(first) if isinstance(key, Coded) else key[first] for key in keys]
    return taken, found


def _merged(key: Data) -> Ints:
    """Numbers that are equal where the column's cells are."""
    import numpy as np

    from pyprof.table.columns import Coded

    if not isinstance(key, Coded):
        assert key.dtype.kind == "i"
        return key.astype(np.int64)
    return Coded.concat([key]).codes.astype(np.int64)


def _numbered(keys: list[Ints], rows: int) -> tuple[Ints, Ints]:
    """Each row's group, and each group's first row, groups in the order of these."""
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
    """NaN where there is no whole."""
    import numpy as np

    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    found: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return found
