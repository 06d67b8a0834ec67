"""CUDA graphs under the embedded collector, with a graph object that captures and replays nothing, as there is no GPU.

What only a GPU can show: the launches between the capture's begin and end, and the kernels of its replays. Their events
are put into the trace by hand.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.capture.graph_captures import GraphCaptures  # noqa: E402
from pyprof.parse.attribute.correlate import correlate  # noqa: E402
from pyprof.parse.kineto.reader import read  # noqa: E402
from tests.parse.kineto.kineto_file import begin, write, x  # noqa: E402
from tests.parse.kineto.test_graphs import KERNELS, NET, captured, mm, ops, replay  # noqa: E402


class Graph:
    """What torch.cuda.CUDAGraph does, without a GPU."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if capture_error_mode == "refused":
            raise RuntimeError("operation not permitted")
        self.calls.append("begin")

    def capture_end(self) -> None:
        self.calls.append("end")

    def replay(self) -> str:
        self.calls.append("replay")
        return "replayed"


@pytest.fixture(autouse=True)
def graph_class(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Graph]]:
    before = dict(vars(Graph))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    yield Graph
    assert dict(vars(Graph)) == before  # everything was put back


def trace(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def graphs(file: Path) -> list[list[dict[str, Any]]]:
    """The events of each capture that is recorded beside the trace's own."""
    own = trace(file).get("pyprof", {}).get("graphs", {"version": 1, "traces": []})
    assert own["version"] == 1
    return [json.loads(text)["traceEvents"] for text in own["traces"]]


def names(events: list[dict[str, Any]]) -> set[str]:
    return {event["name"] for event in events}


class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.gelu(x)


def capture(graph: Any) -> None:
    x = torch.ones(3, 4)
    graph.capture_begin()
    Net()(x)
    graph.capture_end()


def test_a_capture_before_the_range_is_recorded_with_ops_layers_and_shapes(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True, graphs=True):
        torch.ones(7).sin()
        capture(graph)
        torch.ones(7).cos()
        pyprof.start()
        assert graph.replay() == "replayed"
        pyprof.stop()
    assert graph.calls == ["begin", "end", "replay"]
    (events,) = graphs(file)
    assert {"aten::gelu", "layer:Net", "CUDAGraph#"} <= {name.rstrip("0123456789") for name in names(events)}
    assert not names(events) & {"aten::sin", "aten::cos"}  # outside of the capture
    assert any(event["args"].get("Input Dims") == [[3, 4], []] for event in events if event["name"] == "aten::gelu")
    of_capture = {name for name in names(events) if name.startswith("CUDAGraph#")}
    of_replay = {name for name in names(trace(file)["traceEvents"]) if name.startswith("CUDAGraph#")}
    assert of_capture == of_replay and len(of_capture) == 1


def test_a_capture_within_the_range_is_in_the_trace_itself(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, graphs=True):
        capture(graph)
        graph.replay()
    assert graphs(file) == []
    found = [event for event in trace(file)["traceEvents"] if event["name"].startswith("CUDAGraph#")]
    assert len(found) == 2 and len({event["name"] for event in found}) == 1


def test_a_capture_in_the_warm_up_is_kept(tmp_path: Path) -> None:
    """The first iteration is collected in case that the warm-up is never over, and left out otherwise."""
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, warmup=2, steps=1, graphs=True):
        capture(graph)
        for _ in range(4):
            graph.replay()
            pyprof.step()
    (events,) = graphs(file)
    assert "aten::gelu" in names(events)


def test_each_capture_has_a_number_of_its_own(tmp_path: Path) -> None:
    file, first, second = tmp_path / "net.json", Graph(), Graph()
    with pyprof.profile(file, wait=True, graphs=True):
        for graph in (first, second, first):  # the first one is captured again
            capture(graph)
        pyprof.start()
        second.replay()
        first.replay()
        pyprof.stop()
    numbers = [next(name for name in names(events) if name.startswith("CUDAGraph#")) for events in graphs(file)]
    assert len(set(numbers)) == 3
    events = sorted(trace(file)["traceEvents"], key=lambda event: float(event.get("ts", 0)))
    assert [e["name"] for e in events if e["name"].startswith("CUDAGraph#")] == [numbers[1], numbers[2]]


def test_a_capture_that_fails_raises_its_own_error_and_ends_the_recording(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True, graphs=True):
        with pytest.raises(RuntimeError, match="operation not permitted"):
            graph.capture_begin(capture_error_mode="refused")
        pyprof.start()
        torch.ones(7).sin()
        pyprof.stop()
    assert "aten::sin" in names(trace(file)["traceEvents"])


def test_the_programs_own_profiler_goes_first(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True, graphs=True):
        with torch.profiler.profile() as theirs:
            capture(graph)
        pyprof.start()
        graph.replay()
        pyprof.stop()
    assert graphs(file) == []
    assert "aten::gelu" in {event.key for event in theirs.key_averages()}


def test_a_capture_ends_its_recording_only_when_no_other_is_in_progress(tmp_path: Path) -> None:
    """Stopping PyTorch's profiler waits for the GPU, which is not allowed while a graph is captured."""
    file, outer, inner = tmp_path / "net.json", Graph(), Graph()
    with pyprof.profile(file, wait=True, graphs=True):
        outer.capture_begin()
        thread = threading.Thread(target=capture, args=(inner,))
        thread.start()
        thread.join()
        torch.ones(7).sin()
        outer.capture_end()
        pyprof.start()
        pyprof.stop()
    (events,) = graphs(file)
    assert "aten::sin" in names(events)


