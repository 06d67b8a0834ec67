"""A plan beside a second capture: what each change that was made saved, against times measured without a profiler.

The captures are those before and after one change each (tests/golden/advice), on an H200.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.planning.check import Concerned, saved_at
from pyprof.prof.planning.cli import main
from tests.answered import answer
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import run

FOLDER = GOLDEN / "advice"
MEASURED = {row["case"]: row for row in json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))}
# One per kind: products that change kernels, attention, the optimizer, compiled chains whose ops have gone, values
# read from the GPU, copies, and a change of which the plan does without (TF32, beside mixed precision).
CASES = [
    "lm_head", "mixed", "attention", "adam_foreach", "activation_inferred", "checked", "zeroed", "full_precision",
    "trained_positions", "vocabulary_loss", "held_bias", "small_products",
]  # fmt: skip


def checked(capsysbinary, case):
    files = [str(FOLDER / f"{case}.{state}.json.gz") for state in ("before", "after")]
    assert main([files[0], "-q", "--json", "--check", files[1]]) == 0
    return answer(capsysbinary.readouterr().out, "plan", "plan")["checked"]


@pytest.mark.parametrize("case", CASES)
def test_what_a_change_saved_is_read_from_the_second_capture(capsysbinary, case):
    row = MEASURED[case]
    rule = row["rule"]
    changes = [change for change in checked(capsysbinary, case)["changes"] if change["rule"] == rule]
    assert changes and all(change["made"] for change in changes)
    saved = sum(change["measured_ms"] or 0 for change in changes)
    assert saved == pytest.approx(row["before_ms"] - row["after_ms"], rel=0.15)


def test_a_change_that_the_plan_does_without_is_named(capsysbinary):
    """The plan says mixed precision; TF32 was made. 20.4 ms were measured of it."""
    first, second = checked(capsysbinary, "full_precision")["changes"]
    assert (first["rule"], first["made"], first["planned"]) == ("amp", False, True)
    assert (second["rule"], second["made"], second["planned"]) == ("tf32", True, False)
    assert first["measured_ms"] is None


def test_the_step_after_what_was_made_is_predicted(capsysbinary):
    """A transformer layer in fp32, of whose plan mixed precision was made, and neither CUDA graph nor compilation."""
    found = checked(capsysbinary, "mixed")
    assert [change["made"] for change in found["changes"]] == [True, False, False, False]
    assert found["predicted"]["ms"] == found["changes"][0]["predicted"]["ms"]
    assert found["difference"] == pytest.approx(found["predicted"]["ms"] / found["now"]["ms"] - 1, abs=1e-5)


def test_the_same_capture_twice_has_nothing_made(capsys):
    file = str(FOLDER / "mixed.before.json.gz")
    assert main([file, "-q", "--check", file]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "0 of the plan's 4 changes made" in told and "measured, ms" not in told
    assert "The prediction is +0.0% beside it." in told


def test_the_text_has_both_intervals(capsysbinary):
    """After the prediction and after what the second capture shows, and none where a time has no width."""
    for after in ("after", "before"):
        files = [str(FOLDER / f"mixed.{state}.json.gz") for state in ("before", after)]
        assert main([files[0], "-q", "--check", files[1]]) == 0
        told = " ".join(capsysbinary.readouterr().out.decode().split()).split("With what")[1]
        assert main([files[0], "-q", "--json", "--check", files[1]]) == 0
        found = answer(capsysbinary.readouterr().out, "plan", "plan")["checked"]
        times = [found["predicted"], found["now"]]
        shown = re.findall(r"(?:for a step|without the profiler) \(([\d.]+) to ([\d.]+)\)", told)
        wide = [(time["low_ms"], time["high_ms"]) for time in times if time["high_ms"] > 1.01 * time["low_ms"]]
        assert [pytest.approx(tuple(map(float, pair)), rel=0.005) for pair in shown] == wide
        assert wide or after == "before"


def test_what_a_change_saves_is_counted_by_place():
    """The first op's 10 µs become 4, the second one's 20 become 30, which saves nothing; a graph has no places."""
    rows = [{"kShortName": "k", "aten": "aten::mul", "op": [name], "phase": "forward", "ns": ns, "trace": ["net.py:3"]}
            for name, ns in (("relu", 10_000), ("tanh", 20_000))]  # fmt: skip
    edit = Edit("test", "Change it.", "", "", np.arange(2), np.array([4_000.0, 30_000.0]), np.ones(2))
    assert saved_at("", Concerned(run(*rows), edit)) == {"forward": 6_000.0}
    assert saved_at("", Concerned(run(*rows), replace(edit, graph=True))) == {}
