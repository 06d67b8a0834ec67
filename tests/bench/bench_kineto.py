"""How fast and in how much memory a torch.profiler trace is read, beside orjson.loads of the same bytes.

    python tests/bench/bench_kineto.py TRACE.json.gz [TIMES]

Repeats a trace TIMES times (shifted in time, with new ids) into one long one, then measures, each in a process of its
own, interpreter start included: orjson.loads, the reader, and the reader with correlation.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ORJSON = "import orjson,sys; orjson.loads(open(sys.argv[1],'rb').read())"
READ = "import sys; from pathlib import Path; from pyprof.parse.kineto import read; c = read(Path(sys.argv[1]))"
PARSE = f"{READ}; from pyprof.parse.correlate import correlate; correlate(c)"
STEPS = (("nothing", "import sys"), ("orjson.loads", ORJSON), ("read", READ), ("read + correlate", PARSE))


def longer(trace: dict[str, Any], times: int) -> dict[str, Any]:
    """The trace, TIMES times: correlation ids, external ids, flows and sequence numbers stay apart."""
    events = trace["traceEvents"]
    timed = [event["ts"] for event in events if event.get("ph") == "X"]
    span = round(max(timed) - min(timed)) + 100_000
    made = []
    for number in range(times):
        for event in events:
            if number and event.get("ph") == "M":
                continue
            copy = {**event, "ts": round(event["ts"] + number * span, 3)}
            if "id" in event:
                copy["id"] = event["id"] + number * 1_000_000
            args = dict(event.get("args") or {})
            for key in ("correlation", "External id", "Sequence number"):
                if key in args:
                    args[key] += number * 1_000_000
            made.append({**copy, "args": args} if args else copy)
    return {**trace, "traceEvents": made}


def measured(code: str, file: Path) -> tuple[float, float]:
    """Seconds (best of five) and peak bytes of a Python process that runs the code."""
    best = float("inf")
    child = f"import resource\n{code}\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    peak = 0
    for _ in range(5):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", child, str(file)], check=True, capture_output=True, text=True)
        best = min(best, time.perf_counter() - begin)
        peak = int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
    return best, peak


def make(source: Path, times: int, file: Path) -> None:
    """Write the long trace. In a process of its own: a child's peak memory counts what its parent had at the fork."""
    raw = source.read_bytes()
    made = longer(json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw), times)
    file.write_text(json.dumps(made, indent=1))
    rows = sum(event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for event in made["traceEvents"])
    print(len(made["traceEvents"]), rows)


def main() -> None:
    source, times = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "12"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.json"
        command = [sys.executable, __file__, "--make", source, times, str(file)]
        counts = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        events, rows = map(int, counts.split())
        size = file.stat().st_size
        print(f"{Path(source).name} x {times}: {size / 1e6:.1f} MB, {events:,} events, {rows:,} GPU rows")
        results = {name: measured(code, file) for name, code in STEPS}
    base = results["orjson.loads"][0]
    for name, (seconds, peak) in results.items():
        print(
            f"{name:18} {seconds:6.2f} s  {seconds / base:5.2f} x orjson.loads  {events / seconds:10,.0f} events/s"
            f"  {rows / seconds:9,.0f} rows/s  peak {peak / 1e6:6.0f} MB = {peak / size:4.1f} x the text"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
