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


def test_the_second_recording_measures_what_the_first_did():
    """Each change alone, and where there was time, all that were kept together (tests/golden/plan)."""
    first = {row["program"]: row for row in json.loads(MEASURED.read_text())}
    again = {row["program"]: row for row in json.loads(MEASURED.with_name("measured_again.json").read_text())}
    assert set(again) == set(first)
    for program, row in again.items():
        assert [each["when"] for each in row["base"]] == ["first", "before"]
        assert {each["change"] for each in row["alone"]} == {each["change"] for each in first[program]["alone"]}
        kept = {each["change"] for each in row["in_order"] if each["kept"]}
        assert all(set(pair["on"]) <= kept for pair in row["together"])
        assert all(each["gain_low"] <= each["gain"] <= each["gain_high"] for each in row["alone"] + row["together"])
