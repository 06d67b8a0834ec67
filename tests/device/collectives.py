"""Every collective on all GPUs of a machine, timed by CUDA events and seen by a profiler, to compare bus bandwidths.

    python tests/device/collectives.py OUT                     one process a GPU; writes OUT/timed.json and
                                                               OUT/rank0.json.gz (torch.profiler)
    nsys profile -t cuda,nvtx -s none --cpuctxsw=none -o OUT/net python tests/device/collectives.py OUT --plain
    nsys export --type sqlite --include-blobs=true -o OUT/net.sqlite OUT/net.nsys-rep

`timed.json`: for each collective its bytes (the whole buffer) and the best of ten times, of the slowest rank, in s.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

SIZES = (1 << 20, 1 << 28)  # bytes of the whole buffer
TIMES = 10


def calls(world: int, rank: int, size: int) -> dict[str, Callable[[], object]]:
    """A call of each collective whose whole buffer has ``size`` bytes."""
    count = size // 4
    whole, part = torch.ones(count, device="cuda"), torch.ones(count // world, device="cuda")
    parts = list(torch.ones(world, count // world, device="cuda").unbind())
    half, other = whole.bfloat16(), torch.empty_like(whole)

    def pair() -> None:
        ahead, behind = (rank + 1) % world, (rank - 1) % world
        ops = [dist.P2POp(dist.isend, whole, ahead), dist.P2POp(dist.irecv, other, behind)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def coalesced() -> None:
        with dist._coalescing_manager(device=torch.device("cuda", rank)):  # as DDP's and FSDP's buckets
            for tensor in parts:
                dist.all_reduce(tensor)

    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_reduce bf16": lambda: dist.all_reduce(half, op=dist.ReduceOp.MAX),
        "all_gather": lambda: dist.all_gather_into_tensor(other, part),
        "all_gather list": lambda: dist.all_gather(parts, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "broadcast": lambda: dist.broadcast(whole, 1),
        "reduce": lambda: dist.reduce(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "send and recv": pair,
        "gather": lambda: dist.gather(part, parts if rank == 0 else None, 0),
        "scatter": lambda: dist.scatter(part, parts if rank == 0 else None, 0),
        "coalesced": coalesced,
    }


def timed(call: Callable[[], object]) -> float:
    """The best time of the slowest rank, in seconds."""
    best = []
    for _ in range(TIMES):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        took = torch.tensor(begin.elapsed_time(end) / 1e3, device="cuda")
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        best.append(float(took))
    return min(best)


def work(rank: int, world: int, out: str, plain: bool) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    every = [
        (f"{name} {size >> 20} MiB", size, call) for size in SIZES for name, call in calls(world, rank, size).items()
    ]
    for _, _, call in every:  # NCCL makes its channels and buffers in the first call
        call()
    found = {} if plain else {name: [size, timed(call)] for name, size, call in every}

    def again() -> None:
        for _ in range(2):
            for name, _, call in every:
                torch.cuda.synchronize()
                dist.barrier()
                torch.cuda.synchronize()
                with torch.profiler.record_function(name):
                    torch.cuda.nvtx.range_push(name)
                    call()
                    torch.cuda.nvtx.range_pop()
        torch.cuda.synchronize()

    if plain:
        again()
    else:
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds, record_shapes=True) as profiler:
            again()
        profiler.export_chrome_trace(f"{out}/rank{rank}.json.gz")
    if rank == 0 and found:
        Path(out, "timed.json").write_text(json.dumps({"ranks": world, "timed": found}, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--plain", action="store_true", help="no profiler of torch's, and no timing: for nsys")
    args = parser.parse_args()
    world = torch.cuda.device_count()
    torch.multiprocessing.spawn(work, args=(world, args.out, args.plain), nprocs=world)
