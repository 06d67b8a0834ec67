"""Kernel tables for the tests of pyprof diff: rows in microseconds, a step after the other."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pyprof.prof.diff.compare import Comparison, Entry, compare
from pyprof.prof.diff.lines import Side, make_side
from pyprof.prof.load import LoadedFile
from pyprof.table.columns import NULL, Coded, Table

US = 1000
TC = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT"  # bf16 tensor cores
NO_TC = "cutlass_80_simt_sgemm_256x128_8x4_nn_align1"
Row = dict[str, Any]


def row(us: float, op: str = "", *, layer: str = "", phase: str = "forward", name: str = "", **more: Any) -> Row:
    """An operation that lasts so long. ``layer``: A:B.0:c as the outermost name and the names below it; ``gap``: idle
    time before it."""
    way = {"forward": "fprop", "backward": "bprop"}.get(phase, "")
    return {"us": us, "op": op, "layer": layer, "phase": phase, "dir": way, "name": name or f"{op}_kernel",
            "aten": f"aten::{op}" if op else "", **more}  # fmt: skip


def mm(us: float, m: int = 64, n: int = 64, k: int = 64, *, name: str = TC, **more: Any) -> Row:
    return row(us, "linear", name=name, aten="aten::mm", sizes=[[m, k], [k, n]], dtypes=["bfloat16"] * 2, **more)


def table_of(steps: Iterable[Sequence[Row]], numbers: Sequence[int | None] | None = None, gpu: str = "NVIDIA H200",
             device: int = 0) -> Table:  # fmt: skip
    """The rows of each step, one after the other on one stream; ``at``: a start of its own, in us from the step's."""
    rows: list[Row] = []
    now = 0.0
    for count, step in enumerate(steps):
        first = now
        for each in step:
            begin = first + each["at"] if "at" in each else now + each.get("gap", 0)
            number = count if numbers is None else numbers[count]
            rows.append({**each, "start": begin, "step": number})
            now = max(now, begin + each["us"])
    return _table(rows, gpu, device)


def _table(rows: Sequence[Row], gpu: str, device: int) -> Table:
    def text(key: str) -> Coded:
        return Coded.of(str(row.get(key, "")) for row in rows)

    def coded(key: str) -> Coded:
        return Coded.of(json.dumps(row[key]) if row.get(key) else "" for row in rows)

    count = len(rows)
    layers = Coded.of(json.dumps(_names(row["layer"])) if row.get("layer") else "" for row in rows)
    ops = Coded.of(json.dumps([row["op"]]) if row.get("op") else "" for row in rows)
    columns = {
        "kShortName": text("name"), "kLongName": text("name"), "op": ops, "mod": ops, "aten": text("aten"),
        "layer": layers, "phase": text("phase"), "dir": text("dir"), "sizes": coded("sizes"),
        "dtypes": coded("dtypes"), "kind": Coded.of(row.get("kind", "kernel") for row in rows),
        "kDuration": np.array([round(row["us"] * US) for row in rows], np.int64),
        "start": np.array([round(row["start"] * US) for row in rows], np.int64),
        "step": np.array([NULL if row["step"] is None else row["step"] for row in rows], np.int64),
        "gpu": Coded.of([gpu] * count), "device": np.full(count, device, np.int64), "pid": np.ones(count, np.int64),
        "stream": np.full(count, 7, np.int64), "opId": np.arange(count, dtype=np.int64),
    }  # fmt: skip
    return Table(count, columns)


def _names(layer: str) -> list[str]:
    """GPT:h.0:attn as pyprof.init() names them: GPT, h.0, h.0.attn."""
    root, *below = layer.split(":")
    return [root, *(".".join(below[: i + 1]) for i in range(len(below)))]


def side(table: Table, name: str = "a.dict", profiler: str | None = None, **more: Any) -> Side:
    return make_side(LoadedFile(name, table, profiler), **more)


def compared(a: Iterable[Sequence[Row]], b: Iterable[Sequence[Row]]) -> Comparison:
    return compare(side(table_of(a), "a.dict"), side(table_of(b), "b.dict"))


def entry(found: Comparison, name: str, phase: str = "forward") -> Entry:
    (one,) = (e for e in found.entries if (e.name, e.phase) == (name, phase))
    return one
