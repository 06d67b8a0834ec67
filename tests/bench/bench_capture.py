"""What pyprof.init() costs a call: python tests/bench/bench_capture.py [calls] [device]

Tiny tensors, on the CPU unless `cuda` is named, so that nothing but Python and the dispatcher runs. Each number is the
best of 9 means of `calls` calls: what else the machine does only adds. NVTX is pushed without a tool attached; a
tool's own cost comes on top.
"""

import gc
import platform
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import pyprof

REPEATS = 9
DEEP = 20  # frames

torch.set_num_threads(1)
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
X, W, B = torch.randn(4, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE), torch.randn(4, device=DEVICE)
LINEAR = torch.nn.Linear(4, 4, device=DEVICE)
CALLS: dict[str, Callable[[], object]] = {
    "torch.relu": lambda: torch.relu(X),
    "F.linear": lambda: F.linear(X, W, B),
    "F.relu": lambda: F.relu(X),
    "nn.Linear": lambda: LINEAR(X),
    "x + x": lambda: X + X,
    "x.shape": lambda: X.shape,
}


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rows = {"unpatched": row(calls)}
    pyprof.init(sink="none")
    rows["init, nobody listening"] = row(calls)
    pyprof.init(sink="nvtx", autograd=False)
    rows["init"] = row(calls)
    pyprof.init(sink="nvtx", trace=True, autograd=False)
    rows["init, trace"] = row(calls)
    rows[f"init, trace, {DEEP} frames deep"] = deep(DEEP, calls)
    pyprof.deinit()
    rows["after deinit"] = row(calls)
    show(rows)


def row(calls: int) -> list[float]:
    return [cost_us(call, calls) for call in CALLS.values()]


def deep(frames: int, calls: int) -> list[float]:
    return row(calls) if frames == 0 else deep(frames - 1, calls)


def cost_us(call: Callable[[], object], calls: int) -> float:
    gc.collect()
    means = []
    for _ in range(REPEATS):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        means.append((time.perf_counter() - start) / calls * 1e6)
    return min(means)


def show(rows: dict[str, list[float]]) -> None:
    print(f"us a call on {DEVICE}; torch {torch.__version__}, Python {platform.python_version()}, best of {REPEATS}\n")
    print("| | " + " | ".join(CALLS) + " |")
    print("|---|" + "---|" * len(CALLS))
    plain = rows["unpatched"]
    for name, costs in rows.items():
        added = name not in ("unpatched", "after deinit")
        cells = [f"{c:.2f} ({c - p:+.2f})" if added else f"{c:.2f}" for c, p in zip(costs, plain, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
