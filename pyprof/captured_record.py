"""What pyprof records of captures of CUDA graphs under nsys, before the range that nsys collects.

nsys keeps the time and the thread of each graph node's creation, also before the range, but no NVTX range of that time.
So pyprof records the ranges by PyTorch's profiler, and passes them on when the range begins, as texts of NVTX ranges
`pyprof.captured:0/2:..`, each with a part of the record, compressed. Ranges `pyprof.captured:clock:..` have the time at
which they were pushed, by the clock of the record.
"""

import base64
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from pyprof.range_pieces import Piece, joined

CAPTURED_RANGE = "pyprof.captured:"
CLOCK_RANGE = f"{CAPTURED_RANGE}clock:"
CLOCKS = 5  # ranges with the time; the shortest delay between reading and pushing counts
VERSION = 1
MOST_BYTES = 1 << 28  # of the record, uncompressed
_NUMBERS = re.compile(r"\[-?\d+(?:, -?\d+)*\]")
FIRST_OP_ID = 1 << 40  # op ids of recorded ranges begin here: PyTorch's NVTX ranges have smaller ones


class CapturedRange(NamedTuple):
    """A range on a thread. Times in ns of the clock CLOCK_REALTIME."""

    thread: int  # the system's number
    start: int
    duration: int
    text: int  # index into the record's texts


class CapturedRecord(msgspec.Struct, frozen=True):
    """The ranges of each capture that was recorded. ``texts``: in the form of PyTorch's and pyprof's NVTX ranges.

    ``lists``: of each text, the lists of numbers among an op's arguments, such as the dimensions of a sum: one text per
    argument in schema order, empty for all others. In NVTX's own ranges, the op that uses a result shows its sizes.
    """

    version: int
    texts: tuple[str, ...]
    captures: tuple[tuple[CapturedRange, ...], ...]
    lists: tuple[tuple[str, ...], ...] = ()


def record_of(captures: list[list[dict[str, Any]]]) -> CapturedRecord:
    """The record of captures, each given as the events of PyTorch's profiler, with ``start_ns`` and ``duration_ns``."""
    texts: dict[tuple[str, tuple[str, ...]], int] = {}
    made = tuple(tuple(_ranges(events, texts)) for events in captures)
    return CapturedRecord(VERSION, tuple(text for text, _ in texts), made, tuple(lists for _, lists in texts))


def _ranges(events: list[dict[str, Any]], texts: dict[tuple[str, tuple[str, ...]], int]) -> Iterator[CapturedRange]:
    for event in events:
        number = texts.setdefault((_text(event), _lists(event)), len(texts))
        yield CapturedRange(int(event["tid"]), event["start_ns"], event["duration_ns"], number)


def _lists(event: dict[str, Any]) -> tuple[str, ...]:
    """The lists of numbers among an op's arguments; none where it has lists of tensors, whose sizes NVTX flattens."""
    args = event["args"]
    if event["cat"] != "cpu_op" or any(map(_is_list, args.get("Input Dims", ()))):
        return ()
    found = tuple(value if _NUMBERS.fullmatch(str(value)) else "" for value in args.get("Concrete Inputs", ()))
    return found if any(found) else ()


def _text(event: dict[str, Any]) -> str:
    """The text of the NVTX range that PyTorch would have pushed (torch/csrc/profiler/util.cpp, getNvtxStr).

    Without op ids, which differ from call to call: the parser gives each range one of its own.
    """
    name, args = str(event["name"]), event["args"]
    if event["cat"] != "cpu_op":
        return name
    seq = f", seq = {args['Sequence number']}" if "Sequence number" in args else ""
    sizes = [size for dims in args.get("Input Dims", ()) for size in (dims if _is_list(dims) else (dims,))]
    return f"{name}{seq}, op_id = 0" + (f", sizes = {sizes}" if sizes else "")


def _is_list(dims: Any) -> bool:
    """Whether the sizes are those of a list of tensors, which NVTX's texts flatten."""
    return bool(dims) and all(isinstance(each, list) for each in dims)


def packed(record: CapturedRecord) -> str:
    """A record as the text that its pieces have."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(record))).decode("ascii")


def clock_ns(text: str) -> int | None:
    """The time that the text of a range has; None if it has none."""
    digits = text.removeprefix(CLOCK_RANGE)
    return int(digits) if text.startswith(CLOCK_RANGE) and digits.isdecimal() and len(digits) < 20 else None


def unpacked(pieces: Iterable[Piece]) -> CapturedRecord | None:
    """The record of its pieces; None if one is missing, or if they are none of this version."""
    text = joined(pieces)
    if text is None:
        return None
    try:
        whole = zlib.decompressobj().decompress(base64.b64decode(text), MOST_BYTES)
        record = msgspec.json.decode(whole, type=CapturedRecord)
    except (ValueError, zlib.error, RecursionError):  # the errors of base64 and msgspec are ValueErrors
        return None
    return record if record.version == VERSION else None
