"""Replays of CUDA graphs with fewer kernels than the graph, where the trace does not number the nodes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyprof.parse.graphs.lost_nodes import NEVER, _finished
from pyprof.parse.read import read_graphs, read_profile
from pyprof.table.losses import losses
from tests.parse.kineto.kineto_file import Event, begin, call, kernel, write, x
from tests.parse.kineto.test_graphs import KERNELS, NET, captured, launched, replay

GEMM, RELU, ADD = KERNELS


def why(tmp_path: Path, *events: Event | list[Event], graph: list[Event] | None = None) -> list[str]:
    """What is lost in a trace, with the capture of its graph in another file."""
    flat = [event for some in events for event in (some if isinstance(some, list) else [some])]
    file = write(tmp_path / "replay.json", begin(900), *flat)
    other = [] if graph is None else [str(write(tmp_path / "graph.json", begin(900), *graph))]
    return [loss.why for loss in losses(read_profile(file, graphs=read_graphs(other)).table)]


def marked(number: int, start: float, *events: Event) -> list[Event]:
    """A replay that pyprof marked with the graph's number."""
    return [x("user_annotation", f"CUDAGraph#{number}", start - 1, 20), *events]


LATER = [call(9000, 999), kernel(9100, 5, 999)]  # launched after all replays, on the same stream


def test_a_replay_lacks_kernels_that_another_of_the_same_number_has(tmp_path):
    whole, part = marked(3, 3000, *replay(3000, 200, *KERNELS)), marked(3, 4000, *replay(4000, 201, GEMM, ADD))
    other = marked(4, 5000, *replay(5000, 202, GEMM))  # another graph
    assert why(tmp_path, whole, part, other, LATER) == ["1 of 3 launches of CUDA graphs lacks 1 kernel of their graphs"]
    assert why(tmp_path, whole, whole, other, LATER) == []


def test_the_only_replay_of_a_graph_lacks_kernels_that_its_capture_launched(tmp_path):
    """CUDA does not name the kernels of captured launches; their number is known."""
    graph = marked(3, 1000, *captured(1000, 10, *NET))
    text = ["1 of 1 launches of CUDA graphs lacks 2 kernels of their graphs"]
    assert why(tmp_path, graph, marked(3, 3000, *replay(3000, 200, RELU)), LATER) == text
    assert why(tmp_path, marked(3, 3000, *replay(3000, 200, RELU)), LATER, graph=graph) == text
    assert why(tmp_path, graph, marked(3, 3000, *replay(3000, 200, *KERNELS)), LATER) == []
    assert why(tmp_path, graph, marked(4, 3000, *replay(3000, 200, RELU)), LATER) == []  # captured before pyprof began
    other = marked(4, 5000, *({**event, "ts": event["ts"] + 4000} for event in captured(1000, 400, *NET[:2])))
    assert why(tmp_path, graph, other, marked(4, 7000, *replay(7000, 200, GEMM)), LATER) == []


MEMSET = [*launched("aten::zero_", 1070, 14, "cudaMemsetAsync")]


def memset(start: float, corr: int) -> Event:
    return x("gpu_memset", "Memset (Device)", start, 1, 7, 0, device=0, stream=7, correlation=corr, bytes=64)


def test_a_replay_lacks_a_memset_that_another_of_the_same_number_has(tmp_path):
    whole = marked(3, 3000, *replay(3000, 200, *KERNELS), memset(3050, 200))
    part = marked(3, 4000, *replay(4000, 201, *KERNELS))
    text = "1 of 2 launches of CUDA graphs lacks 1 operation of their graphs"
    assert why(tmp_path, whole, part, LATER) == [text]
    assert why(tmp_path, whole, marked(3, 4000, *replay(4000, 201, *KERNELS), memset(4050, 201)), LATER) == []


def test_a_memset_that_was_captured_and_that_no_replay_has_is_said(tmp_path):
    """It may have no bytes, and so no record: that is no loss."""
    graph, rows = marked(3, 1000, *captured(1000, 10, *NET, *MEMSET)), marked(3, 3000, *replay(3000, 200, *KERNELS))
    assert why(tmp_path, graph, rows, LATER) == []
    said = [text for text in read_profile(tmp_path / "replay.json").notes.warnings if "captured" in text]
    assert said == [NEVER.format("1 copy")]
    assert why(tmp_path, graph, [*rows, memset(3050, 200)], LATER) == []
    assert not [text for text in read_profile(tmp_path / "replay.json").notes.warnings if "captured" in text]


def test_the_last_replay_may_not_be_done(tmp_path):
    whole, part = marked(3, 3000, *replay(3000, 200, *KERNELS)), marked(3, 4000, *replay(4000, 201, GEMM, RELU))
    assert why(tmp_path, whole, part) == []


def test_other_kernels_are_another_graphs(tmp_path):
    """Of the same number, but with other kernels: the graph was captured again."""
    whole, other = marked(3, 3000, *replay(3000, 200, *KERNELS)), marked(3, 4000, *replay(4000, 201, GEMM, "other"))
    assert why(tmp_path, whole, other, LATER) == []


def test_names_of_kernels_alone_prove_nothing(tmp_path):
    """A server cuts its model into graphs: the last piece has some of the kernels of every other."""
    assert why(tmp_path, replay(3000, 200, *KERNELS), replay(4000, 201, GEMM, RELU), LATER) == []


def test_the_only_captured_graph(tmp_path):
    """HIP names the kernel of each captured launch: the graph has three of them."""
    hip = [
        *launched("aten::mm", 1010, 11, "hipModuleLaunchKernel", kernel=GEMM),
        *launched("aten::relu", 1030, 12, "hipModuleLaunchKernel", kernel=RELU),
        *launched("aten::add", 1050, 13, "hipModuleLaunchKernel", kernel=ADD),
    ]
    graph = captured(1000, 10, *hip)
    text = ["1 of 1 launches of CUDA graphs lacks 2 kernels of their graphs"]
    assert why(tmp_path, replay(3000, 200, RELU), LATER, graph=graph) == text
    assert why(tmp_path, replay(3000, 200, *KERNELS), LATER, graph=graph) == []
    assert why(tmp_path, replay(3000, 200, "other"), LATER, graph=graph) == []
    two = [*graph, *captured(5000, 400, *({**event, "ts": event["ts"] + 4000} for event in hip[:2]))]
    assert why(tmp_path, replay(3000, 200, RELU), LATER, graph=two) == []


def test_a_captured_graph_without_names_has_those_of_a_whole_replay(tmp_path):
    found = why(tmp_path, captured(1000, 10, *NET), replay(3000, 200, *KERNELS), replay(4000, 201, ADD), LATER)
    assert found == ["1 of 2 launches of CUDA graphs lacks 2 kernels of their graphs"]


@pytest.mark.parametrize(
    ("later", "finished"),
    [  # device, stream and process of what was launched after a replay on stream 7 of device 0, in process 1
        ((0, 7, 1), True),
        ((1, 7, 1), False),
        ((0, 8, 1), False),
        ((0, 7, 2), False),
    ],
)
def test_a_replay_has_ended_when_something_later_ran_on_its_stream(later: tuple[int, int, int], finished: bool) -> None:
    columns = dict(zip(("device", "stream", "pid"), np.array([(0, 7, 1), later]).T, strict=True))
    capture: Any = SimpleNamespace(ints=columns.get, launch_time=np.array([10, 20]))
    of: Any = SimpleNamespace(rows=np.array([0]), time=15)
    assert _finished(capture, of) == finished
