"""No kernel beats the hardware: rows above 105% of their limit, on every capture there is, each with its reason.

Kernels over 4 us count; shorter ones are timed too coarsely. A row whose operands fit into the L2 cache may be as fast
as that cache. Beyond it, the limit is that of the memory or of the unit that computed.
"""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import PyprofError
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Table
from tests.paths import GOLDEN
from tests.tables import annotated

LONG_NS, MOST = 4000, 105  # %
L2_BYTES_PER_S = {
    "A100": 5120 * 1.41e9,  # NVIDIA A100 white paper, table 5: bytes per clock, read; not measured
    "H100": 6.7e12,  # the H200's chip and clock
    "H200": 6.7e12,  # tests/device/l2_rate.py on an H200: neg of 16 MiB to another 16 MiB, the best of 30 cases
}
IN_CACHE = "its operands fit into the L2 cache"
annotated_rows = annotated
LOOKUP = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
EXPLAINED = {  # (part of the capture's name, aten op) -> why a row beyond the cache is faster than the memory
    ("trace_diff__control", LOOKUP): "15.8 million indices repeat rows, which then come from the cache (1.25 times)",
    (
        "trace_diff__control",
        "aten::tanh",
    ): "its input of 38 MB may lie in the cache of 42 MB (1.07 times)",
}


def beyond(file: Path) -> Counter[tuple[str, str]]:
    """(aten op, reason) of the rows above 105% of their limit; the reason is empty if there is none."""
    table, notes = annotated_rows(file)
    limits = roofline(table, notes)
    ns, aten, copies = table.ints("kDuration"), table.coded("aten").texts(), table.coded("kind").texts()
    found: Counter[tuple[str, str]] = Counter()
    for row in np.flatnonzero((ns > LONG_NS) & (limits.sol > MOST)).tolist():
        device, nbytes = limits.devices[limits.device[row]], int(notes.bytes[row])
        reason = next((why for (name, op), why in EXPLAINED.items() if name in file.name and op == aten[row]), "")
        rate = next((rate for name, rate in L2_BYTES_PER_S.items() if name in device.name), 0.0)
        compute = 100 * limits.compute_ns[row] / ns[row]
        operands = nbytes - (first_bytes(table, row) if aten[row].endswith("_") else 0)  # in place: counted twice
        if operands <= (device.l2_bytes or 0) and compute <= MOST and 1e9 * nbytes / ns[row] <= rate:
            reason = IN_CACHE
        found[aten[row] or copies[row], reason] += 1
    return found


def first_bytes(table: Table, row: int) -> int:
    """Bytes of an op's first operand."""
    sizes, dtypes = (json.loads(table.coded(key).texts()[row] or "[]") for key in ("sizes", "dtypes"))
    known = sizes and dtypes and isinstance(dtypes[0], str)
    return int(math.prod(sizes[0]) * ITEM_BYTES.get(dtypes[0], 0)) if known else 0


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.gz")))
def test_each_row_beyond_its_limit_has_a_reason(name: str) -> None:
    assert [op for op, reason in beyond(GOLDEN / name) if not reason] == []


def test_each_row_beyond_its_limit_has_a_reason_on_every_capture(data: Path) -> None:
    unexplained, cached = [], 0
    folders = ("kineto", "nsys", "round2", "pyprof_golden")
    for file in sorted(path for folder in folders for path in (data / folder).iterdir()):
        try:
            rows = beyond(file)
        except (PyprofError, IsADirectoryError):
            continue
        unexplained += [(file.name, op) for op, reason in rows if not reason]
        cached += sum(count for (_, reason), count in rows.items() if reason == IN_CACHE)
    assert unexplained == []
    assert cached > 100  # the check found what there is to find: a recommender's small products on an A100


def test_a_wrong_count_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With three times the bytes, kernels of an H200 would run above the memory's rate."""

    def three_times(file: Path) -> tuple[Table, Annotation]:
        table, notes = annotated(file)
        return table, replace(notes, bytes=np.where(notes.bytes == NULL, NULL, 3 * notes.bytes))

    monkeypatch.setattr(f"{__name__}.annotated_rows", three_times)
    assert [op for op, reason in beyond(GOLDEN / "h200_gpt2_bf16.json.gz") if not reason]
