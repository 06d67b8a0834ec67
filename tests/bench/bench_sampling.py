"""What `pyprof.profile(every=N, to=...)` costs a training on the CPU, and whether memory stays bounded.

    python tests/bench/bench_sampling.py                                   # half a minute
    python tests/bench/bench_sampling.py --minutes 60 --every 1000 --record hour.json --figure hour.png
    python tests/bench/bench_sampling.py --draw hour.json --figure hour.png

One thread trains a small model. Every step is timed, on the clock and in CPU time of the training thread. A sample
touches the steps before it (20 are timed), the recorded one, and those after it, while another process reads the trace.
So the cost of a sample is the time of the steps from 20 before to 0.3 s after it, beyond that of as many other
steps. What counting iterations costs all steps is measured in turns, with and without the block.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

BEFORE, AFTER_S = 20, 0.3  # the steps that a sample touches: so many before it, and for so long after it
TURN_STEPS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--turns", type=int, default=10, help="of steps with and without the block, for counting alone")
    parser.add_argument("--record", metavar="FILE.json", type=Path)
    parser.add_argument("--draw", metavar="FILE.json", type=Path, help="a record to draw, in place of a training")
    parser.add_argument("--figure", metavar="FILE.png", type=Path)
    args = parser.parse_args()
    if args.draw is not None:
        record = json.loads(args.draw.read_text(encoding="utf-8"))
    else:
        record = trained(args.minutes, args.every, args.turns)
    print("\n".join(report(record)))
    if args.record is not None:
        args.record.write_text(json.dumps(record), encoding="utf-8")
    if args.figure is not None:
        draw(record, args.figure)


def trained(minutes: float, every: int, turns: int) -> dict[str, Any]:
    """Train for so long; the step times in us, the samples, and the memory of both processes in MB."""
    import torch

    import pyprof

    torch.set_num_threads(1)
    step = training_step()
    for _ in range(50):
        step()
    counting = [turn(step, pyprof) for _ in range(turns)]
    samples: list[dict[str, Any]] = []
    wall_us: list[int] = []
    cpu_us: list[int] = []
    memory: list[tuple[float, float, float]] = []  # s since the beginning, MB of the training, of the reader
    begun = time.perf_counter()
    with pyprof.profile(every=every, to=lambda sample: samples.append(sample._asdict())):
        while (now := time.perf_counter()) - begun < 60 * minutes:
            cpu = time.thread_time()
            step()
            wall_us.append(round(1e6 * (time.perf_counter() - now)))
            cpu_us.append(round(1e6 * (time.thread_time() - cpu)))
            if len(wall_us) % every == every // 2:
                memory.append((now - begun, resident_mb("self"), sum(map(resident_mb, children()))))
    facts = {"every": every, "torch": torch.__version__, "cpus": os.cpu_count(), "load": os.getloadavg()}
    return {**facts, "counting": counting, "wall_us": wall_us, "cpu_us": cpu_us, "memory": memory, "samples": samples}


def training_step() -> Any:
    """One step of a small model: about 100 ops, some 10 ms."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(6)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(96, 512), torch.randint(0, 10, (96,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def turn(step: Any, pyprof: Any) -> tuple[float, float]:
    """The median ms of a step without the block and in it, where no sample falls."""
    plain = timed(step)
    with pyprof.profile(every=10**9, to=lambda _: None):
        return plain, timed(step)


def timed(step: Any) -> float:
    found = []
    for _ in range(TURN_STEPS):
        begun = time.perf_counter()
        step()
        found.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(found)


