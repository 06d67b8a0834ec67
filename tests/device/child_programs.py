"""Programs of several processes and threads, whose products have FLOPs known by hand; each prints them.

    pyprof run -m torch.distributed.run --nproc-per-node 2 tests/device/child_programs.py ranks
    pyprof run tests/device/child_programs.py spawned
    pyprof run tests/device/child_programs.py server

Process or engine i uses GPU i, or the GPU there is. Two ranks of one GPU talk by gloo.
"""

import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, LAYERS, STEPS = 2048, 4096, 4, 12
SQUARE, TIMES = 1024, 5
REQUESTS, ROWS, INNER, OUTER = 20, 256, 512, 2048


def device_of(number: int) -> torch.device:
    return torch.device("cuda", number % torch.cuda.device_count())


def told(flops: int) -> None:
    sys.stdout.write(f"FLOPs of products: {flops}\n")


def ranks() -> None:
    """Per step: two products of each layer's forward in its backward, less the gradient of the input."""
    dist.init_process_group("nccl" if torch.cuda.device_count() > 1 else "gloo")
    device = device_of(dist.get_rank())
    torch.cuda.set_device(device)
    layers = [module for _ in range(LAYERS) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(BATCH, WIDTH, device=device)).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    told(STEPS * 2 * BATCH * WIDTH * WIDTH * (3 * LAYERS - 1))
    dist.destroy_process_group()


def work(number: int) -> None:
    device = device_of(number)
    x, layer = torch.randn(SQUARE, SQUARE, device=device), nn.Linear(SQUARE, SQUARE).to(device)
    with torch.no_grad():
        for _ in range(TIMES):
            x = layer(x)
    torch.cuda.synchronize()
    told(TIMES * 2 * SQUARE**3)


def spawned() -> None:
    torch.multiprocessing.spawn(work, nprocs=2)


def server() -> None:
    """Two engines that started before take requests, which four clients make, from a queue."""
    models = [
        nn.Sequential(nn.Linear(INNER, OUTER), nn.ReLU(), nn.Linear(OUTER, INNER)).to(device_of(i)) for i in (0, 1)
    ]
    requests: queue.Queue[torch.Tensor | None] = queue.Queue()

    def engine(number: int) -> None:
        with torch.no_grad():
            while (x := requests.get()) is not None:
                models[number](x.to(device_of(number))).sum().item()

    engines = [threading.Thread(target=engine, args=(number,)) for number in (0, 1)]
    for thread in engines:
        thread.start()
    with ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda _: requests.put(torch.randn(ROWS, INNER)), range(REQUESTS)))
    for _ in engines:
        requests.put(None)
    for thread in engines:
        thread.join()
    told(REQUESTS * 2 * 2 * ROWS * INNER * OUTER)


PROGRAMS = {"ranks": ranks, "spawned": spawned, "server": server}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
