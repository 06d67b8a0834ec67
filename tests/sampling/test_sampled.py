"""pyprof.profile(every=N, to=...): one iteration in N, read by another process, on a real training loop."""

import os
import signal
import threading
import time

import pytest

import pyprof
from pyprof.errors import PyprofError
from tests import forked

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

WAIT_S = 60
LATER = "the program goes on, later failures are counted"


class Training:
    """A model with three linear layers and an optimizer; `samples` are the ones that have arrived."""

    def __init__(self):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)]
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.x = torch.randn(4, 8)
        self.samples = []
        self.arrived = threading.Semaphore(0)

    def keep(self, sample):
        self.samples.append(sample)
        self.arrived.release()

    def step(self):
        self.optimizer.zero_grad()
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def steps(self, count):
        return [self.step() for _ in range(count)]

    def wait(self):
        """Until the next sample has arrived, and its reader takes another."""
        assert self.arrived.acquire(timeout=WAIT_S)
        time.sleep(0.05)


@pytest.fixture
def training():
    before = torch._C._len_torch_function_stack()
    yield Training()
    pyprof.deinit()
    assert torch._C._len_torch_function_stack() == before


def test_one_iteration_in_n_is_recorded(training):
    with pyprof.profile(every=25, to=training.keep):
        for _ in range(2):
            training.steps(26)  # iteration 25, and then 50, is recorded until the optimizer's next step has ended
            training.wait()
    first, second = training.samples
    assert (first.iteration, second.iteration) == (25, 50)
    assert isinstance(first, pyprof.Sample)
    assert {op.op for op in first.ops} >= {"linear", "relu", "square", "mean", "SGD.step"}
    assert sum(op.percent for op in first.ops) == pytest.approx(100, abs=1e-6)  # fewer than ten ops: all are listed
    assert sum(op.ms for op in first.ops) == pytest.approx(first.busy_ms)
    assert [op.ms for op in first.ops] == sorted((op.ms for op in first.ops), reverse=True)
    assert first.attributed_percent == pytest.approx(100)
    assert first.worker == "CPU" and first.rank is None and first.incomplete is None
    unknown = (first.gpu_idle_percent, first.tensor_core_percent, first.mfu_percent)
    assert unknown == (None, None, None)  # there is no GPU: not known, and not 0
    assert 0 < first.step_ms < 1000 and 0 < first.busy_ms < first.recorded_ms
    assert first.time_s == pytest.approx(time.time(), abs=WAIT_S)


def test_the_step_time_is_that_of_iterations_without_the_profiler(training):
    with pyprof.profile(every=10, to=training.keep):
        for number in range(11):
            training.step()
            time.sleep(0.2 if number == 9 else 0.01)  # iteration 10, the recorded one, begins before its sleep of 0.2 s
            # so the timed ones, 1 to 9, take 10 ms and their own work
        training.wait()
    (sample,) = training.samples
    assert 10 <= sample.step_ms < 100 < 200 <= sample.recorded_ms


def test_pyprof_step_ends_iterations_once_it_is_called(training):
    with pyprof.profile(every=3, to=training.keep):
        for _ in range(4):
            training.steps(2)  # two of the optimizer's make one
            pyprof.step()
        training.wait()
    (sample,) = training.samples
    assert sample.iteration == 3
    assert [op for op in sample.ops if op.op == "linear"]


def test_losses_are_what_they_are_without_it(training):
    expected = Training().steps(12)
    with pyprof.profile(every=4, to=training.keep):
        assert training.steps(12) == expected


def test_nothing_is_marked_between_samples(training):
    from pyprof.capture import session

    with pyprof.profile(every=5, to=training.keep):
        seen = []
        for _ in range(7):
            seen.append(session.current() is not None)
            training.step()
        training.wait()
    assert seen == [False] * 5 + [True, False]
    pyprof.init()
    with pyprof.profile(every=5, to=training.keep):
        training.steps(7)
        training.wait()
        assert session.current() is not None  # the program's own init() stays


