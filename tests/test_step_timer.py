"""Iterations timed before the profiler starts."""

import time

import torch

from pyprof import step_timer
from pyprof.step_timer import NAME, StepTimer


def test_iterations_are_timed_on_the_host():
    timer = StepTimer()
    timer.end()  # nothing is in progress
    for number in (1, 2):
        timer.begin(number)
        time.sleep(0.01)
        timer.end()
    record = timer.record()
    assert (record["version"], record["marked"]) == (1, False)
    assert [step["number"] for step in record["steps"]] == [1, 2]
    assert all(10_000_000 <= step["host_ns"] < 1_000_000_000 and step["gpu_ns"] is None for step in record["steps"])


def test_an_iteration_in_which_a_profiler_began_is_not_kept():
    timer = StepTimer()
    timer.begin(1)
    timer.drop()
    timer.end()
    assert timer.record() is None and timer.texts() == []


def test_the_last_iterations_are_kept():
    timer = StepTimer(marked=True)
    for number in range(step_timer.MOST + 5):
        timer.begin(number)
        timer.end()
    steps = timer.record()["steps"]
    assert len(steps) == step_timer.MOST and steps[0]["number"] == 5
    (text,) = timer.texts()
    assert text.startswith(NAME + '{"version":1,"marked":true,"steps":[')


class Event:
    """A CUDA event that was recorded at a time in ms."""

    def __init__(self, ms, device=0):
        self.ms, self.device, self.waited = ms, device, False

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, other):
        assert other.waited
        return other.ms - self.ms


def test_the_gpu_s_time_is_between_its_events(monkeypatch):
    events = iter([Event(1.0), Event(3.5), Event(4.0), Event(9.0, device=1)])
    monkeypatch.setattr(step_timer, "_event", lambda: next(events))
    timer = StepTimer()
    for number in (1, 2):
        timer.begin(number)
        timer.end()
    assert [step["gpu_ns"] for step in timer.record()["steps"]] == [2_500_000, None]


def test_an_iteration_that_begins_on_an_idle_gpu_is_named(monkeypatch):
    waits = []
    monkeypatch.setattr(step_timer, "_event", lambda: Event(1.0))
    for name, answer in (("is_initialized", True), ("is_current_stream_capturing", False)):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("waited"))
    timer = StepTimer()
    for number in (1, 2, 3):
        timer.begin(number, alone=number == 3)
        timer.end()
    assert [step.get("alone") for step in timer.record()["steps"]] == [None, None, True] and waits == ["waited"]


def test_without_a_gpu_no_iteration_begins_on_an_idle_one():
    timer = StepTimer()
    timer.begin(1, alone=True)
    timer.end()
    assert "alone" not in timer.record()["steps"][0]


def test_a_gpu_that_refuses_leaves_the_gpu_s_time_unknown(monkeypatch):
    """After an error of the program's, every call of CUDA fails; the program's own next call has to report it."""

    def refuses(*_args, **_kwargs):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", refuses)
    timer = StepTimer()
    timer.begin(1)
    timer.end()
    (step,) = timer.record()["steps"]
    assert step["number"] == 1 and step["host_ns"] > 0 and step["gpu_ns"] is None
