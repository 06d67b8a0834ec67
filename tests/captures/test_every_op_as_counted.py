"""A capture on a CPU has the FLOPs that pyprof.count says, for all ops of PyTorch's op_db but those in a table."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.parse.kineto.reader import read  # noqa: E402
from pyprof.parse.tables.correlate import correlate  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from pyprof.table.columns import NULL  # noqa: E402
from tests.op_db import op_db, runs, samples  # noqa: E402
from tests.paths import ROOT  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PAGE = ROOT / "docs" / "explanation" / "accuracy.md"
SAMPLES = 12  # of each op; most have fewer


def known_differences() -> dict[str, str]:
    """Op -> the reason, from the page's table."""
    table = PAGE.read_text(encoding="utf-8").partition("<!-- ops that captures count otherwise -->")[2]
    rows = re.findall(r"^\| (.+?) \| (`.+) \|$", table, re.MULTILINE)
    return {op: why for why, ops in rows for op in re.findall("`(.+?)`", ops)}


def test_the_table_is_short() -> None:
    known = known_differences()
    assert 0 < len(known) <= 40 and len(set(known.values())) <= 15


def test_each_op_is_captured_as_counted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = [(op, sample) for op in op_db() for sample in samples(op, SAMPLES) if runs(op, sample)]
        counts = [pyprof.count(op, sample.input, *sample.args, **sample.kwargs) for op, sample in calls]
        pyprof.init()
        try:
            with pyprof.profile(str(tmp_path / "net.json")):
                for number, (op, sample) in enumerate(calls):
                    with torch.profiler.record_function(f"case {number}"):
                        op(sample.input, *sample.args, **sample.kwargs)
        finally:
            pyprof.deinit()
    assert len(calls) > 4000
    capture = read(tmp_path / "net.json")
    flops, when = annotate(correlate(capture)).flops, capture.launch_time
    names = [scope.name for scope in capture.scopes]
    different = {}
    for start, end, scope in zip(capture.ranges.start, capture.ranges.end, capture.ranges.scope, strict=True):
        if names[scope].startswith("case "):
            number = int(names[scope][5:])
            own = flops[np.flatnonzero((when >= start) & (when < end))]
            captured = None if (own == NULL).any() else int(own.sum())
            counted = None if counts[number].unknown else counts[number].flops
            if captured != counted:
                different.setdefault(calls[number][0].name, (counted, captured))
    assert {op: both for op, both in different.items() if op not in known_differences()} == {}
