"""What each change brings to programs with several faults, on a GPU, without a profiler.

    python tests/device/plan_measured.py OUT [--programs a,b] [--budget-s 40] [--folder FOLDER] [--no-capture] [--tiny]

Each program of FOLDER (tests/device/plan_programs) runs in a process of its own: as it is, with each change alone, then
with one change after the other, the one that gained most alone first. A change that makes the step slower where it
stands in that order is taken back. At the end comes the unchanged program again, to show how far the clocks drifted,
and a capture of it with `pyprof.profile`; with --last-capture also one of the program with all that was kept.

OUT gets NAME.json, written after each measurement: an interrupted run goes on where it ended. All times are in ms:

* wall: steps in a row between two synchronisations, divided by their number; the median of the blocks, and each block;
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
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BLOCKS, BLOCK_S, MOST_STEPS, FEWEST_STEPS, ALONE = 5, 0.15, 40, 3, 4
WARM_UP, WARM_UP_S = 3, 0.15
CAPTURE_S = 8.0  # kept of the budget for the captures
WORSE = 1.01  # a change that lengthens the step by more than this is taken back
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="measure changes of programs with several faults")
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", type=Path, default=HERE / "plan_programs")
    parser.add_argument("--programs", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--budget-s", type=float, default=60.0, help="of one program")
    parser.add_argument("--total-s", type=float, default=1e9, help="of all programs")
    parser.add_argument("--no-capture", action="store_true")
    parser.add_argument("--last-capture", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    import torch  # noqa: F401 (once, for all the processes that follow; nothing here may ask for the GPU)

    names = (
        options.programs.split(",") if options.programs else sorted(path.stem for path in options.folder.glob("*.py"))
    )
    for name in names:
        left = options.total_s - (time.monotonic() - begun)
        if left < CAPTURE_S:
            print(f"{name}: no time left")
            continue
        options.until = time.monotonic() + min(options.budget_s, left)
        process = multiprocessing.get_context("fork").Process(target=run, args=(name, options))
        process.start()
        process.join(min(options.budget_s, left) + 30)
        if process.is_alive():
            process.kill()
            process.join()
        print(f"{name}: process ended with {process.exitcode}", flush=True)


def loaded(name: str, folder: Path, tiny: bool) -> Any:
    """The program, whose lines then stand in captures by its own path."""
    sys.path[:0] = [str(HERE), str(HERE.parents[1])]
    import plan_program

    plan_program.tiny |= tiny
    path = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return plan_program.PROGRAMS[name]


def run(name: str, options: argparse.Namespace) -> None:
    Measured(loaded(name, options.folder, options.tiny), options).all()
    sys.stdout.flush()
    os._exit(0)  # loaders' workers and what profilers left behind shall not hold the next program up


class Measured:
    """One program's measurements, kept in a file."""

    def __init__(self, program: Any, options: argparse.Namespace) -> None:
        self.program, self.options = program, options
        self.file = options.out / f"{program.name}.json"
        self.found: Row = json.loads(self.file.read_text()) if self.file.exists() else self.fresh()

    def fresh(self) -> Row:
        import torch

        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        rest = {"limit": self.program.limit, "changes": [*self.program.changes, *self.program.last]}
        return {"program": self.program.name, "gpu": gpu, "torch": torch.__version__, **rest, "measured": []}

    def all(self) -> None:
        base = self.of((), "base")
        for change in (*self.program.changes, *self.program.last):
            self.of(self.with_needs(change), "alone", change)
        kept = self.one_after_the_other(base)
        if all("again" not in row["as"] for row in self.found["measured"]):
            self.of((), "base again")
        if not self.options.no_capture:
            self.capture((), "base")
            if self.options.last_capture:
                self.capture(kept, "last")
        self.found["ended"] = "complete" if time.monotonic() < self.options.until else "out of time"
        self.write()

    def one_after_the_other(self, base: Row | None) -> tuple[str, ...]:
        """The changes kept, in the order of what they gained alone, those with needs and the last ones at the end."""
        walls = {row["change"]: row["wall"] for row in self.found["measured"] if row["as"] == "alone" and "wall" in row}
        free = [change for change in self.program.changes if change in walls and change not in self.program.needs]
        late = [c for c in (*self.program.changes, *self.program.last) if c in walls and c not in free]
        early = sorted((c for c in free if c not in self.program.last), key=lambda change: walls[change])
        late = [c for c in late if c not in early] + [c for c in self.program.last if c in free]
        kept: tuple[str, ...] = ()
        best = base["wall"] if base else None
        for change in dict.fromkeys([*early, *late]):
            if not set(self.program.needs.get(change, ())) <= set(kept):
                missing = {change, *self.program.needs[change]}
                now = self.of((*kept, *(c for c in self.with_needs(change) if c not in kept)), "in order", change)
                taken = [c for c in missing if c not in kept]
            else:
                now, taken = self.of((*kept, change), "in order", change), [change]
            if now is None or "wall" not in now or best is None:
                continue
            now["kept"] = now["wall"] < WORSE * best
            if now["kept"]:
                kept, best = (*kept, *sorted(taken)), now["wall"]
            self.write()
        return kept

    def with_needs(self, change: str) -> tuple[str, ...]:
        return (*self.program.needs.get(change, ()), change)

    def of(self, changes: tuple[str, ...], role: str, change: str = "") -> Row | None:
        """The measurement of the program so changed, or None where there was no time or it failed."""
        same = sorted(changes)
        for row in self.found["measured"]:
            if sorted(row["on"]) == same and (row["as"], row["change"]) == (role, change) and "error" not in row:
                return row
        if time.monotonic() > self.options.until - (0 if self.options.no_capture else CAPTURE_S):
            return None
        begun = time.monotonic()
        row = {"as": role, "change": change, "on": list(changes)}
        try:
            row |= self.measured(changes)
        except (RuntimeError, ImportError, TypeError, ValueError, AttributeError) as error:
            row["error"] = f"{type(error).__name__}: {error}"[:400]
        row["took_s"] = round(time.monotonic() - begun, 1)
        self.found["measured"] = [
            old for old in self.found["measured"] if (old["as"], old["change"], old["on"]) != (role, change, row["on"])
        ] + [row]
        self.write()
        if "wall" in row:
            print(f"{self.program.name:10} {role:10} {change:14} {row['wall']:9.3f} ms  host {row['host']:8.3f}"
                  f"  {row['took_s']} s", flush=True)  # fmt: skip
        else:
            print(f"{self.program.name:10} {role:10} {change:14} {row['error'][:120]}", flush=True)
        return row if "wall" in row else None

    def measured(self, changes: tuple[str, ...]) -> Row:
        import torch

        with prepared(self.program, changes) as step:
            first, found = value(step()), times(step)
        found["first_loss"] = first
        if torch.cuda.is_available():
            found["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
        return found

    def capture(self, changes: tuple[str, ...], what: str) -> None:
        from step_clock import wait

        import pyprof

        file = self.options.out / f"{self.program.name}.{what}.json.gz"
        if file.exists():
            return
        with prepared(self.program, changes) as step:
            step()
            with pyprof.profile(file, force=True, trace=True, warmup=2, steps=3):
                for _ in range(5):
                    step()
                    pyprof.step()
                wait()
        self.found.setdefault("captures", {})[what] = {"file": file.name, "on": list(changes), "steps": 3}
        self.write()

    def write(self) -> None:
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps(self.found, indent=1))
        partial.replace(self.file)


