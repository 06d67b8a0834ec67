"""The work inside opaque CUDA graphs: that of the calls which each graph captured (the column ``graphOps``).

A profiler may record the launch of a graph as one operation. Its kernels' times are then unknown, but what the graph
computes follows from its capture, as far as the models count the captured calls.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pyprof.prof.work.layer_path import layer_texts
from pyprof.table.columns import NULL, Coded, Ints, Table


class Amounts(Protocol):
    """FLOPs and bytes per row; NULL if unknown."""

    @property
    def flops(self) -> Ints: ...

    @property
    def bytes(self) -> Ints: ...


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """Equal calls of a graph, together."""

    op: str  # what the user called, or else the op that PyTorch ran; "?" if neither is known
    layer: str  # parts joined by ":"; empty outside of all layers
    calls: int
    launches: int  # kernels, copies and memsets
    flop: int | None  # None: unknown
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class OpaqueGraph:
    """A graph, its rows, and what one launch of it runs; no calls where its capture is unknown."""

    name: str
    rows: Ints
    calls: tuple[CapturedCall, ...]

    @property
    def launches(self) -> int:
        return sum(call.launches for call in self.calls)

    @property
    def flop(self) -> int | None:
        """Of one launch of the graph; None if any call's are unknown."""
        return _sum([call.flop for call in self.calls])

    @property
    def nbytes(self) -> int | None:
        """The same for bytes."""
        return _sum([call.nbytes for call in self.calls])


def _sum(amounts: list[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def opaque_graphs(table: Table, annotate: Callable[[Table], Amounts]) -> list[OpaqueGraph]:
    """The opaque graphs of a table, in order of their first rows. ``annotate`` counts the work of a table's rows."""
    rows_of: dict[tuple[int, str], list[int]] = {}
    rows = np.flatnonzero(table.coded("kind").among("graph"))
    names, pid = table.coded("kLongName").take(rows).texts(), table.ints("pid")[rows].tolist()
    for row, name, process in zip(rows.tolist(), names, pid, strict=True):
        rows_of.setdefault((process, name), []).append(row)
    contents = table.coded("graphOps")
    found = []
    for (_, name), own in rows_of.items():
        texts = [text for text in contents.take(own).texts() if text]
        calls = tuple(_calls(texts[0], annotate)) if texts else ()
        found.append(OpaqueGraph(name, np.array(own, np.int64), calls))
    return found


def fill_opaque_graphs(table: Table, annotate: Callable[[Table], Amounts], flops: Ints, nbytes: Ints) -> None:
    """Give each launch of an opaque graph the work of its calls, where that of all of them is known."""
    for graph in opaque_graphs(table, annotate):
        for column, amount in ((flops, graph.flop), (nbytes, graph.nbytes)):
            if amount is not None:
                column[graph.rows] = amount


def _calls(text: str, annotate: Callable[[Table], Amounts]) -> list[CapturedCall]:
    entries = json.loads(text)
    if not entries:
        return []
    table = _table(entries)
    work, layers = annotate(table), layer_texts(table.coded("layer")).texts()
    found = []
    for row, entry in enumerate(entries):
        ops = json.loads(table.coded("op").texts()[row] or "[]")
        calls, launches = entry.get("calls", 1), entry.get("launches", 1)
        amounts = (None if column[row] == NULL else calls * int(column[row]) for column in (work.flops, work.bytes))
        op = ops[0] if ops else entry.get("aten") or "?"
        found.append(CapturedCall(op, layers[row], calls, launches, *amounts))
    return found


def _table(entries: list[dict[str, Any]]) -> Table:
    """One row per entry, with the whole work of one call, as a CPU op has."""
    keys = {key for entry in entries for key in entry} - {"calls", "launches"}
    columns: dict[str, Any] = {key: Coded.of(_cell(entry.get(key)) for entry in entries) for key in keys}
    numbers = np.arange(len(entries), dtype=np.int64)
    columns |= {"opId": numbers, "start": numbers, "pid": np.zeros_like(numbers), "kDuration": np.ones_like(numbers)}
    columns["kind"] = Coded.of(["cpu"] * len(entries))
    columns["kShortName"] = columns["kLongName"] = columns.get("aten") or Coded.empty(len(entries))
    return Table(len(entries), columns)


def _cell(value: Any) -> str:
    """A cell as the kernel table has it: texts as they are, lists and dicts as JSON, empty where there is none."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value is not None else ""
