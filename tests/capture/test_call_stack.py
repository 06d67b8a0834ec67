"""The user's call stack in a marker: which frames, which lines, which paths."""

import functools
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.capture import call_stack, run_script  # noqa: E402
from pyprof.capture.call_stack import Tracer  # noqa: E402
from pyprof.marker import MAX_TEXT  # noqa: E402

from .conftest import record  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.ones(2, 3)


def outer(call: Any) -> Any:
    return call()


def test_trace_is_the_user_s_frames_outermost_first() -> None:
    recorder = record(trace=True)
    outer(lambda: torch.relu(X))
    outer(lambda: torch.nn.ReLU()(X))
    first, second = (marker.trace for marker in recorder.markers)
    here = outer.__code__.co_firstlineno
    names = [entry.rsplit(":", 1)[0].rsplit("/", 1)[-1] for entry in first]
    assert names[-2:] == ["test_call_stack.py", "test_call_stack.py"]
    assert int(first[-2].rsplit(":", 1)[1]) == here + 1
    assert int(first[-1].rsplit(":", 1)[1]) == here + 6
    assert int(second[-1].rsplit(":", 1)[1]) == here + 7  # torch's own frames, four of them, are left out
    assert not any(part in entry for entry in first + second for part in ("torch/", "pyprof/capture", "importlib"))


def test_frames_of_python_s_library_are_left_out_unless_all_are_wanted() -> None:
    @functools.singledispatch
    def through_the_library(x: Any) -> Any:
        return torch.relu(x)

    for trace, there in ((True, False), ("all", True)):
        recorder = record(trace=trace)
        through_the_library(X)
        assert any("functools.py" in entry for entry in recorder.markers[0].trace) is there
        pyprof.deinit()


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


def test_equal_code_of_two_files_is_kept_apart() -> None:
    recorder = record(trace=True)
    calls = [compile("torch.relu(X)", name, "exec") for name in ("<one>", "<two>")]
    assert calls[0] == calls[1]  # Python does not compare the files' names
    for _ in range(2):
        for code in calls:
            exec(code, {"torch": torch, "X": X})  # noqa: S102
    assert [marker.trace[-1] for marker in recorder.markers] == ["<one>:1", "<two>:1"] * 2


def test_paths_do_not_name_the_user_s_folders() -> None:
    tracer = Tracer()
    assert tracer.shown("/home/somebody/project/train.py") == "project/train.py"
    assert tracer.shown("train.py") == "train.py"
    assert tracer.shown("<frozen runpy>") == ""


def test_the_stack_ends_at_pyprof_run() -> None:
    frame: Any = None
    for name in ("/venv/bin/pyprof", run_script.__file__, "<user>"):  # outermost first
        code = compile("0", name, "exec")
        frame = SimpleNamespace(f_code=code, f_lasti=len(code.co_code) - 2, f_back=frame)
    assert Tracer().text(frame) == ',"trace":["<user>:1"]'


def test_stacks_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stack, "_REMEMBERED_MOST", 2)
    tracer, code, kept = Tracer(), compile("0", "<user>", "exec"), []
    for offset in (0, 2, 2, 4):
        tracer.text(SimpleNamespace(f_code=code, f_lasti=offset, f_back=None))  # type: ignore[arg-type]
        kept.append(len(tracer._texts))
    assert kept == [1, 2, 2, 1]
