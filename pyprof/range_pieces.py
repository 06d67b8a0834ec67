"""A record as the texts of NVTX ranges: in pieces, ``PREFIX0/2:..`` and ``PREFIX1/2:..``, if it is long."""

from collections.abc import Iterable
from typing import NamedTuple

PIECE = 60_000  # characters of ASCII: nsys drops a range whose text is longer than 65,535 bytes


class Piece(NamedTuple):
    number: int
    of: int
    part: str

    def text(self, prefix: str) -> str:
        return f"{prefix}{self.number}/{self.of}:{self.part}"


def pieces_of(record: str) -> list[Piece]:
    """The pieces of a record, at least one."""
    parts = [record[at : at + PIECE] for at in range(0, len(record), PIECE)] or [""]
    return [Piece(number, len(parts), part) for number, part in enumerate(parts)]


def piece_in(text: str, prefix: str) -> Piece | None:
    """The piece that a range's text is; None if it is something else."""
    place, _, part = text.removeprefix(prefix).partition(":")
    number, _, of = place.partition("/")
    if not text.startswith(prefix) or not all(one.isdecimal() and len(one) < 9 for one in (number, of)):
        return None
    return Piece(int(number), int(of), part)


def joined(pieces: Iterable[Piece]) -> str | None:
    """The record; None without pieces, or if one is missing."""
    found = {piece.number: piece for piece in pieces}
    if not found or sorted(found) != list(range(next(iter(found.values())).of)):
        return None
    return "".join(found[number].part for number in sorted(found))
