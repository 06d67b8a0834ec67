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
from pyprof.capture import control  # noqa: E402
from pyprof.capture.graph_captures import GraphCaptures  # noqa: E402
from pyprof.capture.trace_file import recorded_ranges  # noqa: E402
from pyprof.parse.kineto.reader import read  # noqa: E402
from pyprof.parse.tables.correlate import correlate  # noqa: E402
from tests.parse.kineto.kineto_file import begin, op, write, x  # noqa: E402
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


def graphs(file: Path) -> list[dict[str, Any]]:
    """The events of the captures that are recorded beside the trace's own: one trace, with one count of ops."""
    own = trace(file).get("pyprof", {}).get("graphs", {"version": 1, "traces": []})
    assert own["version"] == 1
    assert len(own["traces"]) <= 1
    events = [event for text in own["traces"] for event in json.loads(text)["traceEvents"]]
    ids = [event["args"]["External id"] for event in events if event["cat"] == "cpu_op"]
    assert len(set(ids)) == len(ids)
    return events


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


def test_graphs_whose_nodes_have_one_order_are_named_in_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    with pyprof.profile(file):
        torch.ones(7).sin()
        control._collector._graphs.ordered.append(3)
    assert trace(file)["pyprof"]["graphs"]["ordered"] == [3]


def test_a_capture_before_the_range_is_recorded_with_ops_layers_and_shapes(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True):
        torch.ones(7).sin()
        capture(graph)
        torch.ones(7).cos()
        pyprof.start()
        assert graph.replay() == "replayed"
        pyprof.stop()
    assert graph.calls == ["begin", "end", "replay"]
    events = graphs(file)
    assert {"aten::gelu", "layer:Net", "CUDAGraph#"} <= {name.rstrip("0123456789") for name in names(events)}
    assert not names(events) & {"aten::sin", "aten::cos"}  # outside of the capture
    assert any(event["args"].get("Input Dims") == [[3, 4], []] for event in events if event["name"] == "aten::gelu")
    of_capture = {name for name in names(events) if name.startswith("CUDAGraph#")}
    of_replay = {name for name in names(trace(file)["traceEvents"]) if name.startswith("CUDAGraph#")}
    assert of_capture == of_replay and len(of_capture) == 1


def test_a_capture_within_the_range_is_in_the_trace_itself(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file):
        capture(graph)
        graph.replay()
    assert graphs(file) == []
    found = [event for event in trace(file)["traceEvents"] if event["name"].startswith("CUDAGraph#")]
    assert len(found) == 2 and len({event["name"] for event in found}) == 1


@pytest.mark.parametrize("warmup", [1, 2])
def test_a_capture_in_the_warm_up_is_kept(tmp_path: Path, warmup: int) -> None:
    """The first iteration is collected in case that the warm-up is never over, and left out otherwise."""
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, warmup=warmup, steps=1):
        capture(graph)
        for _ in range(4):
            graph.replay()
            pyprof.step()
    events = graphs(file)
    assert "aten::gelu" in names(events)


def test_each_capture_has_a_number_of_its_own(tmp_path: Path) -> None:
    file, first, second = tmp_path / "net.json", Graph(), Graph()
    with pyprof.profile(file, wait=True):
        for graph in (first, second, first):  # the first one is captured again
            capture(graph)
        pyprof.start()
        second.replay()
        first.replay()
        pyprof.stop()
    numbers = [event["name"] for event in graphs(file) if event["name"].startswith("CUDAGraph#")]
    assert len(set(numbers)) == 3
    events = sorted(trace(file)["traceEvents"], key=lambda event: float(event.get("ts", 0)))
    assert [e["name"] for e in events if e["name"].startswith("CUDAGraph#")] == [numbers[1], numbers[2]]


def test_a_capture_that_fails_raises_its_own_error_and_ends_the_recording(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True):
        with pytest.raises(RuntimeError, match="operation not permitted"):
            graph.capture_begin(capture_error_mode="refused")
        pyprof.start()
        torch.ones(7).sin()
        pyprof.stop()
    assert "aten::sin" in names(trace(file)["traceEvents"])


