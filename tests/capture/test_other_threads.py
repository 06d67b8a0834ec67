"""Captures hold what other threads do, with layers and lines: threads that the program starts while something records,
and threads that ran before."""

from __future__ import annotations

import _thread
import concurrent.futures
import cProfile
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import pyprof  # noqa: E402
from pyprof.capture import collector  # noqa: E402
from pyprof.capture.collector import all_threads  # noqa: E402
from pyprof.parse.cli import main  # noqa: E402

from .conftest import record  # noqa: E402

ALL = bool(all_threads())
needs_all = pytest.mark.skipif(not ALL, reason="this PyTorch records one thread")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.fc(x).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = nn.Sequential(Block(), nn.Linear(8, 2))

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


# Of Net on one sample: 2*8*8, 2*8*8 and 2*8*2; a relu compares, which counts nothing.
PER_SAMPLE = 128 + 128 + 32


class Server:
    """A thread that takes its work from a queue."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.inbox: queue.Queue[Any] = queue.Queue()
        self.outbox: queue.Queue[Any] = queue.Queue()
        self._work = work
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while (item := self.inbox.get()) is not None:
            self.outbox.put(self._work(item))

    def ask(self, item: Any) -> Any:
        self.inbox.put(item)
        return self.outbox.get(timeout=60)

    def close(self) -> None:
        self.inbox.put(None)
        self._thread.join()


def rows(file: Path) -> Any:
    return pyprof.load(file).kernels


def flops(found: Any, direction: str = "fprop") -> int:
    return int(found.flops[found.dir == direction].sum())


def layers(found: Any) -> dict[str, int]:
    """How many rows of products each layer has."""
    products = found[(found.op == "linear") & (found.flops > 0)]
    return dict(Counter(layer.rpartition(":")[2] for layer in products.layer))


@needs_all
def test_a_server_whose_thread_started_before(tmp_path: Path) -> None:
    net = Net()

    def infer(x: Any) -> Any:
        with torch.inference_mode():
            return net(x)

    server = Server(infer)
    server.ask(torch.ones(1, 8))
    with pyprof.profile(tmp_path / "net.json", trace=True):
        for _ in range(3):
            server.ask(torch.ones(5, 8))
    server.ask(torch.ones(1, 8))
    server.close()
    found = rows(tmp_path / "net.json")
    assert flops(found) == 3 * 5 * PER_SAMPLE
    linear = found[found.op == "linear"]
    assert layers(found) == {"first.fc": 3, "second.0.fc": 3, "second.1": 3}
    assert all("test_other_threads.py" in trace for trace in linear.trace)


@needs_all
def test_calls_outside_of_modules_on_a_thread_that_started_before(tmp_path: Path) -> None:
    server = Server(lambda x: x @ x)
    with pyprof.profile(tmp_path / "net.json", trace=True):
        server.ask(torch.ones(4, 4))
    server.close()
    (row,) = (row for row in rows(tmp_path / "net.json").itertuples() if row.flops > 0)
    assert (row.op, row.flops) == ("matmul", 2 * 4 * 4 * 4)
    assert "test_other_threads.py" in row.trace


@needs_all
@pytest.mark.parametrize("before", [False, True])
def test_a_thread_pool(tmp_path: Path, before: bool) -> None:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def serve(i: int) -> float:
        with torch.no_grad():
            return float(net(torch.full((32, 64), float(i))).sum())

    def collect(pool: concurrent.futures.ThreadPoolExecutor) -> None:
        with pyprof.profile(tmp_path / "net.json"):
            list(pool.map(serve, range(100)))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        if before:
            list(pool.map(serve, range(100)))
        collect(pool)
    found = rows(tmp_path / "net.json")
    # two products of 2*32*64*256 and a sum of 2048, a hundred times
    assert flops(found) == 100 * (2 * 1_048_576 + 2047) == 209_919_900
    assert layers(found) == {"0": 100, "2": 100}


@needs_all
def test_a_pool_beside_the_thread_that_begins_the_capture(tmp_path: Path) -> None:
    """One sample on this thread is 2*64*256 + 2*256*64 = 65,536; a hundred batches of 32 are 209,715,200."""
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def run() -> None:
        with torch.no_grad():
            net(torch.ones(1, 64))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(serve, range(100)))

    def serve(i: int) -> None:
        with torch.no_grad():
            net(torch.full((32, 64), float(i)))

    with pyprof.profile(tmp_path / "net.json"):
        run()
    assert flops(rows(tmp_path / "net.json")) == 65_536 + 209_715_200 == 209_780_736 == pyprof.count(run).flops


@needs_all
def test_the_backward_of_what_ran_in_a_range_is_in_the_range(tmp_path: Path) -> None:
    """Of a record_function and of an annotation: 2*4*8*8 = 512 forward, and the products of the backward pass."""
    first, second, x = nn.Linear(8, 8), nn.Linear(8, 8), torch.ones(4, 8)
    with pyprof.profile(tmp_path / "net.json"):
        with torch.profiler.record_function("block one"):
            hidden = first(x).relu()
        with pyprof.annotate("block two"):
            out = second(hidden)
        out.sum().backward()
    for name, products in (("block one", 1), ("block two", 2)):  # of the weight; the input x needs none
        assert main([str(tmp_path / "net.json"), "--range", name, "-q", "-o", str(tmp_path / f"{name}.dict")]) == 0
        found = rows(tmp_path / f"{name}.dict")
        linear = found[(found.op == "linear") & (found.flops == 512)]
        assert list(linear.dir) == ["fprop"] + ["bprop"] * products


@needs_all
def test_two_threads_run_one_module_at_once(tmp_path: Path) -> None:
    net, together = Net(), threading.Barrier(2)

    def work(samples: int) -> None:
        for _ in range(20):
            together.wait(60)
            net(torch.ones(samples, 8))

    with pyprof.profile(tmp_path / "net.json"):
        threads = [threading.Thread(target=work, args=(samples,)) for samples in (3, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = rows(tmp_path / "net.json")
    assert flops(found) == 20 * (3 + 7) * PER_SAMPLE
    assert layers(found) == {"first.fc": 40, "second.0.fc": 40, "second.1": 40}
    by_thread = found[found.op == "linear"].groupby("tid").flops.sum()
    assert sorted(by_thread) == [20 * 3 * PER_SAMPLE, 20 * 7 * PER_SAMPLE]


@needs_all
def test_backward_passes_are_attributed_once(tmp_path: Path) -> None:
    """One on the thread that made the graph, and one on this thread, of what another thread computed."""
    net, losses = Net(), []

    def train() -> None:
        net(torch.ones(4, 8)).sum().backward()
        losses.append(net(torch.ones(6, 8)).sum())

    with pyprof.profile(tmp_path / "net.json"):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        losses[0].backward()
    found = rows(tmp_path / "net.json")
    assert flops(found[found.op == "linear"]) == (4 + 6) * PER_SAMPLE
    backward = found[(found.op == "linear") & (found.dir == "bprop")]
    # The gradients of three weights, and of two inputs: the net's own input needs none.
    of_weights, of_inputs = PER_SAMPLE, 128 + 32
    products = backward[backward.flops >= 2 * 4 * 8 * 2]
    assert products.flops.sum() == (4 + 6) * (of_weights + of_inputs)
    assert layers(products) == {"first.fc": 2, "second.0.fc": 4, "second.1": 4}


@needs_all
def test_a_thread_that_python_s_threading_does_not_know(tmp_path: Path) -> None:
    """It is marked from its first call of a module on."""
    net, done = Net(), threading.Event()

    def work() -> None:
        net(torch.ones(5, 8))
        done.set()

    with pyprof.profile(tmp_path / "net.json"):
        _thread.start_new_thread(work, ())
        assert done.wait(60)
    found = rows(tmp_path / "net.json")
    assert flops(found) == 5 * PER_SAMPLE
    assert layers(found) == {"first.fc": 1, "second.0.fc": 1, "second.1": 1}


def test_a_thread_that_waits_is_left_as_it_was() -> None:
    """Its hook is taken back when nothing records; and one that a profiler of Python's has is never touched."""
    profile, own, went_on = cProfile.Profile(), [], threading.Event()
    waiting, profiled = Server(lambda _: sys.getprofile()), Server(lambda call: call())
    profiled.ask(profile.enable)
    record()
    went_on.set()
    own.append(profiled.ask(sys.getprofile))
    profiled.ask(profile.disable)
    pyprof.deinit()
    assert waiting.ask(0) is None
    assert waiting.ask(0) is None
    assert own == [profile]
    waiting.close()
    profiled.close()