def test_a_recording_is_stopped_by_the_thread_that_started_it_or_not_at_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped: list[Any] = []
    captures = GraphCaptures(lambda: "profiler", stopped.append)
    captures.open()
    Graph().capture_begin()
    thread = threading.Thread(target=captures.finish)  # as when this thread's own profiler begins
    thread.start()
    thread.join()
    captures.close()
    assert stopped == captures.profilers == []
    assert "another thread's profiler began" in capfd.readouterr().err


def test_a_profiler_that_cannot_start_leaves_the_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("CUPTI is busy")

    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True, graphs=True):
        with monkeypatch.context() as patch:
            patch.setattr(torch.profiler.profile, "__enter__", refuse)
            capture(graph)
        pyprof.start()
        pyprof.stop()
    assert graph.calls == ["begin", "end"] and graphs(file) == []
    assert "is not recorded, and its kernels will have no op: CUPTI is busy" in capfd.readouterr().err


def test_no_graph_no_key(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    with pyprof.profile(file, graphs=True):
        torch.ones(7).sin()
    assert "pyprof" not in trace(file)


# What the parser makes of such a trace: the events of the capture's launches and of the kernels by hand.


def marked(number: int, ts: float) -> dict[str, Any]:
    return x("user_annotation", f"CUDAGraph#{number}", ts, 8)


def with_graphs(path: Path, events: list[Any], *captures: list[Any], version: int = 1) -> Path:
    texts = [json.dumps({"traceEvents": [begin(900), *some]}) for some in captures]
    return write(path, begin(900), *events, pyprof={"graphs": {"version": version, "traces": texts}})


BIG = [*mm(1010, 11, 8), *NET[2:]]  # the same kernels, for 8 rows instead of 4


def test_replayed_kernels_get_the_ops_of_the_graph_with_their_number(tmp_path: Path) -> None:
    rows = [marked(2, 2999), *replay(3000, 200, *KERNELS), marked(1, 3999), *replay(4000, 201, *KERNELS)]
    small, large = ([marked(number, 999), *captured(1000, 10, *calls)] for number, calls in ((1, NET), (2, BIG)))
    found = correlate(read(with_graphs(tmp_path / "net.json", rows, small, large)))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"] * 2
    sizes = found.coded("sizes").texts()
    assert (sizes[0], sizes[3]) == ("[[8,5],[5,6]]", "[[4,5],[5,6]]")
    unmarked = [event for event in rows if not event["name"].startswith("CUDAGraph#")]
    found = correlate(read(with_graphs(tmp_path / "b.json", unmarked, small, large)))
    assert found.coded("sizes").texts()[0] == ""  # which of the two is unknown


def test_a_graph_that_was_captured_before_pyprof_began_is_none_of_the_numbered_ones(tmp_path: Path) -> None:
    rows = [marked(7, 2999), *replay(3000, 200, *KERNELS)]
    found = correlate(read(with_graphs(tmp_path / "net.json", rows, [marked(1, 999), *captured(1000, 10, *NET)])))
    assert ops(found) == [""] * 3


def test_captures_and_replays_in_one_trace_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    later = [{**event, "ts": event["ts"] + 2000} for event in captured(1000, 110, *BIG)]
    for event in later:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 100
    rows = [marked(1, 999), *captured(1000, 10, *NET), marked(2, 2999), *later]
    rows += [marked(1, 4999), *replay(5000, 400, *KERNELS), marked(2, 5999), *replay(6000, 401, *KERNELS)]
    found = correlate(read(write(tmp_path / "net.json", begin(900), *rows)))
    assert [found.coded("sizes").texts()[row] for row in (0, 3)] == ["[[4,5],[5,6]]", "[[8,5],[5,6]]"]


@pytest.mark.parametrize(
    ("own", "warning"),
    [
        ({"graphs": {"version": 2, "traces": []}}, "have version 2, not 1"),
        ({"graphs": {"version": 1, "traces": [7]}}, "cannot be read and are left out"),
        ({"graphs": {"version": 1, "traces": ["no trace"]}}, "cannot be read and are left out"),
        ({"graphs": []}, "cannot be read and are left out"),
        ({"other": 1}, ""),
    ],
)
def test_a_key_of_another_form_is_left_out_with_a_warning(tmp_path: Path, own: Any, warning: str) -> None:
    found = read(write(tmp_path / "net.json", begin(900), *replay(3000, 200, *KERNELS), pyprof=own))
    assert found.rows == 3
    assert any(warning in text for text in found.warnings) if warning else found.warnings == []


def test_a_damaged_trace_keeps_its_graphs(tmp_path: Path) -> None:
    """Events that are no valid JSON are mended one by one; the graphs' events do not become the trace's."""
    file = with_graphs(tmp_path / "net.json", replay(3000, 200, *KERNELS), captured(1000, 10, *NET))
    file.write_text(file.read_text().replace("4, relu", "4, re\\lu"))
    found = read(file)
    assert found.warnings == ["1 of 5 events were no valid JSON (nan, unescaped text) and were mended"]
    assert ops(correlate(found)) == ["aten::mm", "aten::relu", "aten::add"]
