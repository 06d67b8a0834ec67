"""A replay as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.replay.critical_path import PlaceOnPath
from pyprof.prof.replay.json_document import Simulation
from pyprof.prof.replay.replayed_run import ReplayedStep
from pyprof.prof.replay.without_profiler import ProfilerRemoved
from pyprof.quantities import ms, share

WIDTH = 100
LEAST_LINE = 16  # characters of a line of code
LONGEST_OP = 0.4  # of the width: a kernel's name may be longer than any line
_WORDS = {
    "host": "the host, between calls and in them",
    "kernels": "kernels",
    "copies": "copies and memsets",
    "communication": "communication",
    "synchronisation": "returning from waits for the GPU",
    "latency": "latencies of launches, kernels and streams",
}


def replay_lines(document: Simulation, top: int, width: int = WIDTH) -> Iterator[str]:
    """The report: difference, steps, critical path, places. At most ``top`` steps and places."""
    for line in _head(document):
        yield from textwrap.wrap(line, width, subsequent_indent="  ")
    if document.steps:
        yield ""
        yield from _steps(document.steps, top)
    yield ""
    yield "Critical path (what shortens it, shortens the run)"
    path = ((name, getattr(document.critical_path, name)) for name in _WORDS)
    rows = [(f"{ns / 1e6:,.3f}", share(ns, document.replayed_ns), _WORDS[name]) for name, ns in path if ns]
    yield from aligned([("ms", "share", ""), *rows])
    yield ""
    yield "By op and line (the host's work before a call is counted for its op)"
    yield from _places(document.places[:top], document.replayed_ns, width)
    if len(document.places) > top:
        yield f"  and {len(document.places) - top:,} more (--top)"


def _head(document: Simulation) -> Iterator[str]:
    what = "Replay without the profiler" if document.profiler_removed else "Replay"
    yield (
        f"{what}: {ms(document.replayed_ns)}, the capture {ms(document.recorded_ns)} "
        f"({_difference(document.difference)}), from the host's first call on"
    )
    yield (
        f"GPU idle: {ms(document.idle_replayed_ns)} by dependencies alone, in the capture "
        f"{ms(document.idle_recorded_ns)}"
    )
    source = f" ({'as recorded' if document.stream_waits_recorded else 'inferred'})" if document.stream_waits else ""
    waits = f"{document.stream_waits:,} waits between streams{source}"
    yield f"{document.calls:,} calls, {document.operations:,} GPU operations, {waits}"
    if document.loading_ns:
        yield (
            f"These times include the copies before the first kernel ({ms(document.loading_ns)}) and the host's work "
            "until then, which the summary of pyprof prof counts as loading and leaves out."
        )
    if not document.complete:
        yield (
            f"{1 - document.launched_share:.1%} of the GPU's time has no launch in the capture: those operations begin "
            "when they did in it"
        )
    unit, device = "step" if document.steps else "capture", document.device
    if device is not None:
        yield (
            f"On {safe(device.name)} in place of {safe(device.captured_on)}, by the limits of both: "
            f"{ms(device.step_ns)} a {unit} ({ms(device.low_ns)} to {ms(device.high_ns)}); the host is taken to be the "
            "same"
        )
    yield _without_profiler(document.without_profiler, unit)


def _without_profiler(removed: ProfilerRemoved, unit: str) -> str:
    """The step without the profiler: as measured and as replayed, or as estimated."""
    if removed.measured_ns is None:
        low, high = ms(removed.low_ns), ms(removed.high_ns)
        interval = f" ({low} to {high})" if low != high else ""
        step = f"{ms(removed.step_ns)} per {unit}{interval}, {ms(removed.profiled_ns)} with it"
        return f"Without the profiler, estimated: {step}; pyprof run --warmup 4 measures it"
    added = "the host is not the limit"
    if removed.host_share_measured:
        each = f"{removed.per_range_ns / 1e3:.2g} µs per range and {removed.per_call_ns / 1e3:.2g} µs per call"
        added = f"the profiler costs the host {each}"
    return (
        f"Without the profiler, measured: {ms(removed.measured_ns)} per {unit} (the replay: {ms(removed.step_ns)}); "
        f"with the profiler {ms(removed.profiled_ns)}; {added}"
    )


def _steps(steps: Sequence[ReplayedStep], top: int) -> list[str]:
    rows = []
    for step in steps[:top]:
        before, after = step.recorded_ns, step.replayed_ns
        longer = _difference(after / before - 1) if before else ""
        rows.append((str(step.number), f"{before / 1e6:,.3f}", f"{after / 1e6:,.3f}", longer))
    more = [f"  and {len(steps) - top:,} more steps (--top)"] if len(steps) > top else []
    return [*aligned([("step", "capture ms", "replay ms", "difference"), *rows]), *more]


def _difference(part: float) -> str:
    """
    >>> _difference(0.0125), _difference(-0.00001)
    ('+1.25%', '0.00%')
    """
    return f"{part:+.2%}" if abs(part) >= 0.00005 else "0.00%"


def _places(places: Sequence[PlaceOnPath], total: int, width: int) -> list[str]:
    rows = [
        [f"{p.ns / 1e6:,.3f}", share(p.ns, total), p.what, cut_to(safe(p.op), int(LONGEST_OP * width), "middle"), ""]
        for p in places
    ]
    columns = [*zip(*rows, strict=True)][:-1]
    left = max(width - sum(2 + max(map(len, column)) for column in columns) - 2, LEAST_LINE)
    for row, place in zip(rows, places, strict=True):
        row[-1] = cut_to(safe(place.line), left, "left")
    return aligned([("ms", "share", "what", "op", "line"), *rows])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines; columns whose cells are all numbers are aligned to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = [all(cell[:1] in "+-<>0123456789" for cell in column[1:]) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in zip(row, widths, right, strict=True))
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
