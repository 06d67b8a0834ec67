"""``pyprof bench`` on a GPU, against nsys, ``pyprof peaks`` and the capture of a training step. See performance.md.

    nsys profile -t cuda -s none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
        --export=sqlite -f true -o /tmp/plain python3 tests/device/bench_accuracy.py plain
    python3 tests/device/bench_accuracy.py bench /tmp/plain.sqlite --out bench.json
    python3 tests/device/bench_accuracy.py nodes --out nodes.json
    python3 tests/device/bench_accuracy.py peaks --out peaks.json
    python3 tests/device/bench_accuracy.py step --out step.json.gz

``plain`` runs each case many times, as a program does, on inputs that take turns as those of ``pyprof bench`` do.
``bench`` times the same cases and writes both figures. ``peaks`` compares the plateaus of sweeps. ``step`` captures a
step of GPT-2, for ``pyprof bench --replay``.
"""

import argparse
import json
import sqlite3
import statistics
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from pyprof.benchmark.bench import Subject, measure
from pyprof.benchmark.bench_result import Bench
from pyprof.benchmark.call_timer import Timing, _between_events, _bursts, node_gap, recorded
from pyprof.benchmark.device_facts import cache_bytes, free_bytes
from pyprof.benchmark.rotation import copies_needed, storage_bytes
from pyprof.benchmark.sweeps import PRODUCTS, Sweeps
from pyprof.benchmark.timer import FULL, Effort

TIMES = 300  # calls of each case under nsys
BF16, FP32 = torch.bfloat16, torch.float32


