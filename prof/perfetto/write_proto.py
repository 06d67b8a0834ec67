"""A trace in Perfetto's own format: a protobuf of packets, each name written once, times in whole ns.

Only fifteen fields are written, and protobuf never renumbers a field. So their numbers are constants here, and no
protobuf package is needed, whose versions other packages pin against each other. Source:
protos/perfetto/trace/perfetto_trace.proto (v52). The tests read the files with Perfetto's own trace processor.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, pairwise, repeat
from typing import BinaryIO

import numpy as np

from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace, Track, in_order, per_value
from pyprof.table.columns import NULL, Coded, Ints, Ragged
from pyprof.table.varints import varints
from pyprof.text import clean

EVENTS = 1 << 14  # written and compressed together: about half a megabyte
LEVEL = 3
AHEAD = 8  # chunks that wait to be compressed
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
MOST = 1 << 11
SMALL += [varint(value) for value in range(MOST)]


def rows_of(*parts: bytes | Ints) -> Iterator[bytes]:
    """Rows of bytes, each the same ``parts``: bytes as they are, and of an array the row's number as ``varint``.

    >>> [row.hex() for row in rows_of(b"x", np.array([1, 300]))]
    ['7801', '78ac02']
    """
    rows = next(len(part) for part in parts if not isinstance(part, bytes))
    for begin in range(0, rows, 1 << 15):
        count = min(begin + (1 << 15), rows) - begin
        blocks, kept = [], []
        for part in parts:
            if isinstance(part, bytes):
                blocks.append(np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part))))
                kept.append(np.ones((count, len(part)), bool))
            else:
                digits, used = varints(part[begin : begin + count])
                blocks.append(digits)
                kept.append(used)
        written = np.concatenate(kept, axis=1)
        data = np.concatenate(blocks, axis=1)[written].tobytes()
        ends = np.cumsum(written.sum(axis=1))
        yield from (data[at:end] for at, end in pairwise([0, *ends.tolist()]))


def _sizes(values: Ints) -> Ints:
    """The number of bytes of ``varint`` of each number, none of them negative."""
    return np.searchsorted(1 << 7 * np.arange(1, 9), values, "right") + 1


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
EVENT = varint(11 << 3 | 2)  # TracePacket.track_event
OPENS, CLOSES = (varint(field << 3 | 1) for field in (47, 48))  # TrackEvent.flow_ids, terminating_flow_ids


def write_proto(trace: Trace, out: BinaryIO) -> None:
    """Write the trace. Times must not be negative."""
    interned = _Interned()
    bodies = [body for part in trace.slices for body in _begins(part, interned)]
    with ThreadPoolExecutor(1) as pool:  # zlib releases Python's lock
        waiting: deque[Future[bytes]] = deque()
        for chunk in chain([_head(trace, interned)], _events(trace, bodies)):
            waiting.append(pool.submit(zlib.compress, chunk, LEVEL))
            if len(waiting) > AHEAD:
                _write_chunk(waiting.popleft().result(), out)
        for compressed in waiting:
            _write_chunk(compressed.result(), out)


def _write_chunk(compressed: bytes, out: BinaryIO) -> None:
    out.write(block(1, block(50, compressed)))  # Trace.packet, .compressed_packets


def _head(trace: Trace, interned: _Interned) -> bytes:
    """The packets before all events."""
    packets = [block(1, SEQUENCE + FIRST + block(12, interned.message()))]
    ranks: dict[int, int] = {}
    for i, track in enumerate(trace.tracks):
        rank = ranks[track.parent] = ranks.get(track.parent, -1) + 1
        packets.append(block(1, SEQUENCE + block(60, _descriptor(i, track, rank))))
    return b"".join(packets)


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
    """The fields of TracePacket.track_event of each slice's begin."""
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
    kind = repeat(number(9, SLICE_BEGIN))
    return map(b"".join, zip(kind, *fields, strict=False))  # not strict, because repeat() never ends


def _argument(arg: Arg, interned: _Interned) -> Sequence[bytes]:
    """One DebugAnnotation per slice, made once per distinct value."""
    name = number(1, interned.number(ARG_NAMES, arg.name))
    if isinstance(arg.data, Coded):
        return per_value(
            arg.data, lambda text: block(4, name + number(17, interned.number(VALUES, text))) if text else b""
        )
    if arg.data.dtype.kind == "f":
        return per_value(arg.data, lambda value: block(4, name + double(5, value)) if np.isfinite(value) else b"")
    values, which = np.unique(arg.data.astype(np.int64), return_inverse=True)
    field = name + varint(4 << 3)
    width = np.where(values < 0, 10, _sizes(values))  # a negative number has 64 bits
    made = list(rows_of(varint(4 << 3 | 2), len(field) + width, field, values))
    if len(values) and values[0] == NULL:
        made[0] = b""
    return [made[place] for place in which.reshape(-1).tolist()]


def _flows(flows: Ragged | None, tag: bytes) -> Sequence[bytes] | Iterator[bytes]:
    if flows is None or not len(flows.values):
        return repeat(b"")
    width = len(tag) + 8
    data = np.empty((len(flows.values), width), np.uint8)
    data[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    data[:, len(tag) :] = flows.values.astype("<i8").view(np.uint8).reshape(-1, 8)
    encoded, bounds = data.tobytes(), (flows.offsets * width).tolist()
    return [encoded[begin:end] for begin, end in pairwise(bounds)]


# Events


def _events(trace: Trace, bodies: list[bytes]) -> Iterator[bytes]:
    """Packets, many in one piece. ``bodies``: the fields of the track event of each slice's begin."""
    time, which, is_begin = in_order(trace.slices)
    end, uuids = number(9, SLICE_END), range(FIRST_UUID, FIRST_UUID + len(trace.tracks))
    ends = len(bodies)
    bodies += [end + number(11, uuid) for uuid in uuids]
    track = np.concatenate([part.track for part in trace.slices])
    body = np.where(is_begin == 1, which, ends + track[which])
    size = np.fromiter(map(len, bodies), np.int64, len(bodies))
    for begin in range(0, len(time), EVENTS):
        part = slice(begin, begin + EVENTS)
        yield _packets(time[part], [bodies[i] for i in body[part].tolist()], size[body[part]])
    for counter in trace.counters:
        values = list(_values(counter))
        for begin in range(0, len(values), EVENTS):
            part = slice(begin, begin + EVENTS)
            inside = values[part]
            yield _packets(counter.time[part], inside, np.full(len(inside), len(inside[0])))


def _packets(time: Ints, bodies: Sequence[bytes], size: Ints) -> bytes:
    """A Trace.packet per event: its .timestamp and .track_event, whose fields are ``bodies`` of ``size`` bytes."""
    after = SEQUENCE + FURTHER
    whole = 1 + _sizes(time) + len(EVENT) + _sizes(size) + size + len(after)
    heads = rows_of(b"\n", whole, b"@", time, EVENT, size)  # "\n": field 1, a block; "@": field 8
    return b"".join(chain.from_iterable(zip(heads, bodies, repeat(after), strict=False)))


def _values(counter: Counter) -> Iterator[bytes]:
    """The fields of the track event of each of a counter's values."""
    head = number(9, COUNTER) + number(11, FIRST_UUID + counter.track) + varint(44 << 3 | 1)
    data = counter.value.astype("<f8").tobytes()
    return (head + data[at : at + 8] for at in range(0, len(data), 8))
