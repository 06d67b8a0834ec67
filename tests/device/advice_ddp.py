"""Programs for the advice on communication, on two GPUs of one host.

    torchrun --nproc-per-node 2 tests/device/advice_ddp.py FOLDER

As advice_measured.py, of which it takes the measuring: rank 0 writes its times and captures.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from advice_case import CASES, DEVICE, ON_GPU, Step, case
from advice_measured import captured, measured
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import pyprof

PART = "ddp"


def linears(count: int, width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count))).to(DEVICE)


def stepped(model: nn.Module, width: int, rows: int) -> Step:
    x = torch.randn(rows, width, device=DEVICE)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(x).float().mean()
        loss.backward()

    return step


def parallel(model: nn.Module, megabytes: int) -> DistributedDataParallel:
    devices = [torch.cuda.current_device()] if ON_GPU else None
    return DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=megabytes)


@case("communication", PART)
def wide_gradients(changed: bool) -> Step:
    model = parallel(linears(16, 4096 if ON_GPU else 64), 25)
    if changed and ON_GPU:
        model.register_comm_hook(None, bf16_compress_hook)
    return stepped(model, 4096 if ON_GPU else 64, 1024)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ["LOCAL_RANK"])
    if ON_GPU:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    rows = []
    for one in [one for one in CASES.values() if one.part == PART]:
        row: dict[str, object] = {"case": one.name, "rule": one.rule}
        for state in ("before", "after"):
            torch.manual_seed(0)
            step = one.make(state == "after")
            row[state] = measured(step, steps=20)
            captured(step, folder / (f"{one.name}.{state}.json.gz" if not rank else f"other{rank}.json.gz"))
            dist.barrier()
        rows.append(row)
        if not rank:
            print(json.dumps(row), flush=True)
            (folder / "times-ddp.json").write_text(json.dumps(rows, indent=1))
    (folder / f"other{rank}.json.gz").unlink(missing_ok=True)
    pyprof.deinit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
