"""Read torch.profiler's Chrome traces (Kineto), in all forms from 2021 to today, into a Capture.

Categories and keys were taken from real files: ``Operator``, ``Kernel``, ``Runtime`` .. in 2021, and ``cpu_op``,
``kernel``, ``cuda_runtime`` .. today, also in AMD's traces. Times become exact nanoseconds since the capture began.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pyprof.errors import InputError
from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.lost_records import reported_losses, untimed
from pyprof.parse.formats.measured_steps import of_trace
from pyprof.parse.formats.own_record import compiled_records, cpu_facts, missing_threads
from pyprof.parse.formats.possible_times import times_warning
from pyprof.parse.kineto.collectives import with_coalesced
from pyprof.parse.kineto.cpu_rows import host_rows
from pyprof.parse.kineto.embedded_graphs import embedded_graphs
from pyprof.parse.kineto.event_types import WANTED, Event, Trace
from pyprof.parse.kineto.events import IGNORED, Clock, Events, Threads, sort
from pyprof.parse.kineto.gpu import REASONS, gpu_rows, unrecorded_launches
from pyprof.parse.kineto.gpu_samples import gpu_samples
from pyprof.parse.kineto.json_text import load
from pyprof.parse.kineto.memory import memory_events, recorded_storages
from pyprof.parse.kineto.ranges import TraceRanges, trace_ranges
from pyprof.parse.kineto.wrong_fields import wrong_fields
from pyprof.table.attribution import LAUNCH_ALONE
from pyprof.table.columns import NULL

_METADATA = frozenset("MiI")  # phases of events that are names of processes and threads, or marks of a moment
_NOTHING_RAN = "nothing ran: put the model's steps inside the profiler's block, within the active steps of a schedule"


def read(file: Path) -> Capture:
    """Read a torch.profiler trace, plain or gzip. Raises InputError if the file is not one."""
    with uncollected():
        trace = load(Path(file))
        events = sort(trace.events)
        if not events.known:
            raise InputError(file, f"{WANTED}, found {instead(events, trace.events)}")
        trace.warnings += changed(events)
        graphs = embedded_graphs(file, trace)
        trace.warnings += graphs.warnings
        capture = _capture(file, trace, events)
        capture.ordered_graphs = graphs.ordered
        sorted_graphs = ((graph, sort(graph.events)) for graph in graphs.traces)
        capture.graphs = [_capture(file, graph, inside) for graph, inside in sorted_graphs if inside.known]
        return capture


def _capture(file: Path, trace: Trace, events: Events) -> Capture:
    clock, threads = Clock.of(events), Threads()
    named = trace_ranges(events, clock, threads)
    gpu = gpu_rows(events, clock, threads, trace, named)
    memory, memory_warnings = memory_events(events, clock, threads) if events.memory else (None, [])
    storages, storage_warnings = recorded_storages(trace.pyprof)
    measured, measured_warnings = of_trace(trace.pyprof)
    compiled, compiled_warnings = compiled_records(trace.pyprof)
    cpu, cpu_warnings = cpu_facts(trace.pyprof)
    unrecorded, thread_warnings = missing_threads(trace.pyprof)
    samples, sample_warnings = gpu_samples(trace, clock, _rank(trace))
    capture = Capture(
        file=str(file),
        profiler="kineto",
        threads=threads.pairs,
        scopes=named.scopes,
        ranges=with_coalesced(named.ranges, named.scopes, gpu.launch_thread, gpu.launch_time),
        reason=REASONS,
        warnings=[
            *(*trace.warnings, *sample_warnings, *memory_warnings, *storage_warnings, *measured_warnings),
            *(*compiled_warnings, *cpu_warnings, *thread_warnings),
        ],
        measured=measured,
        cpu=cpu,
        compiled=compiled,
        samples=samples,
        memory=memory,
        storages=storages,
        **gpu._asdict(),
    )
    timeless = untimed(sum(event.dur < 0 for event in events.gpu) + events.untimed + len(events.unplaced))
    reported = [*unrecorded, *reported_losses(trace.messages, capture.profiler)]
    capture.losses = [*trace.losses, *reported, *timeless, *capture.losses]
    if not gpu.rows:
        host_rows(capture, named.is_op)
        lost = unrecorded_launches(events.calls) if capture.rows else []
        if lost:
            capture.warnings += lost
            capture.reason, capture.reason_code = [LAUNCH_ALONE], np.zeros(capture.rows, np.int64)
    capture.columns["rank"] = np.full(capture.rows, _rank(trace), np.int64)
    capture.warnings += [*wrong_fields(trace.wrong), *_missing(capture, named)]
    return capture


def instead(events: Events, written: Sequence[Event]) -> str:
    """Describe a trace that has no usable events, for the error message. ``written``: all events of the file."""
    categories = ", ".join(sorted(events.categories - IGNORED)[:4])
    if categories:
        return f"a trace whose categories are not torch's: {categories}"
    if events.begin is not None or events.categories:
        return f"one in which {_NOTHING_RAN}"
    if all(event.ph in _METADATA for event in written):
        named = f"{len(written):,} names of processes and threads"
        return f"one that has metadata alone ({named}), so that {_NOTHING_RAN}"
    return "a trace of another tool: no event has a category"


def changed(events: Events) -> list[str]:
    """Warnings about events that the table lacks or whose values were changed."""
    lost = f"{events.impossible:,} events with impossible times are left out"
    warnings = [lost] if events.impossible else []
    warnings += times_warning(sum(event.dur < 0 for event in events.gpu) + events.untimed)
    if events.unplaced:
        took = sum(max(round(1000 * event.dur), 0) for event in events.unplaced)
        what = f"{len(events.unplaced):,} GPU operations, which took {took:,} ns"
        warnings.append(f"{what}, have no possible start: they stand where the first one starts")
    if events.unread:
        named = ", ".join(f"{count:,} {category}" for category, count in sorted(events.unread.items()))
        warnings.append(f"events on a device's stream of unknown categories are left out: {named}")
    return warnings


def _rank(trace: Trace) -> int:
    info = trace.distributed
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if type(rank) is int and abs(rank) < 2**31 else NULL


def _missing(capture: Capture, named: TraceRanges) -> list[str]:
    """Warnings about data that the trace itself lacks."""
    warnings = []
    if named.unread:
        warnings.append(
            f"{named.unread:,} kinds of call have shapes of another form than torch's: they count as unknown"
        )
    if not capture.rows:
        warnings.append("no GPU activity and no CPU op that does work: was the profiler on while the model ran?")
    if named.is_op.any() and not any(scope.sizes for scope in named.scopes):
        warnings.append("the trace has no shapes: profile with record_shapes=True to have FLOPs and bytes")
    return warnings
