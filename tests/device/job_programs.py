"""GPTs on two GPUs, each clean and with a straggler of a known kind, captured per rank, and what was injected.

    python tests/device/job_programs.py OUT --cases ddp.clean ddp.host ..      two processes; OUT/CASE/rank0.json.gz, ..
                                                                               and OUT/truth-FORM.rank0.json
    RANK=0 nsys profile .. python tests/device/job_programs.py OUT --cases ddp.host --nsys     one process per rank

All cases run without a profiler first: the time of a step by the host's clock, as every step ends with ``loss.item()``.
Then they run again and are captured. Stragglers: ``host`` sleeps between forward and backward, ``layers`` runs two more
blocks, ``data`` waits for its data loader, ``copy`` copies from pageable memory, ``gc`` collects garbage, ``busy``
shares its GPU with another process, ``launch`` does something before each linear layer.
``tpbusy`` is ``tp`` with six times the batch: the GPU sets the pace.

--one-gpu: both ranks on one GPU, which they share by CUDA's multi-process service, if it was started before
(nvidia-cuda-mps-control -d), and a smaller model, as NCCL then goes through sockets.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from job_model import SIZES, Config, model_of, optimizer_of, train_of
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import pyprof

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SLEEP_S = 0.006
SLOW = {"host": 1, "layers": 0, "data": 1, "copy": 0, "gc": 1, "busy": 1, "launch": 0, "skew": 1}  # which rank
EXTRA_BLOCKS = 2
PAGEABLE_BYTES = 64 << 20 if DEVICE == "cuda" else 1 << 20
GARBAGE = 500_000 if DEVICE == "cuda" else 20_000  # objects that each collection visits
LAUNCH_S = 200e-6  # at 37 layers: more than the profiler's cost differs between two hosts
WARM, TIMED, CAPTURED = 4, 16, 5
BUS_MIB = (64, 256) if DEVICE == "cuda" else (1, 2)
BUS_CALLS = 20


class Batches(Dataset):  # type: ignore[type-arg]
    def __init__(self, config: Config, delay_s: float) -> None:
        self.config, self.delay_s = config, delay_s
        self.spent: list[float] = []

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, place: int) -> Tensor:
        begin = time.perf_counter()
        if self.delay_s:
            time.sleep(self.delay_s)
        self.spent.append(time.perf_counter() - begin)
        return torch.randint(self.config.vocabulary, (self.config.batch, self.config.context))


class Case:
    """A case on this rank: its step, and what its injected delays took."""

    size = "cuda"

    def __init__(self, name: str, rank: int) -> None:
        self.name = name
        form, self.state = name.split(".")
        self.slow = SLOW.get(self.state) == rank
        size = "launches" if "launch" in self.state else "busy" if form == "tpbusy" else self.size
        config = SIZES["cpu" if DEVICE == "cpu" else size]
        extra = EXTRA_BLOCKS if self.slow and self.state == "layers" else 0
        shares = () if form != "moe" else (0.25, 0.75) if self.state == "skew" else (0.5, 0.5)
        model = model_of(form, config, DEVICE, extra, shares)
        self.optimizer = optimizer_of(model)
        self.train = train_of(form, model, DEVICE)
        self.data = Batches(config, SLEEP_S if self.slow and self.state == "data" else 0.0)
        self.batches: Iterator[Tensor] = iter(DataLoader(self.data, batch_size=None))
        self.spent: list[float] = []
        self.parts = {"host": self._sleep, "copy": self._copy, "gc": gc.collect}
        self.pageable = torch.ones(PAGEABLE_BYTES // 4)
        self.garbage = [[i] for i in range(GARBAGE)] if self.slow and self.state == "gc" else []
        if self.slow and self.state == "launch":
            self._delay_launches(model)

    def _sleep(self) -> None:
        time.sleep(SLEEP_S)

    def _copy(self) -> None:
        self.pageable.to(DEVICE)

    def _delay_launches(self, model: nn.Module) -> None:
        def delay(*_: object) -> None:
            begin = time.perf_counter()
            while time.perf_counter() < begin + LAUNCH_S:
                pass
            self.delays += time.perf_counter() - begin

        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_pre_hook(delay)

    def inject(self) -> None:
        begin = time.perf_counter()
        if self.slow and self.state in self.parts:
            self.parts[self.state]()
        self.delays += time.perf_counter() - begin

    def step(self) -> float:
        self.delays = 0.0
        ids = next(self.batches).to(DEVICE)
        self.optimizer.zero_grad()
        loss = self.train(ids, self.inject)
        self.optimizer.step()
        value = loss.item()
        self.spent.append(self.delays + self.data.spent[-1])
        return value


class Bus:
    """Collectives of one size, each call of which CUDA events time."""

    def __init__(self, mib: int) -> None:
        world = dist.get_world_size()
        count = (mib << 20) // 4
        whole, part = torch.ones(count, device=DEVICE), torch.ones(count // world, device=DEVICE)
        other = torch.empty_like(whole)
        self.calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "all_gather": lambda: dist.all_gather_into_tensor(other, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        }
        self.found: dict[str, list[float]] = {name: [] for name in self.calls}

    def step(self) -> None:
        """Each collective several times between two events, and the time per call in ms."""
        for name, call in self.calls.items():
            _synchronize()
            dist.barrier()
            call()  # after this one the ranks are in step
            begin = _event()
            for _ in range(BUS_CALLS):
                call()
            end = _event()
            _synchronize()
            took = begin.elapsed_time(end) if DEVICE == "cuda" else (end - begin) * 1e3
            self.found[name].append(took / BUS_CALLS)


def _event() -> Any:
    if DEVICE == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def made(name: str, rank: int) -> Any:
    return Bus(int(name.split(".")[1])) if name.startswith("bus.") else Case(name, rank)


def truth_of(name: str, rank: int) -> dict[str, Any]:
    """What the case takes without a profiler: the time of each step by the host's clock, and the injected delays."""
    case = made(name, rank)
    for _ in range(WARM):
        case.step()
    if isinstance(case, Bus):
        case.found = {op: [] for op in case.calls}
    dist.barrier()
    steps = []
    for _ in range(TIMED):
        _synchronize()
        begin = time.perf_counter()
        case.step()
        steps.append(1e3 * (time.perf_counter() - begin))
    found: dict[str, Any] = {"case": name, "rank": rank, "step_ms": steps}
    if isinstance(case, Bus):
        return found | {"call_ms": case.found}
    return found | {"slow": case.slow, "injected_ms": [1e3 * each for each in case.spent[-TIMED:]]}


