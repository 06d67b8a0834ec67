"""The exact mode: a marker for each aten op, with the types that its kernels get."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import pyprof  # noqa: E402
from pyprof.capture.sinks import Entry  # noqa: E402

from .conftest import record  # noqa: E402

pytestmark = pytest.mark.torch


def test_exact_mode_marks_aten_ops_forward_and_backward_with_real_types() -> None:
    recorder = record(dispatch=True)
    x, w = torch.randn(4, 8), torch.randn(2, 8, requires_grad=True)
    recorder.clear()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.linear(x, w).sum()
    loss.backward()
    marks = {marker.op: marker for marker in recorder.markers if marker.mod == "torch.ops.aten"}
    assert marks["mm.default"].args[0]["dtype"] == "bfloat16"  # F.linear's own marker says float32
    depth = {text: depth for depth, text in recorder.lines}
    forward = next(text for text in recorder.texts if '"mm.default"' in text)
    assert depth[forward] == 1  # inside F.linear's
    assert "expand.default" in marks  # of sum's backward
    assert recorder.depth == 0
    pyprof.deinit()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_exact_mode_computes_the_same() -> None:
    def train() -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
        loss = F.cross_entropy(net(torch.randn(4, 1, 8, 8)), torch.tensor([0, 1, 2, 0]))
        loss.backward()
        return [loss.detach(), *(p.grad for p in net.parameters())]

    plain = train()
    record(dispatch=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, train(), strict=True))


def test_a_repeated_op_is_bound_once_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVTX keeps each text that is bound, and takes no more than 100,000."""
    recorder = record(dispatch=True, trace=True)
    bound: list[str] = []
    bind = recorder.bind

    def noting(entry: Entry) -> None:
        bound.append(entry.text)
        bind(entry)

    monkeypatch.setattr(recorder, "bind", noting)
    x = torch.randn(2)
    for _ in range(3):
        torch.relu(x)
    assert any('"relu.default"' in text for text in bound)
    assert len(bound) == len(set(bound))


def test_the_ranges_of_the_program_s_own_are_no_ops() -> None:
    recorder = record(dispatch=True)
    recorder.clear()
    with torch.profiler.record_function("mine"):
        torch.add(torch.ones(2), 1)
    assert [marker.op for marker in recorder.markers if marker.mod.startswith("torch.ops.")] == [
        "ones.default",
        "add.Tensor",
    ]
