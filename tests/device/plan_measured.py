"""What each change brings to programs with several faults, on a GPU, without a profiler.

    python tests/device/plan_measured.py OUT [--programs a,b] [--budget-s 60] [--folder FOLDER[,FOLDER]] [--alone]
        [--first a,b]

Each program of FOLDER (tests/device/plan_programs) runs in a process of its own: as it is, with each change alone, then
with one change after the other, the one that gained most alone first; with --first, those named there come before all
others, so that a plan of these alone has a measured end. A change that makes the step slower where it stands in that
order is taken back. The host of a machine that others use, too, may be slower by a third for a second:
so the program without the change takes turns with the program that has it, and the gain is the median difference of
neighbours. At the end comes a capture of the unchanged program with `pyprof.profile`, which times the steps before it
without the profiler, with its times just before and after; with --last-capture also one of the program with all that
was kept.

OUT gets NAME.json, written after each measurement: an interrupted run goes on where it ended,
and does not try again what failed. All times are in ms:

* wall: steps in a row between two synchronisations, divided by their number; the median of the blocks, and each block;
* gain: how much longer the wall of the program without the change is, and each pair of neighbours' difference;
* row: between the GPU's ends of two steps in a row, the median; quartiles beside it;
* host: from a step's first call to its last, in a row (`host_row`) and on an idle GPU (`host`);
* alone: from a step's first call on an idle GPU to the GPU's end; `gpu` is the same step between two GPU events.
"""

