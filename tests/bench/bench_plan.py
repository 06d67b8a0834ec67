"""What the summary, the advice and the plan take, over parse, on captures of more and more operations.

    python tests/bench/bench_plan.py [TIMES ...] [--capture FILE ...] [--whole] [--runs N]

Repeats golden captures TIMES times (1, 7 and 14: about 1,000, 8,000 and 17,000 operations), as a training loop would,
then runs each command in a process of its own and prints the least processor time of the runs, its ratio to that of
parse, and the peak memory. Of many equal steps a plan replays a few; --whole takes the steps' marks away, so that all
operations are one step.
"""

import argparse
import sqlite3
import sys
import tempfile
from pathlib import Path

from bench_nsys import GOLDEN, best, measure, repeat

COMMANDS = {"parse": ["parse"], "summary": ["prof", "--summary"], "advise": ["prof", "--advise"], "plan": ["plan"]}


def without_steps(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("DELETE FROM NVTX_EVENTS WHERE text LIKE 'step %' OR text LIKE 'Optimizer.step%'")
    connection.commit()
    connection.close()


def bench(source: Path, times: int, whole: bool, runs: int, folder: Path) -> None:
    capture = folder / "net.sqlite"
    rows = repeat(source, capture, times)
    if whole:
        without_steps(capture)
    commands = {name: [sys.executable, "-m", "pyprof", *words, str(capture)] for name, words in COMMANDS.items()}
    turns = [{name: measure(command, folder) for name, command in commands.items()} for _ in range(runs + 1)]
    found = {name: best(turn[name] for turn in turns[1:]) for name in commands}  # the first one compiles
    print(f"{source.name} x {times}{', one step' if whole else ''}: {rows:,} operations")
    for name, run in found.items():
        over = run.processor / found["parse"].processor
        print(f"  {name:8} {run.processor:6.2f} s of processor {over:6.2f} x parse {run.peak_mib:7,.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description="The summary, the advice and the plan over parse.")
    parser.add_argument("times", nargs="*", type=int, default=[1, 7, 14])
    resnet = GOLDEN.with_name("h200_resnet50_init.sqlite.gz")
    parser.add_argument("--capture", nargs="+", type=Path, default=[GOLDEN, resnet])
    parser.add_argument("--whole", action="store_true", help="all operations are one step")
    parser.add_argument("--runs", type=int, default=1, metavar="N")
    args = parser.parse_args()
    for source in args.capture:
        for times in args.times:
            with tempfile.TemporaryDirectory() as folder:
                bench(source, times, args.whole, args.runs, Path(folder))


if __name__ == "__main__":
    main()
