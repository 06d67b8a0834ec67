"""Distributed tensors: PyTorch learns shapes by running ops on fake tensors, which are no work of the program."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.tensor", reason="torch before 2.5")

import torch.distributed as dist  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed.tensor import Replicate, Shard, distribute_tensor  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

import pyprof  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from tests.tables import parsed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def mesh() -> Iterator[Any]:
    """Four ranks, of which this process is the first; communication does nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
        yield dist.device_mesh.init_device_mesh("cpu", (4,))
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("size", "call", "flop"),  # a quarter of the rows: 2*16*64*64, 2*24*96*96, 2*8*32*32
    [(64, torch.mm, 131_072), (96, torch.ops.aten.mm.default, 442_368), (32, torch.matmul, 16_384)],
)
def test_the_first_call_counts_as_the_others(mesh: Any, size: int, call: Any, flop: int) -> None:
    a = distribute_tensor(torch.ones(size, size), mesh, [Shard(0)])
    b = distribute_tensor(torch.ones(size, size), mesh, [Replicate()])
    counts = [pyprof.count(call, a, b) for _ in range(2)]
    assert [work.flops for work in counts] == [flop] * 2
    assert not counts[0].unknown


def test_the_first_backward_counts_as_the_others(mesh: Any) -> None:
    a = distribute_tensor(torch.ones(48, 48), mesh, [Shard(0)]).requires_grad_()
    b = distribute_tensor(torch.ones(48, 48), mesh, [Replicate()])
    ones = distribute_tensor(torch.ones(48, 48), mesh, [Shard(0)])
    found = []
    for _ in range(2):
        with pyprof.count() as work:
            torch.autograd.grad(torch.mm(a, b), a, ones)
        found.append((work.forward.flop, work.backward.flop))
    assert found == [(55_296, 55_296)] * 2  # 2*12*48*48


def test_a_capture_of_the_first_call_has_the_work_of_this_rank(mesh: Any, tmp_path: Path) -> None:
    a = distribute_tensor(torch.ones(40, 40), mesh, [Shard(0)]).requires_grad_()
    b = distribute_tensor(torch.ones(40, 40), mesh, [Replicate()])
    ones = distribute_tensor(torch.ones(40, 40), mesh, [Shard(0)])
    pyprof.init()
    try:
        with pyprof.profile(str(tmp_path / "net.json")):
            torch.autograd.grad(torch.mm(a, b), a, ones)
    finally:
        pyprof.deinit()
    table = parsed(tmp_path / "net.json")
    rows = zip(table.coded("aten").texts(), table.coded("dir").texts(), annotate(table).flops.tolist(), strict=True)
    assert [row for row in rows if row[0] == "aten::mm"] == [  # 2*10*40*40
        ("aten::mm", "fprop", 32_000),
        ("aten::mm", "bprop", 32_000),
    ]


def test_the_first_step_of_a_sharded_optimizer_counts_as_the_others(mesh: Any) -> None:
    fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard
    net = torch.nn.Linear(64, 64, bias=False)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        net(torch.ones(8, 64)).sum().backward()
        with pyprof.count() as work:
            optimizer.step()
        found.append(work.flops)
    assert found == [2048] * 3  # this rank's 16 rows of 64: p - lr * g, 2 each


def test_fake_tensors_of_the_program_count_wherever_the_mode_begins() -> None:
    def step() -> None:
        x, w = torch.ones(4, 5), torch.ones(6, 5, requires_grad=True)
        torch.nn.functional.linear(x, w).sum().backward()

    with pyprof.count() as inside, FakeTensorMode():
        step()
    with FakeTensorMode(), pyprof.count() as outside:
        step()
    for work in (inside, outside):
        assert (work.ops["linear"].forward.flop, work.ops["linear"].backward.flop) == (240, 240)
        assert not work.unknown
