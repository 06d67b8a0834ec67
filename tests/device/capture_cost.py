"""What recording the capture of a CUDA graph costs, part by part, and beside what else a server does, on a GPU.

    python tests/device/capture_cost.py FOLDER [--times 10] [--steps decode deep train]    # lines of JSON, in ms

For each step: the call before the capture (eager, waited for, as servers warm up), the capture, and the first replay,
without pyprof; then recorded, with the parts of recording. ``one profiler``: the same capture with PyTorch's profiler
begun once and paused between captures, whose events are made of all captures together when it ends.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import graphs
import torch
from decode_model import Decoder

import pyprof
from pyprof import cupti_teardown
from pyprof.capture import control

Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--steps", nargs="+", default=("decode", "deep", "train"))
    options = parser.parse_args()
    graphs.DEVICE = "cuda"  # type: ignore[attr-defined]
    makes = {"decode": graphs.decoding, "deep": deep, "train": graphs.training}
    for name in options.steps:
        step = makes[name]()
        for _ in range(3):
            step()
        say(step=name, how="alone", **phases(step, options.times))
        with pyprof.profile(options.folder / f"{name}.json", wait=True, force=True):
            parts = watched(control._collector)
            found = phases(step, options.times)
            say(step=name, how="recorded", **found, parts={part: rounded(times) for part, times in parts.items()})
            before = time.perf_counter()
            pyprof.start()
            say(step=name, how="recorded", **{"start() ms": ms_since(before)})
            step()
            pyprof.stop()
            before = time.perf_counter()
        say(step=name, how="recorded", **{"writing ms": ms_since(before)})
        say(step=name, how="alone, afterwards", **phases(step, 4))
        say(step=name, how="one profiler", **one_profiler(step, options.times))


def deep() -> Call:
    """A decode step of about 3,000 nodes."""
    model = Decoder(layers=192).to("cuda", torch.bfloat16).eval()
    ids, place = (torch.zeros(*shape, dtype=torch.long, device="cuda") for shape in ((8, 1), (1,)))

    def step() -> None:
        with torch.no_grad():
            model(ids, place)

    return step


def phases(step: Call, times: int) -> dict[str, Any]:
    """Of each capture, in ms: the call before it, the capture, the first replay; and one collection of garbage."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(times):
        graph = torch.cuda.CUDAGraph()
        parts = ("warm-up", step), ("collect", gc.collect), ("capture", partial(capture, graph, step))
        for what, call in (*parts, ("replay", graph.replay)):
            begun = time.perf_counter()
            call()
            torch.cuda.synchronize()
            found[what].append(ms_since(begun))
    return dict(found)


def capture(graph: Any, step: Call) -> None:
    with torch.cuda.graph(graph):
        step()


def watched(collector: Any) -> dict[str, list[float]]:
    """The times of the parts of recording, which are appended as they happen."""
    found: dict[str, list[float]] = defaultdict(list)

    def watch(owner: Any, name: str, part: str) -> None:
        original = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                found[part].append(ms_since(begun))

        setattr(owner, name, timed)

    watch(collector, "_begin_profiler", "begin, with keeping the records before")
    watch(collector, "_end_profiler", "end")
    watch(collector, "keep_records", "keeping the records before")
    watch(cupti_teardown, "_wait", "waiting until CUPTI is gone")
    return found


def one_profiler(step: Call, times: int) -> dict[str, Any]:
    from torch.profiler import ProfilerActivity, profile

    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    found: dict[str, Any] = defaultdict(list)
    begun = time.perf_counter()
    profiler = profile(activities=both, record_shapes=True)
    profiler.__enter__()
    profiler.toggle_collection_dynamic(False, both)
    found["begin"] = ms_since(begun)
    for _ in range(times):
        graph, begun = torch.cuda.CUDAGraph(), time.perf_counter()
        profiler.toggle_collection_dynamic(True, both)
        found["on"].append(ms_since(begun))
        capture(graph, step)
        torch.cuda.synchronize()
        paused = time.perf_counter()
        profiler.toggle_collection_dynamic(False, both)
        found["off"].append(ms_since(paused))
        found["all"].append(ms_since(begun))
    begun = time.perf_counter()
    profiler.__exit__(None, None, None)
    found["end"] = ms_since(begun)
    found["events"] = len(profiler.profiler.kineto_results.events())
    return dict(found)


def ms_since(begun: float) -> float:
    return round(1e3 * (time.perf_counter() - begun), 2)


def rounded(times: list[float]) -> list[float]:
    return [round(one, 2) for one in times]


def say(**found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
