"""pyprof ranks on the captures of many ranks, against one of them.

    python tests/bench/bench_ranks.py [--ranks 64] [--times 12] [--turns 2] [--folder FOLDER]

Each rank's capture is a golden one of two H200 (nsys, DDP) with its steps repeated, 12 times: 16 MB. One rank is a
straggler, whose host sleeps 6 ms per step, and one file more is cut in the middle. In turns, one file and then all are
read, each by a command of its own. Prints the seconds on the clock and of processor time, and the sum of the resident
memory of all processes at its peak; and whether the straggler, its cause and the bad file are named.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "ranks" / "nsys"
SPAN_NS = 150_000_000  # from one repetition to the next, the same on all ranks, since their collectives end together
STEP = re.compile(r"ProfilerStep#(\d+)")
NUMBERS = re.compile(r"(seq = |op_id = |\()(\d+)")
SAMPLE_S = 0.1
TICKS = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    clock: float  # s
    processor: float  # s, of all processes
    peak_mib: float  # their resident memory together


def repeat(source: Path, target: Path, times: int) -> None:
    """Write a capture whose events happen ``times`` times, one after the other, with steps that go on counting."""
    with gzip.open(source) as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    connection = sqlite3.connect(target)
    connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
    texts = dict(connection.execute("SELECT id, value FROM StringIds"))
    marks = {key: int(found[1]) for key, text in texts.items() if (found := STEP.fullmatch(text))}
    steps = max(marks.values()) - min(marks.values())  # the last one has no end in the capture
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    events = [name for name in tables if name.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS"))]
    begin, end = connection.execute("SELECT min(start), max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    if end - begin >= SPAN_NS:
        sys.exit(f"{source}: expected at most {SPAN_NS:,} ns, found {end - begin:,}")
    for table in events:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = [dict(zip(names, row, strict=True)) for row in connection.execute(f"SELECT * FROM {table}")]
        if table == "NVTX_EVENTS":
            rows = [row for row in rows if row["start"] >= begin - 10_000_000]  # names of domains stay as they are
        places = ",".join("?" * len(names))
        for k in range(1, times):
            later = (_later(row, k, steps, marks) for row in rows)
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", (list(row.values()) for row in later))
    connection.commit()
    connection.close()


def _later(row: dict[str, object], k: int, steps: int, marks: dict[int, int]) -> dict[str, object]:
    """A row of the k-th repetition: times shifted, correlation ids, events and the numbers in texts gone on."""
    moved = dict(row)
    for key, more in (("start", SPAN_NS), ("end", SPAN_NS), ("correlationId", 1 << 22), ("eventId", 1 << 22)):
        if isinstance(moved.get(key), int):
            moved[key] += k * more  # type: ignore[operator]
    if moved.get("textId") in marks:
        moved["text"], moved["textId"] = f"ProfilerStep#{marks[moved['textId']] + k * steps}", None  # type: ignore[index]
    elif isinstance(moved.get("text"), str):
        moved["text"] = NUMBERS.sub(lambda m: f"{m[1]}{int(m[2]) + k * 100_000 if m[2] != '0' else 0}", moved["text"])
    return moved


def measure(command: list[str]) -> tuple[Run, str]:
    """Run a command in a session of its own, whose processes are looked at ten times a second."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        used: dict[int, float] = {}
        peak = 0.0
        while child.poll() is None:
            resident = 0
            for pid, seconds, pages in _processes(child.pid):
                used[pid] = max(used.get(pid, 0.0), seconds)
                resident += pages
            peak = max(peak, resident * os.sysconf("SC_PAGE_SIZE") / (1 << 20))
            time.sleep(SAMPLE_S)
        clock = time.perf_counter() - begin
        out.seek(0)
        text = out.read()
    if child.returncode:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}\n{text}")
    return Run(clock, sum(used.values()), peak), text


def _processes(session: int) -> list[tuple[int, float, int]]:
    """(pid, seconds of processor time, resident pages) of each process of a session."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            found.append((int(entry), (int(fields[11]) + int(fields[12])) / TICKS, int(fields[21])))
    return found


def bench(folder: Path, ranks: int, times: int, turns: int) -> None:
    sources = [folder / f"source{number}.sqlite" for number in (0, 1)]
    for number, source in enumerate(sources):
        repeat(GOLDEN / f"host.rank{number}.sqlite.gz", source, times)
    late = ranks // 2 + 5 if ranks > 12 else 1
    files = folder / "captures"
    files.mkdir()
    for rank in range(ranks):
        shutil.copyfile(sources[rank == late], files / f"rank{rank}.sqlite")
    whole = sum(file.stat().st_size for file in files.iterdir())
    content = sources[0].read_bytes()
    (files / f"rank{ranks}.sqlite").write_bytes(content[: len(content) // 2 + 77])
    print(
        f"{ranks} files of {sources[0].stat().st_size / 1e6:.1f} MB, {whole / 1e9:.2f} GB in all; rank {late} is late"
    )
    pyprof = [sys.executable, "-m", "pyprof", "ranks", "-q"]
    one, every = [], []
    for turn in range(turns):
        job = folder / f"one{turn}"
        one.append(measure([*pyprof, str(files / "rank0.sqlite"), "-o", str(job), "--workers", "1"])[0])
        job = folder / f"all{turn}"
        run, text = measure([*pyprof, str(files / "*.sqlite"), "-o", str(job)])
        every.append(run)
        for name, found in (("one file", one[-1]), ("all", every[-1])):
            print(
                f"{name:9} {found.clock:7.2f} s  {found.processor:7.2f} s of processor time  {found.peak_mib:6.0f} MiB"
            )
        if turn:
            shutil.rmtree(job)
    best_one, best_all = (Run(*map(min, zip(*each, strict=True))) for each in (one, every))
    print(f"clock: {best_all.clock / (best_one.clock * ranks / 2):.2f} times one file * {ranks} / 2")
    print(f"processor time: {best_all.processor / (best_one.processor * ranks):.2f} times one file * {ranks}")
    document = json.loads(
        subprocess.run(
            [*pyprof, "--json", str(folder / "all0")],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
    )
    slow = [(each["rank"], each["causes"][0]["cause"], round(each["held_ns"] / 1e6, 2)) for each in document["slow"]]
    failed = [(Path(each["file"]).name, each["error"]) for each in document["files"] if each["error"]]
    print(f"slow ranks, their first cause and ms per step that each of the others waits: {slow}")
    print(f"files that could not be read: {failed}")
    path = document["path"]
    if path is not None:
        on = [(each["rank"], round(sum(v for k, v in each.items() if k != "rank") / 1e6, 2)) for each in path["on"]]
        print(f"replayed: ranks {path['ranks']}, steps {path['steps']}; critical path by rank, ms: {on}")
    print(text.splitlines()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--times", type=int, default=12)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder otherwise")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench(Path(folder), args.ranks, args.times, args.turns)


if __name__ == "__main__":
    main()
