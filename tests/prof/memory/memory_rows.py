"""Small memory tables as literals: one event per line."""

import json
from typing import Any

import numpy as np

from pyprof.parse.attribute.capture import MemoryEvents
from pyprof.parse.tables.memory_rows import peers
from pyprof.table.columns import NULL, Coded, MemoryTable

MIB = 1 << 20


def event(time: int, size: int, address: int, phase: str = "", layer: str = "", **more: Any) -> dict[str, Any]:
    """``layer``: a path such as GPT:h.0, whose first part is the root."""
    root, _, rest = layer.partition(":")
    names = [root, *([rest] if rest else [])] if layer else []
    direction = {"forward": "fprop", "backward": "bprop"}.get(phase, "")
    return {"time": time, "bytes": size, "address": address, "phase": phase, "dir": direction,
            "layer": json.dumps(names) if names else "", **more}  # fmt: skip


def table(*events: dict[str, Any], start: int | None = 0, **every: Any) -> MemoryTable:
    """``start``: the bytes in use before the first event; None: the totals are not recorded. Times ascend."""
    rows = [
        {"kind": "cuda", "device": 0, "level": "allocator", "pid": 7, "tid": 7, "step": 0, **every, **e} for e in events
    ]
    texts = ("kind", "level", "phase", "dir", "layer", "op", "trace", "category", "name", "aten")
    columns: dict[str, Any] = {key: Coded.of([row.get(key, "") for row in rows]) for key in texts}
    for key in ("time", "bytes", "address", "device", "pid", "tid", "step"):
        columns[key] = np.array([row[key] for row in rows], np.int64)
    counted = np.where(columns["level"].among("allocator"), columns["bytes"], 0)
    if start is not None:
        columns["allocated"] = start + np.cumsum(counted)
    if "reserved" in rows[0]:
        columns["reserved"] = np.array([row["reserved"] for row in rows], np.int64)
    zero = np.zeros(len(rows), np.int64)
    events_ = MemoryEvents(zero, columns["time"], columns["bytes"], columns["address"], columns["kind"],
                           columns["device"], columns["level"])  # fmt: skip
    peer = np.where(columns["level"].among("before"), NULL, peers(events_, columns["pid"]))
    columns["peer"] = peer
    freed = np.where((peer != NULL) & (columns["bytes"] > 0), columns["time"][np.maximum(peer, 0)], NULL)
    return MemoryTable(len(rows), {**columns, "freed": freed})
