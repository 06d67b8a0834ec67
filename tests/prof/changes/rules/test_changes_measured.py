"""Loops, whole models and FP8: predicted savings against those measured on an H200 (tests/device/advice_paired.py).

The step without the profiler is given as measured, since the host was up to 1.5 times slower in some seconds.
"""

import json

import pytest

from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import captured
from tools.plan_pairs import GOLDEN, after, base_of, saving

CHANGES = GOLDEN.parent / "changes"
MEASURED = {row["case"]: row for row in json.loads((CHANGES / "measured.json").read_text(encoding="utf-8"))}


def predicted(case):
    base = base_of(CHANGES / f"{case}.before.json.gz")
    start = captured(base)
    return saving(Forecaster(base, 1e6 * MEASURED[case]["before_ms"]), start, after(start, MEASURED[case]["rule"]))


@pytest.mark.parametrize("case", ["masked_experts_fp32", "gru_cells", "whole_llama", "fp8_mlp"])
def test_savings_are_within_25_percent(case):
    assert predicted(case)[0] == pytest.approx(MEASURED[case]["gain"], rel=0.25)


@pytest.mark.parametrize("case", ["whole_small", "whole_convolutions", "fp8_llama"])
def test_no_saving_is_predicted_where_none_was_measured(case):
    assert MEASURED[case]["gain_high"] < 0
    assert predicted(case)[0] <= 0


def test_a_saving_within_noise_may_be_none():
    """FP8 in training gained 0.03 ms (-0.47 to 0.23): what the GPU gains, compiled casts take the host."""
    _, low, high = predicted("fp8_training")
    assert low < MEASURED["fp8_training"]["gain"] < high


@pytest.mark.parametrize(
    ("case", "measured_ms"),
    [  # the median of the last three of five steps that were timed before the profiler started
        ("fp8_llama", 2.711), ("gru_cells", 6.252), ("masked_experts_fp32", 14.846), ("whole_convolutions", 3.589),
        ("whole_small", 9.266),
    ],
)  # fmt: skip
def test_an_estimate_without_measured_steps_has_the_measured_step_in_its_interval(case, measured_ms):
    """The host is the limit of these steps, and takes 24 to 36 µs for each launch."""
    base = base_of(CHANGES / f"{case}.before.json.gz")
    base.table.measured = ()
    found = Forecaster(base).forecast(captured(base))
    assert found.low / 1e6 <= measured_ms <= found.high / 1e6
