"""When CUPTI goes after a recorded capture, without a GPU: a thread that waits for a call of CUDA stands for Kineto's.

tests/device/let_go.py shows on a GPU that CUPTI is gone and comes back.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof import cupti_teardown  # noqa: E402
from pyprof.cupti_teardown import ASKED, KEEPING, VARIABLE, letting_go  # noqa: E402


class Cuda:
    """Calls of CUDA are counted, and what awaits one goes on."""

    def __init__(self) -> None:
        self.calls = 0
        self.called = threading.Event()

    def current_device(self) -> int:
        self.calls += 1
        self.called.set()
        return 0

    def tear_down(self, lasts_s: float = 0.02) -> Callable[[], None]:
        """Kineto's thread, of which Python does not know: it ends after the next call of CUDA's."""
        self.called.clear()
        running, ended = threading.Event(), threading.Event()

        def thread() -> None:
            running.set()
            self.called.wait(10)
            time.sleep(lasts_s)
            ended.set()

        _thread.start_new_thread(thread, ())
        assert running.wait(10)
        return lambda: assert_(ended.is_set())


def assert_(true: bool) -> None:
    assert true


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """As on a machine with a GPU in use, CUDA 13.0 and no tool, for a user who wants CUPTI to go."""
    made = Cuda()
    monkeypatch.setenv(ASKED, "1")
    for name in KEEPING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", made.current_device)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    return made


def setting() -> str | None:
    with letting_go(True):
        return os.environ.get(VARIABLE)


def test_the_variable_is_set_while_a_profiler_ends_and_only_then(cuda: Cuda) -> None:
    with letting_go(True):
        assert os.environ[VARIABLE] == "1"
    assert VARIABLE not in os.environ
    with pytest.raises(RuntimeError), letting_go(True):
        raise RuntimeError
    assert VARIABLE not in os.environ
    assert cuda.calls == 0  # no thread of Kineto's has begun


def test_the_end_waits_until_cupti_is_gone(cuda: Cuda) -> None:
    with letting_go(True):
        is_over = cuda.tear_down()
    is_over()
    assert cuda.calls > 0


def test_another_thread_that_stays_is_waited_for_a_second_at_most(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti_teardown, "_WAIT_S", 0.05)
    stop = threading.Event()
    begun = time.monotonic()
    with letting_go(True):
        _thread.start_new_thread(stop.wait, (10,))
        time.sleep(0.01)
    assert 0.05 <= time.monotonic() - begun < 2
    stop.set()


def test_threads_of_the_program_are_not_waited_for(cuda: Cuda) -> None:
    stop = threading.Event()
    with letting_go(True):
        thread = threading.Thread(target=stop.wait, args=(10,))
        thread.start()
    assert cuda.calls == 0
    stop.set()
    thread.join()


@pytest.mark.parametrize("value", ["0", "1", ""])
def test_the_users_own_setting_wins(cuda: Cuda, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert setting() == value
    assert os.environ[VARIABLE] == value
    with letting_go(True):
        is_over = cuda.tear_down() if value == "1" else lambda: None
    is_over()  # whoever asked for it: the next profiler must not begin before


@pytest.mark.parametrize("name", KEEPING[1:])
def test_cupti_stays_where_it_may_not_come_back_or_where_another_tool_uses_it(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert setting() is None


@pytest.mark.parametrize(
    ("version", "goes"),
    [("12.6", True), ("12.10", True), ("13.0", True), ("12.4", False), ("11.8", False), (None, False), ("?", False)],
)
def test_cuda_before_12_6_and_rocm_keep_it(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, version: str | None, goes: bool
) -> None:
    """The same versions as in torch/profiler/profiler.py; torch.version.cuda is None on ROCm and on a CPU."""
    monkeypatch.setattr(torch.version, "cuda", version)
    assert setting() == ("1" if goes else None)


def test_nothing_is_set_before_the_program_uses_a_gpu(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert setting() is None


def test_what_pytorch_sets_meanwhile_stays(cuda: Cuda) -> None:
    """PyTorch up to 2.7 sets 0 when a profiler begins or ``torch.compile`` makes CUDA graphs."""
    with letting_go(True):
        os.environ[VARIABLE] = "0"
    assert os.environ.pop(VARIABLE) == "0"


@pytest.mark.parametrize("value", [None, "0", ""])
def test_cupti_stays_unless_the_user_asks(cuda: Cuda, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(ASKED)
    if value is not None:
        monkeypatch.setenv(ASKED, value)
    assert setting() is None


def test_unless_it_is_wanted_nothing_is_set(cuda: Cuda) -> None:
    with letting_go(False):
        assert VARIABLE not in os.environ


class Graph:
    """What torch.cuda.CUDAGraph does, without a GPU."""

    def capture_begin(self) -> None:
        torch.ones(3).sin()

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        pass


def capture() -> Graph:
    graph = Graph()
    graph.capture_begin()
    graph.capture_end()
    return graph


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The variable's value at each end of a profiler. At its begin, it must never be set."""
    from torch.autograd import profiler

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    prepare, disable = profiler._prepare_profiler, profiler._disable_profiler
    found: list[str | None] = []

    def _prepare_profiler(*args: object, **kwargs: object) -> object:
        assert VARIABLE not in os.environ
        return prepare(*args, **kwargs)

    def _disable_profiler(*args: object, **kwargs: object) -> object:
        found.append(os.environ.get(VARIABLE))
        return disable(*args, **kwargs)

    monkeypatch.setattr(profiler, "_prepare_profiler", _prepare_profiler)
    monkeypatch.setattr(profiler, "_disable_profiler", _disable_profiler)
    return found


@contextmanager
def profiled(monkeypatch: pytest.MonkeyPatch, file: Path, before: bool = False) -> Iterator[None]:
    """``before``: whether the program has used the GPU before the block."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: before)
    with pyprof.profile(file, wait=True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        yield


def test_after_recorded_captures_it_goes_and_after_the_range_it_stays(
    cuda: Cuda, ends: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with profiled(monkeypatch, tmp_path / "net.json"):
        capture().replay()
        capture().replay()
        pyprof.start()
        torch.ones(3).cos()
        pyprof.stop()
    assert ends == ["1", "1", None]
    assert VARIABLE not in os.environ


def test_it_stays_where_graphs_may_have_been_launched_before(
    cuda: Cuda, ends: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A graph that was launched with CUPTI there, but idle, cannot be replayed when CUPTI goes."""
    with profiled(monkeypatch, tmp_path / "net.json", before=True):
        capture()
        pyprof.start()
        pyprof.stop()
    assert ends == [None, None]


def test_it_stays_after_the_programs_own_profiler(
    cuda: Cuda, ends: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with profiled(monkeypatch, tmp_path / "net.json"):
        capture()
        with torch.profiler.profile():
            torch.ones(3).sin()
        capture()
        pyprof.start()
        pyprof.stop()
    assert ends == ["1", None, None, None]


def test_it_stays_where_another_thread_replays_graphs(
    cuda: Cuda, ends: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with profiled(monkeypatch, tmp_path / "net.json"):
        thread = threading.Thread(target=capture().replay)
        thread.start()
        thread.join()
        capture()
        pyprof.start()
        pyprof.stop()
    assert ends == ["1", None, None]
