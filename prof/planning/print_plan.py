"""A plan as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.planning.json_document import (
    PlanChecked,
    PlanDevice,
    PlanDocument,
    PlannedChange,
    PlanTimings,
    StepTime,
)

WIDTH = 100
LEAST_WIDTH = 60
SHOWN = 5  # changes that are not in the plan


def plan_lines(document: PlanDocument, width: int = WIDTH) -> Iterator[str]:
    """The step as it is, a line per change with its place and cost, and what is left."""
    width = max(width, LEAST_WIDTH)
    unit = "step" if document.steps else "capture"
    how = "measured without the profiler" if document.measured else "an estimate; --step-ms gives the measured time"
    now = document.now if document.device is None else document.device.captured
    head = f"A {unit} takes {_ms(document.captured_ms)} ms as captured. Without the profiler: {_ms(now.ms)} ms ({how})."
    yield from textwrap.wrap(head, width)
    if document.device is not None:
        yield from textwrap.wrap(_device(document.device, document.now), width)
    if document.timings is not None:
        yield from textwrap.wrap(_timings(document.timings), width)
    yield ""
    place = f", on {safe(document.device.name)}" if document.device is not None else ""
    if not document.changes:
        yield from textwrap.wrap(f"No change was found that saves 1% of the {unit}.", width)
    else:
        yield f"{'ms':>9}  {'80% interval':^17}  change"
        yield f"{_ms(document.now.ms):>9}  {_interval(document.now):^17}  as it is{place}"
        for change in document.changes:
            yield from _change_lines(change, width)
        yield ""
        yield from textwrap.wrap(_result(document, unit), width)
    yield from _others(document, width)
    if document.checked is not None:
        yield from _checked_lines(document.checked, width)


def _device(device: PlanDevice, now: StepTime) -> str:
    said = (
        f"On {safe(device.name)} in place of {safe(device.captured_on)}: {_ms(now.ms)} ms, in four of five cases "
        f"{_interval(now)}. Each kernel keeps the share of its GPU's limit that it reached; the host is taken to be "
        "the same."
    )
    if device.replaced:
        said += (
            f" {device.replaced:g} products per step use tensor cores of a type that it lacks, and would run without."
        )
    if device.unknown:
        said += f" {device.unknown:g} kernels per step cannot run there as they are; they are scaled by the bandwidth."
    return said


def _timings(timings: PlanTimings) -> str:
    now = f", {timings.measured} of them now" if timings.measured else ""
    more = f"; {timings.missing} more were asked for and are estimated" if timings.missing else ""
    return f"Durations of {timings.calls} calls were measured on {safe(timings.device)}{now}{more}."


def _result(document: PlanDocument, unit: str) -> str:
    count = f"{len(document.changes)} changes" if len(document.changes) > 1 else "1 change"
    before, after = _ms(document.now.ms), _ms(document.changes[-1].step.ms)
    return f"{count}: {before} to {after} ms. Each further one saves less than 1% of a {unit}."


def _change_lines(change: PlannedChange, width: int) -> Iterator[str]:
    head = f"{_ms(change.step.ms):>9}  {_interval(change.step):^17}  "
    yield cut_to(head + safe(f"{change.title}  [{change.rule}]"), width)
    hang = " " * len(head)
    if change.trace:
        yield cut_to(f"{hang}{safe(change.trace)}{safe(f' · {change.op}' if change.op else '')}", width)
    if change.timed:
        yield cut_to(f"{hang}{_share(change.timed)} of its new durations measured", width)
    yield from (
        textwrap.wrap(safe(change.cost), width, initial_indent=f"{hang}costs ", subsequent_indent=f"{hang}      ")
        if change.cost
        else ()
    )


def _checked_lines(checked: PlanChecked, width: int) -> Iterator[str]:
    yield ""
    yield "The second capture"
    for change in checked.changes:
        made = (
            f"{_ms(change.predicted.ms):>9}  {_interval(change.predicted):^17}" if change.made else f"{'not made':>28}"
        )
        yield cut_to(f"{made}  {safe(change.title)}  [{change.rule}]", width)
    yield f"{_ms(checked.now.ms):>9}  {_interval(checked.now):^17}  its own step without the profiler"
    yield from textwrap.wrap(f"Predicted of the changes that were made: {checked.difference:+.1%} beside it.", width)


def _others(document: PlanDocument, width: int) -> Iterator[str]:
    worth = [other for other in document.not_chosen if other.saved_ms > 0][:SHOWN]
    if worth:
        told = ", ".join(f"{other.rule} {other.saved_ms:.2g} ms" for other in worth)
        yield from textwrap.wrap(f"Not worth it after these: {told}.", width, break_on_hyphens=False)


def _share(share: float) -> str:
    return "all" if share > 0.995 else f"{share:.0%}"


def _ms(amount: float) -> str:
    return f"{amount:,.3g}" if amount < 100 else f"{amount:,.0f}"


def _interval(time: StepTime) -> str:
    return f"{_ms(time.low_ms)} to {_ms(time.high_ms)}"
