"""A program that looks at what init() replaced finds what was there: traced graphs, and nn.Module.__call__."""

import inspect
import pickle
import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import pyprof  # noqa: E402

from .conftest import Recorder  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # torch's, about TorchScript
X = torch.ones(2, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        hidden = self.fc(x)
        total = torch.relu(hidden)
        return torch.add(total, x)


def joined(a: Any, b: Any) -> Any:
    first = torch.sin(a)
    second = first * b
    return torch.cat([second, a])


def graphs() -> str:
    """Traced graphs, without the number that each traced class gets in its name."""
    net = torch.jit.trace(Net(), X).inlined_graph
    function = torch.jit.trace(joined, (X, X)).graph
    plain, _ = torch.jit._get_trace_graph(Net(), X)
    return re.sub(r"___torch_mangle_\d+\.", "", f"{net}{function}{plain}")


@pytest.mark.parametrize("dispatch", [False, True])
def test_traced_graphs_are_the_same(dispatch: bool) -> None:
    torch._C._jit_set_inline_everything_mode(False)
    before = graphs()
    pyprof.init(dispatch=dispatch)
    during = graphs()
    assert "pyprof/capture" not in during
    assert "%second" in during and "%hidden" in during
    assert during == before


def test_the_mode_is_back_after_a_trace(recorder: Recorder) -> None:
    torch.jit.trace(joined, (X, X))
    with pytest.raises(ZeroDivisionError):
        torch.jit.trace(lambda x: x / (1 // 0), X)
    recorder.clear()
    torch.relu(X)
    assert recorder.ops == ["torch.relu"]


def test_a_module_s_call_looks_as_before() -> None:
    call = nn.Module.__call__
    looks = [str(inspect.signature(call)), call.__qualname__, call.__module__, call.__name__, call.__doc__]
    pyprof.init()
    now = nn.Module.__call__
    assert now is not call
    assert [str(inspect.signature(now)), now.__qualname__, now.__module__, now.__name__, now.__doc__] == looks
    assert pickle.loads(pickle.dumps(now)) is now  # noqa: S301  (our own bytes)
    pyprof.deinit()
    assert nn.Module.__call__ is call is vars(nn.Module)["_wrapped_call_impl"]
    assert pickle.loads(pickle.dumps(call)) is call  # noqa: S301


def test_what_was_pickled_before_and_during_loads_afterwards() -> None:
    before = pickle.dumps(nn.Module.__call__)
    pyprof.init()
    during = pickle.dumps(nn.Module.__call__)
    pyprof.deinit()
    assert pickle.loads(before) is pickle.loads(during) is nn.Module.__call__  # noqa: S301
