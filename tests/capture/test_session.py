"""init() and deinit(): once is once, and afterwards everything is as it was."""

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests import forked
from tests.paths import ROOT

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import pyprof  # noqa: E402
from pyprof.capture import session  # noqa: E402

from .conftest import record  # noqa: E402

pytestmark = pytest.mark.torch


def everything() -> dict[str, dict[str, int]]:
    """The identity of every attribute of what pyprof might touch."""
    owners = [torch, torch.Tensor, F, torch.functional, torch._tensor, torch.overrides, torch.autograd]
    owners += [nn.Module, nn.Linear, nn.init, torch.linalg, torch.fft, torch.special, torch.optim.Optimizer]
    owners += [threading.Thread, torch.utils.data.DataLoader, torch._C._TensorBase]
    return {str(owner): {name: id(value) for name, value in vars(owner).items()} for owner in owners}


def test_deinit_puts_back_exactly_what_was_there() -> None:
    pyprof.init()  # whatever torch itself loads at first use is loaded now
    pyprof.deinit()
    before = everything()
    pyprof.init(trace=True)
    pyprof.wrap(nn.Linear, "extra_repr")
    assert everything() != before
    pyprof.deinit()
    assert everything() == before


def test_no_op_of_pytorch_s_is_replaced() -> None:
    before = torch.relu, F.relu, F.linear, torch.Tensor.add, torch.Tensor.__getitem__, nn.Linear.forward
    pyprof.init()
    assert before == (torch.relu, F.relu, F.linear, torch.Tensor.add, torch.Tensor.__getitem__, nn.Linear.forward)
    assert "add" not in vars(torch.Tensor)


def test_init_twice_is_once() -> None:
    first = record()
    pyprof.init()
    net, x = nn.Linear(2, 2), torch.ones(1, 2)
    first.clear()
    net(x)
    assert (first.ops, first.layers) == (["torch.nn.functional.linear"], ["Linear"])
    pyprof.deinit()
    assert torch._C._len_torch_function_stack() == 0
    pyprof.deinit()


def test_init_with_other_options_holds_from_then_on() -> None:
    recorder = record()
    torch.relu(torch.ones(1))
    pyprof.init(trace=True)
    torch.relu(torch.ones(1))
    traces = [marker.trace for marker in recorder.markers if marker.op == "relu"]
    assert traces[0] == [] and "test_session.py" in traces[1][-1]


@pytest.mark.parametrize("options", [{"sink": "nvtv"}, {"trace": "some"}])
def test_unknown_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        pyprof.init(**options)
    assert session.current() is None


def test_without_a_listener_nothing_is_pushed_and_all_works() -> None:
    pyprof.init()
    active = session.current()
    assert active is not None and active.sink is None
    torch.relu(torch.ones(1))
    with pyprof.annotate("x"):
        pyprof.step()

    class Mine:
        @staticmethod
        def doubled(x: int) -> int:
            return 2 * x

    pyprof.wrap(Mine, "doubled")
    assert Mine.doubled(3) == 6
    pyprof.start()
    pyprof.stop()


def test_nvtx_pushes_and_pops_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.capture import sinks

    class Domain:
        def __init__(self) -> None:
            self.open: list[str] = []
            self.seen: list[str] = []

        def get_event_attributes(self, message: str) -> str:
            return message

        def push_range(self, message: str) -> None:
            self.open.append(message)
            self.seen.append(message)

        def pop_range(self) -> None:
            self.open.pop()

    domain = Domain()
    monkeypatch.setattr(sinks, "_nvtx_domain", lambda: domain)
    assert sinks.Nvtx.listening()
    pyprof.init()
    nn.Linear(2, 2)(torch.ones(1, 2))
    with pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    with pyprof.annotate("mine"):
        assert domain.open == ["layer:mine"]
    assert domain.open == []
    assert "layer:Linear" in domain.seen
    recorder = record()  # a collector on top: both get each range
    domain.seen.clear()
    F.relu(torch.zeros(1))
    assert [text for text in domain.seen if "relu" in text] == [t for t in recorder.texts if "relu" in t] != []
    assert domain.open == [] and recorder.depth == 0


def test_a_collector_that_starts_inside_a_module_closes_what_it_opened() -> None:
    recorder = record()
    active = session.current()
    assert active is not None
    active.set_profiler(None)

    class Starts(nn.Module):
        def forward(self, x: Any) -> Any:
            assert active is not None
            active.set_profiler(recorder)
            return torch.relu(x)

    class Stops(nn.Module):
        def forward(self, x: Any) -> Any:
            assert active is not None
            y = torch.relu(x)
            active.set_profiler(None)
            return y

    nn.Sequential(Starts(), Stops())(torch.ones(1))
    assert recorder.depth == 0
    assert recorder.ops == ["torch.relu", "torch.relu"]


