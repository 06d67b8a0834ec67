"""The report's first lines: sentences that a person can quote, and the few figures above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.prof.ops.model import MATRIX
from pyprof.prof.timing.steps import Step, typical
from pyprof.prof.timing.usage import Usage
from pyprof.prof.work.annotate import Annotation
from pyprof.quantities import share
from pyprof.table.attribution import AttributedTime, attributed_rows, runs_on_cpu
from pyprof.table.columns import Ints, Table
from pyprof.table.json_lists import first_text

__all__ = ["Figure", "figures", "sentences", "shown_ns"]

NAMED = 5  # classes or ops that a sentence names
LONGEST = 48  # characters of a name in a sentence


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that stands out, with its name and what it is of."""

    name: str
    value: str
    of: str = ""


def figures(table: Table, annotation: Annotation, found: Sequence[Step], used: Sequence[Usage]) -> list[Figure]:
    """Attributed share, step time, busy share, rate and MFU, each where it is known."""
    time = AttributedTime.of(table)
    shown = [Figure("attributed", share(time.attributed_ns, time.total_ns), f"of {time.processor} time")]
    step = typical(found)
    if step is not None:
        several = f"median of {len(found)}" if len(found) > 1 else ""
        shown.append(
            Figure(
                "step time" if _has_steps(found) else "capture",
                shown_ns(step.span_ns),
                several or "from first to last operation",
            )
        )
    if used:
        first = used[0]
        of = f"{first.name or 'GPU'}" + (f", first of {len(used)}" if len(used) > 1 else "")
        shown.append(Figure("GPU busy", f"{first.busy:.1f}%", of))
        if first.flop:
            shown.append(Figure("TFLOP/s", f"{first.tflops:.4g}", "over the capture, idle time included"))
        if not math.isnan(first.mfu):
            shown.append(
                Figure("MFU", f"{first.mfu:.1f}%", f"of {first.peak_flop_per_s / 1e12:.4g} TFLOP/s, {first.unit}")
            )
    return shown


def sentences(table: Table, annotation: Annotation, found: Sequence[Step], used: Sequence[Usage]) -> list[str]:
    """The run in words, the most important first."""
    said = [_attribution(table), *_step_times(found), *(f"{record.line()}." for record in used)]
    return [*said, *_classes(table, annotation), *_tensor_cores(table, annotation), *_unknown(table, annotation)]


def _attribution(table: Table) -> str:
    rows = int(attributed_rows(table.coded("op")).sum())
    return f"{AttributedTime.of(table).sentence()} ({rows:,} of {len(table):,} operations)."


def _has_steps(found: Sequence[Step]) -> bool:
    return any(step.number is not None for step in found)


def _step_times(found: Sequence[Step]) -> list[str]:
    step = typical(found)
    if step is None:
        return []
    parts = [f"{name} {shown_ns(ns)} ({_percent(ns, step.span_ns)})" for name, ns in step.phase_ns.items() if ns]
    parts.append(f"idle {shown_ns(step.idle_ns)} ({_percent(step.idle_ns, step.span_ns)})")
    what = "A step takes" if _has_steps(found) else "The capture takes"
    several = f" (medians of {len(found)})" if len(found) > 1 else ""
    forward, backward = step.phase_ns.get("forward", 0), step.phase_ns.get("backward", 0)
    ratio = f"; backward takes {backward / forward:.2f} times as long as forward" if forward and backward else ""
    return [f"{what} {shown_ns(step.span_ns)}{several}: {', '.join(parts)}{ratio}."]


def _classes(table: Table, annotation: Annotation) -> list[str]:
    duration = table.ints("kDuration")
    sums = _sums(annotation.family.texts("without a class"), duration)
    if set(sums) <= {"without a class"}:
        sums = _sums(table.coded("kShortName").texts("(no name)"), duration)
    return [f"Where the time goes: {_shares(sums, int(duration.sum()))}."] if sums else []


def _tensor_cores(table: Table, annotation: Annotation) -> list[str]:
    """Of matrix products (and of kernels whose names say that they are one), the share on tensor cores."""
    if runs_on_cpu(table.coded("kind")):
        return []
    family = np.array([*(value in MATRIX for value in annotation.family.values), True])[annotation.family.codes]
    tc = np.array(annotation.tc.texts(), object)
    main = np.array(annotation.role.texts("main"), object) == "main"
    product = family & main & np.isin(tc, ("0", "1", "?"))
    duration = table.ints("kDuration")
    total = int(duration[product].sum())
    if not total:
        return []
    sure, doubt = (int(duration[product & (tc == use)].sum()) for use in ("1", "?"))
    words = f"Of matrix products' {shown_ns(total)}, {_percent(sure, total)} ran on tensor cores"
    return [words + (f" (not known for {_percent(doubt, total)})." if doubt else ".")]


def _unknown(table: Table, annotation: Annotation) -> list[str]:
    total = int(table.ints("kDuration").sum())
    missed = {_name(name): ns for name, ns in annotation.uncounted.items()}
    if not missed:
        return ["FLOPs and bytes are known for every operation."]
    return [f"FLOPs are not known for {_percent(sum(missed.values()), total)} of the time: {_shares(missed, total)}."]


def _sums(names: Sequence[str], duration: Ints) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, ns in zip(names, duration.tolist(), strict=True):
        sums[name] = sums.get(name, 0) + ns
    return sums


def _shares(sums: Mapping[str, int], total: int) -> str:
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{_cut(name)} {_percent(ns, total)}" for name, ns in ordered[:NAMED]]
    rest = len(ordered) - NAMED
    return ", ".join(words) + (f" and {rest} more" if rest > 0 else "")


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}"


def _name(name: str) -> str:
    return (first_text(name) if name.startswith('["') else name) or "(no name)"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


def shown_ns(ns: float) -> str:
    """A time with a unit that suits it.

    >>> shown_ns(47258000), shown_ns(850), shown_ns(9.24463e9)
    ('47.26 ms', '850 ns', '9.245 s')
    """
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= size:
            return f"{ns / size:.4g} {unit}"
    return f"{ns:.0f} ns"
