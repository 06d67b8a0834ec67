"""pyprof replay: what it prints and writes, from a profiler's file and from net.pyprof."""

import json

import pytest

from pyprof.parse.cli import main as parse
from pyprof.prof.replay.cli import main
from pyprof.prof.replay.critical_path import communicates
from pyprof.table.columns import Coded, Table
from tests.answered import answer
from tests.parse.kineto.kineto_file import AUTOGRAD, begin, call, kernel, op, write, x
from tests.paths import GOLDEN


def answered(main, capsysbinary, options):
    assert main([*options, "-q"]) == 0
    return answer(capsysbinary.readouterr().out, "simulation", "replay")


def test_communication_is_told_by_the_whole_name():
    """DeepEP's combine has nothing of its library in its short name."""
    whole = ["void deep_ep::internode::combine<false, 8>(int4*)", "ncclDevKernel_AllReduce_Sum", "void combine(int)"]
    short = ["combine", "ncclDevKernel_AllReduce_Sum", "combine"]
    columns = {"kLongName": whole, "kShortName": short, "kind": ["kernel"] * 3}
    table = Table(3, {key: Coded.of(texts) for key, texts in columns.items()})
    assert communicates(table).tolist() == [True, True, False]


LSTM = GOLDEN / "memory" / "h200_lstm.json.gz"


def test_a_run_by_hand(tmp_path, capsysbinary):
    """µs: the host launches at 0 and 100, each call takes 5. The kernels take 50 and begin 10 after their calls' begin.

    The GPU is idle from 60 to 110. The run ends at 160: 105 of the host, 5 until the start, 50 of the kernel.
    """
    events = [call(0, 1), kernel(10, 50, 1), call(100, 2), kernel(110, 50, 2)]
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 6), op("aten::add", 90, 20), *events)
    document = answered(main, capsysbinary, [str(file), "--json"])
    assert (document["recorded_ns"], document["replayed_ns"]) == (160_000, 160_000)
    assert (document["idle_recorded_ns"], document["idle_replayed_ns"]) == (50_000, 50_000)
    path = {key: ns for key, ns in document["critical_path"].items() if ns}
    assert path == {"host": 105_000, "latency": 5000, "kernels": 50_000}
    add = [place for place in document["places"] if place["op"] == "add"]
    assert {place["what"]: place["ns"] for place in add} == {"host": 100_000, "kernels": 50_000, "latency": 5000}


def test_loading_that_the_summary_leaves_out_is_said_to_be_in_the_replay(tmp_path, capsysbinary):
    """µs: the run by hand after a copy of 500, more than a fiftieth of the rest; without it nothing is said."""
    events = [call(1000, 1), kernel(1010, 50, 1), call(1100, 2), kernel(1110, 50, 2)]
    load = {**kernel(110, 500, 3), "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    for more, ns in (([{**call(100, 3), "name": "cudaMemcpyAsync"}, load], 500_000), ([], 0)):
        file = str(write(tmp_path / "net.json", begin(0), op("aten::mm", 1000, 6), *more, *events))
        assert answered(main, capsysbinary, [file, "--json"])["loading_ns"] == ns
        assert main([file]) == 0
        told = " ".join(capsysbinary.readouterr().out.decode().split())
        said = "include the copies before the first kernel (0.5000 ms) and the host's work until then, which the"
        assert (said in told) == bool(ns)


def test_a_hand_over_to_the_backward_thread(tmp_path, capsysbinary):
    """The main thread waits from 5 to 60; its launch at 70 follows the other thread's call, which ends at 55."""
    events = [call(0, 1), kernel(9, 2, 1), call(50, 2, AUTOGRAD), kernel(59, 2, 2), call(70, 3), kernel(79, 21, 3)]
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 6), *events)
    document = answered(main, capsysbinary, [str(file), "--json"])
    assert document["critical_path"]["host"] == 75_000 and document["replayed_ns"] == 100_000
    assert sum(document["critical_path"].values()) == 100_000


def test_a_synchronisation_waits_for_its_work(tmp_path, capsysbinary):
    """A kernel of 500 µs and a call that returns 3 µs after it; the host's 10 µs after that are the rest."""
    wait = x("cuda_runtime", "cudaDeviceSynchronize", 20, 493, correlation=2)
    events = [call(0, 1), kernel(10, 500, 1), wait, call(523, 3), kernel(533, 7, 3)]
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 6), *events)
    path = answered(main, capsysbinary, [str(file), "--json"])["critical_path"]
    assert path["synchronisation"] == 3000 and path["kernels"] == 507_000 and sum(path.values()) == 540_000


