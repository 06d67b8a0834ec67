"""PyProf's own names: its example programs call ``pyprof.nvtx.init`` and ``pyprof.nvtx.wrap``."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from tests.tables import parsed  # noqa: E402

from .conftest import Recorder  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*torch.jit")]
X = torch.ones(2, 3)


def wrap(owner: Any, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=r"pyprof\.nvtx\.wrap is deprecated; it is called pyprof\.wrap"):
        pyprof.nvtx.wrap(owner, name)


def test_the_functions_of_a_module(recorder: Recorder) -> None:
    kernels = types.ModuleType("fused_kernels")
    kernels.scale = lambda x: x  # type: ignore[attr-defined]
    wrap(kernels, "scale")
    kernels.scale(X)
    assert recorder.ops == ["fused_kernels.scale"]


def test_an_autograd_function(recorder: Recorder) -> None:
    class Foo(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad.clone()

    wrap(Foo, "forward")
    wrap(Foo, "backward")
    recorder.clear()
    Foo.apply(X.clone().requires_grad_()).sum().backward()
    assert [op for op in recorder.ops if "Foo" in op] == [f"{__name__}.{Foo.__qualname__}"] * 2


def test_the_forward_of_a_module(recorder: Recorder) -> None:
    class Foo(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    wrap(Foo, "forward")
    Foo()(X)
    assert recorder.ops == [f"{__name__}.{Foo.__qualname__}.forward"]


def test_scripted_functions(recorder: Recorder) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    foo, other = torch.jit.trace(scaled, X), torch.jit.trace(scaled, X)
    before = type(foo).__call__
    foo.__name__ = "foo"
    wrap(foo, "forward")
    wrap(foo, "forward")
    recorder.clear()
    results = foo(X), other(X)
    assert recorder.ops == ["foo.forward"]
    assert recorder.markers[0].args == [{"name": "", "type": "tensor", "shape": [2, 3], "dtype": "float32"}]
    pyprof.deinit()
    assert type(foo).__call__ == before
    assert all(torch.equal(result, 2 * X) for result in results)


def test_a_scripted_module(recorder: Recorder) -> None:
    class Foo(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    foo = torch.jit.trace(Foo(), X)
    foo.__name__ = "foo"
    wrap(foo, "forward")
    recorder.clear()
    result = foo(X)
    assert recorder.ops == ["foo.forward"]
    pyprof.deinit()
    assert torch.equal(result, 2 * X)


def test_a_script_says_it_once_and_runs(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text("import pyprof\npyprof.nvtx.init()\nimport torch\nprint(torch.ones(2).sum().item())\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "2.0\n"
    assert done.stderr.count("DeprecationWarning: pyprof.nvtx.init is deprecated; it is called pyprof.init") == 1


def test_the_module_can_be_imported() -> None:
    import pyprof.nvtx as imported

    assert imported is pyprof.nvtx and "nvtx" not in pyprof.__all__


PROGRAM = """
import torch, pyprof
pyprof.nvtx.init()

class Foo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad

class Bar(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return self.fc(x)

x, w = torch.ones(8, 64, requires_grad=True), torch.ones(64, 64, requires_grad=True)
scripted, bar = torch.jit.script(torch.jit.trace(lambda x, w: torch.mm(x, w), (x, w))), Bar()
scripted.__name__ = "scripted"
pyprof.nvtx.wrap(Foo, "forward")
pyprof.nvtx.wrap(Foo, "backward")
pyprof.nvtx.wrap(Bar, "forward")
pyprof.nvtx.wrap(scripted, "forward")
with pyprof.profile("net.json"):
    scripted(bar(Foo.apply(x, w)), w).sum().backward()
"""


def test_a_program_with_all_of_pyprofs_calls_runs_and_is_attributed(tmp_path: Path) -> None:
    """Three products of [8, 64] and [64, 64], 2*8*64*64 = 65,536 each, and two of gradients for each of them"""
    script = tmp_path / "net.py"
    script.write_text(PROGRAM)
    subprocess.run([sys.executable, "-W", "ignore", str(script)], cwd=tmp_path, check=True, capture_output=True)
    table = parsed(tmp_path / "net.json")
    columns = [table.coded(key).texts() for key in ("aten", "mod", "op", "layer", "dir")]
    rows = zip(annotate(table).flops.tolist(), *columns, strict=True)
    products = [each for each in rows if each[1] == "aten::mm"]
    assert [each[0] for each in products] == [65_536] * 9
    called = [(json.loads(op)[0], layer, direction) for *_, op, layer, direction in products]
    bar = '["Bar", "fc"]'
    assert called[:3] == [("Foo", "", "fprop"), ("forward", bar, "fprop"), ("forward", "", "fprop")]
    backward = [("forward", "", "bprop"), ("forward", bar, "bprop"), ("Foo", "", "bprop")]
    assert called[3:] == [each for each in backward for _ in range(2)]
