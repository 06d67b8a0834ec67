"""docs/reference/counters.md has every quantity with its unit, meaning and sources, as the code has them."""

import re

from pyprof.parse.ncu.quantities import QUANTITIES
from tests.paths import ROOT


def test_the_page_of_counters_has_every_quantity():
    page = (ROOT / "docs" / "reference" / "counters.md").read_text(encoding="utf-8").replace("\\|", "|")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert rows == [
        (each.key, each.unit, each.meaning, "; ".join(f"`{source}`" for source in each.sources)) for each in QUANTITIES
    ]