def test_the_programs_own_profiler_goes_first(tmp_path: Path) -> None:
    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True):
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
    with pyprof.profile(file, wait=True):
        outer.capture_begin()
        thread = threading.Thread(target=capture, args=(inner,))
        thread.start()
        thread.join()
        torch.ones(7).sin()
        outer.capture_end()
        pyprof.start()
        pyprof.stop()
    events = graphs(file)
    assert "aten::sin" in names(events)


def test_a_recording_is_stopped_by_the_thread_that_started_it_or_not_at_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped: list[Any] = []
    captures = GraphCaptures(lambda: "profiler", stopped.append)
    captures.open()
    graph = Graph()
    graph.capture_begin()
    thread = threading.Thread(target=captures.finish)  # as when this thread's own profiler begins
    thread.start()
    thread.join()
    graph.capture_end()
    captures.close()
    assert stopped == captures.records == []
    assert "another thread's profiler began" in capfd.readouterr().err


def test_a_recording_that_cannot_be_stopped_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    def refuse(_profiler: Any) -> Any:
        raise RuntimeError("CUPTI is busy")

    captures = GraphCaptures(lambda: "profiler", refuse)
    captures.open()
    graph = Graph()
    graph.capture_begin()
    graph.capture_end()
    captures.close()
    assert captures.records == []
    assert "is not recorded, and its kernels will have no op: CUPTI is busy\n" in capfd.readouterr().err


def test_a_capture_that_began_before_pyprof_can_end(capfd: pytest.CaptureFixture[str]) -> None:
    captures, graph = GraphCaptures(lambda: "profiler", lambda profiler: profiler), Graph()
    graph.capture_begin()
    captures.open()
    graph.capture_end()
    assert graph.calls == ["begin", "end"] and captures.records == []
    others = Graph(), Graph()
    for other in others:
        other.capture_begin()
    others[1].capture_end()
    assert captures.records == []  # the other one is still in progress
    others[0].capture_end()
    assert len(captures.records) == 1
    captures.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("base", "start"), [({"baseTimeNanoseconds": 1000}, 3000), ({}, 2000)])
def test_times_of_recorded_ranges_are_nanoseconds(base: dict[str, int], start: int) -> None:
    class Trace:
        def export_chrome_trace(self, file: str) -> None:
            event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 2.0, "dur": 1.5}  # microseconds
            Path(file).write_text(json.dumps({**base, "traceEvents": [event]}))

    (found,) = recorded_ranges(Trace(), {})
    assert (found["start_ns"], found["duration_ns"]) == (start, 1500)


@pytest.mark.parametrize("error", [RuntimeError("CUPTI is busy"), OSError(28, "No space left on device")])
def test_a_profiler_that_cannot_start_leaves_the_program_alone(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """OSError: the records of an earlier capture cannot be kept in a file."""

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True):
        with monkeypatch.context() as patch:
            patch.setattr(torch.profiler.profile, "__enter__", refuse)
            capture(graph)
        pyprof.start()
        torch.ones(1)
        pyprof.stop()
    assert graph.calls == ["begin", "end"] and graphs(file) == []
    assert f"is not recorded, and its kernels will have no op: {error}\n" in capfd.readouterr().err


def test_compiled_code_stays_compiled_while_a_capture_is_recorded(tmp_path: Path) -> None:
    """As in any other place: dynamo skips a frame for good if a dispatch mode that it does not know is on."""
    compiled, ran = [0], [0]

    def backend(module: Any, _inputs: Any) -> Any:
        compiled[0] += 1

        def run(*args: Any) -> Any:
            ran[0] += 1
            return module(*args)

        return run

    def body(x: Any) -> Any:
        return torch.nn.functional.gelu(x).sin()

    before, late = torch.compile(body, backend=backend), torch.compile(lambda x: x.cos().exp(), backend=backend)
    file, graph, x = tmp_path / "net.json", Graph(), torch.ones(3, 4)
    with pyprof.profile(file, wait=True):
        before(x)
        assert (compiled[0], ran[0]) == (1, 1)
        graph.capture_begin()
        before(x)
        late(x)
        graph.capture_end()
        assert (compiled[0], ran[0]) == (2, 3)
        before(x)
        late(x)
        assert (compiled[0], ran[0]) == (2, 5)
        pyprof.start()
        pyprof.stop()
    assert {"aten::gelu", "aten::sin", "aten::cos"} <= names(graphs(file))


