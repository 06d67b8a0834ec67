"""What an opaque CUDA graph contains: the calls that it captured, each with op, layer, direction and arguments.

nsys in graph mode records a launch of a graph as one operation. The launches that the graph captured are known from its
capture. They are attributed as kernels are, and the calls that made them become a text of the graph's first row.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pyprof.parse.attribute.capture import GRAPH_KINDS, Capture, GraphLaunches, Ranges
from pyprof.table.columns import NULL, Coded, Ints, Table
from pyprof.table.schema import COLUMN

# The columns of a captured call: its attribution, and what its work is counted from.
KEYS = (
    *("mod", "op", "layer", "dir", "phase", "aten", "sizes", "dtypes", "strides", "args", "outs", "marker", "nodes"),
    *("comm", "forward"),
)
_NAMES = ("kShortName", "kLongName")


def graph_contents(capture: Capture, correlated: Callable[[Capture], Table]) -> Coded:
    """Per row, the calls of the graph as JSON: objects of the ``KEYS``, with `calls` and `launches`, in order of first
    launch; empty for rows that are no opaque graph, or not the first one of theirs, and where the capture is unknown.

    ``correlated``: makes the kernel table of a capture.
    """
    texts = [""] * capture.rows
    launches = capture.graph_launches
    if capture.opaque_graph is None or not launches or not np.any(capture.opaque_graph != NULL):
        return Coded.of(texts)
    pid = capture.ints("pid")
    seen: set[tuple[int, int]] = set()
    for row in np.flatnonzero(capture.opaque_graph != NULL).tolist():
        key = int(pid[row]), int(capture.opaque_graph[row])
        if key not in seen:
            seen.add(key)
            captured = _launches_of(capture, launches, *key)
            texts[row] = _text(correlated(_of_launches(capture, launches, captured))) if len(captured) else ""
    return Coded.of(texts)


def _launches_of(capture: Capture, launches: GraphLaunches, pid: int, number: int) -> Ints:
    """The launches that a graph captured, if one capture, of this process or of another file, has its number."""
    owner = capture.pids()[launches.began_thread]
    fits = np.flatnonzero((launches.number == number) & ((owner == pid) | (launches.ended == NULL)))
    return np.flatnonzero(launches.graph == fits[0]) if len(fits) == 1 else np.zeros(0, np.int64)


def _of_launches(capture: Capture, launches: GraphLaunches, chosen: Ints) -> Capture:
    """A capture whose rows are these launches, without durations."""
    kind = Coded.of(GRAPH_KINDS[number] for number in launches.kind[chosen].tolist())
    time, none, unnamed = launches.time[chosen], np.zeros(len(chosen), np.int64), Coded.empty(len(chosen))
    return replace(
        capture,
        rows=len(chosen),
        columns={"kind": kind, "start": time, "kDuration": none, "pid": none, **dict.fromkeys(_NAMES, unnamed)},
        launch_thread=launches.thread[chosen],
        launch_time=time,
        reason=[],
        reason_code=None,
        launch_range=None,
        origin_thread=None,
        origin_time=None,
        graph_launches=None,
        opaque_graph=None,
        spans=Ranges.empty(),
    )


def _text(table: Table) -> str:
    columns = [table.coded(key).texts() for key in KEYS]
    launches: Counter[tuple[str, ...]] = Counter()
    calls: dict[tuple[str, ...], set[int]] = {}
    for row, call in enumerate(table.ints("opId").tolist()):
        key = tuple(column[row] for column in columns)
        launches[key] += 1
        calls.setdefault(key, set()).add(call if call != NULL else -1 - row)
    found = []
    for key, count in launches.items():
        cells = {name: text for name, text in zip(KEYS, key, strict=True) if text}
        known = {name: json.loads(text) if COLUMN[name].kind == "json" else text for name, text in cells.items()}
        found.append(known | {"calls": len(calls[key]), "launches": count})
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
