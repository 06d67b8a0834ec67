"""In captures whose rows are CPU ops: the rows within another row, whose FLOPs the other row's op has counted.

``aten::std`` of some sizes calls ``aten::sum``, and both are rows, each with its own time. The model of ``aten::std``
counts all that the op computes, so the sum within it counts none.
"""

import json

import numpy as np

from pyprof.table.columns import NULL, Ints, Table

Path = tuple[str, ...]  # names of ops and autograd nodes, outermost first


def fill_nested(table: Table, flops: Ints) -> None:
    """Set the FLOPs of rows to 0 if they are within a row whose FLOPs are known.

    The column ``part`` says which rows are within another. Of the rows before it on its thread, it is within the last
    one whose path begins its own.
    """
    part = table.ints("part") == 1
    if not part.any():
        return
    start, pid, tid = (table.ints(key) for key in ("start", "pid", "tid"))
    rows = np.flatnonzero(table.coded("kind").among("cpu"))
    rows = rows[np.lexsort((table.ints("opId")[rows], start[rows], tid[rows], pid[rows]))]
    nodes = table.coded("nodes")
    paths: list[Path] = [tuple(json.loads(text)) if text else () for text in (*nodes.values, "")]
    counted, thread, around = flops != NULL, None, list[tuple[Path, bool]]()
    for row, code, its_thread in zip(
        rows.tolist(), nodes.codes[rows].tolist(), zip(pid[rows].tolist(), tid[rows].tolist(), strict=True), strict=True
    ):
        path = paths[code]
        if its_thread != thread or not part[row]:
            thread, around = its_thread, []
        while around and not _is_within(path, around[-1][0]):
            around.pop()
        within_counted = bool(around) and around[-1][1]
        if within_counted:
            flops[row] = 0
        around.append((path, within_counted or bool(counted[row])))


def _is_within(path: Path, outer: Path) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer
