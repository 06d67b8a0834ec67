"""What the sentences about a change say of gains that are unsure, of work that it adds, and of runs not replayed."""

import pytest

from pyprof.prof.changes.records import Change, Changes, StepTime
from pyprof.prof.changes.say import advice_lines, amounts, brief, gain, result, step_text


def change(**amounts):
    known = {
        "rule": "compile", "title": "Compile it", "change": "Compile it.", "why": "It is odd.", "cost": "", "op": "",
        "layer": "", "trace": "", "library": "", "kernels": 3.0, "time_ms": 4.0, "gpu_ms": 1.0, "host_ms": 2.0,
        "saved_ms": 1.0, "low_ms": 0.5, "high_ms": 1.5, "alone_ms": 1.0, "step": StepTime(9.0, 8.5, 9.5),
    }  # fmt: skip
    return Change(**(known | amounts))


def document(*changes, **found):
    known = {
        "unit": "step", "steps": 3, "captured_ms": 20.0, "incomplete": [], "now": StepTime(10.0, 9.0, 11.0),
        "not_chosen": [], "abstained": [],
    }  # fmt: skip
    return Changes(**(known | found), changes=list(changes))


def test_a_gain_whose_interval_begins_below_zero_is_unsure():
    """0.2 of 10 ms are 2%; in one case of ten, the step gets 0.1 ms longer or more."""
    unsure = change(saved_ms=0.2, low_ms=-0.1, high_ms=0.5, alone_ms=0.2)
    sure = change(saved_ms=0.2, low_ms=0.0, high_ms=0.5, alone_ms=0.4)
    assert gain(unsure, document()) == "may save 0.2 ms per step (2%), or nothing"
    assert gain(sure, document()) == "saves 0.2 ms per step (2%)"
    between = "in four of five cases, the step gets between 0.1 ms longer and 0.5 ms shorter"
    assert between in amounts(unsure, document())
    assert "the step gets 0 to 0.5 ms shorter in four of five cases" in amounts(sure, document())
    longer = change(saved_ms=-0.2, low_ms=-0.5, high_ms=-0.1, alone_ms=-0.2)
    assert gain(longer, document()) == "costs 0.2 ms per step (-2%)"
    assert "the step gets 0.1 to 0.5 ms longer in four of five cases" in amounts(longer, document())


def test_a_change_that_saves_twice_as_much_alone_says_so():
    """0.45 after those above it, which have taken more than half of the 1 ms that it saves by itself."""
    assert gain(change(saved_ms=0.45, alone_ms=1.0), document()) == "saves 0.45 ms per step (4%, alone 1 ms)"
    assert gain(change(saved_ms=0.6, alone_ms=1.0), document()) == "saves 0.6 ms per step (6%)"


@pytest.mark.parametrize(
    ("gpu", "host", "says"),
    [
        (1.0, 2.0, "It removes 1 ms of the GPU's work and 2 ms of the host's;"),
        (-1.0, 2.0, "It adds 1 ms to the GPU's work and removes 2 ms of the host's;"),
        (1.0, -2.0, "It removes 1 ms of the GPU's work and adds 2 ms to the host's;"),
        (-1.0, -2.0, "It adds 1 ms to the GPU's work and 2 ms to the host's;"),
        (1.0, 0.0, "It removes 1 ms of the GPU's work;"),
        (1.0, None, "It removes 1 ms of the GPU's work;"),
    ],
)
def test_work_that_a_change_adds_is_not_removed_below_zero(gpu, host, says):
    found = amounts(change(gpu_ms=gpu, host_ms=host, saved_ms=0.0, low_ms=0.0), document())
    assert found.startswith(says)


def test_what_a_change_saves_beyond_work_is_waits():
    """3.2 saved are 0.2 more than 1 and 2, of a step of 10, of which 0.1 is a hundredth; 3.05 are 0.05 more."""
    waits = "It removes 1 ms of the GPU's work and 2 ms of the host's, and waits of one for the other;"
    assert amounts(change(saved_ms=3.2, high_ms=4.0), document()).startswith(waits)
    assert "waits" not in amounts(change(saved_ms=3.05, high_ms=4.0), document())


def test_a_change_that_would_cost_time_alone_saves_nothing_alone():
    assert amounts(change(alone_ms=-0.3), document()).endswith("alone, it would save nothing.")
    assert amounts(change(alone_ms=0.3), document()).endswith("alone, it would save about 0.3 ms.")


def test_a_change_that_a_later_one_needs_says_so():
    """0.05 of 10 ms are less than 1%."""
    needed = change(saved_ms=0.05, low_ms=0.01, needed_by="Launch the step as a CUDA graph")
    assert gain(needed, document()) == "saves 0.05 ms per step (under 1%, alone 1 ms); it is made for a later change"
    nothing = change(saved_ms=0.0, low_ms=-1.0, needed_by="Launch the step as a CUDA graph")
    assert gain(nothing, document()) == "saves nothing by itself; it is made for a later change"
    told = " ".join(" ".join(advice_lines(document(needed, change()))).split())
    assert "It is made for a later change, which brings more after it: Launch the step as a CUDA graph." in told


def test_the_rest_is_less_than_a_share_of_what_the_times_are_those_of():
    assert "Each further one saves less than 1% of the capture." in result(document(change(), unit="capture", steps=0))
    assert "Each further one saves less than 1% of the step." in result(document(change()))


def test_without_a_replay_the_reason_is_said():
    why = "4% of the GPU's time has no launch in the capture to replay"
    assert result(document(now=None, not_replayed=why)) == f"No change was found that saves 1% of a step ({why})."
    work = change(saved_ms=None, low_ms=None, high_ms=None, host_ms=None)
    title, first = brief(document(work, now=None, not_replayed=why))
    assert title.startswith("What to change: only the GPU's work that each removes by itself is known, and no change")
    assert title.endswith(f", since {why}") and first == "Compile it: removes 1 ms of GPU work per step"


def test_a_capture_is_not_said_to_be_as_captured():
    assert step_text(document(unit="capture", steps=0, now=None)) == "The capture takes 20 ms."
    assert step_text(document(now=None)) == "A step takes 20 ms as captured."


def test_what_the_estimate_leaves_out_is_said():
    """8 of the 20 ms as captured are launches that load kernels, more than a twentieth; 0.5 ms are not."""
    without = (
        "Without the profiler, and without 8 ms of launches that do more than that, such as load a kernel, it takes"
    )
    assert without in step_text(document(besides_ms=8.0))
    assert "Without the profiler, it takes about 10 ms" in step_text(document(besides_ms=0.5))


def test_the_summary_names_the_first_changes_and_says_that_there_are_more():
    title, *lines = brief(document(*[change()] * 7))
    assert len(lines) == 5 and title.endswith("; the first 5 (pyprof plan has all)")
    assert "first" not in brief(document(*[change()] * 5))[0]
