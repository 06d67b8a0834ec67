"""Kernel names against the H200's tensor core counters (tests/device, docs/explanation/accuracy.md)."""

import csv
from collections.abc import Iterator

import pytest

import pyprof.prof.ops.families  # noqa: F401 -- fills the registry
from pyprof.prof.kernels.roles import AUX, MAIN, role
from pyprof.prof.kernels.tensor_cores import tensor_core
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.model import FAMILY, MATRIX
from tests.paths import GOLDEN

CAPTURE = GOLDEN / "h200_ncu_suite.csv"


def _rows() -> Iterator[dict[str, str]]:
    with CAPTURE.open(newline="") as lines:
        yield from csv.DictReader(lines)


@pytest.fixture(scope="module")
def kernels() -> list[dict[str, str]]:
    """One a distinct (name, op, dtype); ``seen`` is the precision that the tensor cores counted, empty where none."""
    return list(_rows())


def test_the_suite_is_large_enough(kernels: list[dict[str, str]]) -> None:
    assert len({row["name"] for row in kernels}) >= 600
    assert {row["seen"] for row in kernels} == {"", "bf16", "fp16", "tf32", "fp64", "fp8", "int8"}


def test_tensor_cores_as_counted(kernels: list[dict[str, str]]) -> None:
    """A kernel is 1 with its precision, or 0; of an op without a matrix product nothing is said, nothing counted."""
    wrong = []
    for row in kernels:
        use = tensor_core(row["name"], row["family"], row["dtype"])
        said = ("-", "") if use is None else (str(use.tc), use.precision)
        want = [("1", row["seen"])] if row["seen"] else [("0", ""), ("-", "")]
        if said not in want or (said[0] == "-" and row["family"] in MATRIX):
            wrong.append((row["name"], row["aten"], said, row["seen"]))
    assert wrong == []


def test_without_its_op_no_name_is_misjudged(kernels: list[dict[str, str]]) -> None:
    """A name alone may leave a question, and never gives a wrong answer."""
    for row in kernels:
        use = tensor_core(row["name"], "")
        if use is not None and use.tc is not None:
            assert (use.tc, use.precision or row["seen"]) == (int(bool(row["seen"])), row["seen"]), row["name"]
        else:
            assert not (use is None and row["seen"]), row["name"]


def test_what_multiplies_is_main(kernels: list[dict[str, str]]) -> None:
    """No kernel that the counters saw multiply is a chore, and no chore multiplied."""
    for row in kernels:
        if row["seen"] and row["aten"]:
            assert role(row["name"], row["aten"], row["family"]) == MAIN, row["name"]
        if row["role"] == AUX:
            assert not row["seen"], row["name"]


def test_families_are_still_the_ops(kernels: list[dict[str, str]]) -> None:
    stale = {row["aten"] for row in kernels if row["family"] and FAMILY.get(find(row["aten"]) or "") != row["family"]}
    assert stale == set()
