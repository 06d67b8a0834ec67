"""Kernels, copies and memsets of a torch.profiler trace, and the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from msgspec import Raw
from numpy.typing import NDArray

from pyprof.parse.attribute.reasons import BEFORE_CAPTURE, NO_CALL
from pyprof.parse.formats.gpu_info import kineto_info
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.formats.key_join import lookup
from pyprof.parse.kineto.collectives import message
from pyprof.parse.kineto.event_types import Args, Event, Trace
from pyprof.parse.kineto.events import Clock, Events, Threads, args, durations, integer, integers
from pyprof.parse.kineto.ranges import Found
from pyprof.table.columns import NULL, Coded, Data, Ints

KINDS = {"kernel": "kernel", "Kernel": "kernel", "mtia_ccp_events": "kernel", "gpu_memcpy": "memcpy",
         "Memcpy": "memcpy", "gpu_memset": "memset", "Memset": "memset"}  # fmt: skip
REASONS = [BEFORE_CAPTURE, NO_CALL]


@dataclass(slots=True)
class Rows:
    """GPU operations in order of start, and where each was launched."""

    rows: int
    columns: dict[str, Data]
    launch_thread: Ints
    launch_time: Ints
    launch_range: Ints
    reason_code: Ints


@dataclass(slots=True)
class _Calls:
    """CUDA or HIP API calls, runtime and driver."""

    thread: Ints
    pid: Ints
    corr: Ints
    start: Ints
    duration: Ints
    ext: Ints
    name: Coded


def rows(events: Events, clock: Clock, threads: Threads, trace: Trace, found: Found) -> Rows:
    """The GPU operations of a trace, each with its launch or the reason for none."""
    calls = _calls(events.calls, clock, threads)
    start = clock.times(events.gpu)
    corr = integers([a.corr for a in args(events.gpu)])
    order = np.lexsort((corr, start))
    gpu = [events.gpu[i] for i in order.tolist()]
    details = args(gpu)
    start, corr = start[order], corr[order]
    call, pid = _join(calls, corr, start, threads, found)
    known = call >= 0
    at = np.where(known, call, 0)
    columns = _columns(gpu, details, trace)
    columns.update(start=start, corr=corr, pid=pid)
    if len(calls.start):
        columns["tid"] = np.where(known, np.array([tid for _, tid in threads.pairs], np.int64)[calls.thread[at]], NULL)
        columns["apiStart"] = np.where(known, calls.start[at], NULL)
        columns["apiDuration"] = np.where(known, calls.duration[at], NULL)
        columns["api"] = Coded(np.where(known, calls.name.codes[at], -1).astype(np.int32), calls.name.values)
        launch_thread = np.where(known, calls.thread[at], -1)
        launch_time = np.where(known, calls.start[at], NULL)
    else:
        launch_thread, launch_time = np.full(len(gpu), -1, np.int64), np.full(len(gpu), NULL, np.int64)
    named = _named_ranges(details, calls, call, pid, threads, found)
    return Rows(
        rows=len(gpu),
        columns=columns,
        launch_thread=launch_thread,
        launch_time=launch_time,
        launch_range=_trusted(named, launch_thread, launch_time, found),
        reason_code=_reasons(calls, known, corr, start),
    )


def _calls(events: list[Event], clock: Clock, threads: Threads) -> _Calls:
    details = args(events)
    thread = threads.of(events)
    return _Calls(
        thread=thread,
        pid=threads.processes(thread),
        corr=integers([a.corr for a in details]),
        start=clock.times(events),
        duration=durations(events),
        ext=_external_ids(details),
        name=Coded.of([event.name for event in events]),
    )


def _external_ids(details: list[Args]) -> Ints:
    today, old = integers([a.ext for a in details]), integers([a.old_ext for a in details])
    return np.where(today != NULL, today, old)


def _join(calls: _Calls, corr: Ints, start: Ints, threads: Threads, found: Found) -> tuple[Ints, Ints]:
    """Each row's call, -1 for none, and its process.

    A GPU event's own "pid" is the device. A trace is one process's; where files were merged, a correlation id may be
    several processes', and the row belongs to the last of them to begin before it did.
    """
    pids = np.unique(calls.pid) if len(calls.pid) else np.unique(threads.processes(found.ranges.thread))
    owner = np.full(len(corr), int(pids[0]) if len(pids) == 1 else NULL, np.int64)
    if len(pids) <= 1 or not len(calls.pid):
        return lookup(calls.pid, calls.corr, owner, corr), owner
    call = np.full(len(corr), -1, np.int64)
    for pid in pids.tolist():
        mine = lookup(calls.pid, calls.corr, np.full(len(corr), pid, np.int64), corr)
        begun = np.where(mine >= 0, calls.start[mine], NULL)
        before = np.where(call >= 0, calls.start[call], NULL)
        better = (mine >= 0) & ((call < 0) | ((begun <= start) & ((begun > before) | (before > start))))
        call[better] = mine[better]
    return call, np.where(call >= 0, calls.pid[call], owner)


def _named_ranges(details: list[Args], calls: _Calls, call: Ints, pid: Ints, threads: Threads, found: Found) -> Ints:
    """The op that the trace names by its external id; correlation falls back on it where no range holds the call.

    On a few calls the external id is their own correlation id and names nothing.
    """
    ext = _external_ids(details)
    if len(calls.ext):
        of_call = np.where(calls.ext == calls.corr, NULL, calls.ext)
        ext = np.where((ext == NULL) & (call >= 0), of_call[call], ext)
    ops = np.flatnonzero(found.is_op & (found.ranges.op_id != NULL))
    at = lookup(threads.processes(found.ranges.thread[ops]), found.ranges.op_id[ops], pid, ext)
    return np.where((at >= 0) & (ext != NULL), ops[at] if len(ops) else -1, -1)


def _trusted(named: Ints, launch_thread: Ints, launch_time: Ints, found: Found) -> Ints:
    """The named ranges, unless most do not hold the launch: in some files of 2023 the ids name unrelated ops."""
    both = np.flatnonzero((named >= 0) & (launch_thread >= 0))
    start, end, thread = (column[named[both]] for column in (found.ranges.start, found.ranges.end, found.ranges.thread))
    time = launch_time[both]
    holds = (start <= time) & (time <= end) | (thread != launch_thread[both])
    return named if holds.sum() >= 0.9 * len(both) else np.full(len(named), -1, np.int64)


def _reasons(calls: _Calls, known: NDArray[np.bool_], corr: Ints, start: Ints) -> Ints:
    """Why a row has no call: correlation ids only grow, so one below all calls' is from before the capture."""
    code = np.where(known, -1, 1)
    if len(calls.start):
        code[~known & ((corr < calls.corr.min()) | (start < calls.start.min()))] = 0
    return code


