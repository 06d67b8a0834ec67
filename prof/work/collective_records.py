"""The records of collectives that a row's ``comm`` holds (``parse/formats/collective_records.py`` writes it)."""

import json
import math
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.collective import wire_factor
from pyprof.prof.ops.model import Work

MOST = 1 << 60  # bytes; larger values mean a damaged record


@dataclass(frozen=True, slots=True)
class Message:
    """One collective as recorded. Bytes that are not recorded are NaN, ranks 0."""

    op: str  # one of pyprof.parse.formats.collective_records': all_reduce, reduce_scatter, ..
    ranks: int = 0
    read: float = math.nan  # bytes of this rank's memory
    written: float = math.nan
    group: str = ""  # the communicator or process group
    peer: int = -1  # the other rank of a send or receive, as the communicator numbers it; -1: not recorded

    @property
    def size(self) -> float:
        """S: the larger of input and output, which holds the parts of all ranks; NaN if either is unknown."""
        return math.nan if math.isnan(self.read) or math.isnan(self.written) else max(self.read, self.written)

    @property
    def wire(self) -> float:
        """Bytes that a rank must send; NaN if the size or the number of ranks is unknown."""
        if self.op not in ("send", "recv") and not self.ranks:
            return math.nan
        return self.size * wire_factor(self.op, max(self.ranks, 1))


def messages(text: str) -> tuple[Message, ...]:
    """The records in a row's ``comm``; anything that is not a record (in a file from elsewhere) is ignored."""
    try:
        records = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return ()
    listed = records if isinstance(records, list) else []
    return tuple(_message(record) for record in listed if isinstance(record, dict))


def _message(record: dict[str, Any]) -> Message:
    texts = {key: value for key, value in record.items() if isinstance(value, str)}
    sizes = (_whole(record.get(key)) for key in ("in", "out"))
    read, written = (math.nan if size is None else float(size) for size in sizes)
    peer = _whole(record.get("peer"))
    ranks, group = _whole(record.get("ranks")) or 0, texts.get("group", "")
    return Message(texts.get("op", ""), ranks, read, written, group, -1 if peer is None else peer)


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < MOST else None


def work_of(found: tuple[Message, ...]) -> Work:
    """The bytes that collectives read and write in this rank's memory, and 0 FLOPs, as in PyTorch's convention."""
    return Work(0, sum(m.read for m in found), sum(m.written for m in found))


def size_of(found: tuple[Message, ...]) -> float:
    """S for the collectives of one launch. Sends and receives run at the same time, so the larger sum counts."""
    return _both_ways(found, [m.size for m in found])


def wire_of(found: tuple[Message, ...]) -> float:
    """Bytes that a rank must send, or receive if that is more."""
    return _both_ways(found, [m.wire for m in found])


def _both_ways(found: tuple[Message, ...], amounts: list[float]) -> float:
    ways = {"send": 0.0, "recv": 0.0, "": 0.0}
    for m, amount in zip(found, amounts, strict=True):
        ways[m.op if m.op in ways else ""] += amount
    return ways[""] + max(ways["send"], ways["recv"])