import argparse
import gc
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FEWEST_BLOCKS, BLOCKS, BLOCK_S, MOST_STEPS, FEWEST_STEPS, ALONE = 3, 5, 0.12, 40, 2, 2
AGREE_GAIN, AGREE_STEP = 0.08, 0.004  # neighbours agree: their differences lie within this share of one or the other
WARM_UP, WARM_UP_S = 3, 0.15
TIMED, CAPTURED = 10, 3  # steps of a capture: before the profiler starts, and with it
WRITING_S = 30.0
CAPTURE_S = 8.0  # kept of the budget for the captures
WORSE = 0.01  # a change that lengthens the step by more than this share is taken back
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="measure changes of programs with several faults")
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", default=str(HERE / "plan_programs"), help="one or several, separated by commas")
    parser.add_argument("--programs", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--budget-s", type=float, default=60.0, help="of one program")
    parser.add_argument("--total-s", type=float, default=1e9, help="of all programs")
    parser.add_argument("--alone", action="store_true", help="each change alone, and none after another")
    parser.add_argument("--first", default="", help="changes that come first in the order, separated by commas")
    parser.add_argument("--no-capture", action="store_true")
    parser.add_argument("--last-capture", action="store_true")
    parser.add_argument("--losses", action="store_true", help="no times: the first two losses with each change")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    import torch  # noqa: F401 (once, for all the processes that follow; nothing here may ask for the GPU)

    found = {path.stem: path for folder in options.folder.split(",") for path in sorted(Path(folder).glob("*.py"))}
    names = options.programs.split(",") if options.programs else [*found]
    started = []
    for name in names:
        left = options.total_s - (time.monotonic() - begun)
        if left < CAPTURE_S:
            print(f"{name}: no time left")
            continue
        options.until = time.monotonic() + min(options.budget_s, left)
        started.append((name, measuring(found[name], options)))
    for name, process in started:
        process.join(WRITING_S)
        if process.is_alive():
            process.kill()
            process.join()
        print(f"{name}: process ended with {process.exitcode}", flush=True)


def measuring(path: Path, options: argparse.Namespace) -> ForkProcess:
    """A program's process, which now needs the GPU no longer: it may still write its capture."""
    forks = multiprocessing.get_context("fork")
    measured = forks.Event()
    process = forks.Process(target=run, args=(path, options, measured))
    process.start()
    while process.is_alive() and not measured.wait(0.05):
        if time.monotonic() > options.until + WRITING_S:
            process.kill()
    return process


def loaded(path: Path, tiny: bool) -> Any:
    """The program, whose lines then stand in captures by its own path."""
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    import plan_program

    plan_program.tiny |= tiny
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return plan_program.PROGRAMS[path.stem]


def run(path: Path, options: argparse.Namespace, measured: Event) -> None:
    program = loaded(path, options.tiny)
    if options.losses:
        (options.out / f"{path.stem}.losses.json").write_text(json.dumps(losses(program)))
    else:
        Measured(program, options, measured).all()
    sys.stdout.flush()
    os._exit(0)  # loaders' workers and what profilers left behind shall not hold the next program up


def losses(program: Any) -> dict[str, list[float]]:
    """The first losses of the program as it is (""), and with each change alone."""
    import torch

    found = {}
    for change in ("", *program.changes):
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        step = program.make(frozenset({change} - {""}))
        found[change] = [float(step()) for _ in range(2)]
    return found


class Variant:
    """A program with changes, made from the same random numbers as the others, and the settings that it wants."""

    def __init__(self, program: Any, changes: tuple[str, ...]) -> None:
        import torch

        self.changes = changes
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        self.used = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self.step: Callable[[], Any] = program.make(frozenset(changes))
        self.precision = torch.get_float32_matmul_precision()
        loss = self.step()
        self.first_loss = None if loss is None else round(float(loss), 5)
        self.steps = self.warmed_up()
        self.blocks: list[float] = []
        self.between: list[float] = []
        self.called: list[float] = []

    def warmed_up(self) -> int:
        """How many steps are a block."""
        from step_clock import alone

        begun = time.perf_counter()
        step_ms = 0.0
        for number in range(1000):
            step_ms = alone(self.step)[0]
            if number >= WARM_UP and time.perf_counter() - begun > WARM_UP_S:
                break
        return max(FEWEST_STEPS, min(MOST_STEPS, int(1e3 * BLOCK_S / step_ms)))

    def block(self) -> float:
        """Steps in a row, and the wall time of one."""
        import torch

        torch.set_float32_matmul_precision(self.precision)
        wall, between, called = in_a_block(self.step, self.steps)
        self.blocks.append(wall)
        self.between += between
        self.called += called
        return wall

    def times(self) -> Row:
        import torch

        each = [alone_between_events(self.step) for _ in range(ALONE)]
        low, middle, high = (round(part, 4) for part in statistics.quantiles(self.between, n=4))
        found = {
            "wall": round(statistics.median(self.blocks), 4),
            "wall_blocks": [round(wall, 4) for wall in self.blocks],
            "steps_a_block": self.steps,
            "row": middle,
            "row_quartiles": [low, high],
            "host_row": round(statistics.median(self.called), 4),
            "alone": round(statistics.median(a for a, _, _ in each), 4),
            "host": round(statistics.median(h for _, h, _ in each), 4),
            "gpu": round(statistics.median(g for _, _, g in each), 4),
            "first_loss": self.first_loss,
        }
        if torch.cuda.is_available():
            found["peak_mib"] = round((torch.cuda.max_memory_allocated() - self.used) / 2**20)
        return found


class Measured:
    """One program's measurements, kept in a file."""

    def __init__(self, program: Any, options: argparse.Namespace, measured: Event) -> None:
        self.program, self.options, self.measured = program, options, measured
        self.file = options.out / f"{program.name}.json"
        self.found: Row = json.loads(self.file.read_text()) if self.file.exists() else self.fresh()
        self.reference: Variant | None = None  # what the next change is compared with

    def fresh(self) -> Row:
        import torch

        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        rest = {"limit": self.program.limit, "changes": [*self.program.changes, *self.program.last]}
        return {"program": self.program.name, "gpu": gpu, "torch": torch.__version__, **rest, "measured": []}

    def all(self) -> None:
        self.of((), "base", "", ())
        for change in (*self.program.changes, *self.program.last):
            self.of((), "alone", change, self.with_needs(change))
        kept = () if self.options.alone else self.one_after_the_other()
        self.forget()
        if not self.options.no_capture:
            self.capture((), "base")
            if self.options.last_capture:
                self.capture(kept, "last")
        self.found["ended"] = "complete" if time.monotonic() < self.options.until else "out of time"
        self.write()

    def with_needs(self, change: str) -> tuple[str, ...]:
        return (*self.program.needs.get(change, ()), change)

    def in_order(self) -> list[str]:
        """By what they gained alone; those that need others, and the last ones, at the end; those of --first first."""
        gains = {row["change"]: row["gain"] for row in self.found["measured"] if row["as"] == "alone" and "gain" in row}
        free = [c for c in self.program.changes if c in gains and c not in self.program.needs]
        late = [c for c in (*self.program.changes, *self.program.last) if c in gains and c not in free]
        order = sorted(free, key=lambda change: -gains[change]) + late
        return sorted(order, key=lambda change: not self.is_first(change))

    def is_first(self, change: str) -> bool:
        return set(self.options.first.split(",")).issuperset(self.with_needs(change))

    def one_after_the_other(self) -> tuple[str, ...]:
        """The changes that were kept."""
        kept: tuple[str, ...] = ()
        compared = False
        for change in self.in_order():
            if kept and not compared and not self.is_first(change):
                compared = bool(self.of((), "together", "", kept))
            more = tuple(one for one in self.with_needs(change) if one not in kept)
            now = self.of(kept, "in order", change, more)
            if now is None:
                continue
            now["kept"] = now["gain"] > -WORSE * now["wall_without"]
            if now["kept"]:
                kept = (*kept, *more)
            self.write()
        if kept and not compared:
            self.of((), "together", "", kept)
        return kept

    def of(self, before: tuple[str, ...], role: str, change: str, more: tuple[str, ...]) -> Row | None:
        """What ``more`` changes bring after those ``before``, or None where there was no time or it failed."""
        on = [*before, *more]
        for row in self.found["measured"]:
            if sorted(row["on"]) == sorted(on) and (row["as"], row["change"]) == (role, change):
                return row if "wall" in row else None
        if not before and (was := self.alone(change)):  # what comes first in order stands there as it was alone
            self.found["measured"].append(was | {"as": role})
            return self.found["measured"][-1]
        kept_free = 0.0 if self.options.no_capture or role == "together" else CAPTURE_S
        if time.monotonic() > self.options.until - kept_free:
            return None
        begun, row = time.monotonic(), {"as": role, "change": change, "on": on, "error": "the process ended"}
        self.found["measured"].append(row)
        self.write()
        try:
            row |= self.compared(before, more)
            del row["error"]
        except (RuntimeError, ImportError, TypeError, ValueError, AttributeError) as error:
            row["error"] = f"{type(error).__name__}: {error}"[:400]
        row["took_s"] = round(time.monotonic() - begun, 1)
        self.write()
        told = f"{row['wall']:9.3f} ms  gain {row.get('gain', 0):8.3f}" if "wall" in row else row["error"][:120]
        print(f"{self.program.name:10} {role:10} {change:14} {told}  {row['took_s']} s", flush=True)
        return row if "wall" in row else None

    def alone(self, change: str) -> Row | None:
        rows = [row for row in self.found["measured"] if (row["as"], row["change"]) == ("alone", change)]
        return next((row for row in rows if "wall" in row), None)

    def compared(self, before: tuple[str, ...], more: tuple[str, ...]) -> Row:
        """The two take turns. What was changed becomes the next reference if the next comparison asks for it."""
        if self.reference is None or self.reference.changes != before:
            self.forget()
            self.reference = Variant(self.program, before)
        old = self.reference
        if not more:
            for _ in range(BLOCKS):
                old.block()
            return old.times()
        new = Variant(self.program, (*before, *more))
        without, pairs = [old.block()], []
        while len(pairs) < FEWEST_BLOCKS or (len(pairs) < BLOCKS and not agree(pairs, without)):
            wall = new.block()
            without.append(old.block())
            pairs.append((without[-2] + without[-1]) / 2 - wall)
        found = new.times()
        found["gain"] = round(statistics.median(pairs), 4)
        found["gain_pairs"] = [round(gain, 4) for gain in pairs]
        found["wall_without"] = round(statistics.median(without), 4)
        found["wall_without_blocks"] = [round(wall, 4) for wall in without]
        if before and found["gain"] > -WORSE * found["wall_without"]:
            self.reference = new
        del old, new
        freed()
        return found

    def forget(self) -> None:
        self.reference = None
        freed()

    def capture(self, changes: tuple[str, ...], what: str) -> None:
        """Some steps timed, then some captured; and the program's times without pyprof just before."""
        from step_clock import wait

        import pyprof

        file = self.options.out / f"{self.program.name}.{what}.json.gz"
        if file.exists():
            return
        variant = Variant(self.program, changes)
        before = [round(variant.block(), 4) for _ in range(3)]
        with pyprof.profile(file, force=True, trace=True, warmup=TIMED, steps=CAPTURED):
            for _ in range(TIMED + CAPTURED):
                variant.step()
                pyprof.step()
            wait()
            if not self.options.last_capture:
                self.measured.set()
        told = {"file": file.name, "on": list(changes), "wall_before": before}
        self.found.setdefault("captures", {})[what] = told
        self.write()
        del variant
        freed()

    def write(self) -> None:
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps(self.found, indent=1))
        partial.replace(self.file)


