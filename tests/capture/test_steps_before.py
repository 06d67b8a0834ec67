"""pyprof run --warmup and pyprof.profile(warmup=) time the iterations before the profiler starts; parse reads them."""

import json

import pytest

import pyprof
from pyprof.parse.cli import main as parse
from pyprof.parse.read import read_profile
from pyprof.prof.cli import main as prof
from pyprof.prof.load import load_table

torch = pytest.importorskip("torch")

from pyprof.capture.collector import Attached, Window  # noqa: E402


def train(steps, wait=0.005):
    """A loop whose iterations take 5 ms or more each."""
    import time

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        time.sleep(wait)
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(name="trace", scope="module")
def fixture_trace(tmp_path_factory):
    file = tmp_path_factory.mktemp("steps") / "net.json"
    with pyprof.profile(file, warmup=4, steps=2):
        train(7)
    return file


def test_the_trace_has_the_steps_between_the_first_and_the_window(trace):
    """Of the four iterations before the window, the first has no beginning."""
    record = json.loads(trace.read_text())["pyprof"]["steps"]
    assert [step["number"] for step in record["steps"]] == [1, 2, 3]
    assert all(5_000_000 <= step["host_ns"] < 2_000_000_000 for step in record["steps"])
    assert not record["marked"]
    found = read_profile(trace).table.measured
    assert [step.number for step in found] == [1, 2, 3] and [step.gpu_ns for step in found] == [None] * 3


def test_no_profiler_runs_before_the_window(tmp_path, monkeypatch):
    """After Kineto has run once in a process, launches take the host longer: CUPTI stays."""
    begun = []
    original = torch.profiler.profile.__enter__
    monkeypatch.setattr(torch.profiler.profile, "__enter__", lambda self: begun.append(len(ended)) or original(self))
    ended = []
    with pyprof.profile(tmp_path / "net.json", warmup=3, steps=1):
        for number in range(4):
            train(1, 0)
            ended.append(number)
            pyprof.step()
    assert begun == [3]


def test_calls_are_not_looked_at_before_the_window(tmp_path):
    """A torch function mode takes 1.5 us per call even if it marks none, which the timed steps would contain."""
    import torch._dynamo

    torch._dynamo.reset()  # as in a program that has compiled nothing yet: guards would hold the mode
    modes = []
    with pyprof.profile(tmp_path / "net.json", warmup=2, steps=1):
        for _ in range(4):
            modes.append(torch._C._len_torch_function_stack())
            train(1, 0)
            pyprof.step()
    assert modes[:3] == [0, 0, 1]
    assert torch._C._len_torch_function_stack() == 0


def test_what_is_compiled_before_the_window_is_not_compiled_again_in_it(tmp_path):
    import torch._dynamo

    torch._dynamo.reset()
    compiled = []
    with pyprof.profile(tmp_path / "net.json", warmup=2, steps=2):
        twice = torch.compile(lambda x: x.sin() * 2, backend=lambda module, _inputs: compiled.append(1) or module)
        for _ in range(4):
            twice(torch.ones(3))
            pyprof.step()
    assert len(compiled) == 1


def test_they_stay_in_parquet_and_in_the_container(trace, tmp_path):
    wanted = read_profile(trace).table.measured
    for name in ("net.parquet", "net.pyprof"):
        assert parse([str(trace), "-o", str(tmp_path / name), "-q"]) == 0
        assert load_table(tmp_path / name).table.measured == wanted


def test_the_summary_tells_the_step_without_the_profiler(trace, capsysbinary):
    assert prof(["--summary", "--json", "-q", str(trace)]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    steps = sorted(step.ns for step in read_profile(trace).table.measured[1:])
    numbers = found["numbers"]["unprofiled"]
    assert (numbers["count"], numbers["low_ns"], numbers["high_ns"]) == (3, steps[0], steps[1])
    step = found["numbers"]["step"]
    assert step["timed"] == (numbers["step_ns"] <= step["captured_ns"])  # profiled, it may have been shorter by chance
    if step["timed"]:
        assert (step["of"], step["steps"], step["wall_ns"]) == ("median", 2, sum(steps[:2]) / 2)
        assert "without the profiler (median of 2 timed before it started, " in found["sentences"][0]


@pytest.mark.parametrize("warmup", [0, 1])
def test_without_a_warmup_nothing_is_timed(tmp_path, warmup):
    with pyprof.profile(tmp_path / "net.json", warmup=warmup, steps=1):
        train(3, 0)
    assert "steps" not in json.loads((tmp_path / "net.json").read_text()).get("pyprof", {})


def test_the_program_s_own_profiler_is_not_timed(tmp_path):
    """A step in which torch.profiler runs is not one without a profiler."""
    with pyprof.profile(tmp_path / "net.json", warmup=4, steps=1):
        train(2, 0)
        with torch.profiler.profile():
            train(1, 0)
        train(3, 0)
    record = json.loads((tmp_path / "net.json").read_text()).get("pyprof", {}).get("steps", {"steps": []})
    assert 2 not in [step["number"] for step in record["steps"]]


@pytest.mark.parametrize(
    ("ended", "told"),
    [("1 iteration", "nothing was collected"), ("2 iterations", "the tool has what ran until then")],
)
def test_a_tool_has_what_ran_after_the_warm_up(ended, told):
    collector = Attached(Window(warmup=2, steps=3))
    collector._iterations = int(ended[0])
    expected = f"--warmup 2 --steps 3 was not reached: the program ended after {ended}; {told}"
    assert collector.warnings() == [expected]
