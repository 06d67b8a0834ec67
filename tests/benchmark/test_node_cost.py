"""What is subtracted of a graph's node, from times that a graph of these nodes takes on an H200."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from pyprof.benchmark import call_timer  # noqa: E402

SMALL = {False: 1.27e-6, True: 1.90e-6}  # seconds of a relu of 2^16 in a graph: on the same memory, beyond the L2
FURTHER = {False: 0.695e-6, True: 0.872e-6}  # of a node that does nothing (tests/golden/h200_graph_nodes.json)
ENOUGH = 9


@pytest.fixture
def graphs(monkeypatch):
    """Graphs that count their nodes in place of a GPU's, whose L2 nine sets of a small call's memory exceed."""
    seen = SimpleNamespace(cold=False, calls=0, empty=0)

    def recorded(calls, rounds, _stream):
        seen.calls = seen.empty = 0
        for _ in range(rounds):
            for call in calls:
                call()
                seen.calls += 1
        took = seen.calls * SMALL[seen.cold] + seen.empty * FURTHER[seen.cold]
        return SimpleNamespace(replay=lambda: took)

    def sleep(_cycles):
        seen.empty += 1

    @contextmanager
    def on(_stream):
        yield

    monkeypatch.setattr(call_timer, "recorded", recorded)

    def between_events(run, times):
        took = run()
        return (took if isinstance(took, float) else SMALL[False]) * times

    monkeypatch.setattr(call_timer, "_between_events", between_events)
    monkeypatch.setattr(call_timer, "copies_needed", lambda *_: ENOUGH)
    monkeypatch.setattr(call_timer, "cache_bytes", lambda _: 0)
    monkeypatch.setattr(call_timer, "free_bytes", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: SimpleNamespace(wait_stream=lambda _: None))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(call_timer, "clock_mhz", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "_sleep", sleep, raising=False)
    monkeypatch.setattr(call_timer.torch, "device", lambda *_: "cpu")
    return seen


def seconds(cold=False, turns=1):
    nodes = call_timer.EmptyNodes(0, cold, None)
    for _ in range(turns):
        nodes.compare()
    return nodes.seconds()


@pytest.mark.parametrize(("cold", "us"), [(False, 0.695 - 0.672), (True, 0.872 - 0.672)])
def test_a_further_node_without_what_a_profiler_shows_of_it(graphs, cold, us):
    graphs.cold = cold
    assert seconds(cold) * 1e6 == pytest.approx(us, abs=1e-6)
    assert graphs.calls >= 640 and graphs.empty == 4 * graphs.calls


def test_no_time_is_added(graphs, monkeypatch):
    monkeypatch.setitem(FURTHER, False, 0.5e-6)  # of a GPU whose nodes that do nothing are shorter
    assert seconds() == 0


def test_the_median_of_the_turns(graphs, monkeypatch):
    """In two of five turns the GPU was slow while the second graph ran."""
    slow = iter([1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 3.0])
    monkeypatch.setattr(call_timer, "_between_events", lambda replay, times: replay() * times * next(slow, 1.0))
    assert seconds(turns=5) * 1e6 == pytest.approx(0.695 - 0.672, abs=1e-6)


def test_it_is_measured_after_each_burst_of_the_calls(graphs, monkeypatch):
    """A process's graphs become slower by a constant per node; what is left of a call must not change."""
    took = []
    for grown in (0.0, 0.2e-6):
        monkeypatch.setitem(SMALL, False, 1.27e-6 + grown)
        monkeypatch.setitem(FURTHER, False, 0.695e-6 + grown)
        calls = call_timer._small_calls("cpu", cold=False)
        effort = SimpleNamespace(burst_s=0.004, pause_s=0, bursts=3)
        took.append(call_timer._by_graph(calls, None, effort, cold=False).seconds)
    assert took == pytest.approx([1.27e-6 - 0.023e-6] * 2, rel=1e-6)
