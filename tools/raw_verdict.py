"""What limits a step, from the raw profile alone: a second opinion that shares no code with pyprof.

python tools/raw_verdict.py CAPTURE [CAPTURE ...]

Reads a Kineto trace (JSON) or an nsys export (SQLite), either one gzipped or not, and prints a JSON object a capture.
Times are ms. Idle time of the GPU is given to what the host was doing: inside a loader; inside a call that waits for a
value, or between such a wait and the next launch; before the call of the next launch returns; after that.
"""

import gzip
import json
import re
import sqlite3
import sys
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
API_CATEGORIES = {"cuda_runtime", "cuda_driver", "Runtime"}
NOT_WORK = {"Trace", "overhead"}
RANGE_CATEGORIES = {"user_annotation", "Operator"}  # tb_plugin's traces of 2021 have ranges among the operators
COMMUNICATION = re.compile(r"nccl|rccl|cross_device_reduce|all_?reduce|allgather|reducescatter", re.IGNORECASE)
UPLOAD = re.compile(r"HtoD|Host -> Device|-> Device\)$")  # a copy that brings no value to the host
LOADER = re.compile(r"DataLoader.*__next__")
SYNCHRONISE = re.compile(r"(Stream|Device|Event|Ctx)Synchronize|Memcpy(WithStream|DtoH)?$")
COPY_CALL = re.compile(r"[Mm]emcpy")
LAUNCH = re.compile(r"Launch|Memcpy|Memset")
FREE = re.compile(r"^(cuda|hip)Free$")
MARKS = (r"^ProfilerStep#", r"DataLoader.*__next__", r"^execute_", r"(?i)^(step|iter|iteration)\b", r"Optimizer\.step#")
BLOCKING_COPY_MS = 0.05  # cudaMemcpyAsync returns in about 0.01 ms unless the memory is pageable
AFTER_UPLOAD_MS = 0.015  # PyTorch synchronises its stream right after a pageable copy to the GPU
LATE_START_MS = 50.0
EMPTY_WAIT_MS = 0.5
OVERLAP_MS = 1.0
QUEUED_MS = 0.1  # launching takes less


@dataclass
class Profile:
    """The events of one capture; each row starts with (start ms, end ms)."""

    gpu: list = field(default_factory=list)  # start, end, process, device, stream, correlation, name
    api: list = field(default_factory=list)  # start, end, process, thread, correlation, name
    ranges: list = field(default_factory=list)  # start, end, process, name
    zero_times: int = 0
    end: float = 0.0  # of the last event


def read(path):
    raw = Path(path).read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    return nsys(raw) if raw.startswith(b"SQLite format 3") else kineto(raw)


def kineto(raw):
    document = json.loads(raw.decode("utf-8", "replace"), strict=False)
    events = document if isinstance(document, list) else document.get("traceEvents", [])
    spans = [e for e in events if isinstance(e, dict) and e.get("ph") == "X" and isinstance(e.get("name"), str)]
    times = np.array([float(e.get("ts", 0)) for e in spans])
    true = times > 0 if (times > 1e6).any() else times >= 0  # since the epoch or the boot of the machine
    profile = Profile(zero_times=int((~true).sum()))
    origin = times[true].min() if true.any() else 0.0
    for event, start in zip(np.array(spans, object)[true], (times[true] - origin) / 1e3, strict=True):
        sort_event(profile, event, start, start + float(event.get("dur") or 0) / 1e3)
    return profile


def sort_event(profile, event, start, end):
    category, args, name = event.get("cat"), event.get("args") or {}, event["name"]
    correlation = (0, args.get("correlation"))
    if category not in NOT_WORK:
        profile.end = max(profile.end, end)
    if category in GPU_CATEGORIES:
        profile.gpu.append((start, end, 0, event.get("pid"), event.get("tid"), correlation, name))
    elif category in API_CATEGORIES:
        profile.api.append((start, end, 0, event.get("tid"), correlation, name))
    elif category in RANGE_CATEGORIES and (category == "user_annotation" or "#" in name):
        profile.ranges.append((start, end, 0, name))