def test_the_backward_pass_of_a_graph_belongs_to_the_forward_pass_of_another(tmp_path: Path) -> None:
    """As make_graphed_callables captures: one graph forward, one backward, whose sequence numbers belong together."""
    file, forward, backward = tmp_path / "net.json", Graph(), Graph()
    net, x = torch.nn.Linear(4, 5), torch.ones(3, 4, requires_grad=True)
    with pyprof.profile(file, wait=True):
        forward.capture_begin()
        y = net(x)
        forward.capture_end()
        backward.capture_begin()
        torch.autograd.grad(y, (x, net.weight, net.bias), torch.ones(3, 5))
        backward.capture_end()
        pyprof.start()
        pyprof.stop()
    numbers = {(event["name"], event["args"].get("Sequence number")) for event in graphs(file)}
    (node,) = (number for name, number in numbers if name == "AddmmBackward0")
    assert node is not None and ("aten::addmm", node) in numbers


class Code:
    """A compiled graph that is running when a capture begins: torch.compile captures inside of its call."""

    def __init__(self, session: Any, number: str) -> None:
        self._range = session.current().compiled.range(number, json.dumps({"number": number}))

    def __enter__(self) -> None:
        self._range.__enter__()

    def __exit__(self, *error: object) -> None:
        self._range.__exit__(None, None, None)


def test_the_range_of_compiled_code_that_captures_is_around_the_capture(tmp_path: Path) -> None:
    from pyprof.capture import session

    file, graph = tmp_path / "net.json", Graph()
    with pyprof.profile(file, wait=True):
        with Code(session, "1.1"):
            with Code(session, "1.2"):
                pass
            with Code(session, "1.3"):
                capture(graph)
        capture(Graph())
        pyprof.start()
        pyprof.stop()
    events = graphs(file)
    around = {event["name"]: event for event in events if event["name"].startswith("pyprof.compiled:")}
    assert sorted(around) == ["pyprof.compiled:1.1", "pyprof.compiled:1.3"]
    op = min((event for event in events if event["name"] == "aten::gelu"), key=lambda event: float(event["ts"]))
    begun = [float(around[name]["ts"]) for name in sorted(around)]
    assert begun == sorted(begun) and begun[-1] <= float(op["ts"])
    assert all(float(e["ts"]) + float(e["dur"]) >= float(op["ts"]) + float(op["dur"]) for e in around.values())
    assert trace(file)["pyprof"]["compiled"]["graphs"] == {f"1.{n}": json.dumps({"number": f"1.{n}"}) for n in (1, 3)}


