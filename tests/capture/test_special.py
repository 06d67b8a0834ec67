"""Exact mode, collectives, and PyTorch's own ranges under NVTX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import pyprof  # noqa: E402

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


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
@pytest.mark.filterwarnings("ignore")  # gloo tells that it guesses a device
def test_collectives_are_marked(tmp_path: Path) -> None:
    import torch.distributed as dist

    before = dist.all_reduce, dist.barrier
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        recorder = record()
        x = torch.ones(3)
        recorder.clear()
        dist.all_reduce(x)
        dist.broadcast(x, src=0)
        dist.all_gather([torch.empty(3)], x)
        dist.barrier()
        found = [op for op in recorder.ops if op.startswith("torch.distributed")]
        names = ("all_reduce", "broadcast", "all_gather", "barrier")
        assert found == [f"torch.distributed.{name}" for name in names]
        assert recorder.markers[0].args[0]["shape"] == [3]
    finally:
        dist.destroy_process_group()
    pyprof.deinit()
    assert (dist.all_reduce, dist.barrier) == before


class Domain:
    """NVTX as a tool sees it."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.seen: list[tuple[int, str]] = []

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, message: str) -> None:
        self.seen.append((len(self.open), message))
        self.open.append(message)

    def pop_range(self) -> None:
        self.open.pop()


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Domain:
    from pyprof.capture import sinks

    found = Domain()
    monkeypatch.setattr(sinks, "_nvtx_domain", lambda: found)
    return found


def test_optimizer_and_data_ranges_reach_nvtx(domain: Domain) -> None:
    pyprof.init(sink="nvtx", autograd=False)  # with it, PyTorch pushes them itself
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(torch.ones(2, 2), batch_size=1):
        net(batch).sum().backward()
        optimizer.step()
    mine, fails = torch.profiler.record_function("mine"), torch.profiler.record_function("fails")
    with mine, pytest.raises(ZeroDivisionError), fails:
        1 / 0  # noqa: B018
    assert domain.open == []
    seen = [text for _, text in domain.seen]
    assert seen.count("Optimizer.step#SGD.step") == 2
    assert any(text.startswith("enumerate(DataLoader)") for text in seen)
    assert (0, "mine") in domain.seen and (1, "fails") in domain.seen
    inside = domain.seen[seen.index("Optimizer.step#SGD.step") + 1]
    assert inside[0] == 1 and '"op"' in inside[1]


def test_they_are_not_doubled_where_pytorch_s_profiler_has_them(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    with torch.profiler.profile(), torch.profiler.record_function("mine"):
        torch.relu(torch.ones(1))
    assert "mine" not in [text for _, text in domain.seen]
    assert domain.open == []
