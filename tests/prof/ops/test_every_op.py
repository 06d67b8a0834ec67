"""Every op with a model has a value that was worked out by hand."""

from importlib import import_module
from pathlib import Path

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import FAMILY, MODELS, Work
from tests.prof.ops import op_cases

NO_ROWS = {"test_every_op", "test_against_torch"}  # the latter needs torch


def test_every_op_has_a_row() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.stem not in NO_ROWS:
            import_module(f"tests.prof.ops.{path.stem}")
    views = {op for op, family in FAMILY.items() if family == "view"}  # the test below
    missing = sorted(set(MODELS) - views - op_cases.OPS_WITH_ROWS)
    assert not missing, f"give these a row in the test of their file: {' '.join(missing)}"


def test_a_view_needs_nothing() -> None:
    x = op_cases.t(2, 3)
    assert {op: evaluate(op, (x, 1)) for op, family in FAMILY.items() if family == "view"} == {
        op: Work() for op, family in FAMILY.items() if family == "view"
    }
