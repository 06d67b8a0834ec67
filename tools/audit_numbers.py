"""The summary's numbers computed from raw operations, and compared with those that pyprof prints; for ``audit.py``."""

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any, NamedTuple

from tools.audit_kinds import OTHER, is_collective, kind_bounds
from tools.audit_raw import Capture, Operation
from tools.audit_work import work_sums

Interval = tuple[int, int]
QUEUED_NS = 100_000  # launching takes less
WITHHELD = ("busy_ns", "idle_ns", "exposed_ns")  # where operations are missing or times are wrong
# Ranges of PyTorch: an op of the dispatcher or of emit_nvtx, and a marker of pyprof. No user range is an op.
NVTX_OP = r"^(?:aten|autograd|c10d|torch|prims|quantized)::\w|, (?:seq|op_id) = |^\{\""
OP = r"^(?!user: |ProfilerStep#|## |Optimizer\.)"
BACKWARD = r"^autograd::engine::evaluate_function|^(?!user: )\w+Backward\d*(?:, |$)|AccumulateGrad"
UPDATE = r"^(?:user: )?Optimizer\.(?:step|zero_grad)#"
# What else names an op around a launch: markers of PyProf, ours of the program's Triton kernels, NCCL's own ranges, an
# optimizer's annotation.
MAY = r"^\{'mod'|^(?:user: )?\{\"v\":\d+,\"mod\":\"triton\"|^nccl[A-Z]|^user: (?:nccl:|record_param_comms|Optimizer\.)"


class Difference(NamedTuple):
    name: str
    expected: Any
    printed: Any

    def __str__(self) -> str:
        return f"{self.name}: the raw file gives {self.expected}, pyprof prints {self.printed}"


def union(intervals: Iterable[Interval]) -> int:
    """The time that at least one interval covers."""
    total, reach = 0, None
    for begin, end in sorted(intervals):
        if reach is None or begin > reach:
            total, reach = total + end - begin, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def expected(capture: Capture, printed: str) -> dict[str, Any]:
    """The numbers that the summary should have. What it says it leaves out (warm-up, loading) is left out here too."""
    numbers = json.loads(printed)["numbers"]
    run = _after_warm_up(capture.operations, numbers)
    found: dict[str, Any] = {"kinds_of_rows": by_kind(run)}
    if numbers["copies"]:
        found["copies"] = copies(run)
    step_ns = step_time(capture, numbers["step"])
    operations = in_question(capture.operations, printed)
    capture = replace(capture, operations=operations)
    devices = defaultdict(list)
    for operation in operations:
        devices[operation.device].append(operation)
    found["devices"] = sorted(map(device_numbers, devices.values()))
    found["step_ns"] = step_ns
    communication = [operation for operation in operations if is_communication(operation)]
    queued = [max(row.start - row.api[1], 0) for row in operations if row.kind == "kernel" and row.api]
    return found | {
        "total_ns": sum(row.duration for row in operations),
        "busy_ns": sum(device[1] for device in found["devices"]),
        "span_ns": sum(max(row.end for row in rows) - min(row.start for row in rows) for rows in devices.values()),
        "idle_ns": sum(map(idle, devices.values())),
        "launches": len(queued),
        "queued_ns": int(median(queued)) if queued else 0,
        "communication_ns": sum(row.duration for row in communication),
        "exposed_ns": sum(exposed(rows) for rows in devices.values()),
        "phases": phase_rows(capture),
        "attributed_ns": attributed(capture),
        "kinds": kind_bounds(operations),
        **work_sums(operations),
        "marks_ns": {name: ns for name, ns in marks(capture).items() if name in _marked(numbers)},
    }


def in_question(operations: Sequence[Operation], printed: str) -> list[Operation]:
    """The operations that the summary is about: not those that it says it leaves out."""
    numbers = json.loads(printed)["numbers"]
    run = _after_warm_up(operations, numbers)
    return after_loading(run) if numbers["copies"] and numbers["copies"]["apart"] else list(run)


