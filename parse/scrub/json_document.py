"""The JSON document that pyprof scrub prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pyprof.command.json_schema import FileWritten, Record, doc


class Remaining(Record):
    text: Annotated[str, doc("what stands in the copy")]
    times: Annotated[int, doc("how often")]


class Scrubbed(Record):
    """The copy written, what was removed, and what the search of the copy found."""

    output: Annotated[FileWritten, doc("the copy")]
    removed: Annotated[
        dict[str, Annotated[int, doc("how many texts or parts of texts")]], doc("by kind: path, address")
    ]
    left_out: Annotated[list[str], doc("tables of a database that pyprof does not read")]
    remains: Annotated[list[Remaining], doc("private words or forms that the copy still holds")]


def scrubbed(output: str, removed: Counter[str], left_out: list[str], found: Counter[str]) -> Scrubbed:
    remains = [Remaining(text, times) for text, times in found.most_common()]
    return Scrubbed(FileWritten.of(output), dict(removed.most_common()), left_out, remains)
