"""torch.distributed's collectives are marked, and put back."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402

from .conftest import record  # noqa: E402

pytestmark = pytest.mark.torch


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
