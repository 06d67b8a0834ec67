"""CUPTI leaves the process after each recorded capture, and comes back, on a GPU (pyprof/cupti_teardown.py).

    python tests/device/let_go.py FOLDER [--captures 4]    # lines of JSON

Graphs are captured and recorded, then replayed among the collected steps. Then the program's own profiler runs twice,
and a further capture is recorded, after which CUPTI stays. Said are the host's times of launches, whether results are
those of the step without a graph, and how many rows of the file have an op.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphs
import replay_cost
import torch

import pyprof
from pyprof import cupti_teardown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--captures", type=int, default=4)
    options = parser.parse_args()
    graphs.DEVICE = "cuda"  # type: ignore[attr-defined]
    os.environ[cupti_teardown.ASKED] = "1"
    file = options.folder / "let_go.json.gz"
    with pyprof.profile(file, wait=True, force=True):
        step = stepping()
        wanted = step().clone()
        made = []
        for number in range(options.captures):
            made.append(captured(step))
            times = [launch_us(graph) for graph, _ in made]
            say(what=f"capture {number}", launch_us=times, same=same(wanted, made))
        pyprof.start()
        for _ in range(2):
            pyprof.step()
            for graph, _ in made:
                graph.replay()
        torch.cuda.synchronize()
        pyprof.step()
        pyprof.stop()
        say(what="after the range", launch_us=launch_us(made[0][0]), same=same(wanted, made))
        for number in range(2):
            own(number, options.folder, made[0][0])
        made.append(captured(step))
        say(what="a capture after them", launch_us=launch_us(made[-1][0]), same=same(wanted, made))
    say(what="the file", **records(file))
    say(what="environment", left={name: os.environ.get(name) for name in cupti_teardown.KEEPING})


def same(wanted: torch.Tensor, made: list[tuple[Any, torch.Tensor]]) -> bool:
    """Whether a replay of each graph has the result of the step."""
    for graph, output in made:
        output.zero_()
        graph.replay()
    return all(torch.equal(wanted, output) for _, output in made)


def own(number: int, folder: Path, graph: Any) -> None:
    """The program's own profiler: the kernels of a replay, and when the first and the last began, since its launch."""
    file = folder / f"own{number}.json"
    with torch.profiler.profile() as profiler:
        graph.replay()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(file))
    events = json.loads(file.read_text())["traceEvents"]
    kernels = sorted(event["ts"] for event in events if event.get("cat") == "kernel")
    launched = next((event["ts"] for event in events if event.get("name") == "cudaGraphLaunch"), 0.0)
    since = [round(time - launched) for time in kernels[:: max(len(kernels) - 1, 1)]]
    say(what="the program's own", kernels=len(kernels), since_launch_us=since, launch_us=launch_us(graph))


def stepping() -> Callable[[], torch.Tensor]:
    """A decode step whose result is looked at; the same in each call."""
    from decode_model import Decoder

    torch.manual_seed(0)
    model = Decoder(layers=12).to("cuda", torch.bfloat16).eval()
    ids, place = (torch.zeros(*shape, dtype=torch.long, device="cuda") for shape in ((8, 1), (1,)))

    def step() -> torch.Tensor:
        with torch.no_grad():
            ids.zero_(), place.zero_()
            model(ids, place)
            return torch.cat([ids.flatten().float(), model.blocks[-1].attention.keys[:, :, 0].flatten().float()])

    for _ in range(3):
        step()
    return step


def captured(step: Callable[[], torch.Tensor]) -> tuple[Any, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()
    return graph, output


def launch_us(graph: Any) -> float:
    found: float = replay_cost.launch_us(graph.replay)
    return found


def records(file: Path) -> dict[str, Any]:
    """Of the file's rows: how many CUDA graphs launched, and how many of these have an op."""
    from pyprof.parse.detect import reader
    from pyprof.parse.tables.correlate import correlate
    from pyprof.table.graph_replays import launched_by_graphs

    table = correlate(reader(file)(file))
    of_graphs = launched_by_graphs(table)
    ops = sum(bool(op) for op, is_one in zip(table.coded("op").texts(), of_graphs.tolist(), strict=True) if is_one)
    return {"rows": len(of_graphs), "of graphs": int(of_graphs.sum()), "with an op": ops}


def say(**found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
