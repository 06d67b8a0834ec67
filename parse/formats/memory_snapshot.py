"""PyTorch's memory snapshots (``torch.cuda.memory._dump_snapshot``) -> Capture, which has allocations and no kernels.

A snapshot has the segments that the caching allocator holds at the end, with their blocks, and for each device the
history of the last events, each with its call stack. The history counts the bytes that were *requested*; the allocator
rounds them up, to multiples of 512 bytes and more (c10/cuda/CUDACachingAllocator.cpp, ``record_trace``). So totals here
are of requested bytes, counted back from the segments at the end.

Python's frames become the call stack, and tell the phase where there are no others (``snapshot_phases``). If the
snapshot has C++'s frames, too (``stacks="all"``), they tell the op and the backward node; the snapshot's annotations
tell the optimizer. Such contexts of neighbouring events become ranges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.errors import InputError
from pyprof.files import open_input
from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture, MemoryEvents, Ranges
from pyprof.parse.attribute.scope import Kind, Scope, classify
from pyprof.parse.formats.plain_pickle import load_plain
from pyprof.parse.formats.python_frames import is_users
from pyprof.parse.formats.snapshot_phases import phases_of, stack_kind
from pyprof.source_path import short_path
from pyprof.table.columns import NULL, Coded, Ints

WANTED = "expected a memory snapshot of PyTorch"
ADVICE = "make it with torch.cuda.memory._dump_snapshot after _record_memory_history"
# action -> level and sign of the bytes. `free_completed` repeats `free_requested`, whose block is free from then on.
ACTIONS = {
    "alloc": ("allocator", 1),
    "free_requested": ("allocator", -1),
    "segment_alloc": ("driver", 1),
    "segment_map": ("driver", 1),
    "segment_free": ("driver", -1),
    "segment_unmap": ("driver", -1),
}
_OP = re.compile(r"at::_ops::(\w+?)(?:_(?:Tensor|Scalar|out|int|dim|default)\w*)?::(?:call|redispatch)\(")
_NODE = re.compile(r"(?:torch::autograd::(?:generated::)?)?(\w+Backward\d*|AccumulateGrad)::apply\(")
_IN_ENGINE = "torch::autograd::Engine::evaluate_function("
UNKNOWN_NODE = "autograd engine"  # what ran is a node whose name is not in the stack
LONGEST_STACK, LONGEST_NAME = 4096, 2000  # frames, characters
LATEST_US = 1 << 52
MOST_BYTES = 1 << 61  # of all sizes in a file together


@uncollected()
def read(file: Path) -> Capture:
    """Read a memory snapshot. Raises InputError if the file is not one, or holds anything but plain values."""
    with open_input(file) as source:
        data = source.read()
    snapshot = load_plain(data, file, WANTED)
    if not isinstance(snapshot, dict) or not {"segments", "device_traces"} <= snapshot.keys():
        keys = ", ".join(map(repr, list(snapshot)[:4])) if isinstance(snapshot, dict) else type(snapshot).__name__
        raise InputError(file, f"{WANTED}, found a pickle of something else ({keys}); {ADVICE}")
    return _Reader(file, len(data)).capture(snapshot)


class _Context(NamedTuple):
    """What was running at an event, from its stack."""

    trace: str  # JSON list
    node: str
    op: str
    stack: str  # its kind: snapshot_phases


class _Frame(NamedTuple):
    """A frame of a stack: one of the user's lines, or what a C++ function's name tells."""

    line: str
    node: str = ""
    op: str = ""
    is_engine: bool = False


@dataclass
class _Events:
    """The columns of the events of all devices, as lists."""

    time: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    level: list[str] = field(default_factory=list)
    context: list[int] = field(default_factory=list)

    def add(self, time: int, nbytes: int, address: int, device: int, level: str, context: int) -> None:
        self.time.append(time)
        self.bytes.append(nbytes)
        self.address.append(address)
        self.device.append(device)
        self.level.append(level)
        self.context.append(context)


class _Reader:
    """Reads one snapshot. What it looks at is counted: a value may stand in a million places of a small file."""

    def __init__(self, file: Path, size: int) -> None:
        self.file = file
        self._left = 64 + 4 * size  # values that may be looked at
        self._bytes_left = MOST_BYTES
        self._frames: dict[int, _Frame] = {}  # by id
        self._stacks: dict[int, int] = {}  # id of a stack -> context
        self.contexts: dict[_Context, int] = {}
        self._block_bytes = 0  # of the blocks in use at the end

    def capture(self, snapshot: Mapping[str, Any]) -> Capture:
        events = _Events()
        for device, trace in enumerate(self._list(snapshot["device_traces"], "device_traces")):
            self._add_trace(events, device, self._list(trace, "a device's trace"))
        in_use, reserved = self._segments(events, self._list(snapshot["segments"], "segments"))
        if not events.time:
            raise InputError(self.file, f"{WANTED} with its history, found one without events; {ADVICE}")
        annotations = self._annotations(snapshot.get("external_annotations"))
        capture = _capture(self.file, events, list(self.contexts), annotations, in_use, reserved)
        requested = sum(in_use.values())
        if self._block_bytes > requested:
            larger = f"{self._block_bytes:,} bytes hold {requested:,} at the end"
            capture.warnings.append(
                f"a snapshot's history counts the bytes requested, not those of the blocks: {larger}"
            )
        return capture

    def _list(self, value: object, what: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise self._wrong(f"a list for {what}", value)
        self._left -= len(value) + 1
        if self._left < 0:
            raise InputError(self.file, f"{WANTED}, found one that repeats its values without end; save it again")
        return list(value)

    def _wrong(self, wanted: str, value: object) -> InputError:
        return InputError(self.file, f"{WANTED} with {wanted}, found {repr(value)[:40]}; save it again")

    def _number(self, record: Mapping[str, Any], key: str, most: int = 1 << 62) -> int:
        value = record.get(key)
        if type(value) is not int or not 0 <= value < most:
            raise self._wrong(f"a whole number for {key!r}", value)
        return value

    def _size(self, record: Mapping[str, Any], key: str) -> int:
        """A number of bytes. Raises InputError if all of the file's could exceed 64 bits together."""
        value = self._number(record, key)
        self._bytes_left -= value
        if self._bytes_left < 0:
            raise InputError(self.file, f"{WANTED}, found sizes of more than {MOST_BYTES} bytes; save it again")
        return value

    def _records(self, values: Iterable[Any], what: str) -> Iterator[dict[str, Any]]:
        for value in values:
            if not isinstance(value, dict):
                raise self._wrong(f"records in {what}", value)
            yield value

    def _add_trace(self, events: _Events, device: int, trace: list[Any]) -> None:
        for event in self._records(trace, "a device's trace"):
            action = event.get("action")
            level, sign = ACTIONS.get(action if isinstance(action, str) else "", ("", 0))
            size = self._size(event, "size") if sign else 0
            if not size:
                continue
            time = self._number(event, "time_us", LATEST_US) if event.get("time_us", 0) else 0
            address = event["addr"] if type(event.get("addr")) is int else 0
            events.add(time, sign * size, address, device, level, self._context(event.get("frames")))

    def _segments(self, events: _Events, segments: list[Any]) -> tuple[dict[int, int], dict[int, int]]:
        """The bytes in use and in reserve at the end, by device. Blocks older than the history become events."""
        in_use, reserved = dict[int, int](), dict[int, int]()
        open_blocks: dict[tuple[int, int], int] = {}
        columns = zip(events.device, events.address, events.bytes, events.level, strict=True)
        for device, address, size, level in columns:
            if level == "allocator":
                open_blocks[device, address] = size
        first = min(events.time, default=0)
        for segment in self._records(segments, "segments"):
            device = self._number(segment, "device", 1 << 31)
            reserved[device] = reserved.get(device, 0) + self._size(segment, "total_size")
            at = self._number(segment, "address", 1 << 64)
            for block in self._records(self._list(segment.get("blocks"), "blocks"), "blocks"):
                address = block["address"] if type(block.get("address")) is int else at
                at = address + self._size(block, "size")
                if block.get("state") != "active_allocated":
                    continue
                size = self._size(block, "requested_size" if "requested_size" in block else "size")
                in_use[device] = in_use.get(device, 0) + size
                self._block_bytes += self._number(block, "size")
                if size and open_blocks.get((device, address), 0) <= 0:
                    events.add(first, size, address, device, "before", self._context(block.get("frames")))
        return in_use, reserved

    def _annotations(self, given: object) -> list[tuple[str, int, int, int]]:
        """Name, device, start and end in us of each annotation that is closed."""
        begun: dict[tuple[str, int], list[int]] = {}
        found = []
        for record in self._records(self._list(given or [], "annotations"), "annotations"):
            name, stage = record.get("name"), record.get("stage")
            if not isinstance(name, str):
                continue
            device, time = self._number(record, "device", 1 << 31), self._number(record, "time_us", LATEST_US)
            if stage == "START":
                begun.setdefault((name, device), []).append(time)
            elif stage == "END" and begun.get((name, device)):
                found.append((name, device, begun[name, device].pop(), time))
        return found

    def _context(self, stack: object) -> int:
        """The number of the context of a stack; each stack is looked at once."""
        number = self._stacks.get(id(stack))
        if number is None:
            frames = self._list(stack or [], "frames")[:LONGEST_STACK]
            read = [self._frame(frame) for frame in self._records(frames, "frames")]  # innermost first
            kind = stack_kind(frames)
            lines = [frame.line for frame in reversed(read) if frame.line]
            nodes, ops = [frame.node for frame in read if frame.node], [frame.op for frame in read if frame.op]
            node = (nodes[0] if nodes else UNKNOWN_NODE) if any(frame.is_engine for frame in read) else ""
            op = "" if not ops else ops[0] if node else ops[-1]  # in a forward pass, what the user called
            trace = json.dumps(lines, ensure_ascii=False) if lines else ""
            number = self.contexts.setdefault(_Context(trace, node, op, kind), len(self.contexts))
            self._stacks[id(stack)] = number
        return number

    def _frame(self, frame: dict[str, Any]) -> _Frame:
        known = self._frames.get(id(frame))
        if known is None:
            texts = (frame.get(key) for key in ("name", "filename"))
            name, file = (text if isinstance(text, str) else "" for text in texts)
            line = frame.get("line")
            if file.endswith(".py") and type(line) is int:
                path = short_path(file)
                known = _Frame(f"{path}:{line}" if is_users(path) else "")
            else:
                name = name[:LONGEST_NAME]
                node, op = _NODE.match(name), _OP.match(name)
                known = _Frame("", node[1] if node else "", op[1] if op else "", name.startswith(_IN_ENGINE))
            self._frames[id(frame)] = known
        return known


