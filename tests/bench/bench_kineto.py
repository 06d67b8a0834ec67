"""How fast and in how much memory a torch.profiler trace is annotated, beside orjson.loads of the same bytes.

    python tests/bench/bench_kineto.py [TRACE.json.gz [TIMES]]

Repeats a trace TIMES times (shifted in time, with new ids) into one long one; without arguments ten times the GPT-2
step of tests/golden, 128,000 events in 54 MB. Then measures, each in a process of its own, interpreter start included:
orjson.loads, the reader, the reader with correlation, prof.py from the trace to the annotated CSV with all columns,
and, where it is installed, HolisticTraceAnalysis reading the trace and summing up its kernels.
"""

import gzip
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CAPTURE = Path(__file__).resolve().parents[1] / "golden" / "h200_gpt2_bf16.json.gz"
ORJSON = "import orjson,sys; orjson.loads(open(sys.argv[1],'rb').read())"
READ = "import sys; from pathlib import Path; from pyprof.parse.kineto.reader import read; c = read(Path(sys.argv[1]))"
PARSE = f"{READ}; from pyprof.parse.tables.correlate import correlate; correlate(c)"
PROF = """
import sys
from pyprof.prof.cli import main
if main(["-q", "--csv", "-c", "all", "-o", sys.argv[1] + ".csv", "--force", sys.argv[1]]):
    sys.exit("prof.py failed")
"""
HTA = """
import contextlib, io, logging, os, sys
logging.disable()
from hta.trace_analysis import TraceAnalysis
with contextlib.redirect_stdout(io.StringIO()):
    trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
    trace.get_gpu_kernel_breakdown(visualize=False)
"""
STEPS = {
    "nothing": "import sys",
    "orjson.loads": ORJSON,
    "read": READ,
    "read + correlate": PARSE,
    "parse and prof": PROF,
    "HTA": HTA,
}


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


def measured(code: str, file: Path) -> tuple[float, float, int]:
    """Seconds on the clock and of the processors, each the best of five, and peak bytes of a Python that runs it."""
    clock = processor = float("inf")
    child = (
        f"import resource\n{code}\nused = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    peak = 0
    for _ in range(5):
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", child, str(file)], check=True, capture_output=True, text=True)
        clock = min(clock, time.perf_counter() - begin)
        used, size = done.stdout.split()[-2:]
        processor, peak = min(processor, float(used)), int(size) * (1 if sys.platform == "darwin" else 1024)
    return clock, processor, peak


def make(source: Path, times: int, file: Path) -> None:
    """Write the long trace. In a process of its own: a child's peak memory counts what its parent had at the fork."""
    raw = source.read_bytes()
    made = longer(json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw), times)
    file.write_text(json.dumps(made, indent=1))
    rows = sum(event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for event in made["traceEvents"])
    print(len(made["traceEvents"]), rows)


def main() -> None:
    source, times = [*sys.argv[1:3], *(str(CAPTURE), "10")[len(sys.argv) - 1 :]]
    steps = dict(STEPS)
    if importlib.util.find_spec("hta") is None:
        print("without HTA: HolisticTraceAnalysis is not installed for this Python", file=sys.stderr)
        del steps["HTA"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.json"
        command = [sys.executable, __file__, "--make", source, times, str(file)]
        counts = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        events, rows = map(int, counts.split())
        size = file.stat().st_size
        print(f"{Path(source).name} x {times}: {size / 1e6:.1f} MB, {events:,} events, {rows:,} GPU rows")
        results = {name: measured(code, file) for name, code in steps.items()}
    _, base, _ = results["orjson.loads"]
    for name, (clock, processor, peak) in results.items():
        times, size_times = f"{processor / base:6.2f} x orjson.loads", f"{peak / size:4.1f} x the text"
        print(f"{name:18} {processor:6.2f} s of processor {clock:6.2f} s on the clock {times} {size_times} in memory")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
