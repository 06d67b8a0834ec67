"""The programs on the page of autograd are run, and compute as many products as it says."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.prof.ops.model import FAMILY, MATRIX  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "autograd.md").read_text()
PRODUCT = 2 * 8 * 64 * 64
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.endswith("P |")]


def names() -> dict[str, Any]:
    """What the page's own code defines."""
    found: dict[str, Any] = {}
    for block in PAGE.split("```python\n")[1:]:
        exec(block.split("```")[0], found)  # noqa: S102  (our own page)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_program_of_the_page(row: list[str]) -> None:
    defined = names()
    with pyprof.count() as work:
        eval(row[1].strip("`"), defined)  # noqa: S307
    products = [entry for entry in work.rows if FAMILY.get(entry.model) in MATRIX]
    for direction, said in (("forward", row[2]), ("backward", row[3])):
        flop = sum(entry.flops for entry in products if entry.direction == direction)
        assert flop == Fraction(said.removesuffix("P").removesuffix("P |").strip()) * PRODUCT, str(work)
    assert not work.unknown


def test_the_page_has_its_programs() -> None:
    assert len(ROWS) == 21
