"""The allocations of a torch.profiler trace: its events ``[memory]``, which profile_memory=True records.

The caching allocator reports each block that it hands out or takes back: the block's size, which is what was asked for
rounded up, and the bytes that are in use and in reserve on the device from then on (c10/core/Allocator.h,
``reportMemoryUsageToProfiler``). On a CPU nothing is kept in reserve. Traces of 2021 have neither addresses nor totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from pyprof.parse.attribute.capture import MemoryEvents, RecordedStorage
from pyprof.parse.formats.own_record import OwnRecord, own_record
from pyprof.parse.kineto.event_types import Event, MemoryArgs, Number
from pyprof.parse.kineto.events import Clock, Events, Threads, integers
from pyprof.table.columns import NULL, Coded, Ints

# c10/core/DeviceType.h, by number.
DEVICES = (
    "cpu cuda mkldnn opengl opencl ideep hip fpga maia xla vulkan metal xpu mps meta hpu ve lazy ipu mtia privateuse1"
).split()
NO_ARGS = MemoryArgs()
RECORD_VERSION = 1  # of what pyprof's collector records under pyprof.memory (pyprof/memory_record.py)
WITHOUT_ADDRESS = (
    "the trace's memory events have no addresses, as before PyTorch 1.13: which block a free belongs to is unknown"
)


def memory_events(events: Events, clock: Clock, threads: Threads) -> tuple[MemoryEvents | None, list[str]]:
    """The allocations and frees, None if the trace has none; and warnings about those that are left out."""
    args = [event.args if isinstance(event.args, MemoryArgs) else NO_ARGS for event in events.memory]
    size = integers([a.size for a in args])
    kept = np.flatnonzero((size != NULL) & (size != 0)).tolist()
    lost = int((size == NULL).sum())
    warnings = [f"{lost:,} memory events have no number of bytes and are left out"] if lost else []
    if not kept:
        return None, warnings
    args = [args[row] for row in kept]
    memory = _columns([events.memory[row] for row in kept], args, size[kept], clock, threads)
    if not (memory.address != NULL).any():
        warnings.append(WITHOUT_ADDRESS)
    return memory, warnings


def _columns(
    events: Sequence[Event], args: Sequence[MemoryArgs], size: Ints, clock: Clock, threads: Threads
) -> MemoryEvents:
    device_type = integers([a.device_type for a in args])
    kinds, codes = np.unique(device_type, return_inverse=True)
    names = [_device_name(number) for number in kinds.tolist()]
    device = integers([a.device_id for a in args])
    return MemoryEvents(
        thread=threads.of(events),
        time=clock.times(events),
        bytes=size,
        address=_unsigned([a.address for a in args]),
        kind=Coded(codes.reshape(-1).astype(np.int32), names),
        device=np.where(device < 0, 0, device),  # a CPU has the number -1
        level=Coded(np.zeros(len(size), np.int32), ["allocator"]),
        allocated=integers([a.allocated for a in args]),
        reserved=integers([a.reserved for a in args]),
    )


def _device_name(number: int) -> str:
    """
    >>> _device_name(1), _device_name(99)
    ('cuda', 'device type 99')
    """
    if number == NULL:
        return "unknown"
    return DEVICES[number] if 0 <= number < len(DEVICES) else f"device type {number}"


def _unsigned(values: list[Number]) -> Ints:
    """Addresses; one beyond 63 bits keeps its bits, as a negative number."""
    if any(type(value) is int and value >= 1 << 63 for value in values):
        values = [v - (1 << 64) if type(v) is int and 1 << 63 <= v < 1 << 64 else v for v in values]
    return integers(values)


# What pyprof's own collector records, beside the profiler's events


class _Storage(msgspec.Struct):
    address: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    bytes: Annotated[int, Meta(ge=0, le=1 << 53)]
    kind: str
    device: Annotated[int, Meta(ge=0, le=1 << 31)]
    category: str
    name: str = ""
    layer: list[str] = []


class _Memory(OwnRecord):
    storages: tuple[_Storage, ...] = ()


def recorded_storages(own: bytes) -> tuple[list[RecordedStorage], list[str]]:
    """The tensors that ``pyprof run --memory`` recorded under the trace's key ``pyprof``, and warnings."""
    unreadable = "the trace's own record of its tensors cannot be read and is"
    versioned = "the trace's record of its tensors has"
    memory, warnings = own_record(own, "memory", _Memory, RECORD_VERSION, unreadable, versioned)
    storages = [
        RecordedStorage(s.address, s.bytes, s.kind, s.device, s.category, s.name, _json(s.layer))
        for s in (memory.storages if memory else ())
        if s.address and s.bytes
    ]
    return storages, warnings


def _json(layer: list[str]) -> str:
    return msgspec.json.encode(layer).decode() if layer else ""
