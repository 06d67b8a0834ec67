"""Kernels, copies and memsets of a torch.profiler trace, and the calls that launched them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
from msgspec import Raw
from numpy.typing import NDArray

from pyprof.parse.attribute.reasons import BEFORE_CAPTURE, NO_CALL
from pyprof.parse.formats.gpu_info import kineto_info
from pyprof.parse.formats.kernel_names import demangle, short_name
from pyprof.parse.kineto.collectives import message
from pyprof.parse.kineto.event_types import Args, Event, Trace
from pyprof.parse.kineto.events import Clock, Events, Threads, args, durations, integer, integers
from pyprof.parse.kineto.ranges import TraceRanges
from pyprof.table.columns import NULL, Coded, Data, Ints, lookup, value_at

KINDS = {
    **dict.fromkeys(("kernel", "Kernel", "mtia_ccp_events"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "memset"),
}
REASONS = [BEFORE_CAPTURE, NO_CALL]
# Calls of CUDA, HIP, Level Zero and Unified Runtime that give a GPU work; adding a node to a graph gives it none.
_LAUNCHING = re.compile(r"(?:cu|hip|ze|ur)(?!\w*Node)\w*(?:Launch|Memcpy|Memset|MemoryCopy|MemoryFill|USMFill)")


class GpuRows(NamedTuple):
    """GPU operations in order of start, and where each was launched: fields of ``Capture``."""

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


def gpu_rows(events: Events, clock: Clock, threads: Threads, trace: Trace, named: TraceRanges) -> GpuRows:
    """The GPU operations of a trace, each with its launch or with the reason why its launch is unknown."""
    calls = _calls(events.calls, clock, threads)
    start = clock.times(events.gpu)
    corr = integers([a.corr for a in args(events.gpu)])
    order = np.lexsort((corr, start))
    gpu = [events.gpu[i] for i in order.tolist()]
    details = args(gpu)
    start, corr = start[order], corr[order]
    call, pid = _join(calls, corr, start, threads, named)
    launch_thread, launch_time = value_at(calls.thread, call, -1), value_at(calls.start, call, NULL)
    columns = {**_columns(gpu, details, trace), "start": start, "corr": corr, "pid": pid}
    if len(calls.start):
        tid = np.array([tid for _, tid in threads.pairs], np.int64)
        columns["tid"] = value_at(tid, launch_thread, NULL)
        columns["apiStart"] = launch_time
        columns["apiDuration"] = value_at(calls.duration, call, NULL)
        columns["api"] = Coded(value_at(calls.name.codes, call, -1), calls.name.values)
    ranges = _ranges_by_id(_launch_ids(details, calls, call), pid, threads, named)
    return GpuRows(
        rows=len(gpu),
        columns=columns,
        launch_thread=launch_thread,
        launch_time=launch_time,
        launch_range=_trusted(ranges, launch_thread, launch_time, named),
        reason_code=_reasons(calls, call >= 0, corr, start),
    )


def unrecorded_launches(calls: list[Event]) -> list[str]:
    """A warning if calls gave a GPU work, for a trace without GPU activity: its CPU ops did not do that work."""
    launching = sum(_LAUNCHING.match(event.name) is not None for event in calls)
    if not launching:
        return []
    calls_gave = f"{launching:,} call{'s' if launching > 1 else ''} gave"
    lost = f"{calls_gave} a GPU work that the trace does not have: the rows are CPU ops, and their times"
    return [f"{lost} are those of launching (profile with ProfilerActivity.CUDA or .XPU, too)"]


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


def _join(calls: _Calls, corr: Ints, start: Ints, threads: Threads, named: TraceRanges) -> tuple[Ints, Ints]:
    """Each row's call, -1 for none, and its process.

    A GPU event's own "pid" is the device. A trace usually has one process. In merged files, several processes may have
    a call with the same correlation id; the row then belongs to the last such call that began before the row.
    """
    pids = np.unique(calls.pid) if len(calls.pid) else np.unique(threads.processes(named.ranges.thread))
    owner = np.full(len(corr), int(pids[0]) if len(pids) == 1 else NULL, np.int64)
    if len(pids) <= 1 or not len(calls.pid):
        return lookup(calls.pid, calls.corr, owner, corr), owner
    call = np.full(len(corr), -1, np.int64)
    for pid in pids.tolist():
        other = lookup(calls.pid, calls.corr, np.full(len(corr), pid, np.int64), corr)
        other_start, call_start = value_at(calls.start, other, NULL), value_at(calls.start, call, NULL)
        later = (other_start <= start) & ((other_start > call_start) | (call_start > start))
        better = (other >= 0) & ((call < 0) | later)
        call[better] = other[better]
    return call, np.where(call >= 0, calls.pid[call], owner)


def _launch_ids(details: list[Args], calls: _Calls, call: Ints) -> Ints:
    """The external id of each row, or else of its call. It is the number of the op that launched the row.

    A few calls have their own correlation id as external id, which names no op.
    """
    of_row = _external_ids(details)
    of_call = value_at(np.where(calls.ext == calls.corr, NULL, calls.ext), call, NULL)
    return np.where(of_row == NULL, of_call, of_row)


def _ranges_by_id(op_id: Ints, pid: Ints, threads: Threads, named: TraceRanges) -> Ints:
    """The range of the op with each number, for rows whose call is in no range; -1: none."""
    ops = np.flatnonzero(named.is_op & (named.ranges.op_id != NULL))
    found = lookup(threads.processes(named.ranges.thread[ops]), named.ranges.op_id[ops], pid, op_id)
    return np.where(op_id != NULL, value_at(ops, found, -1), -1)


def _trusted(by_id: Ints, launch_thread: Ints, launch_time: Ints, named: TraceRanges) -> Ints:
    """The ranges, but all -1 if most do not contain the launch: in some files of 2023 the ids name unrelated ops."""
    rows = np.flatnonzero((by_id >= 0) & (launch_thread >= 0))
    ranges, time = named.ranges, launch_time[rows]
    start, end, thread = (column[by_id[rows]] for column in (ranges.start, ranges.end, ranges.thread))
    contains = (start <= time) & (time <= end) | (thread != launch_thread[rows])
    return by_id if contains.sum() >= 0.9 * len(rows) else np.full(len(by_id), -1, np.int64)


def _reasons(calls: _Calls, known: NDArray[np.bool_], corr: Ints, start: Ints) -> Ints:
    """Why a row has no call. Correlation ids only grow, so an id below all calls' ids is from before the capture."""
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
        "dynamicSmem": integers([a.shared for a in details]),  # Kineto has only the sum of static and dynamic
        "occupancy": np.array([_float(a.occupancy) for a in details], np.float64),
        "graphNode": integers([a.graph_node for a in details]),
        "bytes": integers([a.bytes for a in details]),
        "grid": _triples([a.grid for a in details]),
        "block": _triples([a.block for a in details]),
        "comm": Coded.of([message(a) for a in details]),
        "gpu": _of_device(device, trace.devices, lambda entry: str(entry.get("name", ""))),
        "gpuInfo": _of_device(device, trace.devices, kineto_info),
    }


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else float("nan")


def _triples(raws: list[Raw]) -> Coded:
    """A grid or block column. Each distinct text is parsed once; a text that is not three numbers becomes empty."""
    texts = [bytes(raw) for raw in raws]
    triples = {text: _triple(text) for text in set(texts)}
    return Coded.of(triples[text] for text in texts)


def _triple(text: bytes) -> str:
    try:
        values = orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return ""
    if not (isinstance(values, list) and len(values) == 3 and all(type(value) is int for value in values)):
        return ""
    return f"[{values[0]}, {values[1]}, {values[2]}]"


def _of_device(device: Ints, devices: Any, text: Callable[[dict[str, Any]], str]) -> Coded:
    """The text for each row's GPU. AMD's events number devices differently, so with one GPU all rows get its text."""
    entries = [entry for entry in devices if isinstance(entry, dict)] if isinstance(devices, list) else []
    texts = {integer(entry.get("id")): text(entry) for entry in entries}
    only = next(iter(texts.values())) if len(texts) == 1 else ""
    return Coded.of(texts.get(number, only) for number in device.tolist())
