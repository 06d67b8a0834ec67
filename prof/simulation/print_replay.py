"""A replay as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from pyprof.command.terminal_text import safe
from pyprof.prof.simulation.json_document import PlaceOnPath, ProfilerRemoved, Simulation
from pyprof.quantities import ms

_WORDS = {
    "host": "the host, between calls and in them",
    "kernels": "kernels",
    "copies": "copies and memsets",
    "communication": "communication",
    "synchronisation": "returning from waits for the GPU",
    "latency": "latencies of launches, kernels and streams",
}


def replay_lines(document: Simulation, top: int) -> list[str]:
    """The report: difference, steps, critical path, places. At most ``top`` steps and places."""
    what = "Replay without the profiler" if document.profiler_removed else "Replay"
    lines = [
        f"{what}: {ms(document.replayed_ns)}, the capture {ms(document.recorded_ns)} ({document.difference:+.2%})",
        f"GPU idle: {ms(document.idle_replayed_ns)} by dependencies alone, in the capture "
        f"{ms(document.idle_recorded_ns)}",
        f"{document.calls:,} calls, {document.operations:,} GPU operations, {_waits(document)}",
        *_doubts(document),
        *_device(document),
        *_without_profiler(document.without_profiler),
    ]
    if document.steps:
        lines += ["", *_steps(document, top)]
    lines += ["", "Critical path (what shortens it, shortens the run)"]
    path = ((name, getattr(document.critical_path, name)) for name in _WORDS)
    rows = [(f"{ns / 1e6:,.3f}", f"{ns / max(document.replayed_ns, 1):.1%}", _WORDS[name]) for name, ns in path if ns]
    lines += aligned([("ms", "share", ""), *rows])
    lines += ["", "By op and line", *_places(document.places[:top], document.replayed_ns)]
    if len(document.places) > top:
        lines.append(f"  and {len(document.places) - top:,} more (--top)")
    return lines


def _waits(document: Simulation) -> str:
    source = "as recorded" if document.stream_waits_recorded else "inferred"
    waits = f"{document.stream_waits:,} waits between streams"
    return f"{waits} ({source})" if document.stream_waits else waits


def _doubts(document: Simulation) -> list[str]:
    if document.complete:
        return []
    share = 1 - document.launched_share
    return [f"{share:.1%} of the GPU's time has no launch in the capture: those operations begin when they did in it"]


def _device(document: Simulation) -> list[str]:
    """The step on another GPU."""
    device = document.device
    if device is None:
        return []
    unit = "step" if document.steps else "capture"
    return [
        f"On {safe(device.name)} in place of {safe(device.captured_on)}, by the limits of both: {ms(device.step_ns)} a "
        f"{unit} ({ms(device.low_ns)} to {ms(device.high_ns)}); the host is taken to be the same"
    ]


def _without_profiler(removed: ProfilerRemoved) -> list[str]:
    """The step without the profiler: as measured and as replayed, or as estimated."""
    cost = (
        f"the profiler costs the host {removed.per_range_ns / 1e3:.2g} µs a range and "
        f"{removed.per_call_ns / 1e3:.2g} µs a call"
    )
    low, high = ms(removed.low_ns), ms(removed.high_ns)
    interval = f" ({low} to {high})" if low != high else ""
    if removed.measured_ns is None:
        step = f"{ms(removed.step_ns)} per step{interval}, {ms(removed.profiled_ns)} with it"
        return [f"Without the profiler, estimated: {step}; pyprof run --warmup 4 measures it"]
    share = cost if removed.host_share_measured else "the host does not limit it"
    return [
        f"Without the profiler, measured: {ms(removed.measured_ns)} per step (the replay: {ms(removed.step_ns)}); "
        f"with the profiler {ms(removed.profiled_ns)}; {share}"
    ]


def _steps(document: Simulation, top: int) -> list[str]:
    shown = document.steps[:top]
    rows = [
        (
            str(s.number),
            f"{s.recorded_ns / 1e6:,.3f}",
            f"{s.replayed_ns / 1e6:,.3f}",
            _change(s.recorded_ns, s.replayed_ns),
        )
        for s in shown
    ]
    lines = aligned([("step", "capture ms", "replay ms", "difference"), *rows])
    more = len(document.steps) - len(shown)
    return [*lines, f"  and {more:,} more steps (--top)"] if more > 0 else lines


def _change(before: int, after: int) -> str:
    return f"{after / before - 1:+.2%}" if before else ""


def _places(places: Sequence[PlaceOnPath], total: int) -> list[str]:
    rows = [(f"{p.ns / 1e6:,.3f}", f"{p.ns / max(total, 1):.1%}", p.what, p.op, p.line) for p in places]
    return aligned([("ms", "share", "what", "op", "line"), *rows])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines; columns whose cells are all numbers are aligned to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = [all(cell[:1] in "+-0123456789" for cell in column[1:]) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in zip(row, widths, right, strict=True))
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
