"""pyprof stats on a long nsys capture: all reports of a file of KERNELS kernels, made of literal rows.

    python tests/bench/bench_stats.py [KERNELS]

A million kernels (the default) have as many API calls and 200,000 ranges in three levels. Prints the seconds, rows a
second and peak memory of reading and of each report.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import REPORTS, Wanted
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

NAMES = 50


def capture(path: Path, kernels: int) -> Path:
    """A kernel every 20 ns, in an outer range of ten, an inner one of five, and a step around all."""
    ranges = [push(-10, kernels * 20 + 10, "step")]
    for i in range(0, kernels, 10):
        ranges += [push(i * 20 - 2, i * 20 + 199, f"outer {i % 70}"), push(i * 20 - 1, i * 20 + 99, f"inner {i % 70}")]
    texts = [(i, f"k{i}") for i in range(1, NAMES + 1)]
    texts += [(100 + i, f"void k{i}<int>(float*)") for i in range(1, NAMES + 1)]
    launches = [call(i * 20, i) for i in range(kernels)]
    return write(
        path,
        StringIds=texts,
        **{KERNEL: [kernel(i * 20 + 6 + i % 97, i, name=i % NAMES + 1) for i in range(kernels)], API: launches},
        **{NVTX: ranges},
    )


def main() -> int:
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder, recording(capture(Path(folder) / "net.sqlite", kernels)) as found:
        parts = [("read kernels and calls", lambda: found.gpu), ("read ranges", lambda: found.spans)]
        total = sum(timed(name, read, kernels) for name, read in parts)
        for report in REPORTS:
            total += timed(report.name, lambda report=report: Wanted(report).rows(found), kernels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'all':24} {total:6.2f} s {kernels / total:12,.0f} kernels/s   peak {peak:,.0f} MiB with the making")
    return 0


def timed(name: str, work: object, kernels: int) -> float:
    assert callable(work)
    begin = time.perf_counter()
    work()
    took = time.perf_counter() - begin
    print(f"{name:24} {took:6.2f} s {kernels / max(took, 1e-9):12,.0f} kernels/s")
    return took


if __name__ == "__main__":
    sys.exit(main())