def cases(device: str) -> dict[str, Subject]:
    """Small and middling calls, each of which launches one kernel."""

    def tensor(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    found = {f"relu bf16 2^{k}": Subject(torch.relu, (tensor(1 << k),)) for k in (10, 16, 18, 20, 21, 22, 23, 24, 26)}
    found |= {f"relu fp32 2^{k}": Subject(torch.relu, (tensor(1 << k, dtype=FP32),)) for k in (16, 20, 22)}
    for m, n, k in ((64, 768, 768), (256, 1024, 1024), (1024, 1024, 1024), (4096, 3072, 768)):
        for name, dtype in (("bf16", BF16), ("fp32", FP32)):
            a, b = tensor(m, k, dtype=dtype), tensor(n, k, dtype=dtype)
            found[f"linear {name} {m}x{n}x{k}"] = Subject(F.linear, (a, b))
    found["layer_norm bf16 4096x768"] = Subject(F.layer_norm, (tensor(4096, 768), (768,)))
    found["softmax bf16 1024x1024"] = Subject(torch.softmax, (tensor(1024, 1024), -1))
    found["sum fp32 2^20"] = Subject(torch.sum, (tensor(1 << 20, dtype=FP32),))
    return found


def plain(device: str) -> None:
    """Run every case, between a start and a stop of nsys. Before each, a kernel that only waits marks its beginning."""
    sets = {name: _copies(subject, device) for name, subject in cases(device).items()}
    for subjects in sets.values():
        for subject in subjects[:2]:
            subject()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for subjects in sets.values():
        torch.cuda._sleep(1000)
        for i in range(TIMES):
            subjects[i % len(subjects)]()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _copies(subject: Subject, device: str) -> list[Subject]:
    where = torch.device(device)
    nbytes = storage_bytes((subject.inputs, subject()))
    return [subject.copy() for _ in range(copies_needed(nbytes, cache_bytes(where), free_bytes(where)))]


def seen_by_nsys(sqlite: Path) -> list[list[float]]:
    """The seconds of each call of each case: what lies between two marking kernels, divided into equal calls."""
    query = (
        'select k."end" - k.start, s.value from CUPTI_ACTIVITY_KIND_KERNEL k join StringIds s on s.id = k.shortName '
        "order by k.start"
    )
    with closing(sqlite3.connect(sqlite)) as base:
        rows = base.execute(query).fetchall()
    found: list[list[float]] = []
    for ns, name in rows:
        if name == "spin_kernel":
            found.append([])
        else:
            found[-1].append(ns * 1e-9)
    return [[sum(group) for group in zip(*[iter(case)] * (len(case) // TIMES), strict=True)] for case in found]


def bench(device: str, sqlite: Path) -> dict[str, Any]:
    """Both figures of each case, in µs; what nsys saw is assigned in launch order."""
    found: dict[str, Any] = {"gap_us": (node_gap(0) or 0.0) * 1e6}
    for (name, subject), seen in zip(cases(device).items(), seen_by_nsys(sqlite), strict=True):
        measured = measure(subject, name, backward=False, warm=True, effort=FULL)
        found[name] = {
            "nsys_us": round(statistics.median(seen) * 1e6, 4),
            "nsys_low_high": [round(value * 1e6, 4) for value in statistics.quantiles(seen, n=4)[::2]],
            "kernels": measured.forward.timing.kernels,
            **_timing(measured.forward.timing),
            "warm_us": (measured.forward.warm.seconds if measured.forward.warm else 0) * 1e6,
            "copies": measured.copies,
            "cold": measured.cold,
            "share": measured.share,
        }
    return found


def spaced(device: str, sqlite: Path) -> dict[str, Any]:
    """Nodes of a graph with waiting kernels between them: what remains without the waiting kernels' own time."""
    found: dict[str, Any] = {}
    stream = torch.cuda.Stream()
    effort = Effort(bursts=9, pause_s=0.01)
    with torch.cuda.stream(stream):
        empty = {c: recorded([lambda c=c: torch.cuda._sleep(c)], 1000, stream) for c in (0, 2000, 6000)}
        alone = {c: statistics.median(_bursts(graph.replay, effort)[0]) * 1e3 for c, graph in empty.items()}
        found["waiting_us"] = alone
        for (name, subject), seen in zip(cases(device).items(), seen_by_nsys(sqlite), strict=True):
            subjects = _copies(subject, device)
            subjects[0]()
            number = max(len(subjects), min(600, int(3e-4 / statistics.median(seen))))
            rounds = max(1, number // len(subjects))
            row = {"nsys_us": statistics.median(seen) * 1e6}
            for cycles in (None, 0, 2000, 6000):
                calls = subjects if cycles is None else [_after_waiting(each, cycles) for each in subjects]
                graph = recorded(calls, rounds, stream)
                period = statistics.median(_bursts(graph.replay, effort)[0]) * 1e6 / (rounds * len(subjects))
                row[f"after {cycles}"] = period - (0 if cycles is None else alone[cycles])
            found[name] = row
    return found


def _after_waiting(call: Any, cycles: int) -> Any:
    def run() -> Any:
        torch.cuda._sleep(cycles)
        return call()

    return run


def nodes(device: str) -> dict[str, Any]:
    """What a node of a graph takes, and what CUPTI shows of it: the duration, and the pause before the next kernel."""
    from torch.profiler import ProfilerActivity, profile

    x = {k: torch.randn(1 << k, device=device).to(BF16) for k in (10, 16, 20, 22)}
    calls: dict[str, Any] = {f"relu 2^{k}": lambda t=t: torch.relu(t) for k, t in x.items()}
    calls["empty"] = lambda: torch.cuda._sleep(0)
    found: dict[str, Any] = {}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for name, call in calls.items():
            call()
            graph = recorded([call], 1000, stream)
            graph.replay()
            period = min(_between_events(graph.replay, 3) / 3 for _ in range(7)) / 1000

            def eagerly(call: Any = call) -> None:
                for _ in range(1000):
                    call()

            found[name] = {"period_us": period * 1e6}
            for way, run in (("graph", graph.replay), ("eager", eagerly)):
                with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                    run()
                    torch.cuda.synchronize()
                spans = sorted(
                    (event.time_range.start, event.time_range.end)
                    for event in profiled.events()
                    if event.device_type == torch.autograd.DeviceType.CUDA
                )
                found[name][way] = {
                    "kernels": len(spans),
                    "duration_us": statistics.median(end - start for start, end in spans),
                    "pause_us": statistics.median(b[0] - a[1] for a, b in pairwise(spans)),
                }
            found[name]["again_us"] = min(_between_events(graph.replay, 3) / 3 for _ in range(7)) * 1e3
    return found


def _timing(timing: Timing) -> dict[str, Any]:
    times = {"bench_us": timing.seconds, "low_us": timing.low_s, "high_us": timing.high_s, "best_us": timing.best_s}
    rounded = {key: round(value * 1e6, 4) for key, value in times.items()}
    return {**rounded, "method": timing.method, "why": timing.why, "calls": timing.calls, "mhz": timing.clock_mhz}


def peaks(device: str) -> dict[str, Any]:
    """The plateaus of ``pyprof peaks`` and of ``pyprof bench``, one after the other."""
    sweeps = Sweeps(device, FULL)
    on_gpu = sweeps.timer.on_gpu
    relu = sweeps.elementwise()
    count = 1 << (26 if on_gpu else 24)
    found: dict[str, Any] = {}
    for dtype, of in ((BF16, "bf16"), (FP32, "fp32")):
        x = torch.randn(count, device=device).to(dtype)
        # as in Sweeps: on a CPU, the memory of a new result is first of all mapped page by page
        own = measure(Subject(torch.clamp_min, (x, 0), {"out": torch.empty_like(x)}), "relu", False, True, FULL)
        found[f"relu {of}"] = {"peaks": relu[of]["relu"], **_rates(own, own.forward.nbytes or 0)}
    before = torch.get_float32_matmul_precision()
    for product in PRODUCTS:
        if product.name not in ("bf16", "fp32"):
            continue
        torch.set_float32_matmul_precision(product.precision)
        curve = sweeps._product(product).curve
        size, rate = max(curve, key=lambda point: point[1])
        a, b = (torch.randn(size, size, device=device).to(getattr(torch, product.dtype)) for _ in range(2))
        own = measure(Subject(torch.mm, (a, b)), "mm", False, True, FULL)
        found[f"mm {product.name} {size}"] = {"peaks": rate, **_rates(own, own.forward.flop or 0)}
    torch.set_float32_matmul_precision(before)
    return found


def _rates(own: Bench, work: float) -> dict[str, float]:
    """``pyprof peaks`` always has the same inputs, and on a CPU takes the best trial."""
    timing, warm = own.forward.timing, own.forward.warm or own.forward.timing
    times = {"cold": timing.seconds, "cold best": timing.best_s, "warm": warm.seconds, "warm best": warm.best_s}
    return {**{name: work / seconds for name, seconds in times.items()}, "copies": own.copies}


def step(device: str, out: str) -> None:
    """Capture a step of GPT-2, after others that warm up."""
    import pyprof
    from gpt2 import Config, training

    run = training(device, Config(vocabulary=50304), 4)
    pyprof.init()
    for _ in range(5):
        run()
    with pyprof.profile(out):
        run()
    pyprof.deinit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("plain", "bench", "spaced", "nodes", "peaks", "step"))
    parser.add_argument("sqlite", nargs="?", type=Path)
    parser.add_argument("--out", default="")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.part == "plain":
        plain(args.device)
    elif args.part == "step":
        step(args.device, args.out)
    else:
        parts = {"spaced": lambda: spaced(args.device, args.sqlite), "bench": lambda: bench(args.device, args.sqlite), "nodes": lambda: nodes(args.device)}
        found = parts.get(args.part, lambda: peaks(args.device))()
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
