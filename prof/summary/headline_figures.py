"""The few figures that stand out above the sentences of the page, from the numbers that the sentences use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pyprof.command.json_schema import doc
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.wording import amount, counted
from pyprof.prof.summary.work_sentences import at_least, mfu_text, peak_text, per_gpu
from pyprof.quantities import ms, share

__all__ = ["Figure", "figures"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that stands out, with its name and what it is of."""

    name: Annotated[str, doc("what it is")]
    value: Annotated[str, doc("with its unit")]
    of: Annotated[str, doc("what it is of, or empty")] = ""


def figures(summary: Summary) -> list[Figure]:
    """Attributed share, times, busy share, rate and MFU, each where it is known."""
    worker, total = summary.worker, summary.total_ns
    least = at_least(summary.counted_ns, summary).replace("at least", "≥")
    shown = [
        Figure("attributed", share(summary.attributed_ns, total), f"of {worker} time"),
        Figure(f"{worker} time", ms(total), "sum of all durations"),
        *_length(summary),
    ]
    if summary.devices and summary.span_ns:
        shown.append(Figure("GPU busy", share(summary.busy_ns, summary.span_ns), f"of {ms(summary.span_ns)}"))
        if summary.flop:
            known = f"{per_gpu(summary).strip()}, known for {share(summary.counted_ns, total)} of {worker} time"
            rate = f"{least}{amount(summary.flop_per_s, 'FLOP/s')}"
            shown.append(Figure("FLOP rate", rate, known))
        if not math.isnan(summary.mean("mfu")):
            shown.append(Figure("MFU", f"{least}{mfu_text(summary)}", f"of {peak_text(summary)}"))
    return shown


def _length(summary: Summary) -> list[Figure]:
    """The time of a step, or of the whole capture where it marks no steps."""
    if summary.steps:
        count = len(summary.steps)
        return [Figure("step time", ms(summary.step_ns), f"median of {count}" if count > 1 else counted(1, "step"))]
    longest = max((device.span_ns for device in summary.devices), default=0)
    return [Figure("capture", ms(longest), "from the first to the last operation")] if longest else []
