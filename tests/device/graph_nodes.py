"""What a node of a CUDA graph costs beside its kernel's own work: the experiment behind ``pyprof bench``'s subtraction.

    python3 tests/device/graph_nodes.py pitch --out pitch.json
    nsys profile -t cuda -s none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
        --export=sqlite -f true -o eager python3 tests/device/graph_nodes.py eager
    nsys profile ... --cuda-graph-trace=node -o nodes python3 tests/device/graph_nodes.py nodes
    python3 tests/device/graph_nodes.py read --eager eager.sqlite --nodes nodes.sqlite --pitch pitch.json --out all.json

``pitch`` times graphs without a profiler: ns per node, with different pauses before each replay, and with kernels that
do nothing after each kernel. ``eager`` launches the same kernels one by one, ``nodes`` replays the graphs, both under
nsys. Each case launches one kernel per call. "warm" has the same memory in all calls; "cold" turns to other memory,
three times as much as the L2 holds, "read" only for its inputs, "write" only for its results.
"""

import argparse
import json
import math
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

BEYOND = 160 << 20  # bytes; an H200's L2 has 50 MiB
MOST, NODES, EAGER = 40_000, 1000, 300
MARK = 777_216  # bytes that a memset before each case fills
PAUSES_MS = (0, 10, 30)
BF16 = torch.bfloat16
Call = Callable[[], object]


def empty() -> None:
    torch.cuda._sleep(0)


def pointwise(op: str, count: int, dtype: torch.dtype, mode: str) -> list[Call]:
    """Calls of an op of one or two inputs with a result of its own; ``mode`` says which of them turn."""
    inputs = 2 if op == "add" else 1
    nbytes = count * torch.empty((), dtype=dtype).element_size()
    turning = {"warm": 0, "read": inputs, "write": 1, "cold": inputs + 1}[mode]
    sets = min(MOST, math.ceil(BEYOND / (nbytes * turning))) if turning else 1
    reads = sets if mode in ("read", "cold") else 1
    writes = sets if mode in ("write", "cold") else 1
    x = torch.randn(reads, inputs, count, device="cuda").to(dtype)
    out = torch.empty(writes, count, device="cuda", dtype=dtype)
    calls = []
    for i in range(sets):
        a, o = x[i % reads], out[i % writes]
        if op == "relu":
            calls.append(lambda a=a[0], o=o: torch.clamp_min(a, 0, out=o))
        elif op == "add":
            calls.append(lambda a=a[0], b=a[1], o=o: torch.add(a, b, out=o))
        else:
            calls.append(lambda a=a[0], o=o: torch.sum(a, 0, out=o[0]))
    return calls


def whole(make: Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]], mode: str) -> list[Call]:
    """Calls of a function of PyTorch whose inputs turn, and whose results have new memory in each call."""
    function, args = make()
    nbytes = sum(t.nbytes for t in args) + function(*args).nbytes
    sets = min(MOST, math.ceil(BEYOND / nbytes)) if mode == "cold" else 1
    copies = [tuple(t.clone() for t in args) for _ in range(sets)]
    kept: list[Any] = [None] * sets

    def call(i: int) -> None:
        kept[i] = function(*copies[i])

    return [lambda i=i: call(i) for i in range(sets)]


def cases() -> dict[str, Callable[[], list[Call]]]:
    found: dict[str, Callable[[], list[Call]]] = {"empty": lambda: [empty]}
    for cycles in (500, 2000, 5000):
        found[f"spin {cycles}"] = lambda cycles=cycles: [lambda: torch.cuda._sleep(cycles)]
    for k in (10, 12, 16, 20, 22):
        for mode in ("warm", "cold", *(("read", "write") if k in (12, 16, 20) else ())):
            found[f"relu bf16 2^{k} {mode}"] = lambda k=k, mode=mode: pointwise("relu", 1 << k, BF16, mode)
    for mode in ("warm", "cold"):
        found[f"add fp32 2^12 {mode}"] = lambda mode=mode: pointwise("add", 1 << 12, torch.float32, mode)
        found[f"sum fp32 2^12 {mode}"] = lambda mode=mode: pointwise("sum", 1 << 12, torch.float32, mode)
        found[f"softmax bf16 1024x1024 {mode}"] = lambda mode=mode: whole(
            lambda: (lambda x: torch.softmax(x, -1), (randn(1024, 1024),)), mode
        )
        found[f"layer_norm bf16 512x768 {mode}"] = lambda mode=mode: whole(
            lambda: (lambda x: F.layer_norm(x, (768,)), (randn(512, 768),)), mode
        )
        for m, n, k in ((64, 768, 768), (1024, 1024, 1024)):
            found[f"linear bf16 {m}x{n}x{k} {mode}"] = lambda mode=mode, m=m, n=n, k=k: whole(
                lambda: (F.linear, (randn(m, k), randn(n, k))), mode
            )
    return found


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(BF16)


