"""PyTorch's own ranges are on from init() to deinit(), and out of the way of the program's own profilers.

A PyTorch without a GPU cannot push to NVTX. Its ranges for VTune (ITT) are made alike and take their place.
"""

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.paths import ROOT

torch = pytest.importorskip("torch")

from torch.autograd import ProfilerState  # noqa: E402
from torch.autograd.profiler import emit_itt  # noqa: E402

import pyprof  # noqa: E402
from pyprof import range_pieces  # noqa: E402
from pyprof.capture import collector, sinks  # noqa: E402
from pyprof.capture.autograd_ranges import AutogradRanges  # noqa: E402
from pyprof.capture.run import main as run  # noqa: E402
from pyprof.parse.formats.measured_steps import of_markers  # noqa: E402
from pyprof.step_timer import NAME  # noqa: E402

from .conftest import Domain  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[Domain]:
    """Autouse: what NVTX would get."""
    found = Domain()
    monkeypatch.setattr(sinks, "_nvtx_domain", lambda: found)
    monkeypatch.setattr(AutogradRanges, "of_nvtx", staticmethod(lambda: AutogradRanges(ProfilerState.ITT)))
    yield found
    pyprof.deinit()
    assert not on()


def on() -> bool:
    return bool(torch._C._autograd._profiler_enabled())


def test_they_are_on_from_init_to_deinit() -> None:
    assert not on()
    pyprof.init()
    assert on()
    pyprof.init(trace=True)
    assert on()
    pyprof.deinit()
    assert not on()


def test_not_where_nothing_is_pushed_nor_wanted() -> None:
    pyprof.init(sink="none")
    assert not on()
    pyprof.init(autograd=False)
    assert not on()


def test_threads_begun_since_have_them_to_their_end() -> None:
    seen = []
    pyprof.init()
    thread = threading.Thread(target=lambda: seen.append(on()))
    thread.start()
    thread.join()
    assert seen == [True]


def test_torch_profiler_works_inside() -> None:
    pyprof.init()
    for _ in range(2):
        with torch.profiler.profile(record_shapes=True) as found:
            torch.ones(2, 3).relu()
        assert [e.input_shapes for e in found.events() if e.name == "aten::relu"] == [[[2, 3]]]
        assert on()


def test_inductor_s_kernels_know_that_a_profiler_is_on() -> None:
    """They push ranges by this flag. The program's profiler sets it before it begins, and ours when it is back."""
    from torch.autograd import profiler

    pyprof.init()
    assert profiler._is_profiler_enabled
    with torch.profiler.profile():
        assert profiler._is_profiler_enabled
    assert profiler._is_profiler_enabled and on()
    pyprof.deinit()
    assert not profiler._is_profiler_enabled


def test_the_embedded_collector_works_inside(tmp_path: Path) -> None:
    pyprof.init()
    with pyprof.profile(tmp_path / "net.json"):
        torch.ones(2, 3).relu()
    assert on()
    assert '"aten::relu"' in (tmp_path / "net.json").read_text(encoding="utf-8")


def test_iterations_before_the_tool_s_range_are_timed_without_them(
    domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "cuda_profiler", lambda what: None)
    (tmp_path / "script.py").write_text(
        "import pyprof, torch\n"
        "for i in range(5):\n"
        "    print(torch._C._autograd._profiler_enabled(), torch._C._len_torch_function_stack())\n"
        "    torch.relu(torch.ones(i))\n"
        "    pyprof.step()\n",
        encoding="utf-8",
    )
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["--warmup", "4", str(tmp_path / "script.py")]) == 0
    assert out.getvalue().split() == ["False", "0"] * 4 + ["True", "1"]
    (text,) = {text for _, text in domain.seen if text.startswith(NAME)}  # at the beginning and the end of the range
    steps, warnings = of_markers([text])
    assert ([step.number for step in steps], [step.marked for step in steps], warnings) == ([1, 2, 3], [False] * 3, [])
    relus = [text for _, text in domain.seen if text.startswith("{") and '"relu"' in text]
    assert len(relus) == 1 and "[4]" in relus[0]  # of the fifth iteration alone


def test_calls_are_timed_before_the_tool_s_range(
    domain: Domain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last three of eight iterations; the record is longer than one range's text may be."""
    monkeypatch.setattr(collector, "cuda_profiler", lambda what: None)
    for module in ("pyprof.step_timer", "pyprof.capture.step_calls"):
        monkeypatch.setattr(f"{module}.wait_for_gpu", lambda: True)
    monkeypatch.setattr(range_pieces, "PIECE", 100)
    (tmp_path / "script.py").write_text(
        "import pyprof, torch\n"
        "for i in range(10):\n"
        "    torch.relu(torch.ones(i)).shape\n"
        "    torch.add(torch.ones(2), 1)\n"
        "    pyprof.step()\n",
        encoding="utf-8",
    )
    assert run(["--warmup", "8", "--steps", "2", str(tmp_path / "script.py")]) == 0
    pieces = {text for _, text in domain.seen if text.startswith(NAME)}
    assert len(pieces) > 1
    steps, warnings = of_markers(pieces)
    calls = {step.number: [step.calls.names[name] for name in step.calls.name] for step in steps if step.calls}
    made = ["ones", "relu", "ones", "add"]
    assert (warnings, calls) == ([], {5: made, 6: made, 7: made})


def test_emit_works_inside() -> None:
    pyprof.init()
    with emit_itt(record_shapes=True):
        assert on()
        pyprof.deinit()
        assert on()
    assert not on()


def test_emit_works_around() -> None:
    with emit_itt():
        pyprof.init()
        assert on()
    assert on(), "ours, since the program's ended"
    pyprof.deinit()
    with emit_itt():
        pyprof.init()
        pyprof.deinit()
        assert on()


def test_a_profiler_that_fails_leaves_ours_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.autograd import profiler

    def fails(*args: object) -> None:
        assert not on()
        raise RuntimeError("no")

    monkeypatch.setattr(profiler, "_enable_profiler", fails)
    pyprof.init()
    with pytest.raises(RuntimeError, match="no"):
        emit_itt().__enter__()
    assert on()


def test_where_pytorch_cannot_the_program_still_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*args: object) -> None:
        raise RuntimeError("no ranges here")

    monkeypatch.setattr(torch._C._autograd, "_enable_profiler", fails)
    pyprof.init()
    assert not on()
    torch.relu(torch.ones(1))
    said = "pyprof: continuing without PyTorch's own ranges, which cannot be pushed: no ranges here\n"
    assert capsys.readouterr().err == said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_none() -> None:
    pyprof.init()
    assert forked.exit_code(lambda: not on()) == 0
    assert on()


def test_nothing_is_left_behind_at_the_process_s_end() -> None:
    code = """
import torch, threading
from pyprof.capture import autograd_ranges
autograd_ranges.AutogradRanges.of_nvtx = staticmethod(
    lambda: autograd_ranges.AutogradRanges(torch.autograd.ProfilerState.ITT))
import pyprof
pyprof.init(sink="nvtx")
threading.Thread(target=lambda: torch.ones(2).relu()).start()
x = torch.ones(2, requires_grad=True)
x.relu().sum().backward()
print(torch._C._autograd._profiler_enabled())
"""
    libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # torch may need it
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**libraries, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
