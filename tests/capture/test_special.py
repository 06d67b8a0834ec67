"""PyTorch's record_function ranges under NVTX: optimizer steps, data loading, the user's own."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402

import pyprof  # noqa: E402

from .conftest import Domain  # noqa: E402

pytestmark = pytest.mark.torch


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


def test_ranges_are_not_doubled_where_pytorch_s_profiler_has_them(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    with torch.profiler.profile(), torch.profiler.record_function("mine"):
        torch.relu(torch.ones(1))
    assert "mine" not in [text for _, text in domain.seen]
    assert domain.open == []