# The snapshot as a capture


def _capture(
    file: Path,
    events: _Events,
    contexts: list[_Context],
    annotations: list[tuple[str, int, int, int]],
    in_use: Mapping[int, int],
    reserved: Mapping[int, int],
) -> Capture:
    given = Coded.of(events.level)
    order = np.lexsort((~given.among("before"), np.array(events.time, np.int64)))
    time_us = np.array(events.time, np.int64)[order]
    begin_us = int(time_us[0])
    time = _apart(time_us - begin_us)
    size, device = (np.array(column, np.int64)[order] for column in (events.bytes, events.device))
    context = np.array(events.context, np.int64)[order]
    level = given.take(order)
    phases = phases_of([found.stack for found in contexts], context, size)
    memory = MemoryEvents(
        thread=np.zeros(len(time), np.int64),
        time=time,
        bytes=size,
        address=np.array([_signed(address) for address in events.address], np.int64)[order],
        kind=Coded(np.zeros(len(time), np.int32), ["cuda"]),
        device=device,
        level=level,
        allocated=_totals(size, device, level.among("allocator"), in_use),
        reserved=_totals(size, device, level.among("driver"), reserved),
        trace=Coded.of([found.trace for found in contexts]).take(context) if contexts else None,
        phase=phases.phase if phases else None,
        dir=phases.direction if phases else None,
    )
    scopes, ranges = _ranges(time, context, contexts, annotations, begin_us)
    none = np.zeros(0, np.int64)
    return Capture(
        str(file), "PyTorch memory snapshot", [(NULL, NULL)], scopes, ranges, 0, {}, none, none.copy(), memory=memory
    )


