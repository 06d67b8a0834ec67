"""pyprof.wrap: the user's own functions as ops."""

import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.capture.annotate import marked  # noqa: E402

from .conftest import Recorder, record  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.ones(2, 3)


def test_wrap_marks_a_function_and_deinit_undoes_it(recorder: Recorder) -> None:
    module = types.ModuleType("kernels")
    module.fused = lambda x, scale=1: x * scale  # type: ignore[attr-defined]
    before = module.fused
    pyprof.wrap(module, "fused")
    pyprof.wrap(module, "fused")
    module.fused(X, scale=2)
    assert recorder.ops == ["kernels.fused", "Tensor.mul"]
    assert recorder.markers[0].args == [
        {"name": "x", "type": "tensor", "shape": [2, 3], "dtype": "float32"},
        {"name": "scale", "type": "int", "value": 2},
    ]
    pyprof.deinit()
    assert module.fused is before


class Owner:
    def method(self, x: Any) -> Any:
        return x

    @staticmethod
    def static(x: Any) -> Any:
        return x

    @classmethod
    def cls_method(cls, x: Any) -> Any:
        return cls, x


class Child(Owner):
    pass


class Launcher:
    """As Triton's: kernel[grid](args) ends in a method of an object."""

    def run(self, *args: Any, grid: Any = None) -> int:
        return len(args)


def test_wrap_keeps_methods_what_they_are(recorder: Recorder) -> None:
    before = dict(vars(Owner))
    for name in ("method", "static", "cls_method"):
        pyprof.wrap(Owner, name)
    pyprof.wrap(Child, "method")
    assert Owner().method(1) == Owner.static(1) == Owner().static(1) == 1
    assert Child.cls_method(1) == (Child, 1)
    assert isinstance(vars(Owner)["static"], staticmethod)
    assert [op.rsplit(".", 1)[1] for op in recorder.ops] == ["method", "static", "static", "cls_method"]
    pyprof.deinit()
    assert dict(vars(Owner)) == before and "method" not in vars(Child)


def test_wrap_marks_an_object_s_method(recorder: Recorder) -> None:
    launcher = Launcher()
    pyprof.wrap(launcher, "run")
    assert launcher.run(X, 3, grid=(1,)) == 2
    assert recorder.ops == ["Launcher.run"]
    pyprof.deinit()
    assert vars(launcher) == {}


def test_wrap_marks_an_autograd_function_both_ways(recorder: Recorder) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    pyprof.wrap(Double, "forward")
    pyprof.wrap(Double, "backward")
    x = X.clone().requires_grad_()
    Double.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 2
    named = [(marker.mod, marker.op) for marker in recorder.markers if "Double" in marker.op]
    assert named == [(__name__, Double.__qualname__)] * 2  # one op, with the Function's name, in both directions


def test_wrap_refuses_what_it_cannot_mark() -> None:
    with pytest.raises(RuntimeError, match=r"call pyprof\.init\(\) first"):
        pyprof.wrap(Owner, "method")
    pyprof.init()
    with pytest.raises(AttributeError):
        pyprof.wrap(Owner, "nothing")
    with pytest.raises(TypeError, match="cannot be called"):
        pyprof.wrap(Owner, "__doc__")


def test_a_wrapped_function_s_line_is_that_of_its_caller() -> None:
    recorder = record(trace=True)

    class Mine:
        @staticmethod
        def doubled(x: Any) -> Any:
            return x

    pyprof.wrap(Mine, "doubled")

    def caller(x: Any) -> Any:
        return Mine.doubled(x), torch.relu(x)

    x = torch.ones(2)
    recorder.clear()
    caller(x)
    mine, relu = recorder.markers
    assert mine.op == "doubled" and mine.trace == relu.trace != []


def test_a_wrapped_function_in_compiled_code_is_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = record()
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)  # a constant to dynamo
    assert marked(lambda x, scale=1: 5 * x * scale, "mine", "scaled")(2, scale=3) == 30
    assert recorder.ops == []