def nsys(raw):
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(raw)
        file.flush()
        connection = sqlite3.connect(f"file:{file.name}?mode=ro&immutable=1", uri=True)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        return nsys_profile(connection)


def nsys_profile(connection):
    def rows(table, *wanted):
        """The wanted columns of a table, NULL for those that this version lacks; nothing if there is no table."""
        have = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        columns = ", ".join(f'"{name}"' if name in have else "NULL" for name in wanted)
        return connection.execute(f"SELECT {columns} FROM {table}") if have else ()  # noqa: S608

    text = dict(rows("StringIds", "id", "value"))
    profile = Profile()
    kinds = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
    for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"):
        named = {"KERNEL": "shortName", "MEMCPY": "copyKind"}.get(kind, "none")
        columns = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", named)
        for start, end, process, device, stream, correlation, name in rows("CUPTI_ACTIVITY_KIND_" + kind, *columns):
            label = {"KERNEL": text.get(name, ""), "MEMCPY": kinds.get(name, "Memcpy")}.get(kind, kind)
            place = (process or 0, device, stream, (process or 0, correlation))
            profile.gpu.append((start / 1e6, end / 1e6, *place, label))
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    one_process = not any(row[2] for row in profile.gpu)  # exports without globalPid have one process
    for start, end, thread, correlation, name in rows("CUPTI_ACTIVITY_KIND_RUNTIME", *columns):
        process = 0 if one_process else thread & ~0xFFFFFF
        call = re.sub(r"_v\d+$", "", text.get(name, ""))
        profile.api.append((start / 1e6, end / 1e6, process, thread, (process, correlation), call))
    columns = ("start", "end", "globalTid", "eventType", "text", "textId")
    for start, end, thread, kind, own, shared in rows("NVTX_EVENTS", *columns):
        if end is not None and kind in (59, 60):
            process = 0 if one_process else (thread or 0) & ~0xFFFFFF
            profile.ranges.append((start / 1e6, end / 1e6, process, own or text.get(shared) or ""))
    return profile


def union(starts, ends):
    """Disjoint sorted intervals that cover the same time."""
    order = np.argsort(starts, kind="stable")
    starts, ends = np.asarray(starts, float)[order], np.asarray(ends, float)[order]
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    first = np.r_[True, starts[1:] > reach[:-1]]
    return starts[first], np.r_[reach[np.flatnonzero(first)[1:] - 1], reach[-1]]


def inside(cover, times):
    """Whether each time lies in one of the disjoint intervals."""
    starts, ends = cover
    if not len(starts):
        return np.zeros(len(times), bool)
    at = np.searchsorted(starts, times, side="right") - 1
    return (at >= 0) & (times < ends[np.maximum(at, 0)])


def latest_end(ends, times):
    """The last of the sorted ends at or before each time, or minus infinity."""
    padded = np.r_[-np.inf, ends]
    return padded[np.searchsorted(ends, times, side="right")]


def spans_of(rows):
    return union([row[0] for row in rows], [row[1] for row in rows])


def steps(profile, process):
    """(mark, windows, whether the last one is whole): from a mark of the program to the next."""
    own = sorted(row for row in profile.ranges if row[2] == process)
    rows = [*profile.gpu, *profile.api, *own]
    first, last = min((row[0] for row in rows), default=0.0), max([profile.end, *(row[1] for row in rows)])
    for pattern in MARKS:
        marks = [row for row in own if re.search(pattern, row[3])]
        launched = any(marks[-1][0] <= call[0] and LAUNCH.search(call[5]) for call in profile.api) if marks else True
        if len(marks) > 1 and profile.api and not launched:
            marks = marks[:-1]  # a step opened as the loop ends
        if marks and "Optimizer" in pattern:  # the end of the step before
            return pattern, list(pairwise([first, *(row[1] for row in marks)])), True
        if marks:
            whole = "DataLoader" not in pattern
            edges = [*(row[0] for row in marks), marks[-1][1] if whole else last]
            return pattern, list(pairwise(edges)), whole
    return "none", [(first, last)], True