def test_the_host_s_work_before_a_call_is_not_the_call_s(tmp_path, capsysbinary):
    """µs: calls of 5 at 0 and 100, of no op: between them the program does something else for 95."""
    file = write(tmp_path / "net.json", begin(0), call(0, 1), kernel(10, 50, 1), call(100, 2), kernel(110, 50, 2))
    places = answered(main, capsysbinary, [str(file), "--json"])["places"]
    host = {place["op"]: place["ns"] for place in places if place["what"] == "host"}
    assert host == {"before cudaLaunchKernel": 95_000, "cudaLaunchKernel": 10_000}


def test_the_path_adds_up_to_the_replay(capsysbinary):
    for name in ("gpt2_bf16.json.gz", "diff_eager.json.gz", "graph_init.sqlite.gz", "lenet.sqlite.gz"):
        document = answered(main, capsysbinary, [str(GOLDEN / f"h200_{name}"), "--json"])
        assert sum(document["critical_path"].values()) == document["replayed_ns"]
        assert sum(place["ns"] for place in document["places"]) == document["replayed_ns"]


def test_the_container_gives_the_same_replay(tmp_path, capsysbinary):
    target = tmp_path / "net.pyprof"
    assert parse([str(LSTM), "-o", str(target), "-q"]) == 0
    both = [answered(main, capsysbinary, [str(file), "--json"]) for file in (LSTM, target)]
    assert [both[0][key] for key in ("replayed_ns", "stream_waits", "places", "steps")] == [
        both[1][key] for key in ("replayed_ns", "stream_waits", "places", "steps")
    ]
    assert both[0]["stream_waits"] > 100 and not both[0]["stream_waits_recorded"]


def test_the_timeline_is_a_trace(tmp_path, capsysbinary):
    output = tmp_path / "replay.json"
    assert main([str(LSTM), "-o", str(output), "-q"]) == 0
    events = json.loads(output.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len([event for event in slices if event["cat"] == "kernel"]) == 1236  # as in the capture
    assert any(name.startswith("stream 7") for name in names) and any("critical path" in name for name in names)
    assert "Replay:" in capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("ending", [".dict", ".parquet"])
def test_a_kernel_table_alone_cannot_be_replayed(tmp_path, capsysbinary, ending):
    file = tmp_path / f"net{ending}"
    assert parse([str(GOLDEN / "h200_lenet.sqlite.gz"), "-o", str(file), "-q"]) == 0
    assert main([str(file)]) == 1
    assert "expected the host's calls, found a kernel table" in capsysbinary.readouterr().err.decode()


def test_cpu_ops_cannot_be_replayed(tmp_path, capsysbinary):
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 6))
    assert main([str(file)]) == 1
    message = capsysbinary.readouterr().err.decode()
    assert "expected GPU operations and the calls that launched them, found ops of the CPU alone" in message
    assert "pyprof prof --advise" in message


GPT2 = GOLDEN / "h200_gpt2_bf16.json.gz"


def test_a_replay_on_the_same_gpu_is_the_replay(capsysbinary):
    same = answered(main, capsysbinary, [str(GPT2), "--json", "--device", "H200-SXM"])
    plain = answered(main, capsysbinary, [str(GPT2), "--json"])
    assert same["replayed_ns"] == plain["replayed_ns"]
    assert same["device"]["captured_on"] == "NVIDIA H200" and plain["device"] is None
    assert same["device"]["low_ns"] < same["device"]["step_ns"] < same["device"]["high_ns"]


def test_a_replay_on_another_gpu_takes_as_long_as_its_limits_say(capsysbinary):
    """Kernels that bandwidth limits are 17.0 of 23.8 ms, products 6.3: × 4.8 / 2.039 and × 989.4 / 312."""
    found = answered(main, capsysbinary, [str(GPT2), "--json", "--device", "A100-80GB-SXM4"])
    assert found["critical_path"]["kernels"] == pytest.approx((17.0 * 2.354 + 6.3 * 3.171) * 1e6, rel=0.05)
    assert found["device"]["name"] == "A100-80GB-SXM4"


def test_the_text_of_another_gpu(capsysbinary):
    assert main([str(GPT2), "-q", "--device", "A100-80GB-SXM4"]) == 0
    assert "On A100-80GB-SXM4 in place of NVIDIA H200" in capsysbinary.readouterr().out.decode()


def test_a_capture_without_a_known_gpu_cannot_be_moved(tmp_path, capsys):
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 6), call(0, 1), kernel(10, 50, 1))
    with pytest.raises(SystemExit):
        main([str(file), "-q", "--device", "H200-SXM"])
    assert "expected a capture of a GPU whose peaks are known" in capsys.readouterr().err
