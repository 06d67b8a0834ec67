"""A trace in Perfetto's own format: a protobuf of packets, each name written once, times in whole ns.

Only fifteen fields are written, and protobuf never renumbers a field. So their numbers are constants here, and no
protobuf package is needed, whose versions other packages pin against each other. Source:
protos/perfetto/trace/perfetto_trace.proto (v52). The tests read the files with Perfetto's own trace processor.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import BinaryIO

import numpy as np

from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace, Track, in_order, per_value
from pyprof.table.columns import NULL, Coded, Ints, Ragged
from pyprof.text import clean

CHUNK = 1 << 20  # bytes of packets that are compressed together
LEVEL = 3
FIRST_UUID = 1  # of tracks; 0 is no track


def varint(number: int) -> bytes:
    """A number as protobuf writes it, 7 bits per byte, the lowest first; a negative one as its 64-bit complement.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    if 0 <= number < len(SMALL):
        return SMALL[number]
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


SMALL: list[bytes] = []
SMALL += [varint(value) for value in range(1 << 11)]


def varints(values: Ints) -> Iterator[bytes]:
    """``varint`` of many numbers, none of them negative."""
    shifts = 7 * np.arange(9)
    for begin in range(0, len(values), 1 << 15):
        block_of = values[begin : begin + (1 << 15), None] >> shifts
        size = np.maximum((block_of > 0).sum(axis=1), 1)
        more = np.arange(9) < (size - 1)[:, None]
        data = ((block_of & 0x7F) | np.where(more, 0x80, 0)).astype(np.uint8).tobytes()
        yield from (data[at : at + length] for at, length in zip(range(0, len(data), 9), size.tolist(), strict=True))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A text or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def _text(text: str) -> bytes:
    return clean(text).encode()


SEQUENCE = number(10, 1)  # TracePacket.trusted_packet_sequence_id
FIRST = number(13, 1 | 2)  # .sequence_flags: INCREMENTAL_STATE_CLEARED, NEEDS_INCREMENTAL_STATE
FURTHER = number(13, 2)
CATEGORIES, NAMES, ARG_NAMES, VALUES = 1, 2, 3, 29  # of InternedData
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4  # TrackEvent.Type
OPENS, CLOSES = (varint(field << 3 | 1) for field in (47, 48))  # TrackEvent.flow_ids, terminating_flow_ids


def write_proto(trace: Trace, out: BinaryIO) -> None:
    """Write the trace. Times must not be negative."""
    interned = _Interned()
    begins = [begin for part in trace.slices for begin in _begins(part, interned)]
    for chunk in _chunks(_packets(trace, begins, interned)):
        out.write(block(1, block(50, zlib.compress(chunk, LEVEL))))  # Trace.packet, .compressed_packets


def _packets(trace: Trace, begins: Sequence[bytes], interned: _Interned) -> Iterator[bytes]:
    yield block(1, SEQUENCE + FIRST + block(12, interned.message()))
    ranks: dict[int, int] = {}
    for i, track in enumerate(trace.tracks):
        rank = ranks[track.parent] = ranks.get(track.parent, -1) + 1
        yield block(1, SEQUENCE + block(60, _descriptor(i, track, rank)))
    yield from _events(trace, begins)


