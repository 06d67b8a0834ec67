"""parse and prof on long nsys captures, against a plain scan of the same tables.

    python tests/bench/bench_nsys.py [TIMES ...] [--capture FILE] [--idle RANGES] [--runs N]

Repeats a golden capture TIMES times (100: 120,000 rows and 620,000 ranges), as a training loop would, then runs, each
in a process of its own: a plain Python scan of the columns that parse needs, parse.py --summary, parse.py to Parquet
and to net.dict, prof.py on both, its summary from the capture itself, pyprof perfetto and three reports of pyprof
stats. Prints the seconds on the clock and of processor time, each the best of the runs (taken in turns), their ratios
to the scan, rows a second on the clock, and the peak memory of each. --idle adds a thread with that many ranges and no
launch, and checks that the table stays the same.
"""

import argparse
import gzip
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pyarrow.parquet import read_table

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "h200_gpt2_step.sqlite.gz"
TABLES = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMSET")
STATS = ("nvtx_sum", "nvtx_gpu_proj_sum", "nvtx_kern_sum")
NUMBERS = re.compile(r"(seq = |op_id = |\()(\d+)")
SCAN = """
import sqlite3, sys
connection, rows = sqlite3.connect(sys.argv[1]), 0
for query in (
    "SELECT start, end, globalPid, correlationId, deviceId, streamId, gridX, gridY, gridZ, blockX, blockY, blockZ,"
    " registersPerThread, staticSharedMemory, dynamicSharedMemory, demangledName, shortName"
    " FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "SELECT start, end, globalTid, text, textId, domainId FROM NVTX_EVENTS",
    "SELECT start, end, globalPid, correlationId, deviceId, streamId, bytes FROM CUPTI_ACTIVITY_KIND_MEMSET",
):
    for row in connection.execute(query):
        rows += 1
"""


class Run(NamedTuple):
    clock: float  # s
    processor: float  # s, of all threads, the interpreter's start included
    peak_mib: float


def repeat(source: Path, target: Path, times: int) -> int:
    """Write a capture in which the source's events happen ``times`` times, one after the other. Returns its rows."""
    with gzip.open(source) as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    connection = sqlite3.connect(target)
    connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
    span = max(connection.execute(f"SELECT max(end) - min(start) FROM {t}").fetchone()[0] for t in TABLES) * 2
    for table in TABLES:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        marks = ",".join("?" * len(names))
        for k in range(1, times):
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", (_later(names, r, k, span) for r in rows))
    connection.commit()
    kernels = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    memsets = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET").fetchone()[0]
    connection.close()
    return int(kernels + memsets)


def _later(names: list[str], row: tuple[object, ...], k: int, span: int) -> list[object]:
    """A row of the k-th repetition: times shifted, correlation ids and the numbers in texts gone on."""
    moved = dict(zip(names, row, strict=True))
    for key, step in (("start", span), ("end", span), ("correlationId", 1_000_000)):
        if isinstance(moved.get(key), int):
            moved[key] += k * step  # type: ignore[operator]
    if isinstance(moved.get("text"), str):
        moved["text"] = NUMBERS.sub(lambda m: f"{m[1]}{int(m[2]) + k * 10_000 if m[2] != '0' else 0}", moved["text"])
    return list(moved.values())


