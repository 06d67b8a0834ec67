"""What the DataFrames hold, as columns: kernels, ops, layers, steps, advice. Pure; pandas is not needed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from pyprof.prof.advice import Advice
from pyprof.prof.table.cells import Data
from pyprof.prof.table.columns import COLUMN, Column, Kind
from pyprof.prof.table.group import AGGREGATES, group_rows
from pyprof.prof.timing.steps import PHASES, Step
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import NULL, Coded, Floats, Ints, distinct

__all__ = ["Columns", "advice_columns", "group_columns", "layer_columns", "op_columns", "records", "step_columns"]

Columns = list[tuple[Column, Data]]  # a table: each column with its rows

AGGREGATE = {column.name: column for column in AGGREGATES}


def _no_rows(*_: Any) -> Any:
    raise AssertionError("a column of a made table has no rows of its own")


def _column(name: str, unit: str, meaning: str, kind: Kind = "int") -> Column:
    return Column(name, name, unit, meaning, _no_rows, kind=kind)


CALLS = _column("calls", "", "calls of the op, which may launch several kernels each")
SOL = _column("sol", "%", "speed of light: sum of the limits / time, of the rows whose limit is known", "float")


def group_columns(keys: Sequence[str], data: Mapping[str, Data]) -> Columns:
    """A row for all rows that agree in the keys, the longest time first; as ``--group`` has it.

    ``data``: the keys' columns, and sil, flops and bytes.
    """
    agreed, sums = group_rows(
        [data[key] for key in keys], {name: _ints(data[name]) for name in ("sil", "flops", "bytes")}
    )
    order = np.argsort(-_ints(sums["time"]), kind="stable")
    named = [
        *zip((COLUMN[key] for key in keys), agreed, strict=True),
        *((AGGREGATE[name], sums[name]) for name in sums),
    ]
    return [(column, _taken(values, order)) for column, values in named]


def op_columns(data: Mapping[str, Data], call: Ints) -> Columns:
    """Groups by op and direction, with the number of calls and the share of the limit that they reach.

    ``call``: a number a row, the same for the kernels of one call. ``data``: op, dir, sil, flops, bytes, sol_ns.
    """
    made = group_columns(("op", "dir"), data)
    op, direction = (Coded.concat([_coded(data[key])]) for key in ("op", "dir"))
    keys, row = distinct(op.codes, direction.codes)
    calls = np.zeros(len(keys), np.int64)
    pairs, _ = distinct(row, call)
    np.add.at(calls, np.array([number for number, _ in pairs], np.int64), 1)
    sol = _reached(row, len(keys), _ints(data["sil"]), _ints(data["sol_ns"]))
    names = [([*op.values, ""][a], [*direction.values, ""][b]) for a, b in keys]
    place = {name: i for i, name in enumerate(names)}
    (_, ops), (_, directions), *sums = made
    order = [place[pair] for pair in zip(_coded(ops).texts(), _coded(directions).texts(), strict=True)]
    known = np.array([bool(names[i][0]) for i in order], bool)
    count = np.where(known, calls[order], NULL) if order else calls
    return [made[0], made[1], (CALLS, count), *sums, (SOL, sol[order])]


def _reached(row: Ints, size: int, time: Ints, limit: Ints) -> Floats:
    """%: limits / time over the rows of each group that have both; NaN where these are less than half of its time."""
    known = (limit != NULL) & (time > 0)
    limits, known_time = (np.bincount(row[known], weights=values[known], minlength=size) for values in (limit, time))
    whole = np.bincount(row, weights=np.maximum(time, 0), minlength=size)
    told = 2 * known_time > whole
    reached: Floats = np.divide(100 * limits, known_time, out=np.full(size, np.nan), where=told)
    return reached


# Layers

LAYER = (
    _column(
        "layer", "", "path of module names, outermost first, joined by a colon; missing: rows without a layer", "text"
    ),
    _column("depth", "", "parts of the path"),
    _column("count", "", "rows in the layer and below it"),
    _column("time", "ns", "their silicon time"),
    _column("own", "ns", "of it, in the layer itself and in none below it; these sum to all time"),
    _column("share", "%", "time, of the time of all rows", "float"),
    _column("forward", "ns", "of time, in the forward pass"),
    _column("backward", "ns", "of time, in the backward pass"),
    _column("flops", "flop", "of the rows that are counted"),
    _column("bytes", "bytes", "of the rows that are counted"),
    _column("tflops", "TFLOP/s", "flops / time of the rows that are counted", "float"),
    _column("gbps", "GB/s", "bytes / time of the rows that are counted", "float"),
    _column("uncounted", "%", "share of the time in rows without FLOPs", "float"),
)
FIELDS = ("count", "time", "own", "forward", "backward", "flops", "flops_ns", "flops_rows", "bytes", "bytes_ns",
          "bytes_rows")  # fmt: skip


def layer_columns(layer: Coded, phase: Coded, start: Ints, time: Ints, flops: Ints, nbytes: Ints) -> Columns:
    """A row for each layer and each that holds it, in the order in which they first ran; what is below is within.

    Times in ns; NULL is unknown. ``layer``: JSON texts of the kernel table.
    """
    paths = [layer_parts(text) for text in layer.values]
    codes = np.where(np.array([*map(bool, paths), False])[layer.codes], layer.codes, -1)
    time = np.where(time == NULL, 0, time)
    own = _own_sums(codes, len(paths), phase, time, flops, nbytes)
    first = np.full(len(paths) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, codes, np.where(start == NULL, np.arange(len(start)), start))
    there = [code for code in np.argsort(first[:-1], kind="stable").tolist() if own[code, 0]]
    number: dict[tuple[str, ...], int] = {}
    for code in there:
        for size in range(1, len(paths[code]) + 1):
            number.setdefault(paths[code][:size], len(number))
    rows = sorted(number, key=lambda path: [number[path[: i + 1]] for i in range(len(path))])
    place = {path: i for i, path in enumerate(rows)}
    sums = np.zeros((len(rows) + 1, len(FIELDS)), np.int64)
    for code in there:
        for size in range(1, len(paths[code]) + 1):
            sums[place[paths[code][:size]]] += own[code] * (np.array(FIELDS) != "own")
        sums[place[paths[code]], FIELDS.index("own")] += own[code, FIELDS.index("time")]
    sums[-1] = own[-1]
    sums[-1, FIELDS.index("own")] = own[-1, FIELDS.index("time")]
    names, depth = [":".join(path) for path in rows], [len(path) for path in rows]
    if own[-1, 0]:
        names, depth = [*names, ""], [*depth, 0]
    return _layers(names, depth, sums[: len(names)], int(time.sum()))


def _own_sums(codes: Ints, size: int, phase: Coded, time: Ints, flops: Ints, nbytes: Ints) -> Ints:
    """FIELDS of each path's own rows; the last of those without a layer."""
    is_phase = {name: np.array([*(value == name for value in phase.values), False])[phase.codes] for name in PHASES[:2]}
    each = {"count": np.ones(len(time), np.int64), "time": time, "own": np.zeros(len(time), np.int64)}
    each |= {name: np.where(mask, time, 0) for name, mask in is_phase.items()}
    for name, amount in (("flops", flops), ("bytes", nbytes)):
        known = amount != NULL
        each |= {name: np.where(known, amount, 0), f"{name}_ns": np.where(known, time, 0),
                 f"{name}_rows": known.astype(np.int64)}  # fmt: skip
    sums = np.zeros((size + 1, len(FIELDS)), np.int64)
    for place, name in enumerate(FIELDS):
        np.add.at(sums[:, place], codes, each[name])
    return sums


