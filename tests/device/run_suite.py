"""Measures the suite on a GPU: once under torch.profiler for our numbers, once under Nsight Compute for the hardware's.

    python tests/device/run_suite.py --out FOLDER [--groups gemm conv sequence memory backward] [--seconds 500]

Needs an NVIDIA GPU, torch, and ``ncu`` with the right to read counters. Clocks are left as they are. The folder
receives ``trace.json.gz`` and ``GROUP.csv`` with their lists of cases: what ``compare.py`` reads.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

SUITE = Path(__file__).with_name("suite.py")
GROUPS = ("gemm", "memory", "conv", "sequence", "backward")
ALWAYS = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")
TENSOR = re.compile(r"^(sm__ops_path_tensor_src_\w+|sm__inst_executed_pipe_tensor\w*)\b")
SPARSE = re.compile(r"_sparsity_o(?:n|ff)$")


def main() -> int:
    options = _parser().parse_args()
    end = time.monotonic() + options.seconds
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    ncu = _ncu()
    metrics = list(ALWAYS) if options.bytes else _metrics(ncu, out)
    _say(f"{len(metrics)} metrics: {','.join(metrics)}")
    if not options.no_trace:
        _run(out, "trace", [sys.executable, *_suite(out, "trace", options), "--groups", *options.groups,
             "--trace", str(out / "trace.json.gz")], end)  # fmt: skip
    for group in options.groups:
        command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled",
                   "--profile-from-start", "off", "--clock-control", "none", "--target-processes", "all",
                   "--metrics", ",".join(metrics), "--log-file", str(out / f"{group}.csv"), sys.executable,
                   *_suite(out, group, options), "--groups", group,
                   "--seconds", str(end - time.monotonic())]  # fmt: skip
        _run(out, group, command, end + 45)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--groups", nargs="+", default=list(GROUPS[:4]), choices=GROUPS)
    parser.add_argument("--only", nargs="*", default=[], help="cases whose name holds one of these")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no case after that")
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("--bytes", action="store_true", help="count DRAM bytes only: one pass a kernel")
    return parser


def _suite(out: Path, name: str, options: argparse.Namespace) -> list[str]:
    only = ["--only", *options.only] if options.only else []
    return [str(SUITE), "--list", str(out / f"{name}.cases.json"), *only]


def _ncu() -> str:
    """ncu, or the newest where the toolkit puts it beside the path."""
    found = [*map(str, sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))), shutil.which("ncu") or ""]
    if not any(found):
        raise SystemExit("run_suite.py: no ncu on the path")
    return found[-1] or found[-2]


def _metrics(ncu: str, out: Path) -> list[str]:
    """Those of the metrics wanted that this GPU has."""
    text = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True, check=False).stdout
    (out / "metrics.txt").write_text(text)
    names = sorted({match[1] for line in text.splitlines() if (match := TENSOR.match(line.strip()))})
    return [*ALWAYS, *(f"{name}.sum" for name in names if not SPARSE.search(name))]


def _run(out: Path, name: str, command: list[str], end: float) -> None:
    start = time.monotonic()
    with (out / f"{name}.log").open("w") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ, check=False,
                                  timeout=max(5.0, end - start)).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = "out of time"
    cases = out / f"{name}.cases.json"
    report = json.loads(cases.read_text()) if cases.exists() else {"ran": [], "failed": {}}
    counts = f"{len(report['ran'])} cases ran, {len(report['failed'])} failed"
    _say(f"{name}: exit {code}, {time.monotonic() - start:.0f} s, {counts}")
    if not report["ran"]:
        _say((out / f"{name}.log").read_text()[-1500:])


if __name__ == "__main__":
    sys.exit(main())
