"""The programs on the page of autograd are run, and compute as many products as it says."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.prof.ops.model import FAMILY, MATRIX  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from tests.tables import parsed  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "autograd.md").read_text()
PRODUCT = 2 * 8 * 64 * 64
LINES = [line for line in PAGE.splitlines() if line.startswith("| ") and " P | " in line]
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES]


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
        assert sum(entry.flops for entry in products if entry.direction == direction) == flop(said), str(work)
    assert not work.unknown


def flop(said: str) -> Fraction:
    return Fraction(said.removesuffix("P").strip()) * PRODUCT


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [row for row in ROWS if row[4] != "—"], ids=lambda row: row[0])
def test_a_program_of_the_page_is_captured(row: list[str], tmp_path: Path) -> None:
    program = compile(row[1].strip("`"), str(tmp_path / "program.py"), "eval")
    eval(program, names())  # noqa: S307
    defined = names()
    pyprof.init(trace=True)
    try:
        with pyprof.profile(str(tmp_path / "net.json")):
            eval(program, defined)  # noqa: S307
    finally:
        pyprof.deinit()
    table = parsed(tmp_path / "net.json")
    notes = annotate(table)
    columns = [notes.family.texts(), *(table.coded(key).texts() for key in ("phase", "op", "layer", "trace", "dir"))]
    products = [each for each in zip(notes.flops.tolist(), *columns, strict=True) if each[1] in MATRIX]
    captured = row[2:4] if row[4] == "the same" else row[4].split(", ")
    for phase, said in zip(("forward", "backward"), captured, strict=True):
        assert sum(each[0] for each in products if each[2] == phase) == flop(said)
    of_function = "Product" in row[1]  # its backward's lines are known to nobody: autograd calls it
    for _, _, phase, op, layer, trace, direction in products:
        assert op and direction and ("program.py:1" in trace or (of_function and phase == "backward"))
        assert layer or not any(f"{module}(" in row[1] for module in ("net", "layer", "second"))


def test_the_page_has_its_programs() -> None:
    assert len(ROWS) == 21
