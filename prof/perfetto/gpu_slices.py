"""The tracks of one GPU: its steps, its idle time, its counters, and of each stream the program and the operations."""

from dataclasses import dataclass

import numpy as np

from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.perfetto.lanes import nested_lanes, single_lanes
from pyprof.prof.perfetto.projection import project, sums
from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace
from pyprof.prof.timing.steps import PHASES, steps
from pyprof.prof.timing.waiting import WORDS, waiting
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints, Table, distinct
from pyprof.table.gpu_samples import GpuSamples
from pyprof.table.losses import losses

STEPS = (
    "a step lasts from mark to mark, as the GPU reaches them; without marks from its first operation to the "
    "next step's; where two phases overlap, the first counts"
)
IDLE = "nothing ran on the GPU; late_ns: until the CPU had launched the operation that ended it"
PROGRAM = "phases, layers and ops over the operations that they launched on this stream"


@dataclass(frozen=True, slots=True)
class Run:
    """The whole run that a trace shows. ``limits`` has one value per row of the table, as the annotation has."""

    table: Table
    annotation: Annotation
    limits: Roofline


def add_gpus(trace: Trace, run: Run, rows: Ints) -> Ints:
    """Add the tracks of all GPUs; returns the track of each row of the table, -1 for those that are not in ``rows``."""
    track = np.full(len(run.table), -1, np.int64)
    devices, device = distinct(*(run.table.ints(key) for key in ("rank", "pid", "device")))
    for number, (rank, pid, ordinal) in enumerate(devices):
        of_gpu = rows[device[rows] == number]
        if len(of_gpu):
            _add_gpu(trace, (rank, pid, ordinal), run, of_gpu, track)
    return track


def _add_gpu(trace: Trace, key: tuple[int, ...], run: Run, rows: Ints, track: Ints) -> None:
    table = run.table.take(rows)
    rank, pid, ordinal = key
    process = trace.process(rank, pid)
    name = next(filter(None, table.coded("gpu").texts()), "")
    title = ("GPU" if ordinal == NULL else f"GPU {ordinal}") + (f": {name}" if name else "")
    group = trace.child(process, title, "\n".join(run.limits.notes()), "group")
    _steps(trace, group, table)
    streams = table.ints("stream")
    for stream in np.unique(streams).tolist():
        of_stream = rows[streams == stream]
        title = "stream" if stream == NULL else f"stream {stream}"
        _program(trace, group, f"{title}: layers", run, of_stream)
        start = run.table.ints("start")[of_stream]
        lane = single_lanes(start, start + np.maximum(run.table.ints("kDuration")[of_stream], 0))
        track[of_stream] = trace.on_lanes(group, title, lane)
    _idle(trace, group, table, rows)
    _counters(trace, group, table, run.annotation.flops[rows], run.annotation.bytes[rows])
    for samples in table.samples:
        if (samples.rank, samples.pid, samples.device) == (rank, pid, ordinal):
            _sampled(trace, group, samples)


def _steps(trace: Trace, group: int, table: Table) -> None:
    marked = [step for step in steps(table, np.zeros(len(table), np.int64)) if step.number is not None]
    if not marked:
        return
    start = np.array([step.start_ns for step in marked], np.int64)
    span = np.array([step.span_ns for step in marked], np.int64)
    args = [Arg(f"{phase}_ns", np.array([s.phase_ns.get(phase, NULL) for s in marked], np.int64)) for phase in PHASES]
    incomplete = bool(losses(table))  # then something that is not on record may have run in idle time
    args.append(Arg("idle_ns", np.array([NULL if incomplete else step.idle_ns for step in marked], np.int64)))
    hosts = [NULL if step.mark_ns is None else step.mark_ns for step in marked]
    args.append(Arg("mark_ns", np.array(hosts, np.int64)))
    args.append(Arg("extent_ns", np.array([step.extent_ns for step in marked], np.int64)))
    names = Coded.of(f"step {step.number}" for step in marked)
    track = trace.on_lanes(group, "steps", single_lanes(start, start + span), STEPS)
    trace.slices.append(Slices(track, start, span, names, same("step", len(marked)), args))