def _after_warm_up(operations: Sequence[Operation], numbers: dict[str, Any]) -> Sequence[Operation]:
    return operations[numbers["warm_up"]["rows"] :] if numbers["warm_up"] else operations


def phase_rows(capture: Capture) -> dict[str, Interval]:
    """Bounds of the operations launched within autograd's nodes, and of those of optimizers and their ``zero_grad``.

    What the optimizer's thread launches after the backward and before the update may be a part of the update, such as
    the clipping of gradients.
    """
    updates = {id(row) for row in capture.launched_in(UPDATE)}
    backward = {id(row) for row in capture.launched_in(BACKWARD)} - updates
    windows = _before_updates(capture)
    perhaps = {
        id(row)
        for row in capture.operations
        if row.api and any(begin <= row.api[0] < end for begin, end in windows.get(row.thread, []))
    }
    most = len(perhaps - updates - backward) + len(updates)
    return {"backward": (len(backward), len(backward)), "optimizer": (len(updates), most)}


def _before_updates(capture: Capture) -> dict[Any, list[Interval]]:
    """For each thread, the times from the end of the last backward node before an update to the update."""
    every = [(thread, range_) for thread, ranges in capture.ranges.items() for range_ in ranges]
    ends = sorted(range_.end for _, range_ in every if re.search(BACKWARD, range_.name))
    found: dict[Any, list[Interval]] = {}
    for thread, range_ in every:
        if re.search(UPDATE, range_.name) and (before := bisect_right(ends, range_.begin)):
            found.setdefault(thread, []).append((ends[before - 1], range_.begin))
    return found


def marks(capture: Capture) -> dict[str, int]:
    """From the mark of each step to the next one; of a step that none follows, to the end of its own range."""
    spans = {number: (begin, end) for number, begin, end in sorted(capture.steps, reverse=True)}
    return {str(n): spans[n + 1][0] - begin if n + 1 in spans else end - begin for n, (begin, end) in spans.items()}


def _marked(numbers: dict[str, Any]) -> dict[str, int]:
    return {step["name"]: step["mark_ns"] for step in numbers["steps"] if step["mark_ns"] is not None}


def attributed(capture: Capture) -> Interval:
    """Bounds of the time with an op: what an op's range certainly launched, and what some range may explain.

    The upper bound has all operations of a graph launch, whose op only a marker at the capture can tell, and all
    communication, which is on record in several ways.
    """
    pattern = OP if capture.names_every_op else NVTX_OP
    certain = {id(row): row.duration for row in capture.launched_in(pattern)}
    shared = Counter(row.api for row in capture.operations if row.api)
    may = {id(row): row.duration for row in capture.launched_in(MAY)}
    may |= {id(row): row.duration for row in capture.launched_in(pattern, begun=True)}
    may |= {id(r): r.duration for r in capture.operations if is_communication(r) or (r.api and shared[r.api] > 1)}
    return sum(certain.values()), sum((certain | may).values())


def by_kind(operations: Sequence[Operation]) -> dict[str, list[int]]:
    """Rows and time by kind of row."""
    counts, times = Counter(row.kind for row in operations), Counter[str]()
    for row in operations:
        times[row.kind] += row.duration
    return {kind: [count, times[kind]] for kind, count in counts.items()}


def device_numbers(operations: Sequence[Operation]) -> list[int]:
    """Operations, busy time and time with a kernel of one device."""
    kernels = [(row.start, row.end) for row in operations if row.kind in ("kernel", "graph")]
    return [len(operations), union((row.start, row.end) for row in operations), union(kernels)]


def step_time(capture: Capture, step: dict[str, Any] | None) -> float | None:
    """The captured step's time on the slowest device; None where the raw file does not mark all of its steps.

    A device reaches a mark when the work launched before it is done; the last step ends with its own work.
    """
    marked = {number: (begin, end) for number, begin, end in sorted(capture.steps, reverse=True)}
    if step is None or step["begins"] != "mark" or not marked.keys() >= set(step["numbers"]):
        return None
    if any(row.api is None for row in capture.operations):
        return None
    devices = defaultdict(list)
    for row in capture.operations:
        devices[row.device].append(row)
    lengths = [max(_on_device(rows, marked, number) for rows in devices.values()) for number in step["numbers"]]
    return mean(lengths) if mean(lengths) > 1.1 * median(lengths) else float(median(lengths))


