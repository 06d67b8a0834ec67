"""The sum over an op's kernels is the op's count: on every capture there is."""

import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from pyprof.errors import PyprofError
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.calls import op_calls
from pyprof.prof.work.count import Counted
from pyprof.table.columns import NULL, Table
from tests.paths import GOLDEN
from tests.tables import annotated


def check_sums(table: Table, notes: Annotation) -> int:
    """Check the FLOPs of every call, and the bytes of its main kernels; the number of calls that were checked."""
    calls = op_calls(table)
    main, kind = np.array(notes.role.texts()) == "main", table.coded("kind").texts()
    name, nodes, seq = table.coded("kShortName").texts(), table.coded("nodes").texts(), table.ragged("seqId").lists()
    rows_of, sums_at = defaultdict(list), defaultdict(set)
    for row, number in enumerate(calls.number.tolist()):
        rows_of[number].append(row)
        if nodes[row]:
            sums_at[str(seq[row]), tuple(json.loads(nodes[row]))].add((int(notes.flops[row]), int(notes.bytes[row])))
    checked = 0
    for rows in rows_of.values():
        op = calls.of(rows[0])
        mains = [row for row in rows if main[row]]
        if not op.parts or not mains or kind[mains[0]] == "memset":
            continue
        within = (str(seq[rows[0]]), (*json.loads(nodes[rows[0]] or "[]"), "aten::sum"))
        possible = possible_sums(op, sums_at.get(within, set()))
        if op.flop is not None:
            assert sum(notes.flops[rows].tolist()) in {flop for flop, _ in possible}, (op.name, op.parts)
        # A copy has the bytes of its own record: its op's model may know none (``item()``), or count the host's, too.
        to_host = [row for row in mains if kind[row] == "memcpy" and ("HtoD" in name[row] or "DtoH" in name[row])]
        moved = to_host or (op.nbytes == 0 and "memcpy" in {kind[row] for row in mains})
        if op.nbytes is not None and NULL not in notes.bytes[mains] and not moved:
            assert sum(notes.bytes[mains].tolist()) in {nbytes for _, nbytes in possible}, (op.name, op.parts)
        assert (op.flop is None) == bool(NULL in notes.flops[mains]), (op.name, op.parts)
        checked += 1
    return checked


def possible_sums(op: Counted, inner: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """What an op's kernels may sum to: all parts. Where a sum within a convolution's backward computed its bias (it has
    the FLOPs and nearly the bytes of that part), without that. Where the capture has no output mask, some parts."""
    parts = {part: (flop or 0, nbytes or 0) for part, (flop, nbytes) in op.parts.items()}
    chosen = [tuple(parts)]
    if any(flop == parts.get("bias", (None,))[0] for flop, _ in inner):
        chosen = [tuple(part for part in parts if part != "bias")]
    if not op.all_ran:
        chosen = [some for count in range(1, len(parts) + 1) for some in combinations(parts, count)]
    return [tuple(sum(parts[part][place] for part in some) for place in (0, 1)) for some in chosen]  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.gz")))
def test_sums_over_kernels_are_sums_over_ops(name: str) -> None:
    assert check_sums(*annotated(GOLDEN / name)) > 5


def test_sums_over_kernels_on_every_capture(data: Path) -> None:
    checked = 0
    for file in sorted(path for folder in ("kineto", "nsys", "round2") for path in (data / folder).iterdir()):
        try:
            table, notes = annotated(file)
        except (PyprofError, IsADirectoryError):
            continue
        checked += check_sums(table, notes)
    assert checked > 40_000
