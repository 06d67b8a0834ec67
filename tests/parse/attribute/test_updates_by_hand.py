"""Real programs on the CPU that clip and update by hand: which of their ops belong to the optimizer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyprof.table.columns import Table
from tests.tables import parsed

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def recorded(path: Path, train: Callable[[Any, Any], None]) -> Table:
    """The table of two steps of a small network, of which ``train`` does the part after the backward pass."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    state = {p: torch.zeros_like(p) for p in model.parameters()}
    x, y = torch.randn(32, 8), torch.randint(4, (32,))
    with torch.profiler.profile(record_shapes=True) as profiler:
        for _ in range(2):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            train(model, state)
            for p in model.parameters():
                p.grad = None
    profiler.export_chrome_trace(str(path))
    return parsed(path)


def phases(table: Table) -> dict[str, set[str]]:
    """The phases of each op that is a row."""
    found: dict[str, set[str]] = {}
    for op, phase in zip(table.coded("op").texts(), table.coded("phase").texts(), strict=True):
        found.setdefault(json.loads(op)[-1] if op else "", set()).add(phase)
    return found


def clipped_sgd(model: Any, _: Any) -> None:
    with torch.no_grad():
        total = torch.sqrt(sum(p.grad.norm() ** 2 for p in model.parameters()))
        for p in model.parameters():
            p.grad.mul_(torch.clamp(1 / (total + 1e-6), max=1.0))
            p.sub_(0.1 * p.grad)


def momentum_by_data(model: Any, state: Any) -> None:
    """Without no_grad: the ops show autograd's number."""
    for p in model.parameters():
        state[p].mul_(0.9).add_(p.grad)
        p.data.sub_(state[p], alpha=0.1)


def lists(model: Any, _: Any) -> None:
    parameters = list(model.parameters())
    with torch.no_grad():
        torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-0.1)


def clipping_alone(model: Any, _: Any) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@pytest.mark.parametrize(
    ("train", "ops"),
    [
        (clipped_sgd, {"sqrt", "clamp", "mul_", "sub_", "pow"}),
        (momentum_by_data, {"mul_", "sub_"}),
        (lists, {"_foreach_add_"}),
        (clipping_alone, {"stack"}),
    ],
)
def test_clipping_and_updates(tmp_path: Path, train: Callable[[Any, Any], None], ops: set[str]) -> None:
    found = phases(recorded(tmp_path / "trace.json", train))
    assert {op: found[op] for op in ops} == {op: {"optimizer"} for op in ops}
    for op in ("linear", "relu"):
        assert found[op] == {"forward", "backward"}
    assert "optimizer" in found.get("norm", {"optimizer"})


def test_without_an_update_there_is_no_optimizer(tmp_path: Path) -> None:
    """Reading a metric after the backward pass, which adds to a buffer in place, is none."""
    total = torch.zeros(4)

    def metric(model: Any, _: Any) -> None:
        with torch.no_grad():
            total.add_(model[2].bias)

    found = phases(recorded(tmp_path / "trace.json", metric))
    assert all("optimizer" not in named for named in found.values())


def test_inference_that_changes_tensors_in_place_has_no_optimizer(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    buffers = [torch.randn(64), torch.randn(64)]
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as profiler:
        for _ in range(3):
            torch._foreach_copy_(buffers, [torch.randn(64), torch.randn(64)])
            buffers[0].add_(buffers[1]).norm()
    profiler.export_chrome_trace(str(path))
    assert "optimizer" not in set(parsed(path).coded("phase").texts())