class prepared:
    """The step of a program with changes, from the same random numbers; afterwards its memory is free again."""

    def __init__(self, program: Any, changes: tuple[str, ...]) -> None:
        self.program, self.changes = program, changes

    def __enter__(self) -> Callable[[], Any]:
        import torch

        torch.manual_seed(0)
        torch.set_float32_matmul_precision("highest")
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self.step = self.program.make(frozenset(self.changes))
        return self.step

    def __exit__(self, *_: object) -> None:
        import torch

        del self.step
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def value(loss: Any) -> float | None:
    return None if loss is None else round(float(loss), 5)


def times(step: Callable[[], Any]) -> Row:
    from step_clock import alone

    begun = time.perf_counter()
    for number in range(1000):
        step_ms = alone(step)[0]
        if number >= WARM_UP and time.perf_counter() - begun > WARM_UP_S:
            break
    steps = max(FEWEST_STEPS, min(MOST_STEPS, int(1e3 * BLOCK_S / step_ms)))
    blocks, row, host = [], [], []
    for _ in range(BLOCKS):
        wall, between, called = block(step, steps)
        blocks.append(wall)
        row += between
        host += called
    each = [alone_between_events(step) for _ in range(ALONE)]
    low, middle, high = (round(part, 4) for part in statistics.quantiles(row, n=4))
    return {
        "wall": round(statistics.median(blocks), 4),
        "wall_blocks": [round(wall, 4) for wall in blocks],
        "steps_a_block": steps,
        "row": middle,
        "row_quartiles": [low, high],
        "host_row": round(statistics.median(host), 4),
        "alone": round(statistics.median(a for a, _, _ in each), 4),
        "host": round(statistics.median(h for _, h, _ in each), 4),
        "gpu": round(statistics.median(g for _, _, g in each), 4),
    }


def block(step: Callable[[], Any], steps: int) -> tuple[float, list[float], list[float]]:
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
