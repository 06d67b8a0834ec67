"""wrap(): the user's own functions as ops; traces: where they were called."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.capture.call_stack import Tracer  # noqa: E402
from pyprof.marker import MAX_TEXT  # noqa: E402

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
    assert [op.rsplit(".", 1)[1] for op in recorder.ops if "Double" in op] == ["forward", "backward"]


def test_wrap_refuses_what_it_cannot_mark() -> None:
    with pytest.raises(RuntimeError, match=r"call pyprof\.init\(\) first"):
        pyprof.wrap(Owner, "method")
    pyprof.init()
    with pytest.raises(AttributeError):
        pyprof.wrap(Owner, "nothing")
    with pytest.raises(TypeError, match="cannot be called"):
        pyprof.wrap(Owner, "__doc__")


def outer(call: Any) -> Any:
    return call()


def test_trace_is_the_user_s_frames_outermost_first() -> None:
    recorder = record(trace=True)
    outer(lambda: torch.relu(X))
    outer(lambda: torch.nn.ReLU()(X))
    first, second = (marker.trace for marker in recorder.markers)
    here = outer.__code__.co_firstlineno
    names = [entry.rsplit(":", 1)[0].rsplit("/", 1)[-1] for entry in first]
    assert names[-2:] == ["test_extras.py", "test_extras.py"]
    assert int(first[-2].rsplit(":", 1)[1]) == here + 1
    assert int(first[-1].rsplit(":", 1)[1]) == here + 6
    assert int(second[-1].rsplit(":", 1)[1]) == here + 7  # torch's own frames, four of them, are left out
    assert not any(part in entry for entry in first + second for part in ("torch/", "pyprof/mode", "importlib"))


def test_trace_all_has_torch_s_frames_too() -> None:
    recorder = record(trace="all")
    torch.nn.ReLU()(X)
    assert any("torch/nn/modules/activation.py" in entry for entry in recorder.markers[0].trace)


def test_the_line_is_the_one_that_calls_in_a_loop_and_in_a_long_expression() -> None:
    recorder = record(trace=True)
    line = sys._getframe().f_lineno
    for _ in range(2):
        torch.relu(X)
        torch.add(
            torch.abs(X),
            torch.neg(X),
        )
    lines = [int(marker.trace[-1].rsplit(":", 1)[1]) - line for marker in recorder.markers]
    assert lines == [2, 4, 5, 3] * 2


def test_function_stack_is_pyprof_s_form() -> None:
    recorder = record(enable_function_stack=True)
    outer(lambda: torch.relu(X))
    stack = recorder.markers[0].func_stack
    assert stack.endswith(("/outer/test_function_stack_is_pyprof_s_form::<lambda>", "/outer/<lambda>"))


def test_a_deep_stack_is_cut_to_its_innermost_frames() -> None:
    recorder = record(trace=True)

    def down(depth: int) -> None:
        if depth:
            down(depth - 1)
        else:
            torch.relu(X)

    down(300)
    (text,) = recorder.texts
    trace = recorder.markers[0].trace
    assert len(text) <= MAX_TEXT
    assert len(trace) == 50 and len(set(trace[:-1])) == 1


def test_generated_code_has_a_trace() -> None:
    recorder = record(trace=True)
    exec(compile("torch.relu(X)", "<generated>", "exec"), {"torch": torch, "X": X})  # noqa: S102
    assert recorder.markers[0].trace[-1] == "<generated>:1"


def test_equal_code_of_two_files_is_told_apart() -> None:
    recorder = record(trace=True)
    calls = [compile("torch.relu(X)", name, "exec") for name in ("<one>", "<two>")]
    assert calls[0] == calls[1]  # Python does not compare the files' names
    for _ in range(2):
        for code in calls:
            exec(code, {"torch": torch, "X": X})  # noqa: S102
    assert [marker.trace[-1] for marker in recorder.markers] == ["<one>:1", "<two>:1"] * 2


def test_paths_do_not_tell_where_the_user_lives() -> None:
    tracer = Tracer()
    assert tracer._name("/home/somebody/project/train.py") == "project/train.py"
    assert tracer._name("train.py") == "train.py"
    assert tracer._name("<frozen runpy>") == ""
