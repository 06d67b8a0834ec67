"""The columns of sequence numbers do not depend on how many rows and texts are worked on at a time."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyprof.parse.attribute import seq_columns
from pyprof.parse.detect import lean_reader
from pyprof.parse.read import read_profile
from pyprof.parse.tables.correlate import correlate
from tests import tables
from tests.paths import GOLDEN
from tests.tables import parsed

KEYS = ("seqMarker", "seqId", "altSeqId", "subSeqId")


@pytest.mark.parametrize("name", ["h200_gpt2_step.sqlite.gz", "h200_lenet.sqlite.gz", "h200_lenet_fp32.json.gz"])
@pytest.mark.parametrize(("rows", "together"), [(1, 1), (7, 2), (100, 1 << 20)])
def test_a_few_rows_at_a_time_give_the_same(
    name: str, rows: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tables.rows(parsed(GOLDEN / name))
    monkeypatch.setattr(seq_columns, "ROWS", rows)
    monkeypatch.setattr(seq_columns, "TOGETHER", together)
    table = correlate(lean_reader(GOLDEN / name)(GOLDEN / name))
    parts = tables.rows(table)
    assert [[row[key] for key in KEYS] for row in parts] == [[row[key] for key in KEYS] for row in whole]
    assert any(len(row["seqMarker"] or ()) for row in whole)
    texts = table.coded("seqMarker").values
    assert len(set(texts)) == len(texts)  # once each, also where several parts have them


def test_ranges_are_freed_where_the_table_alone_is_wanted() -> None:
    file = GOLDEN / "h200_gpt2_step.sqlite.gz"
    whole, alone = read_profile(file), read_profile(file, lean=True, memory=False)
    assert tables.rows(alone.table) == tables.rows(whole.table)
    assert len(alone.capture.ranges.start) == 0 and len(whole.capture.ranges.start) == 6240
    assert alone.notes.ranges == whole.notes.ranges


def test_the_base_is_one_less_than_the_smallest_number_of_the_ranges_around_a_launch() -> None:
    """The inner range has number 7, the one around it 4, and the outermost none (0). The second launch is in no range,
    but in a node of number 1; the third in a node of number 3 inside the outer two ranges."""
    tree: Any = SimpleNamespace(seq=np.array([0, 4, 7]), parent=np.array([-1, 0, 1]))
    around, number = np.array([2, -1, 1]), np.array([0, 1, 3])
    assert seq_columns._base(tree, around, number).tolist() == [3, 0, 2]