def test_captures_are_not_recorded_if_that_is_not_wanted(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    with pyprof.profile(file, wait=True, graphs=False):
        capture(Graph())
        pyprof.start()
        torch.ones(1)
        pyprof.stop()
    assert graphs(file) == []


def test_a_capture_after_the_last_collected_step_is_not_recorded(tmp_path: Path) -> None:
    """No replay of it can be in the file."""
    file = tmp_path / "net.json"
    with pyprof.profile(file, steps=1):
        torch.ones(7).sin()
        pyprof.step()
        capture(Graph())
    assert graphs(file) == []


def test_records_are_kept_before_another_profiler_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kineto gives calls and GPU work times of 0 once another profiler has begun (2.11, H200); ops keep theirs."""
    from pyprof.capture import trace_file

    ended, written = [0], []
    disable, export = torch.autograd.profiler._disable_profiler, torch.autograd.profiler.profile.export_chrome_trace

    def count(*args: Any) -> Any:
        ended[0] += 1
        return disable(*args)

    def note(profiler: Any, *args: Any) -> None:
        written.append(ended[0])
        export(profiler, *args)

    class OnGpu(trace_file.Recording):
        def __init__(self, profiler: Any, folder: Path, on_gpu: bool) -> None:
            super().__init__(profiler, folder, True)

    monkeypatch.setattr(torch.autograd.profiler, "_disable_profiler", count)
    monkeypatch.setattr(torch.autograd.profiler.profile, "export_chrome_trace", note)
    monkeypatch.setattr("pyprof.capture.collector.Recording", OnGpu)
    file = tmp_path / "net.json"
    with pyprof.profile(file, wait=True):
        capture(Graph())  # ends as the first
        capture(Graph())  # the second
        pyprof.start()
        torch.ones(7).cos()
        pyprof.stop()  # the third, whose records are the file's
        with torch.profiler.profile():  # the fourth is the program's own
            pass
    assert written == [1, 2, 3]  # each before the next one begins
    assert "aten::cos" in names(trace(file)["traceEvents"]) and len(graphs(file)) > 4
    assert [path.name for path in tmp_path.iterdir()] == ["net.json"]


def test_no_graph_no_key(tmp_path: Path) -> None:
    file = tmp_path / "net.json"
    with pyprof.profile(file):
        torch.ones(7).sin()
    assert "graphs" not in trace(file)["pyprof"]


# What the parser makes of such a trace: the events of the capture's launches and of the kernels by hand.


def marked(number: int, ts: float) -> dict[str, Any]:
    return x("user_annotation", f"CUDAGraph#{number}", ts, 8)


def with_graphs(path: Path, events: list[Any], *captures: list[Any], **more: Any) -> Path:
    texts = [json.dumps({"traceEvents": [begin(900), *some]}) for some in captures]
    return write(path, begin(900), *events, pyprof={"graphs": {"version": 1, "traces": texts, **more}})


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


def test_streams_that_waited_for_each_other_do_no_harm_where_each_node_depends_on_the_one_before(
    tmp_path: Path,
) -> None:
    rows = [marked(1, 2999), *replay(3000, 200, *KERNELS)]
    wait = x("cuda_runtime", "cudaStreamWaitEvent", 1015, 1, correlation=99)
    events = [marked(1, 999), *captured(1000, 10, *NET), wait]
    assert ops(correlate(read(with_graphs(tmp_path / "a.json", rows, events)))) == [""] * 3
    found = correlate(read(with_graphs(tmp_path / "b.json", rows, events, ordered=[1])))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]
    assert ops(correlate(read(with_graphs(tmp_path / "c.json", rows, events, ordered=[2])))) == [""] * 3


def test_kernels_are_in_the_layer_and_the_backward_pass_of_their_replay_if_the_capture_has_none(tmp_path: Path) -> None:
    """torch.compile captures inside of a model's call, and inside of a backward node, that began before the capture."""
    kept = [op("aten::linear", 100, 50, Sequence_number=4), layer("layer:Net", 90, 100)]
    inside = [op("CompiledFunctionBackward", 2900, 200, Sequence_number=4), marked(1, 2999)]
    rows = [*kept, *inside, *replay(3000, 200, *KERNELS)]
    found = correlate(read(with_graphs(tmp_path / "net.json", rows, [marked(1, 999), *captured(1000, 10, *NET)])))
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]
    assert found.coded("layer").texts() == ['["Net"]'] * 3
    assert found.coded("dir").texts() == ["bprop"] * 3 and found.coded("phase").texts() == ["backward"] * 3
    own = [layer("layer:Net.fc", 1005, 100), marked(1, 999), *captured(1000, 10, *NET)]
    found = correlate(read(with_graphs(tmp_path / "own.json", rows, own)))
    assert found.coded("layer").texts() == ['["Net.fc"]'] * 3


def layer(name: str, ts: float, dur: float) -> dict[str, Any]:
    return x("user_annotation", name, ts, dur)


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
