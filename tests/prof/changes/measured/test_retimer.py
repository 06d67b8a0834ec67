"""Edits with measured durations: by hand, and against kernels of the changed programs."""

import json

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.measured.retimer import DEVIATION, Retimer, with_measured
from pyprof.prof.changes.measured.timings_file import CallTime, load_timings
from pyprof.prof.changes.rules import EDIT_RULES
from tests.paths import GOLDEN
from tests.prof.changes.measured.test_swaps import base_of, edits

# Three products of lm_head: 50257 words, padded 50264. Their times alone on the H200, s.
BEFORE = {
    "aten::mm(bfloat16[4096,768], bfloat16[768,50257 strides 1,768])": 3.361e-3,
    "aten::mm(bfloat16[50257,4096 strides 1,50257], bfloat16[4096,768])": 2.174e-3,
    "aten::mm(bfloat16[4096,50257], bfloat16[50257,768])": 2.395e-3,
}


def times(**scales):
    """Times with which each padded product takes a quarter of the unpadded one, all scaled."""
    scale = scales.get("scale", 1.0)
    found = {}
    for text, seconds in BEFORE.items():
        after = text.replace("50257", "50264")
        found[text] = CallTime(text, seconds * scale)
        found[after] = CallTime(after, seconds * scale / 4)
    return found


@pytest.mark.parametrize("scale", [1.0, 1.3, 0.8])
def test_durations_change_as_the_calls_do_alone(scale):
    """A quarter of the capture's durations remain, however long the calls take alone."""
    base = base_of("lm_head")
    (edit,) = edits(base, "alignment")
    found = Retimer(times(scale=scale))(edit, captured(base))
    assert found.ns.sum() == pytest.approx(captured(base).run.dur[found.rows].sum() / 4)
    assert found.timed == 1.0 and found.deviation == pytest.approx(DEVIATION)
    assert list(found.left) == [1.0] * len(found.rows)


def test_calls_that_take_much_longer_alone_are_not_the_captures():
    base = base_of("lm_head")
    (edit,) = edits(base, "alignment")
    found = Retimer(times(scale=2.5))(edit, captured(base))
    assert found.timed == 0.0 and np.array_equal(found.ns, edit.ns)


def test_without_the_calls_before_the_new_ones_count_as_they_are():
    base = base_of("lm_head")
    (edit,) = edits(base, "alignment")
    after = {text: time for text, time in times().items() if "50264" in text}
    after |= {text: CallTime(text, None, why="not possible") for text in BEFORE}
    found = Retimer(after)(edit, captured(base))
    each_step = sum(BEFORE.values()) / 4 * 1e9
    assert found.ns.sum() == pytest.approx(each_step * captured(base).run.steps)


def test_a_part_of_the_times_gives_a_part_of_the_durations():
    """The first product alone: 0.840 of 0.840 + 2 × 0.395 ms of the estimate."""
    base = base_of("lm_head")
    (edit,) = edits(base, "alignment")
    first = {text: time for text, time in times().items() if text.startswith("aten::mm(bfloat16[4096,768]")}
    retimer = Retimer(first)
    found = retimer(edit, captured(base))
    assert 0.4 < found.timed < 0.65 and DEVIATION < found.deviation < edit.deviation
    assert len(retimer.missing) == 4


def test_an_edit_is_retimed_where_it_is_applied():
    base = base_of("lm_head")
    base.retime = Retimer(times())
    (edit,) = edits(base, "alignment")
    assert apply(edit, captured(base)).edits[0].timed == 1.0
    base.retime = None
    assert apply(edit, captured(base)).edits[0].timed == 0.0


def test_measuring_goes_on_until_nothing_new_is_asked_for():
    base, retimer, rounds = base_of("lm_head"), Retimer({}), []
    (edit,) = edits(base, "alignment")

    def measure(calls):
        rounds.append(len(calls))
        return [times()[call.text] for call in calls[:4]]

    found = with_measured(retimer, lambda: retimer(edit, captured(base)), measure)
    assert rounds == [6, 2] and found.timed == 1.0 and not retimer.missing


def test_measuring_ends_when_no_further_call_is_timed():
    base, retimer = base_of("lm_head"), Retimer({})
    (edit,) = edits(base, "alignment")
    found = with_measured(retimer, lambda: retimer(edit, captured(base)), lambda _: [])
    assert found is edit and len(retimer.missing) == 6


def test_measuring_ends_with_a_call_after_which_the_gpu_is_lost():
    base, retimer, rounds = base_of("lm_head"), Retimer({}), []
    (edit,) = edits(base, "alignment")

    def measure(calls):
        rounds.append(len(calls))
        return [CallTime(calls[0].text, None, why="CUDA error: an illegal memory access was encountered")]

    with_measured(retimer, lambda: retimer(edit, captured(base)), measure)
    assert rounds == [6] and len(retimer.missing) == 5


def gpu_ms(run):
    return float(run.dur.sum()) / run.steps / 1e6


def test_measured_durations_are_those_of_the_changed_programs():
    """The GPU's time that changes save, against the captures of the changed programs: all within 6%.

    The times were measured on an H200 in other sessions, from the captures before the change alone.
    """
    times_of_h200 = load_timings(GOLDEN / "timings" / "h200_advice.json").by_call
    found = {}
    for row in json.loads((GOLDEN / "advice" / "measured.json").read_text(encoding="utf-8")):
        rule, case = row["rule"], row["case"]
        if rule not in EDIT_RULES:
            continue
        base = base_of(case)
        base.retime = Retimer(times_of_h200)
        scenario = captured(base)
        for edit in (each for each in EDIT_RULES[rule](scenario) if isinstance(each, Edit)):
            scenario = apply(edit, scenario)
        if max((edit.timed for edit in scenario.edits), default=0.0) > 0.5:
            now = gpu_ms(base.run)
            changed = gpu_ms(captured(base_after(case)).run)
            found[case] = (now - gpu_ms(scenario.run)) / (now - changed)
    assert len(found) == 24
    assert {case: ratio for case, ratio in found.items() if abs(ratio - 1) > 0.06} == {}


def base_after(case):
    from pyprof.prof.planning.cli import load_base

    return load_base(str(GOLDEN / "advice" / f"{case}.after.json.gz"), None, lambda _: None)[1]