def recorded(calls: list[Call], least: int, after: int = 0) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of at least so many calls, each followed by ``after`` kernels that do nothing; and how many calls."""
    rounds = max(1, least // len(calls))
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
                for _ in range(after):
                    empty()
    return graph, rounds * len(calls)


def per_call_us(graph: torch.cuda.CUDAGraph, calls: int, pause_ms: float, burst_s: float) -> tuple[float, float]:
    """The median and the least of several bursts of replays."""
    graph.replay()
    torch.cuda.synchronize()
    found, times = [], 1
    for trial in range(6):
        if trial:
            time.sleep(pause_ms * 1e-3)
        if pause_ms:
            graph.replay()  # as pyprof bench does: lets the GPU leave its idle clock
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        end.synchronize()
        took = begin.elapsed_time(end) * 1e3
        if trial:
            found.append(took / times / calls)
        times = max(1, round(burst_s * 1e6 / (took / times)))
    return statistics.median(found), min(found)


def pitch() -> dict[str, Any]:
    found: dict[str, Any] = {}
    began = time.perf_counter()
    torch.randn(8192, 8192, device="cuda").mm(torch.randn(8192, 8192, device="cuda"))
    for name, make in cases().items():
        calls = make()
        graph, count = recorded(calls, NODES)
        row = {f"pause {pause}": per_call_us(graph, count, pause, 0.004) for pause in PAUSES_MS}
        del graph
        if len(calls) <= 12_000:
            for after in (1, 2, 4):
                graph, count = recorded(calls, NODES, after)
                row[f"after {after}"] = per_call_us(graph, count, 10, 0.004)
                del graph
        found[name] = {"copies": len(calls), **row}
        sys.stdout.write(f"{time.perf_counter() - began:6.1f} s {name} {row}\n")
    return found


def eager() -> None:
    """Each call after the one before, as a program launches them; a memset of MARK bytes begins each case."""
    mark, made = torch.empty(MARK, dtype=torch.uint8, device="cuda"), {name: make() for name, make in cases().items()}
    for calls in made.values():
        [call() for call in islice(calls, EAGER)]
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for calls in made.values():
        mark.zero_()
        for i in range(EAGER):
            calls[i % len(calls)]()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def nodes() -> None:
    mark = torch.empty(MARK, dtype=torch.uint8, device="cuda")
    made = {name: make() for name, make in cases().items()}
    graphs = [recorded(calls, NODES)[0] for calls in made.values()]
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for graph in graphs:
        mark.zero_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def seen(sqlite: Path) -> list[dict[str, float]]:
    """Per case, in µs: the kernels' median duration, the time between their starts, and the gap between them."""
    with closing(sqlite3.connect(sqlite)) as base:
        rows = base.execute(
            'select start, "end", 0 from CUPTI_ACTIVITY_KIND_KERNEL union all '
            'select start, "end", bytes from CUPTI_ACTIVITY_KIND_MEMSET order by 1'
        ).fetchall()
    groups: list[list[tuple[int, int]]] = []
    for start, end, nbytes in rows:
        if nbytes == MARK:
            groups.append([])
        elif groups:
            groups[-1].append((start, end))
    found = []
    for group in groups:
        later = list(pairwise(group[20:]))
        durations = [end - start for start, end in group[20:]]
        low, middle, high = statistics.quantiles(durations, n=4)
        found.append(
            {
                "kernels": len(group),
                "us": middle * 1e-3,
                "low": low * 1e-3,
                "high": high * 1e-3,
                "mean": statistics.mean(durations) * 1e-3,
                "pitch": statistics.median(b[0] - a[0] for a, b in later) * 1e-3,
                "gap": statistics.median(b[0] - a[1] for a, b in later) * 1e-3,
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("pitch", "eager", "nodes", "read"))
    for name in ("--out", "--pitch", "--eager", "--nodes"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.part == "pitch":
        args.out.write_text(json.dumps(pitch(), indent=1) + "\n")
    elif args.part == "read":
        found = json.loads(args.pitch.read_text())
        for name, file in (("eager", args.eager), ("nodes", args.nodes)):
            for row, of in zip(found.values(), seen(file), strict=True):
                row[name] = of
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    else:
        {"eager": eager, "nodes": nodes}[args.part]()


if __name__ == "__main__":
    main()