def waits_for_values(api, copies):
    """Calls that wait for a result; not copies to the GPU, nor the synchronisation right after one."""
    waits, latest = [], {}
    for start, end, _, thread, correlation, name in sorted(api, key=lambda row: row[0]):
        if COPY_CALL.search(name):
            upload = bool(UPLOAD.search(copies.get(correlation, "")))
            latest[thread] = (end, upload)
            if not upload and (end - start > BLOCKING_COPY_MS or SYNCHRONISE.search(name)):
                waits.append((start, end))
        elif SYNCHRONISE.search(name):
            before = latest.get(thread)
            if not (before and before[1] and start - before[0] < AFTER_UPLOAD_MS):
                waits.append((start, end))
    return sorted(waits, key=lambda row: row[1])


def shares(gpu, api, loaders, waits, begin, end):
    """Length of every kind of time within [begin, end), which the kinds divide."""
    launch, ordered = returns(api), sorted(gpu, key=lambda row: row[0])
    compute, together = spans_of([row for row in gpu if not COMMUNICATION.search(row[6])]), spans_of(gpu)
    waiting, freeing = spans_of(waits), spans_of([row for row in api if FREE.search(row[5])])
    starts = np.array([*(row[0] for row in ordered), np.inf])
    calls = np.array([*(launch.get(row[5], np.nan) for row in ordered), np.inf])  # nothing comes after the last
    edges = [*compute, *together, *waiting, *freeing, *loaders, calls[np.isfinite(calls)], [begin, end]]
    cuts = np.unique(np.clip(np.concatenate([np.asarray(edge, float) for edge in edges]), begin, end))
    middle, length = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
    called = calls[np.searchsorted(starts, middle)]
    dry = latest_end(together[1], middle)
    after = np.zeros(len(middle), bool)
    if waits:
        wait_starts, wait_ends = np.array(waits).T
        row = np.searchsorted(wait_ends, middle, side="right") - 1
        after = (row >= 0) & (wait_starts[row] < dry) & (wait_ends[row] >= dry - 1e-3)
        after &= latest_end(loaders[1], middle) < dry  # a loader since then: the host has moved on
    rules = (
        ("gpu", inside(compute, middle)),
        ("communication", inside(together, middle)),
        ("launched_not_started", called <= middle),
        ("loader", inside(loaders, middle)),
        ("wait", inside(waiting, middle)),
        ("after_wait", after),
        ("free", inside(freeing, middle)),
        ("call_not_recorded", np.isnan(called)),
        ("not_launched", np.ones(len(middle), bool)),
    )
    kind = np.select([rule[1] for rule in rules], range(len(rules)))
    return {name: float(length[kind == index].sum()) for index, (name, _) in enumerate(rules)}


def returns(api):
    """When the first call with a correlation returned."""
    return {row[4]: row[1] for row in sorted(api, key=lambda row: -row[0]) if row[4][1] is not None}


def suspicions(profile, gpu, api):
    """What a reader should doubt: times that cannot be true, and work that seems to be missing."""
    found = {"zero_times": profile.zero_times, "overlapping": [], "late_starts": [], "empty_waits": []}
    streams = {}
    for row in sorted(gpu, key=lambda row: row[0]):
        streams.setdefault(row[4], []).append(row)
    for stream, rows in streams.items():
        starts, ends = np.array([row[:2] for row in rows]).T
        later = np.searchsorted(starts, ends) - np.arange(len(rows)) - 1
        for index in np.flatnonzero((later >= 3) & (ends - starts > OVERLAP_MS)):
            if ends[index] - starts[index + 1] > OVERLAP_MS:
                length = float(ends[index] - starts[index])
                found["overlapping"].append([str(stream), rows[index][6][:60], length, int(later[index])])
    returned, busy = returns(api), spans_of(gpu)
    starts = np.array(sorted((row[0], returned.get(row[5], row[0])) for row in gpu)).reshape(-1, 2)
    found["first_start_delay_ms"] = float(starts[0, 0] - starts[0, 1]) if gpu else None  # earlier work is not recorded
    since = np.maximum(starts[:, 1], latest_end(busy[1], starts[:, 0]))  # launched, and the GPU has run dry
    for start, called in starts[(starts[:, 0] - since > LATE_START_MS)]:
        found["late_starts"].append([float(start), float(start - called)])
    for row in api:
        length = row[1] - row[0]
        if length > EMPTY_WAIT_MS and (SYNCHRONISE.search(row[5]) or COPY_CALL.search(row[5])):
            worked = (np.clip(busy[1], row[0], row[1]) - np.clip(busy[0], row[0], row[1])).sum()
            if worked < 0.1 * length:
                found["empty_waits"].append([row[5], row[0], length, float(worked)])
    recorded = {row[5] for row in gpu}
    launches = [row for row in api if LAUNCH.search(row[5])]
    found["launches"], found["launches_without_work"] = len(launches), sum(r[4] not in recorded for r in launches)
    return found


