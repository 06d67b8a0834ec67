"""What `pyprof.profile(every=N, to=...)` costs a training on the CPU, and whether memory stays bounded.

    python tests/bench/bench_sampling.py                                   # half a minute
    python tests/bench/bench_sampling.py --minutes 60 --every 1000 --record hour.json --figure hour.png
    python tests/bench/bench_sampling.py --draw hour.json --figure hour.png

One thread trains a small model, in stretches of N steps that take turns (with sampling, without, without, with, ...):
one sample lies in the middle of each stretch with sampling; in the others nothing of pyprof runs. The clock says little
where other programs want the cores, so stretches are compared by CPU time: of the training process with all its
threads, and of the process that reads the traces. Neighbours are compared with each other, because the machine's pace
changes in an hour; the intervals (95%) are of a bootstrap over these pairs. They are wide on a shared machine.

Every step is timed, too. A sample touches the steps before it (20 are timed), the recorded one, and those after it,
while another process reads the trace. So the cost of one sample is the time of the steps from 20 before to 0.3 s after
it, beyond that of as many other steps.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEFORE, AFTER_S = 20, 0.3  # the steps that a sample touches: so many before it, and for so long after it
DRAWS = 4000  # of the bootstrap
CLOCKS = {  # what a stretch is timed by, in seconds, and what the report calls it
    "clock_s": "on the clock",
    "thread_s": "CPU time of the training thread",
    "process_s": "CPU time of the training process",
    "both_s": "CPU time of both processes",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--record", metavar="FILE.json", type=Path)
    parser.add_argument("--draw", metavar="FILE.json", type=Path, help="a record to draw, in place of a training")
    parser.add_argument("--figure", metavar="FILE.png", type=Path)
    args = parser.parse_args()
    if args.draw is not None:
        record = json.loads(args.draw.read_text(encoding="utf-8"))
    else:
        record = trained(args.minutes, args.every)
    print("\n".join(report(record)))
    if args.record is not None:
        args.record.write_text(json.dumps(record), encoding="utf-8")
    if args.figure is not None:
        draw(record, args.figure)


def trained(minutes: float, every: int) -> dict[str, Any]:
    """Train for so long, to the end of a pair of stretches; what was measured."""
    import torch

    import pyprof
    from pyprof.capture import control

    torch.set_num_threads(1)
    run = Training()
    samples: list[dict[str, Any]] = []
    with pyprof.profile(every=every, to=lambda sample: samples.append(sample._asdict())):
        sampler: Any = control._collector
        run.stretch(every // 2, sampling=True)  # so that the samples lie in the middle of the later stretches
        order = [True, False]
        while time.perf_counter() - run.begun < 60 * minutes:
            for sampling in order:
                if sampling and not run.stretches[-1]["sampling"]:
                    sampler.open()
                elif not sampling and run.stretches[-1]["sampling"]:
                    sampler._finder.close()  # iterations are no longer counted: nothing of pyprof runs
                run.stretch(every, sampling)
            order.reverse()
        if not run.stretches[-1]["sampling"]:
            sampler.open()
        most = {"training": most_mb("self"), "reader": max(map(most_mb, children()), default=0.0)}
    facts = {"every": every, "torch": torch.__version__, "cpus": os.cpu_count(), "load": os.getloadavg()}
    lists = {"stretches": run.stretches, "wall_us": run.wall_us, "cpu_us": run.cpu_us, "memory": run.memory}
    return {**facts, **lists, "samples": samples, "most_mb": most}


class Training:
    """A training and its measurements: of each step in us, of each stretch in s, and the memory in MB."""

    def __init__(self) -> None:
        self._step = training_step()
        for _ in range(50):
            self._step()
        self.stretches: list[dict[str, Any]] = []
        self.wall_us: list[int] = []
        self.cpu_us: list[int] = []
        self.memory: list[tuple[float, float, float]] = []  # s since the beginning, of the training, of the reader
        self.begun = time.perf_counter()

    def stretch(self, steps: int, sampling: bool) -> None:
        first, before = len(self.wall_us), clocks()
        for number in range(steps):
            now, cpu = time.perf_counter(), time.thread_time()
            self._step()
            self.wall_us.append(round(1e6 * (time.perf_counter() - now)))
            self.cpu_us.append(round(1e6 * (time.thread_time() - cpu)))
            if number % (steps // 4) == steps // 8:  # not where a sample begins: a child that starts has its parent's
                self.memory.append((now - self.begun, resident_mb("self"), sum(map(resident_mb, children()))))
        spent = {name: after - before[name] for name, after in clocks().items()}
        self.stretches.append({"sampling": sampling, "first": first, "steps": steps, **spent})


def clocks() -> dict[str, float]:
    """Seconds by each of CLOCKS."""
    process = time.process_time()
    both = process + sum(map(cpu_s, children()))
    return {"clock_s": time.perf_counter(), "thread_s": time.thread_time(), "process_s": process, "both_s": both}


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


def most_mb(pid: str) -> float:
    """The most memory that a process has had so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def cpu_s(pid: str) -> float:
    """CPU time of a process, which Linux counts in ticks of 10 ms."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overhead(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]], clock: str, middle: Callable[[list[float]], float]
) -> tuple[float, float, float]:
    """How much longer, in percent, steps of stretches with sampling take by this clock, and the interval of 95%.

    ``middle``: of the pairs, ``statistics.mean`` or, which one disturbed pair does not move, ``statistics.median``.
    """
    each = [100 * (with_[clock] / without[clock] - 1) for with_, without in pairs]
    drawn = random.Random(0)
    found = sorted(middle(drawn.choices(each, k=len(each))) for _ in range(DRAWS))
    return middle(each), found[DRAWS // 40], found[-DRAWS // 40]


def pairs_of(record: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Neighbouring stretches: with sampling, without."""
    full = record["stretches"][1:]
    pairs = zip(full[::2], full[1::2], strict=True)
    return [(one, other) if one["sampling"] else (other, one) for one, other in pairs]