def _columns(gpu: list[Event], details: list[Args], trace: Trace) -> dict[str, Data]:
    kinds = [KINDS[event.cat] for event in gpu]
    long = Coded.of([event.name for event in gpu])
    kernel = Coded.of(event.name for event in gpu if KINDS[event.cat] == "kernel")
    short = {name: short_name(name) for name in kernel.values}
    device = integers([a.device for a in details])
    device = np.where(device == NULL, integers([event.pid for event in gpu]), device)
    return {
        "kind": Coded.of(kinds),
        "kShortName": Coded(long.codes, [short.get(name, name) for name in long.values]),
        "kLongName": Coded(long.codes, [demangle(name) for name in long.values]),
        "kDuration": np.maximum(durations(gpu), 0),
        "device": device,
        "stream": integers([a.stream for a in details]),
        "registers": integers([a.registers for a in details]),
        "dynamicSmem": integers([a.shared for a in details]),  # the sum of static and dynamic: Kineto doesn't part them
        "occupancy": np.array([_float(a.occupancy) for a in details], np.float64),
        "graphNode": integers([a.graph_node for a in details]),
        "bytes": integers([a.bytes for a in details]),
        "grid": _triples([a.grid for a in details]),
        "block": _triples([a.block for a in details]),
        "comm": Coded.of([message(a) for a in details]),
        "gpu": _gpu_names(device, trace.devices),
        "gpuInfo": _gpu_infos(device, trace.devices),
    }


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else float("nan")


def _triples(raws: list[Raw]) -> Coded:
    """Grid or block: each distinct one parsed once; what is no three numbers is empty."""
    texts = [bytes(raw) for raw in raws]
    clean = {text: _triple(text) for text in set(texts)}
    return Coded.of(clean[text] for text in texts)


def _triple(text: bytes) -> str:
    try:
        values = orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return ""
    if not (isinstance(values, list) and len(values) == 3 and all(type(value) is int for value in values)):
        return ""
    return f"[{values[0]}, {values[1]}, {values[2]}]"


def _gpu_names(device: Ints, devices: Any) -> Coded:
    """The GPU's name of each row. AMD numbers its events' devices otherwise: a single GPU is everyone's."""
    listed = [entry for entry in devices if isinstance(entry, dict)] if isinstance(devices, list) else []
    names = {integer(entry.get("id")): str(entry.get("name", "")) for entry in listed}
    only = next(iter(names.values())) if len(names) == 1 else ""
    return Coded.of(names.get(number, only) for number in device.tolist())


def _gpu_infos(device: Ints, devices: Any) -> Coded:
    """What the trace says of the GPU of each row, found as its name is."""
    listed = [entry for entry in devices if isinstance(entry, dict)] if isinstance(devices, list) else []
    infos = {integer(entry.get("id")): kineto_info(entry) for entry in listed}
    only = next(iter(infos.values())) if len(infos) == 1 else ""
    return Coded.of(infos.get(number, only) for number in device.tolist())
