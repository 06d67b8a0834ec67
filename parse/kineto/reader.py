"""torch.profiler's Chrome trace (Kineto) -> Capture, in all its forms from 2021 to today.

Categories and keys are those of real files: 2021's ``Operator``, ``Kernel``, ``Runtime`` .. and today's ``cpu_op``,
``kernel``, ``cuda_runtime`` ..; AMD's traces have the same. Times become exact nanoseconds since the capture began.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyprof.errors import InputError
from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.formats.possible_times import times_warning
from pyprof.parse.kineto import gpu as kineto_gpu
from pyprof.parse.kineto import ranges as kineto_ranges
from pyprof.parse.kineto.collectives import with_coalesced
from pyprof.parse.kineto.cpu_rows import host_rows
from pyprof.parse.kineto.event_types import WANTED, Trace
from pyprof.parse.kineto.events import OTHERS, Clock, Events, Threads, sort
from pyprof.parse.kineto.json_text import load
from pyprof.table.columns import NULL


def read(file: Path) -> Capture:
    """Read a torch.profiler trace, plain or gzip. Raises InputError where the file is none."""
    with uncollected():
        trace = load(Path(file))
        events = sort(trace.events)
        if not events.known:
            raise InputError(file, f"{WANTED}, found {_instead(events)}")
        if events.impossible:
            trace.warnings.append(f"{events.impossible:,} events with impossible times are left out")
        trace.warnings += _unread(events)
        return _capture(file, trace, events)


def _capture(file: Path, trace: Trace, events: Events) -> Capture:
    clock, threads = Clock.of(events), Threads()
    found = kineto_ranges.ranges(events, clock, threads)
    gpu = kineto_gpu.rows(events, clock, threads, trace, found)
    capture = Capture(
        file=str(file),
        profiler="kineto",
        threads=threads.pairs,
        scopes=found.scopes,
        ranges=with_coalesced(found.ranges, found.scopes, gpu.launch_thread, gpu.launch_time),
        rows=gpu.rows,
        columns=gpu.columns,
        launch_thread=gpu.launch_thread,
        launch_time=gpu.launch_time,
        reason=kineto_gpu.REASONS,
        reason_code=gpu.reason_code,
        launch_range=gpu.launch_range,
        warnings=trace.warnings,
    )
    if not gpu.rows and not events.calls:
        host_rows(capture, found.is_op)
    capture.columns["rank"] = np.full(capture.rows, _rank(trace), np.int64)
    capture.warnings += _missing(capture, found)
    return capture


def _instead(events: Events) -> str:
    """What a trace without an event of use is."""
    found = ", ".join(sorted(events.categories - OTHERS)[:4])
    if found:
        return f"a trace whose categories are not torch's: {found}"
    if events.begin is not None or events.categories:
        return "one in which nothing ran: put the model's steps inside of the profiler's block"
    return "a trace of another tool: no event has a category"


def _unread(events: Events) -> list[str]:
    """What the table lacks, or has otherwise than the file."""
    said = times_warning(sum(event.dur < 0 for event in events.gpu))
    if events.unread:
        named = ", ".join(f"{count:,} {category}" for category, count in sorted(events.unread.items()))
        said.append(f"events on a device's stream of categories that are not known are left out: {named}")
    return said


def _rank(trace: Trace) -> int:
    info = trace.distributed
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if type(rank) is int and abs(rank) < 2**31 else NULL


def _missing(capture: Capture, found: kineto_ranges.Found) -> list[str]:
    said = []
    if found.unread:
        said.append(f"{found.unread:,} kinds of call have shapes of another form than torch's: they count as unknown")
    if not capture.rows:
        said.append("no GPU activity and no CPU op that does work: was the profiler on while the model ran?")
    if found.is_op.any() and not any(scope.sizes for scope in found.scopes):
        said.append("the trace has no shapes: profile with record_shapes=True to have FLOPs and bytes")
    return said