def _chunks(packets: Iterator[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for packet in packets:
        chunk += packet
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def _descriptor(index: int, track: Track, rank: int) -> bytes:
    """A TrackDescriptor; children are shown in the order in which they were made."""
    fields = number(1, FIRST_UUID + index) + number(11, 3) + number(12, rank)  # .child_ordering: EXPLICIT
    if track.parent >= 0:
        fields += number(5, FIRST_UUID + track.parent)
    if track.about:
        fields += block(14, _text(track.about))
    if track.kind == "process":
        return fields + block(3, number(1, track.pid) + block(6, _text(track.name)))
    if track.kind == "thread":
        return fields + block(4, number(1, track.pid) + number(2, track.tid) + block(5, _text(track.name)))
    if track.kind == "counter":
        fields += block(8, block(6, _text(track.unit)) if track.unit else b"")
    return fields + block(2, _text(track.name))


class _Interned:
    """Texts that are written once and referred to by number; each use (names, values...) has its own numbers."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[str, int]] = {CATEGORIES: {}, NAMES: {}, ARG_NAMES: {}, VALUES: {}}

    def number(self, use: int, text: str) -> int:
        known = self._numbers[use]
        return known.setdefault(text, len(known) + 1)

    def message(self) -> bytes:
        texts = ((use, text, i) for use, known in self._numbers.items() for text, i in known.items())
        return b"".join(block(use, number(1, i) + block(2, _text(text))) for use, text, i in texts)


# Slices


def _begins(part: Slices, interned: _Interned) -> Iterator[bytes]:
    """TracePacket.track_event of each slice's begin, and the packet's fields after it."""
    if not len(part):
        return iter(())
    fields: list[Sequence[bytes] | Iterator[bytes]] = [
        per_value(part.category, lambda text: number(3, interned.number(CATEGORIES, text)) if text else b""),
        per_value(part.name, lambda text: number(10, interned.number(NAMES, text or "(no name)"))),
        per_value(part.track, lambda track: number(11, FIRST_UUID + track)),
        *(_argument(arg, interned) for arg in part.args),
        _flows(part.opens, OPENS),
        _flows(part.closes, CLOSES),
    ]
    kind = number(9, SLICE_BEGIN)
    # not strict, because repeat() never ends
    return (block(11, kind + b"".join(parts)) + SEQUENCE + FURTHER for parts in zip(*fields, strict=False))


def _argument(arg: Arg, interned: _Interned) -> Sequence[bytes]:
    """One DebugAnnotation per slice, made once per distinct value."""
    name = number(1, interned.number(ARG_NAMES, arg.name))
    if isinstance(arg.data, Coded):
        return per_value(
            arg.data, lambda text: block(4, name + number(17, interned.number(VALUES, text))) if text else b""
        )
    if arg.data.dtype.kind == "f":
        return per_value(arg.data, lambda value: block(4, name + double(5, value)) if np.isfinite(value) else b"")
    return per_value(arg.data, lambda value: block(4, name + number(4, value)) if value != NULL else b"")


def _flows(flows: Ragged | None, tag: bytes) -> Sequence[bytes] | Iterator[bytes]:
    if flows is None or not len(flows.values):
        return repeat(b"")
    return [b"".join(tag + flow.to_bytes(8, "little") for flow in listed) for listed in flows.lists()]


# Events


def _events(trace: Trace, begins: Sequence[bytes]) -> Iterator[bytes]:
    """The packets: each a time and an event. ``begins`` has the encoded fields of a TracePacket for each slice."""
    time, which, is_begin = in_order(trace.slices)
    end, uuids = number(9, SLICE_END), range(FIRST_UUID, FIRST_UUID + len(trace.tracks))
    ends = [block(11, end + number(11, uuid)) + SEQUENCE + FURTHER for uuid in uuids]
    track = np.concatenate([part.track for part in trace.slices]).tolist()
    events = zip(varints(time), which.tolist(), is_begin.tolist(), strict=True)
    yield from _packets_at((at, begins[i] if begin else ends[track[i]]) for at, i, begin in events)
    for counter in trace.counters:
        yield from _packets_at(zip(varints(counter.time), _values(counter), strict=True))


def _packets_at(events: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Trace.packet with its .timestamp."""
    for at, event in events:
        yield b"\n" + varint(1 + len(at) + len(event)) + b"@" + at + event  # "\n": field 1, a block; "@": field 8


def _values(counter: Counter) -> Iterator[bytes]:
    head = number(9, COUNTER) + number(11, FIRST_UUID + counter.track) + varint(44 << 3 | 1)
    data = counter.value.astype("<f8").tobytes()
    before = varint(11 << 3 | 2) + varint(len(head) + 8) + head
    after = SEQUENCE + FURTHER
    return (before + data[at : at + 8] + after for at in range(0, len(data), 8))
