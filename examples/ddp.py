"""Two ranks under DistributedDataParallel: one capture per rank, and one table of both.

    python examples/ddp.py

Each rank collects its own file, since each is a process of its own. The kernel table has a column `rank`, and with the
files of all ranks it knows who waited for whom. Uses NCCL where there are two GPUs, else gloo on the CPU.
(Under torchrun no change is needed: `torchrun --nproc-per-node 2 -m pyprof run train.py` writes net.rank0.json.gz, ...)
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pyprof

RANKS = 2
FILES = [f"ddp.rank{rank}.json.gz" for rank in range(RANKS)]


def train(rank, meeting_point):
    on_gpu = torch.cuda.device_count() >= RANKS
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)  # the ranks share this machine's cores
    dist.init_process_group("nccl" if on_gpu else "gloo", f"file://{meeting_point}", rank=rank, world_size=RANKS)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(32, 256, device=device), torch.randint(10, (32,), device=device)

    with pyprof.profile(FILES[rank], force=True, warmup=2, steps=2):
        for _ in range(4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            pyprof.step()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (Path(folder) / "meeting",), RANKS)

    profile = pyprof.load(*FILES)  # as `pyprof parse ddp.rank*.json.gz -o ddp.parquet` makes one table of both
    print(f"{profile.totals.rows} operations of {RANKS} ranks")
    print(profile.group("rank,phase")[["rank", "phase", "count", "time"]].to_string(index=False))
    print("\nCollectives (wait: until the last rank came, in ns; known on GPUs):")
    collectives = profile.where("family == 'collective'").kernels
    print(collectives[["rank", "step", "aten", "sil", "wait"]].to_string(index=False))


if __name__ == "__main__":
    main()