def reached(gpu, launch, mark):
    """When a GPU is done with what was launched before a mark; what waits while nothing runs waits for unknown work."""
    first = min(gpu, key=lambda row: row[0])
    queued = first[0] if first[0] - launch.get(first[5], first[0]) > QUEUED_MS else mark
    return max([mark, queued, *(row[1] for row in gpu if launch.get(row[5], np.inf) < mark)])


def verdict(profile, process, device, paced):
    gpu = [row for row in profile.gpu if row[2] == process and row[3] == device]
    api = [row for row in profile.api if row[2] == process]
    ranges = [row for row in profile.ranges if row[2] == process]
    mark, windows, whole = steps(profile, process)
    walls = [end - begin for begin, end in windows]
    kept = windows if whole or len(windows) < 3 else windows[:-1]
    if len(kept) > 3 and kept[0][1] - kept[0][0] > 3 * np.median(walls):  # the first step compiles, allocates, warms up
        kept = kept[1:]
    begin, end = kept[0][0], kept[-1][1]
    launch = returns(api)
    drained = max([end, *(row[1] for row in gpu if begin <= launch.get(row[5], -1.0) < end)]) if whole else end
    if paced and gpu:
        begin, drained = reached(gpu, launch, begin), max(drained if whole else end, reached(gpu, launch, end))
    loaders = spans_of([row for row in ranges if LOADER.search(row[3])])
    copies = {row[5]: row[6] for row in gpu if COPY_CALL.search(row[6])}
    split = shares(gpu, api, loaders, waits_for_values(api, copies), begin, drained)
    names = {name for *_, name in ranges if LOADER.search(name)}
    kind = "workers" if any("Multi" in name for name in names) else "single_process" if names else "none"
    suspicious = suspicions(profile, gpu, api)
    return {
        "device": str(device),
        "mark": mark,
        "steps": len(windows),
        "median_step_wall_ms": float(np.median([end - begin for begin, end in kept])),
        "step_walls_ms": walls[:100],
        "paced_step_wall_ms": (drained - begin) / len(kept),
        "gpu_busy_ms": (split["gpu"] + split["communication"]) / len(kept),
        "ms_per_step": {name: value / len(kept) for name, value in split.items()},
        "loader": kind,
        "suspicious": {name: value[:20] if isinstance(value, list) else value for name, value in suspicious.items()},
    }


def verdicts(path, paced=False):
    """One verdict a GPU, the busiest first; one without a device if no GPU work is recorded.

    paced: of the time from where the GPU reaches the first mark; otherwise from the mark itself, on the host.
    """
    profile = read(path)
    places = sorted({(row[2], row[3]) for row in profile.gpu}, key=str) or [(0, None)]
    found = [verdict(profile, process, device, paced) for process, device in places]
    return {"capture": str(path), "gpus": sorted(found, key=lambda one: -one["gpu_busy_ms"])}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(json.dumps(json.loads(json.dumps(verdicts(argument)), parse_float=lambda text: round(float(text), 4))))
