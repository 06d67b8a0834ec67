"""A trace in Perfetto's own format: a protobuf of packets, each name written once, times in whole ns.

Only fifteen fields are written, and protobuf never renumbers a field. So their numbers are constants here, and no
protobuf package is needed, whose versions other packages pin against each other. Source:
protos/perfetto/trace/perfetto_trace.proto (v52). The tests read the files with Perfetto's own trace processor.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from pyprof.prof.perfetto.byte_columns import (
    ByteColumn,
    beside,
    byte_table,
    column,
    content,
    doubles,
    eight_bytes,
    equal_widths,
    joined,
    numbers,
    padded_varints,
    sizes,
    stacked,
    taken,
)
from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace, Track, in_order
from pyprof.table.columns import NULL, Coded, Ints, Ragged
from pyprof.text import clean

EVENTS = 1 << 16  # written and compressed together: about three megabytes
LEVEL = 2
AHEAD = 8  # chunks that wait to be made and compressed
Chunk = Callable[[], bytes]  # makes many packets in one piece
FIRST_UUID = 1  # of tracks; 0 is no track


def varint(number: int) -> bytes:
    """A number as protobuf writes it, 7 bits per byte, the lowest first; a negative one as its 64-bit complement.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A text or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def _text(text: str) -> bytes:
    return clean(text).encode()


SEQUENCE = number(10, 1)  # TracePacket.trusted_packet_sequence_id
FIRST = number(13, 1 | 2)  # .sequence_flags: INCREMENTAL_STATE_CLEARED, NEEDS_INCREMENTAL_STATE
FURTHER = number(13, 2)
CATEGORIES, NAMES, ARG_NAMES, VALUES = 1, 2, 3, 29  # of InternedData
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4  # TrackEvent.Type
EVENT = varint(11 << 3 | 2)  # TracePacket.track_event
ARGUMENT = varint(4 << 3 | 2)  # TrackEvent.debug_annotations
OPENS, CLOSES = (varint(field << 3 | 1) for field in (47, 48))  # TrackEvent.flow_ids, terminating_flow_ids


def write_proto(trace: Trace, out: BinaryIO) -> None:
    """Write the trace. Times must not be negative."""
    interned = _Interned()
    encoders = [_PartEncoder(part, interned) for part in trace.slices]
    with ThreadPoolExecutor(2) as pool:  # numpy, Arrow and zlib release Python's lock
        waiting: deque[Future[bytes]] = deque()
        head: list[Chunk] = [partial(_head, trace, interned)]
        for packets in chain(head, _events(trace, encoders), _counters(trace)):
            waiting.append(pool.submit(_compressed, packets))
            if len(waiting) > AHEAD:
                _write_chunk(waiting.popleft().result(), out)
        for compressed in waiting:
            _write_chunk(compressed.result(), out)


def _compressed(packets: Chunk) -> bytes:
    return zlib.compress(packets(), LEVEL)


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
        return b"".join(_interned(use, list(known)) for use, known in self._numbers.items() if known)


def _interned(use: int, texts: Sequence[str]) -> bytes:
    """The entries of texts of one use, whose numbers begin with 1."""
    encoded = byte_table([_text(text) for text in texts])
    size, which = padded_varints(sizes(encoded)), padded_varints(np.arange(1, len(texts) + 1))
    inside = beside(len(texts), varint(1 << 3), which, varint(2 << 3 | 2), size)  # .iid, .name
    whole = padded_varints(inside.shape[1] + sizes(encoded))
    return content(joined([equal_widths(beside(len(texts), varint(use << 3 | 2), whole, inside)), encoded]))


# Slices

Encoder = Callable[[Ints], ByteColumn]  # the fields that it writes of each of these rows


class _PartEncoder:
    """Writes the fields of TracePacket.track_event of slices' begins. Made at the beginning, to know all texts."""

    def __init__(self, part: Slices, interned: _Interned) -> None:
        self._encoders = list(_encoders(part, interned))

    def begins(self, rows: Ints) -> ByteColumn:
        return joined([encode(rows) for encode in self._encoders])


def _encoders(part: Slices, interned: _Interned) -> Iterator[Encoder]:
    """What writes the fields of a begin, in their order; columns of the same codes are written together."""
    kind = number(9, SLICE_BEGIN)
    uuids = byte_table([kind + number(11, FIRST_UUID + i) for i in range(int(part.track.max(initial=-1)) + 1)])
    yield lambda rows: taken(uuids, part.track[rows])
    texts = [(part.category, CATEGORIES, b"", varint(3 << 3)), (part.name, NAMES, b"", varint(10 << 3))]
    texts += [
        (arg.data, VALUES, ARGUMENT, number(1, interned.number(ARG_NAMES, arg.name)) + varint(17 << 3))
        for arg in part.args
        if isinstance(arg.data, Coded)
    ]
    codes = {id(data.codes): data.codes for data, *_ in texts}
    for same, shared in codes.items():
        yield _coded([each for each in texts if id(each[0].codes) == same], shared, interned)
    yield from (_number_argument(arg, interned) for arg in part.args if not isinstance(arg.data, Coded))
    yield from (_flows(flows, tag) for flows, tag in ((part.opens, OPENS), (part.closes, CLOSES)) if flows is not None)