def _layers(names: Sequence[str], depth: Sequence[int], sums: Ints, whole: int) -> Columns:
    got = {name: sums[:, place] for place, name in enumerate(FIELDS)}
    data: dict[str, Data] = {"layer": Coded.of(names), "depth": np.array(depth, np.int64),
                             "share": _ratio(100.0 * got["time"], np.full(len(names), whole))}  # fmt: skip
    for name, rate, scale in (("flops", "tflops", 1e3), ("bytes", "gbps", 1.0)):
        known = (got[name] > 0) | (got[f"{name}_rows"] == got["count"])
        data[name] = np.where(known, got[name], NULL)  # unknown is not zero
        most = 2 * got[f"{name}_ns"] > got["time"]
        data[rate] = np.where(most, _ratio(got[name] / scale, got[f"{name}_ns"]), np.nan)
    data["uncounted"] = _ratio(100.0 * (got["time"] - got["flops_ns"]), got["time"])
    found: dict[str, Data] = {**got, **data}
    return [(column, found[column.name]) for column in LAYER]


# Steps

STEP = (
    _column("device", "", "the GPU, and which one where there are several", "text"),
    _column("step", "", "the step's number; missing where the capture marks none and all of it is one row"),
    _column("start", "ns", "first operation, since the capture began"),
    _column("time", "ns", "until the next step's first operation; of the last one until its last operation's end"),
    *(_column(name, "ns", f"of time, {name}; an instant counts once, for the first phase") for name in PHASES),
    _column("idle", "ns", "of time, no operation ran on the device"),
    _column("count", "", "operations"),
    _column("flops", "flop", "of the operations that are counted"),
    _column("bytes", "bytes", "of the operations that are counted"),
    _column("tflops", "TFLOP/s", "flops / time, idle time included", "float"),
    _column("uncounted", "%", "share of the operations' time in those without FLOPs", "float"),
)  # fmt: skip


