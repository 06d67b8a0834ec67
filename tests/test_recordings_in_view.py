"""No recording by which predictions are scored is dropped: scores would no longer be comparable."""

import json

from tests.paths import ROOT
from tools.recordings_in_view import LIST, lines, savings


def test_no_recording_of_the_list_is_gone_or_states_fewer_savings():
    now = dict(line.partition(" ")[::2] for line in lines())
    listed = [line.partition(" ")[::2] for line in LIST.read_text(encoding="utf-8").splitlines()]
    assert len(listed) >= 296
    assert [path for path, count in listed if path not in now or int(now[path] or 0) < int(count or 0)] == []


def test_each_measured_saving_counts_once():
    # two changes alone, one in order, all together = 4;
    # of pyprof try, one variant is the script as it is and one could not be made by hand = 1 of 3
    several = {"alone": [{"gain": 1.0}, {"gain": -0.1}], "in_order": [{"gain": 1.0}], "together": [{"gain": 1.5}]}
    tried = {
        "variants": [
            {"changes": [], "hand_ms": [9.0]},
            {"changes": ["amp"], "hand_ms": [5.0]},
            {"changes": ["tf32"], "hand_ms": []},
        ]
    }
    assert savings([several]) == 4
    assert savings([tried]) == 1
    assert savings([{"case": "lm_head", "before_ms": 9.4, "after_ms": 2.7}]) == 1
    assert savings({"ddp.clean": {"step_ms": [29.6]}}) is None


def test_a_program_states_the_savings_that_its_file_has():
    # held6/measured.json: bert's six changes alone, six in order, all together = 13
    rows = json.loads((ROOT / "tests/golden/plan/held6/measured.json").read_text(encoding="utf-8"))
    assert savings([row for row in rows if row["program"] == "bert"]) == 13