def measure(command: list[str], folder: Path) -> Run:
    """Times and peak memory of one command. Compiled modules are kept in ``folder``, as an installed package does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    script = (  # a small process in between, since a child begins with its parent's peak memory
        "import resource, subprocess, sys, time; begin = time.perf_counter(); code = subprocess.run(sys.argv[1:],"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode; clock = time.perf_counter() - begin;"
        " u = resource.getrusage(resource.RUSAGE_CHILDREN);"
        " print(code, clock, u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], env=environment, capture_output=True, text=True, check=True
    )
    code, *figures = done.stdout.split()
    if code != "0":
        sys.exit(f"{' '.join(command)}: exit {code}")
    return Run(*map(float, figures))


def best(runs: Iterable[Run]) -> Run:
    return Run(*map(min, zip(*runs, strict=True)))


def add_idle(file: Path, ranges: int) -> None:
    """A thread more, whose ranges (an op in a batch in an epoch, by turns) launch nothing."""
    connection = sqlite3.connect(file)
    connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
    begin, last, tid = connection.execute("SELECT min(start), max(end), max(globalTid) FROM NVTX_EVENTS").fetchone()
    step = max((last - begin) // ranges, 1)
    texts = ("batch {0}", "aten::empty, op_id = {0}, sizes = [[], []], input_op_ids = [(0,-1)]")
    connection.executemany(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?, ?, 59, ?, ?, 0)",
        (
            (begin + i * step, begin + (i + 1 + (i % 2 == 0)) * step, texts[i % 2].format(10**9 + i), tid + 1)
            for i in range(ranges)
        ),
    )
    connection.commit()
    connection.close()


def bench(source: Path, folder: Path, times: int, idle: int, runs: int) -> None:
    capture, table, lines = (str(folder / name) for name in ("net.sqlite", "net.parquet", "net.dict"))
    rows = repeat(source, Path(capture), times)
    parse, prof = [sys.executable, "-m", "pyprof.parse"], [sys.executable, "-m", "pyprof.prof"]
    other = [sys.executable, "-m", "pyprof"]
    if idle:
        measure([*parse, capture, "-o", f"{table}.before.parquet"], folder)
        add_idle(Path(capture), idle)
    columns = ["--csv", "-c", "kernel,op,dir,sil,tc,flops,bytes"]
    commands = {
        "plain scan": [sys.executable, "-c", SCAN, capture],
        "summary": [*parse, capture, "--summary"],
        "summary, exact": [*parse, capture, "--summary", "--exact"],
        "parse to Parquet": [*parse, capture, "-o", table, "--force"],
        "parse to net.dict": [*parse, capture, "-o", lines, "--force"],
        "prof on Parquet": [*prof, *columns, table],
        "prof on net.dict": [*prof, *columns, lines],
        "prof's summary": [*prof, "--summary", capture],
        "perfetto": [*other, "perfetto", capture, "-o", f"{table}.pftrace", "--force"],
        **{report: [*other, "stats", "-r", report, capture] for report in STATS},
    }
    turns = [{name: measure(command, folder) for name, command in commands.items()} for _ in range(runs + 1)]
    found = {name: best(turn[name] for turn in turns[1:]) for name in commands}  # the first one compiles
    print(
        f"{source.name} x {times}: {rows:,} rows" + (f", a thread of {idle:,} ranges without a launch" if idle else "")
    )
    if idle:
        same = read_table(table).equals(read_table(f"{table}.before.parquet"))
        print("the table is the same" if same else "THE TABLE IS ANOTHER")
    scan = found["plain scan"]
    for name, run in found.items():
        print(
            f"{name:18} {run.clock:7.2f} s on the clock {run.clock / scan.clock:6.2f} x scan"
            f" {run.processor:7.2f} s of processor {run.processor / scan.processor:6.2f} x scan"
            f" {rows / run.clock:12,.0f} rows/s {run.peak_mib:7,.0f} MiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="parse and prof on long nsys captures, against a plain scan.")
    parser.add_argument("times", nargs="*", type=int, default=[100])
    parser.add_argument("--capture", type=Path, default=GOLDEN)
    parser.add_argument("--idle", type=int, default=0, metavar="RANGES")
    parser.add_argument("--runs", type=int, default=1, metavar="N")
    args = parser.parse_args()
    for times in args.times:
        with tempfile.TemporaryDirectory() as folder:
            bench(args.capture, Path(folder), times, args.idle, args.runs)


if __name__ == "__main__":
    main()