def _coded(columns: Sequence[tuple[Coded, int, bytes, bytes]], codes: Any, interned: _Interned) -> Encoder:
    """What writes the numbers of texts that share their codes, made once per code. ``columns``: the texts, their use,
    the tag of the message that holds the number if there is one, and the field before the number."""
    most = max(len(data.values) for data, *_ in columns)
    used = np.flatnonzero(np.bincount(codes + 1, minlength=most + 1)[1:]).tolist()
    tables = []
    for data, use, message, field in columns:
        which = np.zeros(most + 1, np.int64)  # the last one is that of code -1
        texts = [data.values[code] for code in used]
        if use == NAMES:
            texts = [text or "(no name)" for text in texts]
            which[-1] = interned.number(use, "(no name)") if bool((codes < 0).any()) else 0
        which[used] = [interned.number(use, text) if text else 0 for text in texts]
        tables.append(numbers(message, field, which, which > 0))
    table = joined(tables)
    return lambda rows: taken(table, codes[rows] % len(table))


def _number_argument(arg: Arg, interned: _Interned) -> Encoder:
    """What writes a DebugAnnotation of a number."""
    name, data = number(1, interned.number(ARG_NAMES, arg.name)), arg.data
    assert isinstance(data, np.ndarray)
    if data.dtype.kind == "f":
        head = ARGUMENT + varint(len(name) + 9) + name + varint(5 << 3 | 1)
        return lambda rows: doubles(head, data[rows], np.isfinite(data[rows]))
    field, whole = name + varint(4 << 3), data.astype(np.int64)
    return lambda rows: numbers(ARGUMENT, field, whole[rows], whole[rows] != NULL)


def _flows(flows: Ragged, tag: bytes) -> Encoder:
    def encode(rows: Ints) -> ByteColumn:
        kept = flows.take(rows)
        data = beside(len(kept.values), tag, eight_bytes(kept.values))
        return column(kept.offsets * data.shape[1], data.reshape(-1))

    return encode


# Events


def _events(trace: Trace, encoders: Sequence[_PartEncoder]) -> Iterator[Chunk]:
    """The packets of slices' begins and ends."""
    time, which, is_begin = in_order(trace.slices)
    track = np.concatenate([part.track for part in trace.slices])
    bounds = np.cumsum([0, *map(len, trace.slices)])
    ends = byte_table([number(9, SLICE_END) + number(11, FIRST_UUID + i) for i in range(len(trace.tracks))])

    def chunk(part: slice) -> bytes:
        slices, begins = which[part], is_begin[part]
        place = track[slices]  # of each event's fields in ``fields``: first those of ends
        fields = [ends]
        filled = len(ends)
        for encoder, low, high in zip(encoders, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            own = np.flatnonzero(begins & (slices >= low) & (slices < high))
            if len(own):
                fields.append(encoder.begins(slices[own] - low))
                place[own] = np.arange(filled, filled + len(own))
                filled += len(own)
        return _packets(time[part], taken(stacked(fields), place))

    return (partial(chunk, slice(begin, begin + EVENTS)) for begin in range(0, len(time), EVENTS))


def _packets(time: Ints, fields: ByteColumn) -> bytes:
    """A Trace.packet per event: its .timestamp and .track_event, which has these ``fields``."""
    before = beside(len(time), SEQUENCE + FURTHER + b"@", padded_varints(time), EVENT)  # "@": field 8
    size = padded_varints(sizes(fields))
    whole = padded_varints(before.shape[1] + size.shape[1] + sizes(fields))
    return content(joined([equal_widths(beside(len(time), b"\n", whole, before, size)), fields]))  # "\n": field 1


def _counters(trace: Trace) -> Iterator[Chunk]:
    """The packets of the counters' values."""

    def chunk(counter: Counter, part: slice) -> bytes:
        head = number(9, COUNTER) + number(11, FIRST_UUID + counter.track) + varint(44 << 3 | 1)
        return _packets(counter.time[part], doubles(head, counter.value[part].astype(np.float64)))

    for counter in trace.counters:
        for begin in range(0, len(counter.time), EVENTS):
            yield partial(chunk, counter, slice(begin, begin + EVENTS))