def captured(name: str, rank: int, out: Path) -> dict[str, Any]:
    """A capture of the case; returns what was measured while it was recorded."""
    case = made(name, rank)
    for _ in range(WARM):
        case.step()
    folder = out / name
    folder.mkdir(exist_ok=True)
    dist.barrier()
    with pyprof.profile(folder / f"rank{rank}.json.gz", force=True, trace=True, warmup=2, steps=CAPTURED):
        for _ in range(2 + CAPTURED):
            case.step()
            pyprof.step()
    if isinstance(case, Bus):
        return {"captured_call_ms": {op: found[-CAPTURED:] for op, found in case.found.items()}}
    return {"captured_injected_ms": [1e3 * each for each in case.spent[-CAPTURED:]]}


def under_nsys(name: str, rank: int) -> None:
    pyprof.init(trace=True)
    case = made(name, rank)
    for _ in range(WARM):
        case.step()
    dist.barrier()
    pyprof.start()
    for _ in range(CAPTURED):
        case.step()
        pyprof.step()
    pyprof.stop()


def neighbour(stop: Any) -> None:
    """Another program on the GPU of the slow rank."""
    torch.cuda.set_device(SLOW["busy"])
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    while not stop.is_set():
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()


def work(rank: int, args: argparse.Namespace, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if args.one_gpu:  # NCCL refuses two ranks on one GPU of one host, so they say that they are on two
        os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
        os.environ.update(NCCL_SOCKET_NTHREADS="2", NCCL_NSOCKS_PERTHREAD="4")
        Case.size = "shared"
    gpu = 0 if args.one_gpu else rank
    if DEVICE == "cuda":
        torch.cuda.set_device(gpu)
    torch.set_num_threads(1)
    _bind(rank)
    device = torch.device("cuda", gpu) if DEVICE == "cuda" else None
    dist.init_process_group("nccl" if device else "gloo", rank=rank, world_size=2, device_id=device)
    done = False
    try:
        _all_cases(rank, args)
        done = True
    finally:
        if not done:  # the other rank waits in a collective: end at once, so that the parent ends it, too
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    dist.destroy_process_group()


def _bind(rank: int) -> None:
    """To half of the cores, so that no thread of one rank takes the core of the other's."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    if half:
        os.sched_setaffinity(0, cores[rank * half : (rank + 1) * half])


def _all_cases(rank: int, args: argparse.Namespace) -> None:
    if args.nsys:
        under_nsys(args.cases[0], rank)
        return
    file = args.out / f"truth-{args.cases[0]}.rank{rank}.json"
    found: dict[str, dict[str, Any]] = {}
    for turn in (truth_of, lambda name, rank: captured(name, rank, args.out)):
        for name in args.cases:
            stop = _beside(name, rank)
            begin = time.perf_counter()
            found[name] = found.get(name, {}) | turn(name, rank)
            file.write_text(json.dumps([*found.values()], indent=1))
            if stop:
                stop.set()
            gc.collect()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            if rank == 0:
                sys.stdout.write(f"{name}: {time.perf_counter() - begin:.1f} s\n")
                sys.stdout.flush()


def _beside(name: str, rank: int) -> Any:
    """Starts the other program where the case has one; returns the event that ends it."""
    if name.endswith(".busy") and DEVICE == "cuda":
        stop = None
        if rank == SLOW["busy"]:
            context = mp.get_context("spawn")
            stop = context.Event()
            context.Process(target=neighbour, args=(stop,), daemon=True).start()
            time.sleep(8)
        dist.barrier()
        return stop
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", nargs="+", required=True)
    parser.add_argument("--nsys", action="store_true", help="this process is the rank $RANK, which nsys records")
    parser.add_argument("--one-gpu", action="store_true", help="both ranks share a GPU and talk through sockets")
    parser.add_argument("--port", type=int, default=29517)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.nsys:
        work(int(os.environ["RANK"]), args, args.port)
    else:
        mp.spawn(work, args=(args, args.port), nprocs=2)
