"""Kernels, copies and memsets of a torch.profiler trace, and the calls that launched them."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson
from msgspec import Raw
from numpy.typing import NDArray

from pyprof.parse.attribute.capture import GraphLaunches, HostCalls
from pyprof.parse.attribute.reasons import BEFORE_CAPTURE, NO_CALL, NO_CALLS, NO_CORRELATION, SHARED_CORRELATION
from pyprof.parse.formats.cupti import Calls, following_syncs
from pyprof.parse.formats.gpu_info import kineto_info
from pyprof.parse.formats.graph_capture import graph_launches
from pyprof.parse.formats.kernel_names import demangle, kept, short_name
from pyprof.parse.formats.lost_records import Joined, lost_records
from pyprof.parse.kineto.collectives import message
from pyprof.parse.kineto.event_types import Args, Event, Number, Trace
from pyprof.parse.kineto.events import Clock, Events, Threads, args, durations, integer, integers
from pyprof.parse.kineto.launch_ids import ambiguous, external_ids, settle_ids
from pyprof.parse.kineto.ranges import TraceRanges
from pyprof.parse.kineto.sync_events import host_calls
from pyprof.parse.kineto.wrong_fields import checked
from pyprof.table.columns import NULL, Coded, Data, Ints, coded_of, lookup, value_at
from pyprof.table.losses import Loss

KINDS = {
    **dict.fromkeys(("kernel", "Kernel", "mtia_ccp_events"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "memset"),
}
REASONS = [BEFORE_CAPTURE, NO_CALL, NO_CALLS, NO_CORRELATION, SHARED_CORRELATION]
UNNAMED = {430: "cudaLaunchKernelExC"}  # CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060
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
    graph_launches: GraphLaunches | None
    losses: list[Loss]
    calls: HostCalls


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
    settle_ids(events)
    calls = _calls(events.calls, clock, threads)
    start = clock.times(events.gpu)
    corr = checked([a.corr for a in args(events.gpu)], "correlation", events.gpu, trace.wrong)
    order = np.lexsort((corr, start))
    gpu = [events.gpu[i] for i in order.tolist()]
    details = args(gpu)
    start, corr = start[order], corr[order]
    paired, pid = _join(calls, corr, start, threads, named)
    columns = {**_columns(gpu, details, trace), "start": start, "corr": corr, "pid": pid}
    shared = ambiguous(paired, gpu, coded_of(columns, "kind", len(gpu)), events.calls)
    call = np.where(shared, -1, paired)
    launch_thread, launch_time = value_at(calls.thread, call, -1), value_at(calls.start, call, NULL)
    ends = np.where(calls.duration == NULL, calls.start, calls.start + calls.duration)
    timed = Calls(calls.start, ends, calls.pid, calls.thread, calls.name, calls.corr)
    if len(calls.start):
        tid = np.array([tid for _, tid in threads.pairs], np.int64)
        columns["tid"] = value_at(tid, launch_thread, NULL)
        columns["apiStart"] = launch_time
        columns["apiDuration"] = value_at(calls.duration, call, NULL)
        columns["api"] = Coded(value_at(calls.name.codes, call, -1), calls.name.values)
        columns["apiSync"] = value_at(following_syncs(timed), call, NULL)
    ids = np.where(shared, NULL, _launch_ids(details, calls, call))  # Kineto finds a row's op by its correlation id
    ranges = _ranges_by_id(ids, pid, threads, named)
    reason = np.where(shared, REASONS.index(SHARED_CORRELATION), _reasons(calls, call >= 0, corr, start))
    joined = Joined(timed, call, columns, lambda: _last_time(events, clock))
    return GpuRows(
        rows=len(gpu),
        columns=columns,
        launch_thread=launch_thread,
        launch_time=launch_time,
        launch_range=_trusted(ranges, launch_thread, launch_time, named),
        reason_code=reason,
        graph_launches=_graph_launches(events.calls, timed, call),
        # launches seem to have no kernel where their kernels have the id of another launch
        losses=[] if shared.any() else lost_records(joined, reason == REASONS.index(NO_CALL), "kineto"),
        calls=host_calls(events.syncs, timed, calls.thread),
    )


def _last_time(events: Events, clock: Clock) -> int:
    """The last time at which an event of the CPU began or ended."""
    lists = (events.ops, events.annotations, events.frames, events.calls)
    ends = (clock.times(some) + np.maximum(durations(some), 0) for some in lists if some)
    return max((int(times.max()) for times in ends), default=NULL)


def unrecorded_launches(calls: list[Event]) -> list[str]:
    """A warning if calls gave a GPU work, for a trace without GPU activity: its CPU ops did not do that work."""
    launching = sum(_LAUNCHING.match(event.name) is not None for event in calls)
    if not launching:
        return []
    calls_gave = f"{launching:,} call{'s' if launching > 1 else ''} gave"
    lost = f"{calls_gave} a GPU work that the trace does not have: the rows are CPU ops, and their times"
    return [f"{lost} are those of launching (profile with ProfilerActivity.CUDA or .XPU, too)"]


def _graph_launches(events: list[Event], calls: Calls, call: Ints) -> GraphLaunches | None:
    """The calls that CUDA graphs captured. ``call``: of each GPU operation.

    Kineto's names of calls end with CUDA 12.1 or earlier; it then writes INVALID (pytorch/kineto#786, #1400). Its
    number says which call it was.
    """
    if not calls.name.where(lambda name: "BeginCapture" in name).any():
        return None
    details = args(events)
    numbers = integers([a.cbid for a in details])
    named = Coded.of(
        UNNAMED.get(number, event.name) if event.name == "INVALID" else event.name
        for number, event in zip(numbers.tolist(), events, strict=True)
    )
    names = [name if isinstance(name := a.kernel or a.old_kernel, str) else "" for a in details]
    demangled = {name: demangle(name) for name in set(names)}
    ran = np.zeros(len(calls.start), bool)
    ran[call[call >= 0]] = True
    return graph_launches(calls._replace(name=named), calls.tid, ran, Coded.of(demangled[name] for name in names))


def _calls(events: list[Event], clock: Clock, threads: Threads) -> _Calls:
    details = args(events)
    thread = threads.of(events)
    return _Calls(
        thread=thread,
        pid=threads.processes(thread),
        corr=integers([a.corr for a in details]),
        start=clock.times(events),
        duration=durations(events),
        ext=external_ids(details),
        name=Coded.of([event.name for event in events]),
    )


def _join(calls: _Calls, corr: Ints, start: Ints, threads: Threads, named: TraceRanges) -> tuple[Ints, Ints]:
    """Each row's call, -1 for none, and its process.

    A GPU event's own "pid" is the device. A trace usually has one process. In merged files, several processes may have
    a call with the same correlation id; the row then belongs to the last such call that began before the row.
    """
    pids = np.unique(calls.pid) if len(calls.pid) else np.unique(threads.processes(named.ranges.thread))
    owner = np.full(len(corr), int(pids[0]) if len(pids) == 1 else NULL, np.int64)
    if len(pids) <= 1 or not len(calls.pid):
        return lookup(calls.pid, calls.corr, owner, corr), owner
    call = _last_begun(calls, corr, start)
    return call, np.where(call >= 0, calls.pid[call], owner)


def _last_begun(calls: _Calls, corr: Ints, start: Ints) -> Ints:
    """Of each process's first call with the row's correlation id: the last that began before the row.

    If none did, that of the process with the lowest number; -1 if there is no such call.
    """
    by_pid = np.lexsort((calls.corr, calls.pid))
    pid, id_ = calls.pid[by_pid], calls.corr[by_pid]
    first = by_pid[np.append(True, (pid[1:] != pid[:-1]) | (id_[1:] != id_[:-1]))]
    lowest = first[np.lexsort((calls.pid[first], calls.corr[first]))]
    any_call = lookup(np.zeros_like(lowest), calls.corr[lowest], np.zeros_like(corr), corr)
    in_time = first[np.lexsort((-calls.pid[first], calls.start[first], calls.corr[first]))]
    # One number for each pair of correlation id and start, in their order: that of calls and rows together.
    _, number = np.unique(np.concatenate([calls.corr[in_time], corr]), return_inverse=True)
    times, rank = np.unique(np.concatenate([calls.start[in_time], start]), return_inverse=True)
    key = number.reshape(-1) * len(times) + rank.reshape(-1)
    before = np.searchsorted(key[: len(in_time)], key[len(in_time) :], "right") - 1
    begun = (before >= 0) & (calls.corr[in_time[before]] == corr)
    return np.where(begun, in_time[before], value_at(lowest, any_call, -1))


def _launch_ids(details: list[Args], calls: _Calls, call: Ints) -> Ints:
    """The external id of each row, or else of its call. It is the number of the op that launched the row.

    A few calls have their own correlation id as external id, which names no op.
    """
    of_row = external_ids(details)
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
    """Why a row has no call, as an index into ``REASONS``; -1: it has one.

    Correlation ids only grow, so an id below all calls' ids is from before the capture. CUPTI's unknown id is 0.
    """
    if not len(calls.start):
        return np.where(known, -1, REASONS.index(NO_CALLS))
    first = calls.corr[calls.corr > 0].min(initial=np.iinfo(np.int64).max)
    early = (corr > 0) & (corr < first) | (start < calls.start.min())
    unknown = np.select([early, corr <= 0], [REASONS.index(BEFORE_CAPTURE), REASONS.index(NO_CORRELATION)], 1)
    return np.where(known, -1, unknown)


def _columns(gpu: list[Event], details: list[Args], trace: Trace) -> dict[str, Data]:
    kinds = [KINDS[event.cat] for event in gpu]
    long = Coded.of([event.name for event in gpu])
    kernel = Coded.of(event.name for event in gpu if KINDS[event.cat] == "kernel")
    short = {name: short_name(name) for name in kernel.values}

    def numbers(values: list[Number], key: str) -> Ints:
        return checked(values, key, gpu, trace.wrong)

    device = numbers([a.device for a in details], "device")
    device = np.where(device == NULL, integers([event.pid for event in gpu]), device)
    return {
        "kind": Coded.of(kinds),
        "kShortName": Coded(long.codes, [short.get(name, kept(name)) for name in long.values]),
        "kLongName": Coded(long.codes, [demangle(name) for name in long.values]),
        "kDuration": np.maximum(durations(gpu), 0),
        "device": device,
        "stream": numbers([a.stream for a in details], "stream"),
        "registers": numbers([a.registers for a in details], "registers per thread"),
        # Kineto has only the sum of static and dynamic shared memory.
        "dynamicSmem": numbers([a.shared for a in details], "shared memory"),
        "occupancy": np.array([_float(a.occupancy) for a in details], np.float64),
        "graphNode": numbers([a.graph_node or NULL for a in details], "graph node id"),  # 0: not of a graph
        "layer": Coded.of(_annotation(a) for a in details),
        "bytes": numbers([a.bytes for a in details], "bytes"),
        "grid": _triples([a.grid for a in details], "grid", gpu, trace),
        "block": _triples([a.block for a in details], "block", gpu, trace),
        "comm": Coded.of([message(a) for a in details]),
        "gpu": _of_device(device, trace.devices, lambda entry: str(entry.get("name", ""))),
        "gpuInfo": _of_device(device, trace.devices, kineto_info),
    }


def _annotation(details: Args) -> str:
    """The layer of a graph's kernel, a JSON list, where PyTorch's annotations of graphs are merged into the trace."""
    name = details.annotation if details.graph_node not in (NULL, 0) else None
    return json.dumps([name], ensure_ascii=False) if isinstance(name, str) and name else ""


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else float("nan")


def _triples(raws: list[Raw], key: str, gpu: list[Event], trace: Trace) -> Coded:
    """A grid or block column. Each distinct text is parsed once; a text that is not three numbers becomes empty."""
    texts = [bytes(raw) for raw in raws]
    triples = {text: _triple(text) for text in set(texts)}
    odd = {text for text, triple in triples.items() if not triple} - {b"", b"null"}
    if odd:
        trace.wrong += [(event, key) for event, text in zip(gpu, texts, strict=True) if text in odd]
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
