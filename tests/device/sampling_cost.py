"""What sampled training (pyprof.profile(every=N, to=...)) costs on a GPU: the steps of one process, with it or without.

    python tests/device/sampling_cost.py plain|sampled host|gpu OUT.json     # one process
    python tests/device/sampling_cost.py report OUT.json OUT.json ..          # what was measured, as a table

``host`` and ``gpu``: what sets the pace of the step, a GPT-2 with one short sequence or with 24 long ones. CUPTI stays
in a process after the first sample, so each process has steps before it and after it, and a process without pyprof has
the same steps. TEARDOWN_CUPTI=1 in the environment lets CUPTI go after each sample. All times are by the host's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

STEPS = {"host": 990, "gpu": 230}
EVERY = {"host": 250, "gpu": 60}
FIRST = 20  # steps that are left out: the program's own warm-up
AFTER_S = 1.0  # after a sample, in which another process reads it
TIMED = 20  # steps before a sample that pyprof times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("plain", "sampled", "report"))
    parser.add_argument("words", nargs="+", metavar="WORD")
    options = parser.parse_args()
    if options.mode == "report":
        records = [json.loads(Path(file).read_text()) for file in options.words]
        sys.stdout.write("".join(f"{line}\n" for line in report(records)))
        return
    kind, file = options.words
    Path(file).write_text(json.dumps(trained(kind, options.mode == "sampled")))


def trained(kind: str, sampling: bool) -> dict[str, Any]:
    """Train; of each step, when it began, the host's time until its last launch, and its time, in µs."""
    import torch
    from gpt2 import Config, training

    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    small = Config(layers=2, width=64, heads=2, context=32, vocabulary=512)
    config = small if not on_gpu else Config(context=128) if kind == "host" else Config()
    step, tiny = training(device, config, 1 if kind == "host" else 24), torch.zeros(1, device=device)
    samples: list[dict[str, Any]] = []
    steps: list[tuple[int, int, int]] = []
    launch = {}
    for _ in range(FIRST):
        step().item()
    launch["before"] = launch_us(tiny)
    begun = time.perf_counter_ns()
    with _block(sampling, EVERY[kind], samples):
        for _ in range(STEPS[kind]):
            now = time.perf_counter_ns()
            loss = step()
            launched = time.perf_counter_ns()
            loss.item()
            steps.append((now - begun, launched - now, time.perf_counter_ns() - now))
        launch["after"] = launch_us(tiny)  # no sample is being recorded
    facts = {
        "kind": kind,
        "sampled": sampling,
        "torch": torch.__version__,
        "teardown": os.environ.get("TEARDOWN_CUPTI"),
    }
    return {**facts, "launch_us": launch, "steps_ns": steps, "samples": samples}


def _block(sampling: bool, every: int, samples: list[dict[str, Any]]) -> Any:
    if not sampling:
        return nullcontext()
    import pyprof

    return pyprof.profile(every=every, to=lambda sample: samples.append(sample._asdict()))


def launch_us(tiny: Any, times: int = 400) -> float:
    """The host's time of a kernel's launch, the median of nine means."""
    return statistics.median(_mean_us(lambda: tiny.add_(1), times) for _ in range(9))


def _mean_us(call: Callable[[], Any], times: int) -> float:
    begun = time.perf_counter_ns()
    for _ in range(times):
        call()
    lasted = time.perf_counter_ns() - begun
    call().item()
    return lasted / times / 1e3


def parts(record: dict[str, Any]) -> Iterator[tuple[str, range]]:
    """The steps before the first sample, and those after it that no sample touches; the same of a process without."""
    every, steps = EVERY[record["kind"]], record["steps_ns"]
    yield "before", range(FIRST, every - TIMED)
    for number in range(every, len(steps), every):
        begin = next(
            (i for i in range(number + 1, len(steps)) if steps[i][0] > steps[number + 1][0] + AFTER_S * 1e9), 0
        )
        if begin:
            yield "after", range(begin, min(number + every, len(steps)) - TIMED)


def _read(steps: list[list[int]], number: int) -> int | None:
    """The first step a second after the sample that step ``number`` begins."""
    late = steps[number + 1][0] + AFTER_S * 1e9
    return next((i for i in range(number + 1, len(steps)) if steps[i][0] > late), None)


def times_of(record: dict[str, Any], part: str, which: int) -> list[float]:
    """In ms; ``which``: 1 the host's launches, 2 the whole step."""
    numbers = [number for name, found in parts(record) if name == part for number in found]
    return [record["steps_ns"][number][which] / 1e6 for number in numbers]


def sample_ms(record: dict[str, Any]) -> list[float]:
    """What each sample adds to the steps from 20 before it to a second after it, by the median of untouched steps."""
    every, steps = EVERY[record["kind"]], record["steps_ns"]
    found = []
    for number in range(every, len(steps), every):
        end = next(
            (i for i in range(number + 2, len(steps)) if steps[i][0] > steps[number + 1][0] + AFTER_S * 1e9), None
        )
        if end is None:
            continue
        before = statistics.median(times_of(record, "before" if number == every else "after", 2))
        after = statistics.median(times_of(record, "after", 2))
        usual = (TIMED + 1) * before + (end - number - 1) * after
        found.append((steps[end][0] - steps[number - TIMED][0]) / 1e6 - usual)
    return found


def report(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        way = "plain" if not record["sampled"] else "sampled, CUPTI let go" if record["teardown"] else "sampled"
        yield f"{record['kind']}, {way}: {len(record['samples'])} samples"
        for part in ("before", "after"):
            for which, what in ((1, "launches"), (2, "step")):
                values = times_of(record, part, which)
                mean, middle = statistics.mean(values), statistics.median(values)
                yield f"  {part:6} {what:8} median {middle:8.3f} mean {mean:8.3f} ms, {len(values)} steps"
        yield "  a kernel's launch {before:.2f} us before, {after:.2f} after".format(**record["launch_us"])
        if record["samples"]:
            yield "  a sample adds " + ", ".join(f"{each:.1f}" for each in sample_ms(record)) + " ms"
            yield "  sampling_ms " + ", ".join(f"{each['sampling_ms']:.1f}" for each in record["samples"])
            yield "  step_ms " + ", ".join(f"{each['step_ms']:.2f}" for each in record["samples"])


if __name__ == "__main__":
    main()
