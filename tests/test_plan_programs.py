"""The programs of several faults (tests/device/plan_programs): their changes leave the result as it was.

A change that brings speed by computing something else would make every measured gain worthless.
"""

import json
import subprocess
import sys

import pytest

from tests.paths import ROOT

pytest.importorskip("torch", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.slow]
# Parameters of another shape come from other random numbers; bf16 rounds; samples may be others by rounding.
OTHER_NUMBERS = {"resnet": {"bias"}, "dlrm": {"merged"}, "translate": {"vocabulary"}, "decode": {"half", "qkv", "topk"}}
MEASURED = ROOT / "tests" / "golden" / "plan" / "measured.json"


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("losses")
    script = ROOT / "tests" / "device" / "plan_measured.py"
    subprocess.run([sys.executable, "-W", "ignore", script, folder, "--losses", "--tiny"], check=True, timeout=300)
    return {path.name.split(".")[0]: json.loads(path.read_text()) for path in folder.glob("*.losses.json")}


def test_changes_leave_the_losses_as_they_were(losses):
    assert set(losses) == {row["program"] for row in json.loads(MEASURED.read_text())}
    for program, found in losses.items():
        base = found.pop("")
        assert base[0] != base[1], f"{program} does not learn, or its batches are all the same"
        for change, values in found.items():
            if change not in OTHER_NUMBERS.get(program, ()):
                allowed = 2e-2 if change == "amp" else 1e-5
                assert values == pytest.approx(base, rel=allowed), f"{program}, {change}"


def test_each_change_was_measured_alone_and_in_order(losses):
    for row in json.loads(MEASURED.read_text()):
        alone = [found["change"] for found in row["alone"]]
        assert set(alone) >= set(losses[row["program"]]) - {""}
        assert sorted(alone) == sorted(found["change"] for found in row["in_order"])
        assert [each["when"] for each in row["base"]] == ["first", "before", "after"]
