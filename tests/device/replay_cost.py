"""What a recorded capture of a CUDA graph leaves behind: the host's time of later launches and replays, on a GPU.

    python tests/device/replay_cost.py graphs|none FOLDER LABEL    # one process, one line of JSON
    PYPROF_LET_CUPTI_GO=1 python tests/device/replay_cost.py graphs FOLDER LABEL    # CUPTI goes after each capture

``graphs`` and ``none``: whether pyprof.profile records captures before the collected steps. The measurements are those
while pyprof waits, after the captures, and after the collected steps. The block of pyprof.profile begins before the
program uses the GPU: else CUPTI stays after recorded captures, too (pyprof/cupti_teardown.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphs
import torch

import pyprof

Call = Callable[[], Any]
NODES = 400  # of the graph of kernels that do next to nothing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", choices=("graphs", "none"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("label")
    options = parser.parse_args()
    graphs.DEVICE = "cuda"  # type: ignore[attr-defined]
    found: dict[str, Any] = {"label": options.label, "captures": options.captures, "pid": os.getpid()}
    file = options.folder / f"{options.label}.json.gz"
    with pyprof.profile(file, wait=True, force=True, graphs=options.captures == "graphs"):
        small = torch.zeros(1, device="cuda")
        decode, train = graphs.decoding(), graphs.training()
        for _ in range(3):
            decode(), train()
        found["waiting"] = measured({}, train, small)
        began = time.perf_counter()
        late = {"decode": captured(decode), "train": captured(train)}
        late["tiny"] = captured(lambda: [small.add_(1) for _ in range(NODES)])
        found["captures ms"] = 1e3 * (time.perf_counter() - began)
        found["captured"] = measured(late, train, small)
        pyprof.start()
        for _ in range(2):
            pyprof.step()
            train()
            late["decode"].replay()
            late["train"].replay()
        torch.cuda.synchronize()
        pyprof.step()
        pyprof.stop()
        found["after the steps"] = measured(late, train, small)
    found["written"] = measured(late, train, small)
    sys.stdout.write(json.dumps(found) + "\n")


def captured(step: Call) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def measured(replayed: dict[str, Any], train: Call, small: torch.Tensor) -> dict[str, float]:
    """In µs, medians: of the host to launch a graph, of replays back to back, of a kernel's launch, of a step."""
    found = {}
    for name, graph in replayed.items():
        found[f"{name}: launch"] = launch_us(graph.replay)
        found[f"{name}: replay"] = statistics.median(_us(graph.replay, 30) for _ in range(5))
    found["kernel: launch"] = statistics.median(_us(lambda: small.add_(1), 400) for _ in range(9))
    found["training step"] = statistics.median(_us(train, 1) for _ in range(12))
    return {name: round(value, 2) for name, value in found.items()}


def launch_us(launch: Call, times: int = 60) -> float:
    """The host's time of a launch, the median."""
    return round(statistics.median(_host_us(launch) for _ in range(times)), 2)


def _host_us(call: Call) -> float:
    """Of the call alone; the GPU is idle before, and waited for after."""
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    call()
    lasted = time.perf_counter_ns() - began
    torch.cuda.synchronize()
    return lasted / 1e3


def _us(call: Call, times: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - began) / 1e3 / times


if __name__ == "__main__":
    main()