def _signed(address: int) -> int:
    return address - (1 << 64) if 1 << 63 <= address < 1 << 64 else address if 0 < address < 1 << 63 else NULL


def _apart(time_us: Ints) -> Ints:
    """Times in ns that ascend strictly where at most 999 events share a microsecond: the history is in order."""
    first = np.flatnonzero(np.append(True, time_us[1:] != time_us[:-1]))
    place = np.arange(len(time_us)) - np.repeat(first, np.diff(np.append(first, len(time_us))))
    return np.maximum.accumulate(1000 * time_us + np.minimum(place, 999))


def _totals(size: Ints, device: Ints, counted: Any, at_end: Mapping[int, int]) -> Ints:
    """The total of a device after each event, counted back from what is there at the end.

    Blocks that are older than the history are part of the total from its beginning.
    """
    total = np.full(len(size), NULL, np.int64)
    for number in np.unique(device).tolist():
        rows = np.flatnonzero(device == number)
        change = np.where(counted[rows], size[rows], 0)
        total[rows] = at_end.get(number, 0) - int(change.sum()) + np.cumsum(change)
    return total


def _ranges(
    time: Ints, context: Ints, contexts: list[_Context], annotations: list[tuple[str, int, int, int]], begin_us: int
) -> tuple[list[Scope], Ranges]:
    """Ranges on one thread: the annotations, and of neighbouring events with the same context its node and op."""
    texts: dict[Scope, int] = {}
    rows: list[tuple[int, int, int]] = []  # start, end, scope
    for name, _, start, end in annotations:
        scope = texts.setdefault(classify(name, recorded=False), len(texts))
        rows.append((1000 * (start - begin_us), 1000 * (end - begin_us) + 1000, scope))
    edges = np.array(sorted({edge for start, end, _ in rows for edge in (start, end)}), np.int64)
    part = np.searchsorted(edges, time, "right")
    new = np.append(True, (context[1:] != context[:-1]) | (part[1:] != part[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(time)) - 1
    for number, begin, last_ns in zip(context[first].tolist(), time[first].tolist(), time[last].tolist(), strict=True):
        found = contexts[number]
        if found.node:
            rows.append((begin, last_ns + 1, texts.setdefault(Scope(Kind.ENGINE, found.node), len(texts))))
        if found.op:
            rows.append((begin, last_ns + 1, texts.setdefault(classify(f"aten::{found.op}", True), len(texts))))
    starts, ends, codes = np.array(rows, np.int64).reshape(-1, 3).T
    unknown = np.full(len(rows), NULL, np.int64)
    return list(texts), Ranges(np.zeros(len(rows), np.int64), starts, ends, codes, unknown, unknown.copy())
