"""``pyprof bench`` on a GPU, against nsys, ``pyprof peaks`` and the capture of a training step. See performance.md.

    nsys profile -t cuda -s none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop \
        --export=sqlite -f true -o /tmp/plain python3 tests/device/bench_accuracy.py plain
    python3 tests/device/bench_accuracy.py bench /tmp/plain.sqlite --out bench.json
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
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from pyprof.benchmark.bench import Subject, measure
from pyprof.benchmark.bench_result import Bench, Timing
from pyprof.benchmark.device_facts import cache_bytes, free_bytes
from pyprof.benchmark.rotation import copies_needed, storage_bytes
from pyprof.benchmark.sweeps import PRODUCTS, Sweeps
from pyprof.benchmark.timer import FULL

TIMES = 300  # calls of each case under nsys
TURNS = 4  # of peaks and bench on a CPU
BF16, FP32 = torch.bfloat16, torch.float32


def cases(device: str) -> dict[str, Subject]:
    """Small and middling calls, each of which launches one kernel."""

    def tensor(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    found = {f"relu bf16 2^{k}": Subject(torch.relu, (tensor(1 << k),)) for k in (10, 16, 18, 20, 22, 23)}
    found |= {f"relu fp32 2^{k}": Subject(torch.relu, (tensor(1 << k, dtype=FP32),)) for k in (16, 20)}
    for m, n, k in ((64, 768, 768), (256, 1024, 1024), (1024, 1024, 1024)):
        found[f"linear bf16 {m}x{n}x{k}"] = Subject(F.linear, (tensor(m, k), tensor(n, k)))
    found["linear fp32 64x768x768"] = Subject(F.linear, (tensor(64, 768, dtype=FP32), tensor(768, 768, dtype=FP32)))
    found["layer_norm bf16 4096x768"] = Subject(F.layer_norm, (tensor(4096, 768), (768,)))
    found["softmax bf16 1024x1024"] = Subject(torch.softmax, (tensor(1024, 1024), -1))
    found["sum fp32 2^20"] = Subject(torch.sum, (tensor(1 << 20, dtype=FP32),))
    return found


def plain(device: str) -> None:
    """Run every case, between a start and a stop of nsys. Before each, a kernel that only waits marks its beginning."""
    sets = {name: _copies(subject, device) for name, subject in cases(device).items()}
    for subjects in sets.values():
        [subject() for subject in subjects]  # compiles, and reserves memory for all results
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for subjects in sets.values():
        torch.cuda._sleep(1000)
        results: deque[object] = deque(maxlen=len(subjects))  # which do not overwrite each other, as in pyprof bench
        results.extend(subjects[i % len(subjects)]() for i in range(TIMES))
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _copies(subject: Subject, device: str) -> list[Subject]:
    where = torch.device(device)
    nbytes = storage_bytes((subject.inputs, subject()))
    return [subject.copy() for _ in range(copies_needed(nbytes, cache_bytes(where), free_bytes(where)))]


def seen_by_nsys(sqlite: Path) -> list[list[float]]:
    """The seconds of each call of each case: what lies between two marking kernels, divided into equal calls."""
    kernels = (
        'select k.start, k."end" - k.start, s.value from CUPTI_ACTIVITY_KIND_KERNEL k '
        "join StringIds s on s.id = k.shortName"
    )
    fills = "select start, \"end\" - start, 'memset' from CUPTI_ACTIVITY_KIND_MEMSET"
    with closing(sqlite3.connect(sqlite)) as base:
        has_fills = base.execute("select 1 from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_MEMSET'").fetchone()
        rows = base.execute(f"{kernels} union all {fills} order by 1" if has_fills else f"{kernels} order by 1")
        rows = [row[1:] for row in rows]
    found: list[list[float]] = []
    for ns, name in rows:
        if name == "spin_kernel":
            found.append([])
        else:
            found[-1].append(ns * 1e-9)
    return [[sum(group) for group in zip(*[iter(case)] * (len(case) // TIMES), strict=True)] for case in found]


def bench(device: str, sqlite: Path) -> dict[str, Any]:
    """Both figures of each case, in µs; what nsys saw is assigned in launch order."""
    found: dict[str, Any] = {}
    for (name, subject), seen in zip(cases(device).items(), seen_by_nsys(sqlite), strict=True):
        measured = measure(subject, name, backward=False, warm=True, effort=FULL)
        found[name] = {
            "nsys_us": round(statistics.median(seen) * 1e6, 4),
            "nsys_low_high": [round(value * 1e6, 4) for value in statistics.quantiles(seen, n=4)[::2]],
            **_timing(measured.forward.timing),
            "warm_us": (measured.forward.warm.seconds if measured.forward.warm else 0) * 1e6,
            "copies": measured.copies,
            "cold": measured.cold,
            "share": measured.share,
        }
    return found


def _timing(timing: Timing) -> dict[str, Any]:
    times = {"bench_us": timing.seconds, "low_us": timing.low_s, "high_us": timing.high_s, "best_us": timing.best_s}
    rounded = {key: round(value * 1e6, 4) for key, value in times.items()}
    rounded["node_us"] = round((timing.empty_node_s or 0) * 1e6, 4)
    return {**rounded, "method": timing.method, "why": timing.why, "calls": timing.calls, "mhz": timing.clock_mhz}


def peaks(device: str) -> dict[str, Any]:
    """The plateaus of ``pyprof peaks`` and of ``pyprof bench``, in turns.

    A shared CPU is not equally fast from second to second: there the greatest rates of several turns count.
    """
    sweeps = Sweeps(device, FULL)
    on_gpu = sweeps.timer.on_gpu
    rounds = [_plateaus(sweeps, device) for _ in range(1 if on_gpu else TURNS)]
    return {
        name: {key: max(found[name][key] for found in rounds) for key in row}
        | {"by turn": [[found[name]["peaks"], found[name]["warm best"]] for found in rounds]}
        for name, row in rounds[0].items()
    }


def _plateaus(sweeps: Sweeps, device: str) -> dict[str, Any]:
    relu = sweeps.elementwise()
    count = 1 << (26 if sweeps.timer.on_gpu else 24)
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
        own = measure(Subject(torch.mm, (a, b), {"out": torch.empty_like(a)}), "mm", False, True, FULL)
        found[f"mm {product.name}"] = {"peaks": rate, **_rates(own, own.forward.flop or 0)}
    torch.set_float32_matmul_precision(before)
    return found


def _rates(own: Bench, work: float) -> dict[str, float]:
    """``pyprof peaks`` always has the same inputs, and on a CPU takes the best trial."""
    timing, warm = own.forward.timing, own.forward.warm or own.forward.timing
    times = {"cold": timing.seconds, "cold best": timing.best_s, "warm": warm.seconds, "warm best": warm.best_s}
    return {**{name: work / seconds for name, seconds in times.items()}, "copies": own.copies}


def step(device: str, out: str) -> None:
    """Capture a step of GPT-2, after others that warm up."""
    from gpt2 import Config, training

    import pyprof

    run = training(device, Config(vocabulary=50304), 4)
    pyprof.init()
    for _ in range(5):
        run()
    with pyprof.profile(out):
        run()
    pyprof.deinit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("plain", "bench", "peaks", "step"))
    parser.add_argument("sqlite", nargs="?", type=Path)
    parser.add_argument("--out", default="")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.part == "plain":
        plain(args.device)
    elif args.part == "step":
        step(args.device, args.out)
    else:
        found = bench(args.device, args.sqlite) if args.part == "bench" else peaks(args.device)
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
