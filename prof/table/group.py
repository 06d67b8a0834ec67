"""``--group``: combine rows that agree in some columns into one row with their count, time, work and rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyprof.prof.table.columns import COLUMN, Column, Kind

if TYPE_CHECKING:
    from pyprof.prof.counters.measured import Counters
    from pyprof.prof.table.cells import Data
    from pyprof.table.columns import Bools, Floats, Ints

NEEDED = ("sil", "flops", "bytes", "reason")  # columns from which the aggregates are computed


def own_column(name: str, unit: str, meaning: str, kind: Kind = "int", header: str = "") -> Column:
    """A column that is computed for its table, not taken from the kernel table."""
    return Column(name, header or name, unit, meaning, _no_rows, kind=kind)


def _no_rows(*_: Any) -> Any:
    raise AssertionError("a column of a computed table has no rows of its own")


AGGREGATES: tuple[Column, ...] = (
    own_column("count", "", "rows", header="Count"),
    own_column("time", "ns", "their silicon time", header="Time(ns)"),
    own_column("share", "%", "of the time of all rows selected", "float", "Share%"),
    own_column("flops", "flop", "of the rows that are counted", header="FLOPs"),
    own_column("bytes", "bytes", "of the rows that are counted", header="Bytes"),
    own_column("tflops", "TFLOP/s", "flops / time of the rows that are counted", "float", "TFLOP/s"),
    own_column("gbps", "GB/s", "bytes / time of the rows that are counted", "float", "GB/s"),
    own_column("uncounted", "%", "share of the group's time in rows without FLOPs", "float", "NoModel%"),
    own_column("bytes_uncounted", "%", "share of the group's time in rows without bytes", "float", "NoBytes%"),
)
# With --ncu: columns of Nsight Compute's counters, and how those of the rows that were measured become the group's
# (prof/counters/counter_groups.py).
COMBINED = {
    **dict.fromkeys(("dram_rd", "dram_wr", "dram", "l2_rd", "l2_wr", "inst", "exec_flops"), "sum"),
    **dict.fromkeys(("tensor_pct", "dram_pct", "occ_achieved"), "mean by time"),
    "regs": "the most",
    **dict.fromkeys(("bytes_ratio", "flops_ratio"), "of the sums over rows with both"),
    "stalls": "mean by time",
}
MEASURED: tuple[Column, ...] = (
    own_column("measured", "%", "share of the group's time in rows that Nsight Compute measured", "float", "Measured%"),
    *(replace(COLUMN[name], meaning=f"{COLUMN[name].meaning}; {how}", get=_no_rows) for name, how in COMBINED.items()),
)
AGGREGATE = {column.name: column for column in AGGREGATES}
COUNTED = {column.name: column for column in MEASURED}


def group_rows(
    keys: Sequence[Data], values: Mapping[str, Data], counters: Counters | None = None
) -> tuple[list[Data], dict[str, Data]]:
    """The groups in order of their first rows: the keys' cells, aggregates by name. ``values``: columns ``NEEDED``.

    ``counters``: of the rows; with them there are the aggregates ``MEASURED``, too.
    """
    import numpy as np

    from pyprof.prof.table.cells import ints, texts
    from pyprof.table.attribution import launched_alone
    from pyprof.table.columns import NULL

    sil, flops, nbytes = (ints(values[name]) for name in NEEDED[:3])
    group_of_row, first_row = _numbered(keys, len(sil))

    def total(amounts: Ints) -> Ints:
        sums = np.zeros(len(first_row), np.int64)
        np.add.at(sums, group_of_row, amounts)
        return sums

    time = np.where(sil == NULL, 0, sil)
    alone = launched_alone(texts(values["reason"]))
    sums = {name: total(amounts) for name, amounts in row_amounts(time, flops, nbytes, alone)}
    sums["count"] = np.bincount(group_of_row, minlength=len(first_row)).astype(np.int64)
    found = aggregates(sums, int(time.sum()))
    if counters is not None:
        from pyprof.prof.counters.counter_groups import counter_aggregates

        amounts = {"sil": sil, "flops": flops, "bytes": nbytes}
        found |= counter_aggregates(counters, amounts, group_of_row, len(first_row))
    return [key.take(first_row) for key in keys], found


def unknown_counters(groups: int) -> dict[str, Data]:
    """The aggregates ``MEASURED`` where there are no counters: unknown in every group."""
    import numpy as np

    from pyprof.table.columns import NULL, Coded

    empty: dict[Kind, Data] = {
        "int": np.full(groups, NULL, np.int64),
        "float": np.full(groups, np.nan),
        "text": Coded.empty(groups),
    }
    return {column.name: empty[column.kind] for column in MEASURED}


def _numbered(keys: Sequence[Data], rows: int) -> tuple[Ints, Ints]:
    """The group of each row, and the first row of each group; groups are in the order of their first rows."""
    import numpy as np

    from pyprof.table.columns import Coded, numbered

    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, number = numbered(*(Coded.concat([key]).codes if isinstance(key, Coded) else key for key in keys))
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[number], first[order]


def row_amounts(time: Ints, flops: Ints, nbytes: Ints, alone: Bools) -> Iterator[tuple[str, Ints]]:
    """What ``aggregates`` takes the sums of, row by row: time, FLOPs and bytes, and the time and number where known.

    ``alone``: the CPU ops that launched work which the capture does not have (``attribution.launched_alone``).
    """
    import numpy as np

    from pyprof.table.columns import NULL

    yield "time", time
    yield "alone_rows", alone.astype(np.int64)
    for name, amount in (("flops", flops), ("bytes", nbytes)):
        known = amount != NULL
        yield name, np.where(known, amount, 0)
        yield f"{name}_ns", np.where(known, time, 0)
        yield f"{name}_rows", known.astype(np.int64)


def aggregates(sums: Mapping[str, Ints], whole: int) -> dict[str, Data]:
    """The ``AGGREGATES`` of groups by name, from their ``count`` of rows and the sums of ``row_amounts``.

    ``whole``: the time of all rows, of which ``share`` is a part.
    """
    import numpy as np

    from pyprof.table.columns import NULL

    count, time = sums["count"], sums["time"]
    found: dict[str, Data] = {"count": count, "time": time, "share": ratio(100.0 * time, whole)}
    for name, rate, scale in (("flops", "tflops", 1e3), ("bytes", "gbps", 1.0)):
        amount, known_time, all_known = sums[name], sums[f"{name}_ns"], sums[f"{name}_rows"] == count
        found[name] = np.where((amount > 0) | all_known, amount, NULL)  # unknown is not zero
        rated = (2 * known_time > time) & (sums["alone_rows"] == 0)  # the time of a launch gives no rate
        found[rate] = np.where(rated, ratio(amount / scale, known_time), np.nan)
    for name, amounts in (("uncounted", "flops"), ("bytes_uncounted", "bytes")):
        found[name] = ratio(100.0 * (time - sums[f"{amounts}_ns"]), time)
    return found


def ratio(part: Any, whole: Any) -> Floats:
    """part / whole; NaN where the whole is 0."""
    import numpy as np

    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    quotient: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return quotient