def _on_device(operations: Sequence[Operation], marked: dict[int, Interval], number: int) -> int:
    begin, end = marked[number]
    last = number + 1 not in marked
    until = end if last else marked[number + 1][0]
    return _done(operations, until) - _done(operations, begin)


def _done(operations: Sequence[Operation], mark: int) -> int:
    """When the work launched before a mark is done. What waits although nothing runs waits for work not on record."""
    first = min(operations, key=lambda row: row.start)
    unrecorded = first.start if first.api and first.start - first.api[1] > QUEUED_NS else 0
    return max(mark, unrecorded, *(row.end for row in operations if row.api and row.api[0] < mark), 0)


def idle(operations: Sequence[Operation]) -> int:
    """The time between the operations of a device in which none runs."""
    whole, reach = 0, operations[0].end
    for row in operations[1:]:
        whole += max(row.start - reach, 0)
        reach = max(reach, row.end)
    return whole


def is_communication(row: Operation) -> bool:
    return row.kind == "kernel" and is_collective(row.name)


def exposed(operations: Sequence[Operation]) -> int:
    """The time in which nothing but communication ran on the device."""
    everything = union((row.start, row.end) for row in operations)
    return everything - union((row.start, row.end) for row in operations if not is_communication(row))


def is_copy(row: Operation) -> bool:
    return row.kind == "memcpy" and re.search("HtoD|DtoH|Host", row.name) is not None


def copies(operations: Sequence[Operation]) -> list[int | None]:
    """Rows, time and bytes of the copies between host and device; None where no size is known."""
    moved = [row for row in operations if is_copy(row)]
    sizes = [row.nbytes for row in moved if row.nbytes is not None]
    nbytes = sum(sizes) if any(sizes) or len(sizes) == len(moved) else None
    return [len(moved), sum(row.duration for row in moved), nbytes]


def after_loading(operations: Sequence[Operation]) -> list[Operation]:
    """Without the copies before each device's first kernel."""
    first: dict[Any, int] = {}
    for row in operations:
        if row.kind in ("kernel", "graph"):
            first.setdefault(row.device, row.start)
    return [row for row in operations if not (is_copy(row) and row.start < first.get(row.device, 0))]


def compare(wanted: dict[str, Any], printed: str) -> tuple[int, list[Difference]]:
    """How many numbers were compared, and those that differ."""
    document = json.loads(printed)
    numbers = document["numbers"]
    shown = {
        "kinds_of_rows": {part["name"]: [part["rows"], part["ns"]] for part in numbers["kinds_of_rows"]},
        "devices": sorted(
            [device["operations"], device["busy_ns"], device["kernel_ns"]] for device in numbers["devices"]
        ),
        "step_ns": numbers["step"] and numbers["step"]["captured_ns"],
        "launches": numbers["waits"]["launches"],
        "queued_ns": numbers["waits"]["queued_ns"],
    }
    if numbers["copies"]:
        shown["copies"] = [numbers["copies"][key] for key in ("rows", "ns", "nbytes")]
    phases = {part["name"]: part["rows"] for part in numbers["phases"]}
    shown["phases"] = {name: phases.get(name, 0) for name in wanted["phases"]}
    shown["marks_ns"] = {name: ns for name, ns in _marked(numbers).items() if name in wanted["marks_ns"]}
    shown["kinds"] = {part["name"]: (part["rows"], part["ns"]) for part in numbers["kinds"]}
    shown["tensor_ns"] = numbers["matrix"]["tensor_ns"]
    shown |= {key: numbers[key] for key in wanted if key not in shown}
    kinds = wanted.pop("kinds", {})
    differences = list(_outside(kinds, shown["kinds"]))
    differences += [
        Difference(key, value, shown[key]) for key, value in wanted.items() if not _agrees(key, value, shown[key])
    ]
    sums = _sums(document)
    differences += [Difference(name, left, right) for name, left, right in sums if left != right]
    differences += list(_of_whole_steps(numbers))
    differences += list(_bounds(document))
    compared = (
        len(wanted) + len(sums) + len(document["changes"]["changes"]) + 2 * len(kinds.keys() | shown["kinds"].keys())
    )
    return compared, differences


