"""The rows that pyprof prints for a capture, each joined to its operation in the raw file; for ``audit.py``."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

from tools.audit_raw import Operation

Check = tuple[str, Any, Any]
COLUMNS = "idx,start,sil,step,flops,bytes,tc,aten,advice"


def join(operations: Sequence[Operation], text: str) -> list[Check]:
    """Fill ``printed`` of the operations. Returns what differs: the number of rows, a row's start or its duration.

    Both are in order of time. pyprof's times begin with the capture, so that the first row gives the offset.
    """
    rows = [row for row in csv.DictReader(StringIO(text)) if row["Start(ns)"]]
    if len(rows) != len(operations):
        return [("number of rows", len(operations), len(rows))]
    rows.sort(key=lambda row: (int(row["Start(ns)"]), int(row["Sil(ns)"])))
    ordered = sorted(operations, key=lambda operation: (operation.start, operation.duration))
    offset = int(rows[0]["Start(ns)"]) - ordered[0].start
    differences: list[Check] = []
    for operation, row in zip(ordered, rows, strict=True):
        operation.printed = row
        wanted, shown = (operation.start + offset, operation.duration), (int(row["Start(ns)"]), int(row["Sil(ns)"]))
        if wanted != shown:
            differences.append((f"start and duration of {operation.name[:60]}", wanted, shown))
    return differences
