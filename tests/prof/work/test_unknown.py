"""Unknown amounts are never 0: sums, the table by GPU, JSON, and kernels of ops that count no work."""

import json

import numpy as np
import pytest

from pyprof.prof.limits.roofline import roofline
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.json_document import summary_of
from pyprof.prof.summary.tables import summary_tables
from pyprof.prof.timing.usage import usage
from pyprof.prof.work.annotate import annotate, sum_known
from pyprof.table.columns import NULL, Coded, Table


@pytest.mark.parametrize(
    ("amounts", "total"),
    [([], 0), ([0, 0], 0), ([NULL, 0], None), ([NULL, NULL], None), ([NULL, 3], 3), ([4, 0], 4)],
)
def test_a_sum_is_zero_only_if_all_is_known(amounts: list[int], total: int | None) -> None:
    assert sum_known(np.array(amounts, np.int64)) == total


def kernels(*ops: tuple[str, str], devices: int = 1) -> Table:
    """Kernels of (aten op, sizes), one microsecond each, on one or several GPUs."""
    count = len(ops)
    columns = {
        "kShortName": Coded.of(f"kernel_{i}" for i in range(count)),
        "kind": Coded.of(["kernel"] * count),
        "start": np.arange(count) * 2000,
        "kDuration": np.full(count, 1000),
        "device": np.arange(count) % devices,
        "aten": Coded.of(op for op, _ in ops),
        "sizes": Coded.of(sizes for _, sizes in ops),
        "dtypes": Coded.of(json.dumps(["float32"] * len(json.loads(sizes))) if sizes else "" for _, sizes in ops),
        "opId": np.arange(count),
        "pid": np.ones(count, np.int64),
    }
    return Table(count, columns)


def test_gpus_without_a_count_have_no_rate() -> None:
    """Device 0 runs an op that no model counts and a copy (0 FLOPs), device 1 adds 8 floats."""
    table = kernels(("mylib::op", "[[8]]"), ("aten::add", "[[8], [8]]"), ("aten::copy_", "[[8], [8]]"), devices=2)
    notes = annotate(table)
    first, second = usage(table, notes, roofline(table, notes))
    assert (first.flop, second.flop) == (None, 8)
    summary = summarise(table, notes)
    rows = next(part for part in summary_tables(summary) if part.key == "devices").rows
    assert [row[-1] for row in rows] == ["unknown", "≥ 8e-06"]  # 8 FLOP in 1 us
    document = summary_of(summary).numbers
    assert [device["flop"] for device in document["devices"]] == [None, 8]
    assert document["flop"] == 8


def test_a_capture_without_ops_has_no_flops_or_bytes() -> None:
    table = kernels(("", ""), ("", ""))
    document = summary_of(summarise(table, annotate(table))).numbers
    assert (document["flop"], document["nbytes"], document["devices"][0]["matrix_flop"]) == (None, None, None)


def test_a_kernel_of_an_op_without_work_has_unknown_bytes() -> None:
    """PyProf's markers have no strides: a contiguous tensor needs no copy, but here a kernel ran."""
    assert annotate(kernels(("aten::contiguous", "[[8]]"))).bytes.tolist() == [NULL]
    assert annotate(kernels(("aten::copy_", "[[8], [8]]"))).bytes.tolist() == [64]