def test_deinit_takes_the_mode_off_threads_that_started_before() -> None:
    def depth(_: object) -> int:
        torch.ones(1).relu()
        torch.ones(1).relu()
        return torch._C._len_torch_function_stack()

    server = Server(depth)
    assert server.ask(0) == 0
    for _ in range(3):
        recorder = record()
        assert server.ask(0) == 1
        assert recorder.ops.count("Tensor.relu") == 2
        pyprof.deinit()
        assert server.ask(0) == 0
    server.close()


def test_threads_that_end_hold_no_mode_though_they_started_before() -> None:
    class AtTheEnd:
        def __del__(self) -> None:
            left.append(torch._C._len_torch_function_stack())

    left: list[int] = []
    local = threading.local()

    def keep(_: object) -> int:
        torch.ones(1).relu()
        local.value = AtTheEnd()
        return torch._C._len_torch_function_stack()

    server = Server(keep)
    record()
    assert server.ask(0) == 1
    server.close()
    assert left == [0]


@needs_all
def test_a_program_s_own_profiler_on_another_thread_has_precedence(tmp_path: Path) -> None:
    def own_profile(_: object) -> list[str]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            torch.ones(3, 3) @ torch.ones(3, 3)
        return [event.name for event in own.events()]

    server = Server(own_profile)
    with pyprof.profile(tmp_path / "net.json"):
        torch.ones(2, 2) @ torch.ones(2, 2)
        names = server.ask(0)
        for _ in range(5):
            torch.ones(4, 4) @ torch.ones(4, 4)
    server.close()
    assert "aten::mm" in names
    found = rows(tmp_path / "net.json")
    assert flops(found) in (2 * 2 * 2 * 2, 5 * 2 * 4 * 4 * 4)  # the largest range without it


