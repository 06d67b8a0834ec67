"""Runs the cases on a GPU, each once warm, between two marker kernels that profilers see in launch order.

    python suite.py --groups gemm conv --list FILE [--trace TRACE] [--seconds N] [--dry]

Under ``ncu --profile-from-start off`` only what stands between the markers is measured. With ``--trace`` it is
recorded by torch.profiler instead. ``--list`` receives the names of the cases that ran, in order, as JSON, and the
reasons of those that could not. ``--dry`` tries everything on meta tensors, without a GPU.
"""

import argparse
import gc
import json
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import backward_outputs
import cases_conv
import cases_gemm
import cases_memory
import cases_sequence
import torch
from case import CASES, Case

GROUPS = {"gemm": cases_gemm, "conv": cases_conv, "sequence": cases_sequence, "memory": cases_memory,
          "backward": backward_outputs}  # fmt: skip


def main() -> None:
    options = _parser().parse_args()
    for group in options.groups:
        GROUPS[group].add()
    cases = [case for case in CASES if not options.only or any(word in case.name for word in options.only)]
    report: dict[str, Any] = {"ran": [], "failed": {}, "checks": {case.name: case.check for case in cases}}
    assert len(report["checks"]) == len(cases), "two cases have one name"
    end = time.monotonic() + options.seconds
    with _recorded(options.trace):
        for case in cases:
            if time.monotonic() > end:
                report["failed"][case.name] = "no time left"
                continue
            _run(case, report, options.dry)
    Path(options.list).write_text(json.dumps(report, indent=1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--groups", nargs="+", default=[name for name in GROUPS if name != "backward"], choices=list(GROUPS)
    )
    parser.add_argument("--only", nargs="*", help="cases whose name holds one of these")
    parser.add_argument("--list", required=True)
    parser.add_argument("--trace")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--dry", action="store_true")
    return parser


def _recorded(trace: str | None) -> AbstractContextManager[Any]:
    if not trace:
        return nullcontext()
    from torch.profiler import ProfilerActivity, profile

    return profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(trace),
    )


def _run(case: Case, report: dict[str, Any], dry: bool) -> None:
    """Warm up once, then run once between two markers. A case that this machine cannot run is named, with its error."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.tf32
    try:
        run = case.build("meta" if dry else "cuda")
        run()
        if not dry:
            _between_markers(run)
        report["ran"].append(case.name)
    except (RuntimeError, TypeError, ValueError, AttributeError, AssertionError) as error:
        report["failed"][case.name] = f"{type(error).__name__}: {error}"[:300]
    run = None
    if not dry:
        if torch.cuda.memory_allocated() > 1 << 28:
            gc.collect()
        torch.cuda.empty_cache()  # a profiler that replays kernels saves what is allocated


def _between_markers(run: Any) -> None:
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    torch.cuda._sleep(1)  # spin_kernel: nothing else has that name
    try:
        run()
    finally:
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
