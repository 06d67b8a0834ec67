"""Every complete capture, replayed: within 3% of the capture, of the whole and of each step, with as much idle time."""

import os
from pathlib import Path

import pytest

from pyprof.table.schema import HOST_CALLS
from tests.paths import GOLDEN
from tools.replay_captures import PAGE, captures, compared

DATA = os.environ.get("PYPROF_DATA")
FILES = [*captures([GOLDEN]), *(captures([Path(DATA)]) if DATA else [])]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name[:60])
def test_a_replay_is_within_3_percent(file):
    found = compared(file)
    if found.left_out:
        pytest.skip(f"left out: {found.left_out}")
    assert abs(found.difference) <= 0.03 and found.worst_step <= 0.03
    assert found.idle_replayed == pytest.approx(found.idle_recorded, rel=0.03, abs=max(0.2, 0.01 * found.recorded))


def test_the_columns_of_host_calls_are_in_the_page():
    page = PAGE.read_text("utf-8")
    assert [c.key for c in HOST_CALLS if f"| `{c.key}` | {c.unit} | {c.meaning} |" not in page] == []
