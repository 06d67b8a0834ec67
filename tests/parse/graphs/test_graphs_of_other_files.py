"""Traces of a graph's capture and of its replay in separate files: joined by ``--graphs``."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyprof
from pyprof.errors import InputError
from pyprof.parse import cli
from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.graphs.other_captures import _ranges
from pyprof.parse.read import read_graphs, read_profile
from pyprof.prof import cli as prof
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Table
from pyprof.table.read_table import read_table
from tests.parse.kineto.kineto_file import begin, op, write, x
from tests.parse.kineto.test_graphs import KERNELS, NET, captured, mm, ops, replay


def joined(file: Path, *graphs: Path) -> Table:
    return read_profile(file, graphs=read_graphs([str(path) for path in graphs])).table


@pytest.fixture
def replayed(tmp_path: Path) -> Path:
    step = x("user_annotation", "ProfilerStep#4", 2900, 500)
    return write(tmp_path / "replay.json", begin(900), step, *replay(3000, 200, *KERNELS))


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """The capture in another file, at another time of another clock, inside a step of its own."""
    late = [{**event, "ts": event["ts"] + 7e9} for event in captured(1000, 10, *NET)]
    step = x("user_annotation", "ProfilerStep#1", 7e9 + 500, 5000)
    return write(tmp_path / "capture.json", begin(7e9), step, *late)


def test_the_kernels_have_the_ops_of_the_other_file_and_their_own_steps(replayed, graph):
    found = joined(replayed, graph)
    assert ops(found) == ["aten::mm", "aten::relu", "aten::add"]
    assert found.coded("sizes").texts()[0] == "[[4,5],[5,6]]"
    assert found.ints("step").tolist() == [4] * 3
    assert ops(joined(replayed)) == [""] * 3


def test_ops_of_the_other_file_are_no_forward_ops_of_this_one(tmp_path, graph):
    """Its sequence numbers are its own: a backward node with number 5 here is not of the op with number 5 there."""
    there = [op("aten::relu", 1010, 10, Sequence_number=5), *mm(1030, 11)]
    other = write(tmp_path / "other.json", begin(900), *captured(1000, 10, *there))
    node = op("MmBackward0", 5000, 50, Sequence_number=5)
    call = x("cuda_runtime", "cudaLaunchKernel", 5010, 2, correlation=300)
    row = x("kernel", "gemm", 5100, 5, 7, 0, device=0, stream=7, correlation=300)
    here = write(tmp_path / "here.json", begin(900), node, call, row)
    assert joined(here, other).coded("op").texts() == ['["Mm"]']


def test_the_capture_of_each_batch_size_may_be_a_file_of_a_folder(tmp_path, replayed):
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    write(folder / "bs_4.json", begin(900), *captured(1000, 10, *NET))
    write(folder / "bs_1.json", begin(900), *captured(1000, 10, *NET[:2]))
    assert ops(joined(replayed, folder)) == ["aten::mm", "aten::relu", "aten::add"]


def test_the_commands_take_the_option(tmp_path, replayed, graph, capfd):
    out = tmp_path / "net.dict"
    assert cli.main([str(replayed), "--graphs", str(graph), "-o", str(out)]) == 0
    assert ops(read_table(str(out))) == ["aten::mm", "aten::relu", "aten::add"]
    attributed = "kineto: 3 kernels; 100% of 0.0150 ms of GPU time is attributed to an op"
    assert capfd.readouterr().err == f"parse.py: wrote {out}: {attributed}\n"
    assert cli.main([str(replayed), "--graphs", str(graph), "--summary"]) == 0
    assert "100%" in capfd.readouterr().out
    assert prof.main([str(replayed), "--graphs", str(graph), "-c", "op,flops", "--csv"]) == 0
    assert '"mm","240"' in capfd.readouterr().out


def test_the_notebook_takes_a_file_a_folder_or_several(replayed, graph):
    """240 FLOPs: (4, 5) by (5, 6), 2·4·5·6."""
    pytest.importorskip("pandas")
    for graphs in (graph, str(graph), [graph], graph.parent / "capture.json"):
        profile = pyprof.load(replayed, graphs=graphs)
        assert profile.kernels["op"].tolist() == ["mm", "relu", "add"]
        assert profile.kernels["flops"].tolist()[0] == 240
    with pytest.raises(InputError, match="expected launches between cudaStreamBeginCapture"):
        pyprof.load(replayed, graphs=replayed)


def test_errors_name_the_file(tmp_path, replayed, graph, capfd):
    assert cli.main([str(graph), "--graphs", str(replayed), "-o", str(tmp_path / "net.dict")]) == 1
    error = capfd.readouterr().err
    assert "replay.json: expected launches between cudaStreamBeginCapture and cudaStreamEndCapture" in error
    assert cli.main([str(replayed), "-o", str(tmp_path / "net.dict")]) == 0
    assert prof.main([str(tmp_path / "net.dict"), "--graphs", str(graph)]) == 1
    assert "expected a profiler's file beside --graphs" in capfd.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert cli.main([str(replayed), "--graphs", str(empty)]) == 1
    assert "found an empty folder" in capfd.readouterr().err


def events(file: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] if event.get("ph") == "X"]


@pytest.mark.parametrize(
    ("server", "kernels", "ns_without"),  # MI300: SGLang runs Qwen3-8B, vLLM gpt-oss; decode steps of 32 requests
    [("sglang", 544, 20_000), ("vllm", 421, 0)],
)
def test_a_servers_decode_step(data: Path, server: str, kernels: int, ns_without: int) -> None:
    """Every kernel has the op that the raw capture names: that of the launch with the same number in the graph."""
    replay_file, graph_file = (data / "round2" / f"tracelens_{server}_{part}.json.gz" for part in ("decode", "capture"))
    table = joined(replay_file, graph_file)
    raw = sorted(events(graph_file), key=lambda event: float(event["ts"]))
    bounds = [float(e["ts"]) for e in raw if e["name"] in ("hipStreamBeginCapture", "hipStreamEndCapture")]
    calls = [e for e in raw if e["cat"] == "cuda_runtime" and bounds[0] < float(e["ts"]) < bounds[1]]
    calls = [e for e in calls if "kernel" in e["args"]]
    name_of = {e["args"]["External id"]: e["name"] for e in raw if e["cat"] == "cpu_op"}
    expected = [(e["args"]["kernel"], name_of[e["args"]["External id"]]) for e in calls]
    assert len(expected) == kernels
    rows = [row for row, call in enumerate(table.coded("api").texts()) if call == "hipGraphLaunch"]
    of_replay = [e for e in events(replay_file) if e["cat"] == "kernel"]
    launch = Counter(e["args"]["correlation"] for e in of_replay).most_common(1)[0][0]
    of_replay = sorted((e for e in of_replay if e["args"]["correlation"] == launch), key=lambda e: float(e["ts"]))
    aten = [table.coded("aten").texts()[row] for row in rows]
    assert [(e["name"], name) for e, name in zip(of_replay, aten, strict=True)] == expected
    took, op_ = table.ints("kDuration"), table.coded("op")
    assert took[op_.among("")].sum() <= ns_without
    products = {name for e, name in zip(of_replay, aten, strict=True) if e["name"].startswith("Cijk")}
    assert products <= {"aten::mm", "aten::addmm"}


def test_the_products_of_a_decode_step_are_those_of_the_model(data: Path) -> None:
    """Qwen3-8B, 32 requests: 36 layers of qkv, output, gate with up, and down projections, then the head.

    2 * 32 * (36 * (4096*6144 + 4096*4096 + 4096*24576 + 12288*4096) + 4096*151936) = 484,358,225,920 FLOPs.
    """
    replay_file, graph_file = (data / "round2" / f"tracelens_sglang_{part}.json.gz" for part in ("decode", "capture"))
    table = joined(replay_file, graph_file)
    products = table.coded("aten").among("aten::mm", "aten::addmm")
    flops = annotate(table).flops
    assert flops[products & (flops > 0)].sum() == 484_358_225_920
    assert products.sum() == 36 * 4 + 1


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [([1, -1], None, [1, -1, -1]), (None, [-1, 0], [-1, -1, 3]), ([1, -1], [-1, 0], [1, -1, 3]), (None, None, None)],
)
def test_forward_ranges_of_either_file_are_kept(
    here: list[int] | None, there: list[int] | None, expected: list[int] | None
) -> None:
    """Of the other file's two ranges the second is kept; the first, its forward op, has place 3 in the joined file."""

    def ranges(forward: list[int] | None) -> Ranges:
        return Ranges(*np.zeros((6, 2), np.int64), forward_range=None if forward is None else np.array(forward))

    found = _ranges(ranges(here), ranges(there), np.array([1]), np.array([3, 4]), 1, 1).forward_range
    assert (None if found is None else found.tolist()) == expected