def _agrees(key: str, wanted: Any, shown: Any) -> bool:
    if shown is None and key in WITHHELD:
        return True
    if key == "step_ns":
        return bool(wanted is None or abs(shown - wanted) < 1)
    if key == "devices":  # rates are those of whole steps, which may leave operations out
        return len(shown) == len(wanted) and all(
            all(own is None or own <= other for own, other in zip(ours, theirs, strict=True))
            for ours, theirs in zip(shown, wanted, strict=True)
        )
    if key == "attributed_ns":
        low, high = wanted
        return bool(low <= shown <= high)
    if key == "phases":
        return all(low <= shown[name] <= high for name, (low, high) in wanted.items())
    return bool(wanted == shown)


def _outside(kinds: dict[str, tuple[int, int, int, int]], shown: dict[str, tuple[int, int]]) -> Iterable[Difference]:
    """The kinds of work whose rows or time are not within what the names allow."""
    if not kinds:
        return
    unnamed = kinds[OTHER]  # a kind that no name has may still be that of the unclear names
    for kind in sorted(kinds.keys() | shown.keys()):
        least_rows, most_rows, least_ns, most_ns = kinds.get(kind, unnamed)
        rows, ns = shown.get(kind, (0, 0))
        if not least_rows <= rows <= most_rows:
            yield Difference(f"rows of {kind}", f"{least_rows} to {most_rows}", rows)
        if not least_ns <= ns <= most_ns:
            yield Difference(f"time of {kind}", f"{least_ns} to {most_ns} ns", ns)


def _sums(document: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """What must add up: kinds, parts and phases to all time, reasons to what has no op, causes to idle time."""
    numbers = document["numbers"]

    def ns(key: str) -> int:
        return sum(part["ns"] for part in numbers[key])

    total = numbers["total_ns"]
    return [
        ("time by kind of work", total, ns("kinds")),
        ("time by part of the model", total, ns("components")),
        ("time without an op", total - numbers["attributed_ns"], ns("reasons")),
        *_by_phase(numbers),
        ("rows by phase", sum(part["rows"] for part in numbers["kinds"]), sum(p["rows"] for p in numbers["phases"])),
    ]


def _by_phase(numbers: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Busy and idle time are the sums of those of the phases, where they are told."""
    sums = (("busy time", "busy_ns", "ns"), ("idle time", "idle_ns", "idle_ns"))
    return [
        (f"{name} by phase", numbers[total], sum(phase[part] for phase in numbers["phases"]))
        for name, total, part in sums
        if numbers[total] is not None
    ]


def _of_whole_steps(numbers: dict[str, Any]) -> Iterable[Difference]:
    """The operations of which rates are told are those of the steps that the step's time is the figure of, or all."""
    step, shown = numbers["step"], sum(device["operations"] for device in numbers["devices"])
    rows = {part["name"]: part["rows"] for part in numbers["steps"]}
    whole = sum(rows.get(str(number), 0) for number in step["numbers"]) if step else 0
    if shown not in (whole, sum(part["rows"] for part in numbers["kinds_of_rows"])) and not numbers["copies"]:
        yield Difference("operations of whole steps", whole, shown)


def _bounds(document: dict[str, Any]) -> Iterable[Difference]:
    """No change saves more than the step, and an estimate without the profiler is no longer than the captured step."""
    found = document["changes"]
    step, now = found["captured_ms"], found["now"]
    if now is not None and not found["measured"] and now["ms"] > step * (1 + 1e-6):
        yield Difference("now", f"at most {step} ms", now["ms"])
    for change in found["changes"]:
        saved = change["saved_ms"] or 0
        if saved > (step if now is None else now["ms"]) * (1 + 1e-9):
            yield Difference(f"change {change['rule']}", f"at most {step} ms", saved)
