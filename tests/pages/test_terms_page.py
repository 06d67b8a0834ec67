"""docs/reference/terms.md shows the definitions of the web page, word for word."""

import re

from pyprof.prof.report.definitions import TERMS
from tests.paths import ROOT


def test_the_page_of_terms_has_every_definition():
    page = (ROOT / "docs" / "reference" / "terms.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    assert rows[0] == ("term", "definition")
    assert rows[1:] == [(term.name, term.text) for term in TERMS]
    assert len({term.key for term in TERMS}) == len(TERMS)
