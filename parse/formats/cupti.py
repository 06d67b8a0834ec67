"""What nsys and nvprof databases share, for both are written from CUPTI's activity records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import NULL, Coded, Ints, distinct

# CUpti_ActivityMemcpyKind; labels as nsys stats prints them.
COPIES = {
    1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host", 5: "Array-to-Array",
    6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer",
    11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip


def name_operations(names: Sequence[Coded], rows: NDArray[np.bool_], kind: str, detail: Ints) -> None:
    """Name copies, memsets and graphs as nsys stats prints them: `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`."""
    for value in np.unique(detail[rows]).tolist():
        words = COPIES.get(value, "") if kind == "memcpy" else str(value) if kind == "graph" and value >= 0 else ""
        for column in names:
            column.values.append(f"[CUDA {kind} {words}".rstrip() + "]")
            column.codes[rows & (detail == value)] = len(column.values) - 1


def triples(x: Ints, y: Ints, z: Ints) -> Coded:
    """Grid or block: `[x, y, z]` a distinct one, empty where the row has none."""
    if not len(x):
        return Coded.empty(0)
    sizes, codes = distinct(x, y, z)
    values = ["" if size[0] == NULL else f"[{size[0]}, {size[1]}, {size[2]}]" for size in sizes]
    coded = Coded(codes.astype(np.int32), values)
    coded.codes[x == NULL] = -1
    return coded
