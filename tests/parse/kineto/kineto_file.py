"""Torch profiler traces as literals: a few events each, as Kineto writes them."""

import json
from pathlib import Path
from typing import Any

PID, MAIN, AUTOGRAD = 7, 70, 71

Event = dict[str, Any]


def x(cat: str, name: str, ts: float, dur: float, tid: int = MAIN, pid: int = PID, **args: Any) -> Event:
    """A complete event. Keys of args: `_` stands for a blank."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": {key.replace("_", " "): value for key, value in args.items()}}  # fmt: skip


def op(name: str, ts: float, dur: float, tid: int = MAIN, **args: Any) -> Event:
    return x("cpu_op", name, ts, dur, tid, **args)


def call(ts: float, corr: int, tid: int = MAIN, **args: Any) -> Event:
    return x("cuda_runtime", "cudaLaunchKernel", ts, 5, tid, correlation=corr, **args)


def kernel(ts: float, dur: float, corr: int, name: str = "void gemm<float>(int)", **args: Any) -> Event:
    more = {"device": 0, "stream": 7, "correlation": corr, "grid": [4, 5, 6], "block": [128, 1, 1], **args}
    return x("kernel", name, ts, dur, tid=7, pid=0, **more)


def begin(ts: float) -> Event:
    """The profiler's own span, from which times count."""
    return x("Trace", "PyTorch Profiler (0)", ts, 1e6, pid=99)


def write(path: Path, *events: Event, **header: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}))
    return path
