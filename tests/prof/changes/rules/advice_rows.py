"""Runs for the tests of the advice, from literal rows."""

import json

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.find_changes import without_replay
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.schema import COLUMN

H200 = "NVIDIA H200"
BETWEEN = 1100  # ns: what the GPU needs between two kernels that are queued


def table(*rows, gpu=H200, gap=BETWEEN):
    """A table of kernels, one ``gap`` (ns) after the other where no start is given; ``ns`` is the duration."""
    full, now = [], 0
    for number, row in enumerate(rows):
        row = {"kind": "kernel", "gpu": gpu, "pid": 1, "device": 0, "tid": 1, "opId": number, "start": now, **row}
        row["kDuration"] = row.pop("ns")
        now = (row["start"] or 0) + row["kDuration"] + gap
        full.append(row)
    data = {}
    for key in {key for row in full for key in row}:
        values = [row.get(key) for row in full]
        if COLUMN[key].kind == "int":
            data[key] = np.array([NULL if v is None else v for v in values], np.int64)
        elif COLUMN[key].kind == "float":
            data[key] = np.array([np.nan if v is None else v for v in values], np.float64)
        elif COLUMN[key].kind == "ints":
            data[key] = Ragged.of(v or [] for v in values)
        else:
            data[key] = Coded.of("" if v is None else v if isinstance(v, str) else json.dumps(v) for v in values)
    return Table(len(full), data)


def run(*rows, gpu=H200):
    made = table(*rows, gpu=gpu)
    return Run(made, annotate(made))


def changes_of(made):
    """The changes that rules find in a run by themselves, without a replay."""
    return without_replay(made, "").document.changes


def changes(*rows, gpu=H200, rule=None):
    """The same of these rows; those of one rule where it is named."""
    return [change for change in changes_of(run(*rows, gpu=gpu)) if rule in (None, change.rule)]


def mm(m, k, n, ns, name="sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_align1", dtype="bfloat16", **more):
    """aten::mm of row-major matrices."""
    return {
        "aten": "aten::mm", "sizes": [[m, k], [k, n]], "dtypes": [dtype] * 2, "strides": [[k, 1], [n, 1]],
        "kShortName": name, "ns": ns, "phase": "forward", "dir": "fprop", **more,
    }  # fmt: skip
