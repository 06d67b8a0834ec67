"""PyTorch's record_function ranges under NVTX: optimizer steps, data loading, the user's own."""

from contextlib import suppress

import pytest

torch = pytest.importorskip("torch")

import torch.nn as nn  # noqa: E402

import pyprof  # noqa: E402
from pyprof.parse.kineto.cpu_rows import Role, op_roles  # noqa: E402

from .conftest import Domain, Recorder  # noqa: E402

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


# Values that Python reads


class Subclass(torch.Tensor):
    pass


ONE = torch.ones(())
UNMARKED = [ONE.item, ONE.tolist, ONE.__bool__, ONE.__float__, ONE.__int__, lambda: [5, 6][torch.tensor(1)]]


def test_reading_a_value_of_the_cpu_is_not_marked(recorder: Recorder) -> None:
    """It launches nothing, waits for nothing, and is no row of any capture."""
    assert [read() for read in UNMARKED] == [1.0, 1.0, True, 1.0, 1, 6]
    assert recorder.ops == ["torch.tensor"]
    roles = op_roles()
    assert {roles[name] for name in ("item", "is_nonzero", "_local_scalar_dense")} == {Role.CALLS}


MARKED = [
    torch.empty((), device="meta"),  # as on a GPU, but that it has no value
    torch.ones(()).as_subclass(Subclass),
    torch.tensor(1j).conj(),  # both are computed before they are read, which is work
    torch.tensor(1j).conj().imag,
]


@pytest.mark.parametrize("tensor", MARKED, ids=["another device", "subclass", "conjugated", "negated"])
def test_reading_any_other_value_is_marked(recorder: Recorder, tensor: torch.Tensor) -> None:
    with suppress(RuntimeError):
        tensor.item()
    assert recorder.ops == ["Tensor.item"]


def test_a_step_of_adam_reads_its_counts_unmarked(recorder: Recorder) -> None:
    """Two values per parameter: 296 of the 148 parameters of GPT-2 small."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert "torch._foreach_addcdiv_" in recorder.ops
    assert "Tensor.item" not in recorder.ops