def test_a_failing_destination_is_told_once_and_training_goes_on(training, capfd):
    calls = []

    def failing(sample):
        calls.append(sample)
        training.keep(sample)
        raise RuntimeError("no disk")

    good = []
    with pyprof.profile(every=3, to=[failing, good.append]):
        for steps in (4, 3, 3):
            training.steps(steps)
            training.wait()
    assert len(calls) == len(good) == 3
    told = capfd.readouterr().err.splitlines()
    assert told == [
        f"pyprof: warning: a sample is lost: to=: RuntimeError: no disk; {LATER}",
        "pyprof: warning: 3 samples were lost",
    ]


def test_a_reader_that_dies_is_replaced(training, capfd, monkeypatch):
    from pyprof.sampling.reader import TraceReader

    readers, original = [], TraceReader._start
    monkeypatch.setattr(TraceReader, "_start", lambda self: readers.append(original(self)) or readers[-1])
    with pyprof.profile(every=4, to=training.keep):
        training.steps(5)
        training.wait()
        os.kill(readers[0].pid, signal.SIGKILL)
        readers[0].wait(WAIT_S)
        training.steps(4)  # this sample is lost
        wait_until(lambda: "a sample is lost" in (capfd.readouterr().err))
        time.sleep(0.05)
        training.steps(4)
        training.wait()
    assert [sample.iteration for sample in training.samples] == [4, 12]
    assert len(readers) == 2 and all(reader.poll() is not None for reader in readers)


def wait_until(true):
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_export_that_fails_does_not_reach_the_program(training, capfd, monkeypatch):
    from pyprof.capture.collector import TraceFile

    def full(self, raw):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TraceFile, "export", full)
    with pyprof.profile(every=2, to=training.keep):
        losses = training.steps(60)
    assert losses == Training().steps(60)
    told = capfd.readouterr().err.splitlines()
    assert "a sample is lost: OSError: [Errno 28] No space left on device; the program goes on" in told[0]
    assert "10 samples were lost one after the other" in told[1] and told[1].endswith("; no more")
    assert told[2:] == ["pyprof: warning: 10 samples were lost"]


def test_the_programs_own_profiler_goes_first(training, capfd):
    from torch.profiler import profile

    with pyprof.profile(every=3, to=training.keep):
        training.steps(2)
        with profile() as own:
            training.steps(3)
        training.steps(2)
        training.wait()
    assert any(event.name == "aten::linear" for event in own.events())
    assert [sample.iteration for sample in training.samples] == [6]
    assert "samples passed over: 1" in capfd.readouterr().err


def test_an_error_of_the_program_is_its_own(training):
    with pytest.raises(ZeroDivisionError), pyprof.profile(every=2, to=training.keep):
        training.steps(3)
        1 / 0  # noqa: B018
    with pyprof.profile(every=2, to=training.keep):  # and nothing of it stays
        training.steps(1)


def profiled_steps(training):
    """Of five: in how many a profiler runs. Without a backward pass, which autograd refuses in some forked children."""
    found = 0
    for _ in range(5):
        training.model(training.x)
        found += torch.autograd._profiler_enabled()
        training.optimizer.step()
    return found


def test_a_forked_child_records_nothing(training):
    with pyprof.profile(every=2, to=training.keep):
        assert forked.exit_code(lambda: profiled_steps(training) == 0) == 0
        training.steps(3)
        training.wait()
    assert len(training.samples) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected a file, or every= and to="),
        ({"every": 10}, "every= needs to="),
        ({"to": print}, "every=None is not a number of iterations"),
        ({"every": 0, "to": print}, "every=0 is not a number of iterations from 1 on"),
        ({"every": True, "to": print}, "every=True is not a number"),
        ({"every": 10, "to": "tensorbord:x"}, "is no place for samples"),
        ({"every": 10, "to": "prometheus:/no/such/folder/x.prom"}, "in a folder that exists"),
        ({"every": 10, "to": print, "steps": 3}, "and not with warmup, steps"),
        ({"file": "net.json", "every": 10, "to": print}, "and not with a file"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(PyprofError, match=message), pyprof.profile(**arguments):
        pass


def test_only_one_collector_at_a_time(training, tmp_path):
    other = pyprof.profile(tmp_path / "net.json")
    refused = pytest.raises(PyprofError, match=r"pyprof.profile\(every=\) is still being collected")
    with pyprof.profile(every=5, to=training.keep), refused:
        other.__enter__()