def test_what_one_thread_s_profiler_lacks_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collector, "all_threads", dict)
    server = Server(lambda x: x @ x)
    with pyprof.profile(tmp_path / "net.json"):
        torch.ones(2, 2) @ torch.ones(2, 2)
        server.ask(torch.ones(4, 4))
    server.close()
    missing = (
        "the ops of another thread that called PyTorch are missing, for this PyTorch's profiler records one thread"
    )
    assert (
        capsys.readouterr()
        .err.splitlines()[0]
        .endswith(f"net.json is incomplete: {missing}. To record them: use PyTorch 2.7 or newer")
    )
    summary = " ".join(str(pyprof.load(tmp_path / "net.json").summary()).split())
    assert summary.startswith(f"This is an incomplete capture: {missing}.")


def test_nothing_is_said_where_one_thread_called_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collector, "all_threads", dict)
    idle = Server(len)
    with pyprof.profile(tmp_path / "net.json"):
        torch.ones(2, 2) @ torch.ones(2, 2)
        idle.ask("")
    idle.close()
    assert capsys.readouterr().err == ""
    assert "incomplete" not in str(pyprof.load(tmp_path / "net.json").summary())


def test_memory_is_recorded_of_one_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(lambda x: x @ x)
    with pyprof.profile(tmp_path / "net.json", memory=True):
        torch.ones(2, 2) @ torch.ones(2, 2)
        server.ask(torch.ones(4, 4))
    server.close()
    assert "records one thread where it records memory. To record them: leave out --memory" in capsys.readouterr().err


def test_a_call_that_begins_as_the_profiler_ends_goes_on_under_the_next_one(tmp_path: Path) -> None:
    """A range entered without PyTorch's profiler raises an error where it is left under one."""
    from pyprof.capture.sinks import Entry, Profiler, pop, push

    sink = Profiler()
    sink.live = False  # the profiler has ended, and a thread that had seen this sink before pushes a range
    token = push(sink, Entry("late"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        pop(token)