def children() -> list[str]:
    """The processes that this one started (Linux)."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [pid for task in tasks for pid in task.read_text().split()]


def resident_mb(pid: str) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def touched(record: dict[str, Any]) -> list[list[int]]:
    """For each sample, the numbers of the steps that it touches."""
    wall = record["wall_us"]
    found = []
    for sample in record["samples"]:
        at = sample["iteration"]
        last, passed = at + 1, 0
        while last < len(wall) and passed < 1e6 * AFTER_S:
            passed += wall[last]
            last += 1
        found.append(list(range(max(0, at - BEFORE), min(last, len(wall)))))
    return found


def costs(record: dict[str, Any], what: str) -> tuple[float, list[float]]:
    """The mean of the steps that no sample touches, and what each sample costs beyond it, in ms.

    ``what``: wall_us or cpu_us. Each sample is compared with the untouched steps around it, because the machine's pace
    changes in the course of an hour.
    """
    times, groups = record[what], touched(record)
    in_any = {number for group in groups for number in group}
    rest = [times[number] for number in range(len(times)) if number not in in_any]
    found = []
    for group in groups:
        reach = len(group)
        near = [
            times[number]
            for number in range(max(0, group[0] - reach), min(len(times), group[-1] + reach))
            if number not in in_any
        ]
        if near:
            found.append(sum(times[number] for number in group) / 1e3 - len(group) * statistics.mean(near) / 1e3)
    return statistics.mean(rest) / 1e3, found


def report(record: dict[str, Any]) -> list[str]:
    """The measurements in sentences."""
    every, samples, wall = record["every"], record["samples"], record["wall_us"]
    lines = [
        f"{len(wall):,} steps in {sum(wall) / 60e6:.1f} min, one sample in {every}: {len(samples)} samples; "
        f"PyTorch {record['torch']}, {record['cpus']} CPUs, load {record['load'][0]:.1f}"
    ]
    for what, name in (("wall_us", "on the clock"), ("cpu_us", "CPU time of the training thread")):
        mean, each = costs(record, what)
        error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("nan")
        per_step = statistics.mean(each) / every
        lines.append(
            f"{name}: a step takes {mean:.3f} ms, a sample costs {statistics.mean(each):.1f} +- {error:.1f} ms "
            f"(standard error): {100 * per_step / mean:.2f}% of a step at every={every}, "
            f"{100 * statistics.mean(each) / 1000 / mean:.2f}% at every=1000"
        )
    own = statistics.mean(sample["sampling_ms"] for sample in samples)
    reading = statistics.median(sample["reading_ms"] for sample in samples)
    lines.append(
        f"of a sample, pyprof itself on the training thread: {own:.1f} ms; reading it elsewhere: {reading:.0f} ms"
    )
    without, within = (statistics.median(values) for values in zip(*record["counting"], strict=True))
    lines.append(f"counting iterations: {without:.3f} ms a step without the block, {within:.3f} ms in it")
    half = record["memory"][len(record["memory"]) // 2 :]
    for column, name in ((1, "training"), (2, "reader")):
        first, last = half[0][column], half[-1][column]
        most = max(row[column] for row in record["memory"])
        lines.append(f"memory of the {name}: {first:.0f} MB at half time, {last:.0f} at the end, {most:.0f} at most")
    return lines


def draw(record: dict[str, Any], figure: Path) -> None:
    """Two panels: the overhead so far, and the memory, over the time of the training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    minutes, passed = [], 0.0
    for wall in record["wall_us"]:
        passed += wall / 60e6
        minutes.append(passed)
    at = [minutes[min(sample["iteration"], len(minutes) - 1)] for sample in record["samples"]]
    fig, (upper, lower) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 5.5), layout="constrained")
    for what, name, colour in (("wall_us", "on the clock", "#1f6feb"), ("cpu_us", "CPU time", "#7c3aed")):
        mean, each = costs(record, what)
        so_far = [100 * statistics.mean(each[: n + 1]) / record["every"] / mean for n in range(len(each))]
        upper.plot(at[: len(each)], so_far, color=colour, label=f"{name}: steps of {mean:.1f} ms")
    upper.legend(loc="upper right", frameon=False)
    upper.axhline(1, color="#999999", linestyle="--", linewidth=1)
    upper.set_ylabel("mean overhead so far, % of a step")
    upper.set_ylim(bottom=0)
    upper.set_title(f"One step in {record['every']} sampled: {len(record['samples'])} samples", loc="left")
    for column, name, colour in ((1, "training", "#1f6feb"), (2, "process that reads the traces", "#d97706")):
        lower.plot(
            [row[0] / 60 for row in record["memory"]], [row[column] for row in record["memory"]], colour, label=name
        )
    lower.set_ylabel("memory, MB")
    lower.set_ylim(bottom=0)
    lower.set_xlabel("minutes of training")
    lower.legend(loc="center right", frameon=False)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    fig.savefig(figure, dpi=120)


if __name__ == "__main__":
    main()
