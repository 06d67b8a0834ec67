"""The tables of the summary as texts: by phase, GPU, part of the model, layer, kind of work and unit.

The terminal, the page and notebooks show these same tables.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyprof.prof.kernels.precision import unit_name
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.components import Part
from pyprof.prof.summary.serving_sentences import HEAD, serving_rows
from pyprof.prof.summary.time_sentences import OUTLIER
from pyprof.prof.summary.wording import layer_name, times
from pyprof.prof.summary.work_sentences import at_least
from pyprof.prof.timing.usage import Usage
from pyprof.quantities import ms, share
from pyprof.table.losses import times_are_wrong

MOST = 14  # rows per table
LAYERS = 6  # rows in the table of layers


@dataclass(frozen=True, slots=True)
class SummaryTable:
    """A table. ``head`` and each row have the same number of cells; the first cell is the row's name."""

    key: str  # phases, serving, devices, components, layers, kinds or units
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[float, ...] = ()  # per row: the length of its bar, relative to the longest; empty: no bars


def summary_tables(summary: Summary) -> list[SummaryTable]:
    """The tables that tell more than a sentence would; they are of times, so none where these are wrong."""
    if times_are_wrong(summary.incomplete):
        return []
    return [
        *_phases(summary),
        *_serving(summary),
        *_devices(summary),
        *_components(summary),
        *_layers(summary),
        *_work(summary),
    ]


def _phases(summary: Summary) -> Iterator[SummaryTable]:
    span = summary.span_ns
    if not span or [part.name for part in summary.phases] == ["other"]:
        return
    if summary.busy_ns is None:  # the capture is incomplete
        recorded = tuple((part.name, f"{part.rows:,}", ms(part.ns)) for part in summary.phases)
        yield SummaryTable("phases", "By phase (overlaps counted once)", ("phase", "rows", "recorded"), recorded)
        return
    whole = Part("all", sum(part.rows for part in summary.phases), summary.busy_ns, summary.idle_ns)
    rows = [
        (part.name, f"{part.rows:,}", ms(part.ns), share(part.ns, span), *_idle(part, span))
        for part in (*summary.phases, whole)
    ]
    busy, idle, rest = ("in ops", "outside", "time outside of ops") if summary.on_cpu else ("busy", "idle", "idle time")
    title = (
        f"By phase, of the {ms(span)} captured (overlaps counted once; {rest} is counted for the phase that ends it)"
    )
    yield SummaryTable("phases", title, ("phase", "rows", busy, "", idle, ""), tuple(rows))


def _idle(part: Part, span: int) -> tuple[str, str]:
    return ("", "") if part.idle_ns is None else (ms(part.idle_ns), share(part.idle_ns, span))


def _serving(summary: Summary) -> Iterator[SummaryTable]:
    """Prefill beside decode."""
    if summary.serving:
        title = "Batches of the inference server: tokens of prompts and new ones, rates over the steps' time"
        yield SummaryTable("serving", title, HEAD, tuple(serving_rows(summary)))


def _devices(summary: Summary) -> Iterator[SummaryTable]:
    """A comparison of the GPUs: one that is less busy waits for others or has less work."""
    count = len(summary.devices)
    if count < 2:
        return
    least = at_least(summary.counted_ns, summary).replace("at least ", "≥ ")
    rows = [
        (
            _device_name(device),
            f"{device.operations:,}",
            ms(device.span_ns),
            "unknown" if device.busy_ns is None else share(device.busy_ns, device.span_ns),
            "unknown" if device.kernel_ns is None else share(device.kernel_ns, device.span_ns),
            "unknown" if math.isnan(device.tflops) else f"{least}{device.tflops:.4g}",
        )
        for device in summary.devices[:MOST]
    ]
    title = f"By GPU, the first {MOST} of {count}" if count > MOST else "By GPU"
    yield SummaryTable("devices", title, ("", "rows", "time", "busy", "in kernels", "TFLOP/s"), tuple(rows))


def _device_name(device: Usage) -> str:
    numbers = (("rank", device.rank), ("process", device.pid), ("device", device.ordinal))
    return ", ".join(f"{name} {value}" for name, value in numbers if value is not None) or device.name or "GPU"


def _components(summary: Summary) -> Iterator[SummaryTable]:
    title = "By part of the model"
    if not summary.has_layers:
        known_ns = sum(part.ns for part in summary.components if part.name not in ("other", "copies"))
        if known_ns <= sum(part.ns for part in summary.components) / 2:
            return  # a table would not tell more than one line
        title += ", as far as the ops show it (the capture names no layers)"
    yield _table_of_parts("components", title, summary.components, summary.total_ns, summary.worker)


def _work(summary: Summary) -> Iterator[SummaryTable]:
    yield _table_of_parts("kinds", "By kind of work", summary.kinds, summary.total_ns, summary.worker)
    matrix = summary.matrix
    if matrix.ns and len(matrix.units) > 1:
        units = [replace(part, name=summary.in_makers_words(unit_name(part.name))) for part in matrix.units]
        yield _table_of_parts("units", "Matrix math by unit", units, matrix.ns, summary.worker)


def _table_of_parts(key: str, title: str, parts: Sequence[Part], whole: int, worker: str) -> SummaryTable:
    shown, rest = list(parts[:MOST]), parts[MOST:]
    if rest:
        shown.append(Part(f"{len(rest)} more", sum(part.rows for part in rest), sum(part.ns for part in rest)))
    rows = tuple((part.name, f"{part.rows:,}", ms(part.ns), share(part.ns, whole)) for part in shown)
    title = f"{title}, of {ms(whole)} of {worker} time"
    return SummaryTable(key, title, ("", "rows", "time", ""), rows, _bars([part.ns for part in shown]))


def _bars(times: Sequence[int]) -> tuple[float, ...]:
    longest = max(times, default=0)
    return tuple(ns / longest for ns in times) if longest > 0 else (0.0,) * len(times)


def _layers(summary: Summary) -> Iterator[SummaryTable]:
    """The layers that take longest, in the model's order. None if all take equally long: a sentence says so."""
    layers = summary.series
    if not summary.has_layers or layers is None or not layers.outliers(OUTLIER):
        return
    pairs = list(zip(layers.numbers, layers.ns, strict=True))
    longest = sorted(sorted(pairs, key=lambda pair: -pair[1])[:LAYERS])
    rows = tuple((str(number), ms(ns), f"{times(ns / layers.median_ns)} × median") for number, ns in longest)
    which = "all" if len(pairs) <= LAYERS else f"the {LAYERS} longest of"
    title = f"By layer, {which} {len(pairs)}: {layer_name(layers.name)}"
    yield SummaryTable("layers", title, ("layer", "time", ""), rows, _bars([ns for _, ns in longest]))
