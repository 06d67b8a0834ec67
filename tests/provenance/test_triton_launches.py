"""Launches of the program's own Triton kernels, with a module in Triton's place: its launcher, and a kernel."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402

pytestmark = pytest.mark.torch

LAUNCHER = """
class JITFunction:
    def __init__(self, function, arg_names):
        self.__name__, self.arg_names, self.function = function.__name__, arg_names, function

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args, grid, warmup, **kwargs):
        kwargs.pop("num_warps", None)
        return self.function(*args, **kwargs)
"""


@pytest.fixture
def _triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    importlib.import_module("torch.utils._triton").has_triton_package()  # PyTorch remembers what is really installed
    folder = tmp_path / "triton" / "runtime"
    folder.mkdir(parents=True)
    for path in (folder.parent, folder):
        (path / "__init__.py").write_text("", encoding="utf-8")
    (folder / "jit.py").write_text(LAUNCHER, encoding="utf-8")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    pyprof.deinit()
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        del sys.modules[name]


def scaled_add_kernel(a: Any, b: Any, out: Any, scale: float, count: int, BLOCK: int) -> str:
    torch.add(a, b, out=out)  # an op, so that the capture has a row
    return f"launched {BLOCK}"


def kernel() -> Any:
    module = importlib.import_module("triton.runtime.jit")
    return module.JITFunction(scaled_add_kernel, ["a", "b", "out", "scale", "count", "BLOCK"])


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize("imported", ["before", "after"])
def test_a_launch_has_a_marker_with_its_arguments(imported: str, tmp_path: Path) -> None:
    early = kernel() if imported == "before" else None
    pyprof.init(trace=True)
    launched = early or kernel()
    a, b, out = (torch.ones(4, 8) for _ in "abc")
    with pyprof.profile(str(tmp_path / "net.json")):
        assert launched[(1,)](a, b, out, 0.5, count=32, BLOCK=1024, num_warps=4) == "launched 1024"
    events = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))["traceEvents"]
    (marker,) = [json.loads(event["name"]) for event in events if '"mod":"triton"' in event.get("name", "")]
    assert marker["op"] == "scaled_add_kernel"
    assert [argument["name"] for argument in marker["args"]] == ["a", "b", "out", "scale", "count", "BLOCK"]
    assert marker["args"][0]["shape"] == [4, 8] and marker["args"][3]["value"] == 0.5
    line = int(marker["trace"][-1].rpartition("test_triton_launches.py:")[2])
    assert "launched[(1,)]" in Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]


@pytest.mark.usefixtures("_triton")
def test_a_warm_up_has_no_marker_and_is_made(tmp_path: Path) -> None:
    pyprof.init()
    launched = kernel()
    with pyprof.profile(str(tmp_path / "net.json")):
        a, b, out = (torch.ones(4, 8) for _ in "abc")
        assert launched.run(a, b, out, 0.5, 32, 1024, grid=(1,), warmup=True) == "launched 1024"
    events = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))["traceEvents"]
    assert not any('"mod":"triton"' in event.get("name", "") for event in events)


@pytest.mark.usefixtures("_triton")
@pytest.mark.parametrize("source", ["", "class JITFunction:\n    pass\n"])
def test_a_triton_with_another_launcher_is_left_alone(
    source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "triton" / "runtime" / "jit.py").write_text(source, encoding="utf-8")
    pyprof.init()
    module = importlib.import_module("triton.runtime.jit")
    assert not hasattr(getattr(module, "JITFunction", None), "run")
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("_triton")
def test_the_launcher_is_put_back() -> None:
    before = list(sys.meta_path)
    pyprof.init()
    pyprof.deinit()
    assert sys.meta_path == before
    original = kernel().run
    pyprof.init()
    assert kernel().run is not original and kernel().run.__wrapped__
    pyprof.deinit()
    assert kernel().run.__func__ is original.__func__


def test_a_kernel_outside_of_any_op_has_the_arguments_of_its_launch() -> None:
    from pyprof.marker import Marker, format_marker
    from pyprof.parse.attribute.facts import facts
    from pyprof.parse.attribute.scope import Kind, Scope, classify

    tensor = {"name": "a", "type": "tensor", "shape": [4, 8], "dtype": "float32", "stride": [16, 1]}
    marker = format_marker(Marker("triton", "my_kernel", [tensor, {"name": "n", "type": "int", "value": 32}]))
    path = (Scope(Kind.LAYER, "mlp"), classify(marker, False))
    found = facts(path, (), False, "", False, False)
    assert (found.aten, found.op, found.layer) == ("my_kernel", '["my_kernel"]', '["mlp"]')
    assert (json.loads(found.sizes), json.loads(found.dtypes)) == ([[4, 8], []], ["float32", ""])
    assert (json.loads(found.strides), json.loads(found.args)) == ([[16, 1], []], ["", "32"])
    inside_an_op = (Scope(Kind.OP, "mylib::op", "[[4, 8]]"), *path)
    assert facts(inside_an_op, (), False, "", False, False).aten == "mylib::op"