def test_deinit_on_another_thread_takes_the_modes_off_the_main_thread() -> None:
    for _ in range(3):
        pyprof.init(sink="nvtx", dispatch=True)
        other = threading.Thread(target=pyprof.deinit)
        other.start()
        other.join()
        assert torch._C._len_torch_function_stack() == 0
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_deinit_takes_the_mode_off_a_thread_that_goes_on() -> None:
    pyprof.init()
    marked, undone = threading.Event(), threading.Event()
    left: list[int] = []

    def work() -> None:
        torch.relu(torch.ones(1))
        marked.set()
        undone.wait()
        torch.relu(torch.ones(1))
        torch.relu(torch.ones(1))
        left.append(torch._C._len_torch_function_stack())

    thread = threading.Thread(target=work)
    thread.start()
    marked.wait()
    pyprof.deinit()
    undone.set()
    thread.join()
    assert left == [0]


def test_a_thread_that_has_ended_holds_no_mode() -> None:
    """It would release the mode while the interpreter may be ending already, which aborted one process of twenty."""

    class AtTheEnd:
        """Python destroys a thread's locals after all of its Python code."""

        def __del__(self) -> None:
            left.append(torch._C._len_torch_function_stack())

    left: list[int] = []
    local = threading.local()

    def work() -> None:
        local.value = AtTheEnd()
        torch.relu(torch.ones(1))

    pyprof.init()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    pyprof.deinit()
    assert left == [0]


def test_deinit_leaves_what_another_tool_has_put_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "__call__", nn.Module.__call__)  # put back after the test
    pyprof.init()
    ours = nn.Module.__call__

    def theirs(module: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(module, *args, **kwargs)

    nn.Module.__call__ = theirs  # type: ignore[method-assign, assignment]
    pyprof.deinit()
    assert nn.Module.__call__ is theirs
    assert nn.Linear(2, 1)(torch.ones(3, 2)).shape == (3, 1)


def test_stop_says_once_that_nothing_listened(capsys: pytest.CaptureFixture[str]) -> None:
    from pyprof.capture import control

    control._say_that_nothing_listened.cache_clear()
    pyprof.init()
    for _ in range(2):
        pyprof.start()
        pyprof.stop()
    assert capsys.readouterr().err.count("nothing listened between start() and stop()") == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:FutureWarning")  # since PyTorch 2.14 or 2.15
def test_the_exact_mode_lets_a_convolution_be_traced() -> None:
    net, x = nn.Conv2d(3, 8, 3).eval(), torch.ones(1, 3, 8, 8)
    alone = str(torch.jit.trace(net, x).graph)
    for sink in ("none", "nvtx"):
        pyprof.init(dispatch=True, sink=sink)
        traced = torch.jit.trace(net, x)
        pyprof.deinit()
        assert str(traced.graph).count("aten::") == alone.count("aten::")
        assert torch.equal(traced(x), net(x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_child_has_no_pyprof() -> None:
    pyprof.init(sink="nvtx")
    call = nn.Module.__call__

    def gone() -> bool:
        torch.relu(torch.ones(1))
        unpatched = session.current() is None and nn.Module.__call__ is not call
        return unpatched and torch._C._len_torch_function_stack() == 0

    assert forked.exit_code(gone) == 0
    assert session.current() is not None


@pytest.mark.slow
def test_data_loader_workers_work() -> None:
    recorder = record()
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=2, num_workers=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert recorder.depth == 0


def test_import_is_light() -> None:
    code = (
        "import sys, time; t = time.perf_counter(); import pyprof; took = time.perf_counter() - t;"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules;"
        "from pyprof.marker import parse_marker; assert 'torch' not in sys.modules;"
        "from pyprof.capture.run import build_parser; build_parser().format_help(); assert 'torch' not in sys.modules;"
        "assert took < 0.2, took"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT)}, timeout=60)


def test_public_names() -> None:
    assert set(pyprof.__all__) <= set(dir(pyprof))
    for name in pyprof.__all__:
        assert getattr(pyprof, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pyprof.nothing


def test_iterations_are_timed_until_a_tool_may_record(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.capture import control, sinks

    monkeypatch.setattr(sinks.Nvtx, "listening", staticmethod(lambda: True))
    timed: list[Any] = []

    def steps() -> None:  # in a thread of its own, as what is timed is a thread's
        for _ in range(3):
            pyprof.step()
        timed.append(control._step.timer.record())
        control._step.told = True  # as start() leaves it
        control._step.timer.restart()
        pyprof.step()
        pyprof.step()
        timed.append(control._step.timer.record())

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    assert [step["number"] for step in timed[0]["steps"]] == [1, 2] and timed[1] is None