def step_columns(
    found: Sequence[Step], names: Sequence[str], owner: Ints, step: Ints, time: Ints, flops: Ints, nbytes: Ints
) -> Columns:
    """A row a device and step. ``owner``, ``step`` and the rest: of the rows that count as operations."""
    sums = [_step_sums((owner == each.owner) & (step == (NULL if each.number is None else each.number)), time, flops,
                       nbytes) for each in found]  # fmt: skip
    data: dict[str, Data] = {
        "device": Coded.of(names[each.owner] for each in found),
        "step": _array(NULL if each.number is None else each.number for each in found),
        "start": _array(each.start_ns for each in found),
        "time": _array(each.span_ns for each in found),
        **{name: _array(each.phase_ns.get(name, 0) for each in found) for name in PHASES},
        "idle": _array(each.idle_ns for each in found),
        "count": _array(each[0] for each in sums),
        "flops": _array(each[1] for each in sums),
        "bytes": _array(each[2] for each in sums),
    }
    known = np.where(_ints(data["flops"]) == NULL, np.nan, _ints(data["flops"]).astype(np.float64))
    data["tflops"] = _ratio(known / 1e3, _ints(data["time"]))
    data["uncounted"] = np.array([each[3] for each in sums], np.float64)
    return [(column, data[column.name]) for column in STEP]


def _step_sums(rows: Any, time: Ints, flops: Ints, nbytes: Ints) -> tuple[int, int, int, float]:
    """Rows, FLOPs, bytes (NULL: none is counted) and % of the time without FLOPs."""
    whole = int(time[rows].sum())
    amounts = []
    for amount in (flops[rows], nbytes[rows]):
        known = amount != NULL
        amounts.append(int(amount[known].sum()) if known.any() or not len(amount) else NULL)
    missed = int(time[rows][flops[rows] == NULL].sum())
    return int(np.count_nonzero(rows)), amounts[0], amounts[1], 100 * missed / whole if whole else float("nan")


# Advice

MEANING = {
    "rule": "the rule that found it", "saved_ms": "by this change alone, a step", "step_ms": "what a step takes now",
    "kernels": "a step", "time_ms": "GPU time of those kernels now, a step",
    "op": "of the kernel with the greatest saving", "layer": "its layer", "trace": "its line of code",
    "why": "the reason, in numbers", "change": "what to do", "confidence": "low, medium or high",
    "shares": "rules of better cards that concern some of the same kernels",
}  # fmt: skip


def advice_columns(cards: Sequence[Advice]) -> Columns:
    """A row a card, the greatest saving first; lists joined by a comma."""
    made: Columns = []
    for field in fields(Advice):
        values = [getattr(card, field.name) for card in cards]
        unit = "ms" if field.name.endswith("_ms") else ""
        number = field.type in ("float", "int")
        column = _column(field.name, unit, MEANING.get(field.name, ""), "float" if number else "text")
        texts = (", ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value) for value in values)
        made.append((column, np.array(values, np.float64) if number else Coded.of(texts)))
    return made


# Small things


def records(columns: Columns) -> list[dict[str, Any]]:
    """The rows as Python values; None for what is unknown, and for an empty text."""
    names = [column.name for column, _ in columns]
    values = [_plain(data) for _, data in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _plain(data: Data) -> list[Any]:
    if isinstance(data, Coded):
        return [text or None for text in data.texts()]
    if data.dtype.kind == "f":
        return [None if value != value else value for value in data.tolist()]
    return [None if value == NULL else value for value in data.tolist()]


def _array(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)


def _ratio(part: Any, whole: Ints) -> Floats:
    part = np.asarray(part, np.float64)
    found: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return found


def _taken(data: Data, rows: Ints) -> Data:
    return data.take(rows) if isinstance(data, Coded) else data[rows]


def _coded(data: Data) -> Coded:
    assert isinstance(data, Coded)
    return data


def _ints(data: Data) -> Ints:
    assert not isinstance(data, Coded)
    return data.astype(np.int64)