def agree(pairs: list[float], without: list[float]) -> bool:
    spread = max(pairs) - min(pairs)
    return spread <= max(AGREE_GAIN * abs(statistics.median(pairs)), AGREE_STEP * statistics.median(without))


def freed() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_a_block(step: Callable[[], Any], steps: int) -> tuple[float, list[float], list[float]]:
    """Steps in a row: wall time of one, the times between their ends on the GPU, and those of their calls."""
    from step_clock import ON_GPU, wait

    marks, calls = [], []
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        called = time.perf_counter()
        step()
        calls.append((time.perf_counter() - called) * 1e3)
        marks.append(recorded())
    wait()
    wall = (time.perf_counter() - start) * 1e3 / steps
    return wall, [a.elapsed_time(b) for a, b in pairwise(marks)] if ON_GPU else calls, calls


def recorded() -> Any:
    import torch
    from step_clock import ON_GPU

    if not ON_GPU:
        return None
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark


def alone_between_events(step: Callable[[], Any]) -> tuple[float, float, float]:
    """A step on an idle GPU: its wall time, its host time, and from an event before it to one behind it."""
    from step_clock import ON_GPU, alone

    marks: list[Any] = []

    def marked() -> None:
        marks.append(recorded())
        step()
        marks.append(recorded())

    wall, host = alone(marked)
    return wall, host, marks[0].elapsed_time(marks[1]) if ON_GPU else wall


if __name__ == "__main__":
    main()
