"""tools/audit.py: the summary's numbers, recomputed from the raw files by code that shares nothing with pyprof."""

import json
import os
from pathlib import Path

import pytest

from tests.paths import GOLDEN
from tools.audit import audit, captures
from tools.audit_numbers import compare, union

FILES = list(captures([GOLDEN, *map(Path, filter(None, [os.environ.get("PYPROF_DATA")]))]))


@pytest.mark.parametrize("file", FILES, ids=[file.name[:60] for file in FILES])
def test_every_number_follows_from_the_raw_file(file: Path) -> None:
    _, compared, differences, left_out = audit(file)
    if left_out:
        pytest.skip(left_out)
    assert compared >= 15
    assert [str(difference) for difference in differences] == []


def test_a_union_of_intervals_by_hand() -> None:
    assert union([(5, 20), (0, 10), (30, 40), (32, 35)]) == 30


def test_a_wrong_number_is_a_difference() -> None:
    """If a number of the document is changed, the audit names it."""
    numbers = {"total_ns": 10, "busy_ns": 9, "idle_ns": 1, "attributed_ns": 10}
    parts = {key: [{"name": "a", "rows": 1, "ns": 10, "idle_ns": 1}] for key in ("kinds", "components", "phases")}
    parts["phases"][0]["ns"] = 9
    more = {"kinds_of_rows": [], "devices": [], "waits": {"launches": 1, "queued_ns": 0}, "copies": None, "reasons": []}
    more["steps"] = [{"name": "1", "mark_ns": 7}]
    document = {"numbers": numbers | parts | more, "advice": []}
    wanted = {"busy_ns": 9, "attributed_ns": (8, 10), "phases": {"backward": 0}, "marks_ns": {"1": 7}}
    assert compare(wanted, json.dumps(document))[1] == []
    document["numbers"]["busy_ns"] = 8
    document["advice"] = [{"rule": "amp", "saved_ms": 3.0, "step_ms": 2.0}]
    names = [difference.name for difference in compare(wanted, json.dumps(document))[1]]
    assert names == ["busy_ns", "busy time by phase", "advice amp"]