def step_numbers(record: dict[str, Any]) -> list[int]:
    """The numbers of the steps that were counted as iterations, in the order of counting."""
    counted = [stretch for stretch in record["stretches"] if stretch["sampling"]]
    return [number for stretch in counted for number in range(stretch["first"], stretch["first"] + stretch["steps"])]


def touched(record: dict[str, Any]) -> list[list[int]]:
    """For each sample, the numbers of the steps that it touches."""
    wall, counted = record["wall_us"], step_numbers(record)
    found = []
    for sample in record["samples"]:
        at = counted[sample["iteration"]]
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
    every, samples, wall, pairs = record["every"], record["samples"], record["wall_us"], pairs_of(record)
    lines = [
        f"{len(wall):,} steps in {sum(wall) / 60e6:.1f} min, {len(pairs)} pairs of stretches of {every} steps, "
        f"{len(samples)} samples; PyTorch {record['torch']}, {record['cpus']} CPUs, load {record['load'][0]:.1f}"
    ]
    for clock, name in CLOCKS.items():
        without = statistics.mean(1e3 * plain[clock] / plain["steps"] for _, plain in pairs)
        found = [overhead(pairs, clock, middle) for middle in (statistics.median, statistics.mean)]
        median, mean = (f"{percent:+.2f}% ({low:+.2f} to {high:+.2f}%)" for percent, low, high in found)
        lines.append(
            f"{name}: a step without {without:.3f} ms; with, by the pairs' median {median}, by their mean {mean}"
        )
    for what, name in (("wall_us", "on the clock"), ("cpu_us", "CPU time of the training thread")):
        mean, each = costs(record, what)
        error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("nan")
        per_step = statistics.mean(each) / every
        lines.append(
            f"one sample, {name}: {statistics.mean(each):.1f} +- {error:.1f} ms (standard error), "
            f"{100 * per_step / mean:.2f}% of a step of {mean:.3f} ms at every={every}"
        )
    own = statistics.mean(sample["sampling_ms"] for sample in samples)
    reading = statistics.median(sample["reading_ms"] for sample in samples)
    cpu = statistics.median(1e3 * (pair[0]["both_s"] - pair[0]["process_s"]) for pair in pairs)
    lines.append(
        f"of a sample, pyprof itself on the training thread: {own:.1f} ms; reading it elsewhere: {reading:.0f} ms on "
        f"the clock, {cpu:.0f} ms of CPU time (medians)"
    )
    half = record["memory"][len(record["memory"]) // 2 :]
    for column, name in ((1, "training"), (2, "reader")):
        first, last, most = half[0][column], half[-1][column], record["most_mb"][name]
        lines.append(f"memory of the {name}: {first:.0f} MB at half time, {last:.0f} at the end, {most:.0f} at most")
    return lines


def draw(record: dict[str, Any], figure: Path) -> None:
    """Three panels over the time of the training: CPU time per step, the overhead so far, and the memory."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fig, (upper, middle, lower) = pyplot.subplots(3, 1, sharex=True, figsize=(8, 7.5), layout="constrained")
    pairs = pairs_of(record)
    minutes = [record["memory"][0][0] / 60]
    for stretch in record["stretches"][1:]:
        minutes.append(minutes[-1] + stretch["clock_s"] / 60)
    for sampling, name, colour in ((False, "without sampling", "#888888"), (True, "with", "#1f6feb")):
        chosen = [n for n, stretch in enumerate(record["stretches"]) if n and stretch["sampling"] == sampling]
        each = [record["stretches"][index] for index in chosen]
        per_step = [1e3 * stretch["process_s"] / stretch["steps"] for stretch in each]
        upper.plot([minutes[index] for index in chosen], per_step, ".-", color=colour, label=name, linewidth=0.8)
    upper.set_ylabel("CPU time of a step, ms")
    upper.set_ylim(bottom=0)
    upper.set_title(f"One step in {record['every']} sampled, in every other stretch of {record['every']}", loc="left")
    at = [minutes[2 * number + 2] for number in range(len(pairs))]
    each = [100 * (with_["process_s"] / without["process_s"] - 1) for with_, without in pairs]
    middle.plot(at, each, ".", color="#bbbbbb", label="a stretch against its neighbour")
    step_ms, of_samples = costs(record, "cpu_us")
    reading = [1e3 * (with_["both_s"] - with_["process_s"]) for with_, _ in pairs]
    for ms, name, colour in (
        (of_samples, "samples so far, training thread", "#1f6feb"),
        ([sum(both) for both in zip(of_samples, reading, strict=False)], "and the process that reads them", "#d97706"),
    ):
        so_far = [100 * statistics.mean(ms[: n + 1]) / record["every"] / step_ms for n in range(len(ms))]
        middle.plot(at[: len(ms)], so_far, color=colour, label=name)
    middle.axhline(1, color="#999999", linestyle="--", linewidth=1)
    middle.set_ylabel("CPU overhead, % of a step")
    middle.set_ylim(-5, 9)
    for column, name, colour in ((1, "training", "#1f6feb"), (2, "process that reads the traces", "#d97706")):
        lower.plot(
            [row[0] / 60 for row in record["memory"]], [row[column] for row in record["memory"]], colour, label=name
        )
    lower.set_ylabel("memory, MB")
    lower.set_ylim(bottom=0)
    lower.set_xlabel("minutes of training")
    for axes in (upper, middle, lower):
        axes.legend(loc="best", frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    fig.savefig(figure, dpi=120)


if __name__ == "__main__":
    main()
