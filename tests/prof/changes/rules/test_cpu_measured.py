"""What the advice for CPUs predicts of programs, and what the changes brought on a Xeon (tests/device/cpu_pairs.py).

Intel Xeon with AMX, PyTorch 2.11, one thread and its own CPU time; `cpu_threads` and `cpu_data_loader`: wall time.
"""

import json

import pytest

from pyprof.prof.changes.find_changes import find_changes
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

FOLDER = GOLDEN / "cpu"
PAIRS = json.loads((FOLDER / "pairs.json").read_text(encoding="utf-8"))
MISSES = {  # predicted / measured beyond 25%
    "cpu_bf16": {"encoder", "unet"},
    "cpu_channels_last": {"conv", "mobile", "unet"},
    "cpu_fusion": {"gelu"},
}


def ratio(pair):
    """Predicted / measured saving; of the captured step, the share that the change saves."""
    loaded = load_table(FOLDER / pair["capture"], host=True)
    found = find_changes(loaded.table, annotate(loaded.table), loaded.host).document
    change = next(change for change in found.changes if change.rule == pair["rule"])
    predicted = change.saved_ms / found.captured_ms * pair["before_ms"]
    return predicted / (pair["before_ms"] - pair["after_ms"])


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair["capture"]], ids=lambda pair: f"{pair['rule']}-{pair['program']}"
)
def test_a_saving_is_predicted_within_a_quarter_but_for_the_misses(pair):
    far = abs(ratio(pair) - 1) > 0.25
    assert far == (pair["program"] in MISSES.get(pair["rule"], ()))


def test_every_change_that_is_advised_gained():
    assert len(PAIRS) == 21 and all(pair["after_ms"] < pair["before_ms"] for pair in PAIRS)
    assert {pair["rule"] for pair in PAIRS} == {
        "cpu_threads", "cpu_bf16", "cpu_channels_last", "cpu_fusion", "cpu_data_loader"
    }  # fmt: skip