def _idle(trace: Trace, group: int, table: Table, rows: Ints) -> None:
    waited = waiting(table)
    ending = np.flatnonzero(waited.idle_ns > 0)  # the operations before which the GPU was idle
    if not len(ending):
        return
    length, end = waited.idle_ns[ending], table.ints("start")[ending]
    called = table.ints("apiStart")[ending]
    late = np.where(called == NULL, NULL, np.clip(np.where(called == NULL, 0, called) - (end - length), 0, length))
    cause = waited.cause.take(ending)
    words = [WORDS[text] for text in [*cause.values, ""]]
    names = Coded((cause.codes % len(words)).astype(np.int32), words)  # code -1 is the last one
    before = table.coded("kShortName").take(ending)
    args = [Arg("idle_why", cause), Arg("late_ns", late), Arg("before", before), Arg("before_idx", rows[ending] + 1)]
    track = trace.on_lanes(group, "idle", single_lanes(end - length, end), IDLE)
    trace.slices.append(Slices(track, end - length, length, names, same("idle", len(ending)), args))


def _counters(trace: Trace, group: int, table: Table, flop: Ints, nbytes: Ints) -> None:
    """Add the rates, summed over operations running at the same time. Operations without known FLOPs add nothing to
    the rate; a separate counter shows them."""
    start, duration = table.ints("start"), np.maximum(table.ints("kDuration"), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        tflops = np.where(flop == NULL, np.nan, flop / duration / 1e3)
        gbps = np.where(nbytes == NULL, np.nan, nbytes / duration)
    one = np.ones(len(table))
    counters = (
        ("operations at once", one, "", "0: the GPU is idle"),
        ("TFLOP/s", tflops, "TFLOP/s", "of the operations that run and whose FLOPs are known"),
        ("GB/s", gbps, "GB/s", "of the operations that run and whose bytes are known"),
        ("operations without FLOPs", np.where(flop == NULL, one, np.nan), "", "no model counts them"),
    )
    for name, value, unit, about in counters:
        time, total = load(start, start + duration, value)
        if len(time):
            trace.counters.append(Counter(trace.child(group, name, about, "counter", unit), time, total))


def _sampled(trace: Trace, group: int, samples: GpuSamples) -> None:
    """Add what ``pyprof run --nvml`` read: clocks, power and temperature."""
    readings = (
        ("SM clock", samples.sm_mhz, 1, "MHz"),
        ("memory clock", samples.memory_mhz, 1, "MHz"),
        ("power", samples.power_mw, 1000, "W"),
        ("temperature", samples.temperature_c, 1, "°C"),
    )
    for name, values, divisor, unit in readings:
        known = values != NULL
        if known.any():
            about = f"of NVML, {samples.power}" if name == "power" else "of NVML"
            track = trace.child(group, name, about, "counter", unit)
            trace.counters.append(Counter(track, samples.time_ns[known], values[known] / divisor))


def _program(trace: Trace, group: int, title: str, run: Run, rows: Ints) -> None:
    shown = project(run.table, rows)
    if len(shown.start):
        track = trace.on_lanes(group, title, nested_lanes(shown.start, shown.end), PROGRAM)
        args = sums(shown, run.table, run.annotation, run.limits)
        trace.slices.append(Slices(track, shown.start, shown.end - shown.start, shown.name, shown.level, args))


def same(text: str, rows: int) -> Coded:
    """The same text in each row."""
    return Coded(np.zeros(rows, np.int32), [text])


def load(start: Ints, end: Ints, value: Floats) -> tuple[Ints, Floats]:
    """The times at which the sum of the values of all open intervals changes, and the sum from each time on.

    Exact where at most one interval is open: a sum of differences would leave a rounding error behind.

    >>> times, values = load(np.array([0, 5]), np.array([10, 8]), np.array([1.5, 2.0]))
    >>> times.tolist(), values.tolist()
    ([0, 5, 8, 10], [1.5, 3.5, 1.5, 0.0])
    """
    kept = (end > start) & ~np.isnan(value)
    start, end, value = start[kept], end[kept], value[kept]
    if not len(start):
        return start, value
    owner = np.arange(len(start))
    times = np.concatenate([end, start])
    order = np.argsort(times, kind="stable")
    sign = np.concatenate([np.full(len(end), -1), np.ones(len(start), np.int64)])[order]
    change = np.concatenate([-value, value])[order]
    number = np.concatenate([-owner, owner])[order]
    count, total, which = np.cumsum(sign), np.cumsum(change), np.cumsum(number)  # which: the number of a single one
    one: Bools = count == 1
    total = np.where(one, value[np.where(one, which, 0)], np.where(count == 0, 0.0, total))
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)
    times, total = times[last], total[last]
    moved = np.append(True, total[1:] != total[:-1])
    return times[moved], total[moved]
