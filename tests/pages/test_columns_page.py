"""docs/reference/columns.md names columns that there are, and all of PyProf's twenty."""

import re

from pyprof.prof.table.columns import COLUMNS
from tests.paths import ROOT


def test_the_columns_of_the_page_are_columns():
    page = (ROOT / "docs" / "reference" / "columns.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    known = [column.name for column in COLUMNS]
    assert len(named) == len(set(named)) > 30
    assert set(named) <= set(known)
    assert set(known[:20]) <= set(named)
