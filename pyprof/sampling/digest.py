"""The process that reads sampled traces: one line of JSON in for each trace, one line out with its numbers.

It runs beside the training at the lowest priority, so that it uses a core only while nothing else wants it. It ends
when its standard input ends.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyprof.capture.trace_file import mend_trace
from pyprof.errors import PyprofError
from pyprof.sampling.sample import MOST_OPS, OpTime

if TYPE_CHECKING:
    from pyprof.prof.summary.capture_numbers import Summary
    from pyprof.prof.timing.profiler_cost import Unprofiled
    from pyprof.prof.timing.usage import Usage
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Coded, Table

LOWEST_PRIORITY = 19


def main() -> int:
    if hasattr(os, "nice"):
        os.nice(LOWEST_PRIORITY)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = digest(Path(order["raw"]), order["texts"], order["own"])
        except PyprofError as error:
            answer = {"error": str(error)}
        except Exception as error:  # whatever it is, the training process tells it, and the next trace may be readable
            if isinstance(error, BrokenPipeError):
                raise
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


def digest(raw: Path, texts: dict[str, str], own: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a trace as PyTorch's profiler exported it, by the names of `Sample`.

    ``texts``, ``own``: as for ``mend_trace``. Raises PyprofError if the trace cannot be read.
    """
    import numpy as np

    from pyprof.prof.load import load_table
    from pyprof.prof.summary.capture_numbers import summarise
    from pyprof.prof.work.annotate import annotate
    from pyprof.table.columns import NULL

    begun = time.perf_counter()
    mended = raw.with_name("sample.json")
    mend_trace(raw, mended, texts, own)
    table = load_table(mended).table
    # The trace is one iteration, however many of the optimizer's steps are in it.
    table = table.with_column("step", np.full(len(table), NULL))
    annotation = annotate(table)
    found = numbers(summarise(table, annotation))
    found["ops"] = op_times(table, annotation)
    found["trace_bytes"] = raw.stat().st_size
    found["reading_ms"] = 1e3 * (time.perf_counter() - begun)
    return found


def numbers(summary: Summary) -> dict[str, Any]:
    """The numbers of one iteration that the capture's summary has."""
    from pyprof.table.losses import incomplete_line

    total, matrix, timed = summary.total_ns, summary.matrix, summary.unprofiled
    on_gpu = bool(summary.devices) and not summary.on_cpu
    whole = not summary.incomplete and on_gpu

    def percent(ns: float) -> float | None:
        return 100 * ns / total if total else None

    return {
        "step_ms": None if timed is None else timed.step_ns / 1e6,
        "worker": summary.worker,
        "busy_ms": total / 1e6,
        "attributed_percent": percent(summary.attributed_ns),
        "gpu_idle_percent": _mean([_idle(device, timed) for device in summary.devices]) if whole else None,
        "tensor_core_percent": percent(matrix.tensor_ns) if on_gpu else None,
        "tensor_core_unknown_percent": percent(matrix.unknown_ns) if on_gpu else None,
        "mfu_percent": _mean([_mfu(device, timed) for device in summary.devices]) if whole else None,
        "incomplete": incomplete_line(summary.incomplete) or None,
    }


def op_times(table: Table, annotation: Annotation) -> list[OpTime]:
    """The ops as prof.py shows them, the longest first."""
    from pyprof.prof.summary.components import parts_of
    from pyprof.prof.table.columns import COLUMN

    op = cast("Coded", COLUMN["op"].get(table, annotation))  # a column of texts
    parts = parts_of(op, table.ints("kDuration"), empty="(no op)")
    total = sum(part.ns for part in parts) or 1
    return [OpTime(part.name, part.ns / 1e6, 100 * part.ns / total) for part in parts[:MOST_OPS]]


def _idle(device: Usage, timed: Unprofiled | None) -> float | None:
    """% of the iteration in which the device did nothing: of the time without a profiler, where that is known.

    The operations take as long under a profiler as without it; the gaps between them do not.
    """
    span_ns = device.span_ns if timed is None else timed.step_ns
    if not span_ns or device.busy_ns is None:
        return None
    return max(0.0, 100 * (1 - device.busy_ns / span_ns))


def _mfu(device: Usage, timed: Unprofiled | None) -> float | None:
    """The device's model FLOPs utilisation in %, of the time without a profiler, where that is known."""
    span_ns = device.span_ns if timed is None else timed.step_ns
    return None if not span_ns or math.isnan(device.matrix_ns) else 100 * device.matrix_ns / span_ns


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


if __name__ == "__main__":
    sys.exit(main())
