"""The file of measured durations, which ``pyprof plan --measure`` writes and ``--timings`` reads without a GPU.

Nothing in it is run: its texts are only compared with those that a capture's own calls make. It is checked as a whole,
and refused with the first thing that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pyprof.command.envelope import plain
from pyprof.command.json_schema import Record, doc
from pyprof.errors import InputError

FORMAT: Literal["pyprof timings"] = "pyprof timings"
MOST_BYTES = 64 << 20
MOST_CALLS = 100_000
LONGEST_TEXT = 600
LOST = "CUDA error"  # begins the reason of a call after which the process can use the GPU no more
Seconds = Annotated[float, Meta(gt=0, lt=1e4)]


class CallTime(Record):
    """The time of one call alone, on inputs that are not in the cache."""

    call: Annotated[str, Meta(max_length=LONGEST_TEXT), doc("op, types, sizes and strides of its arguments, and how")]
    seconds: Annotated[Seconds | None, doc("the median of the trials; null: it could not be timed", "s")]
    low_s: Annotated[Seconds | None, doc("their lower quartile", "s")] = None
    high_s: Annotated[Seconds | None, doc("their upper quartile", "s")] = None
    method: Annotated[str, Meta(max_length=40), doc("cuda graph, cuda events, cpu timer; empty: not timed")] = ""
    clock_mhz: Annotated[int | None, doc("of the multiprocessors while it ran", "MHz")] = None
    why: Annotated[str, Meta(max_length=LONGEST_TEXT), doc("why it could not be timed")] = ""


class Timings(Record):
    """Durations of calls on one machine."""

    format: Annotated[Literal["pyprof timings"], doc("by which --timings recognizes the file")]
    version: Annotated[Literal[1], doc("of the file's form")]
    device: Annotated[str, Meta(max_length=200), doc("the GPU's name, or the CPU's")]
    arch: Annotated[str, Meta(max_length=40), doc("sm_90, gfx942, cpu")]
    torch: Annotated[str, Meta(max_length=80), doc("its version")]
    calls: Annotated[list[CallTime], Meta(max_length=MOST_CALLS), doc("each once")]

    @property
    def by_call(self) -> dict[str, CallTime]:
        return {each.call: each for each in self.calls}


def timings_of(device: Mapping[str, Any], calls: Sequence[CallTime]) -> Timings:
    """The file's content. ``device``: name, architecture and torch's version, as ``pyprof peaks`` has them."""
    return Timings(FORMAT, 1, device["device"], device["arch"], device["torch"], list(calls))


def load_timings(file: str | Path) -> Timings:
    """Read a timings file. Raises InputError with the first problem."""
    try:
        with open(file, "rb") as opened:
            text = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from error
    if len(text) > MOST_BYTES:
        raise InputError(file, f"expected at most {MOST_BYTES >> 20} MiB of timings, found more")
    wanted = f'expected "format": "{FORMAT}", version 1 (pyprof plan --measure --timings FILE writes it)'
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(file, f"{wanted}, found no JSON ({str(error)[:80]})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") != 1:
        raise InputError(file, f"{wanted}, found another file, or another version")
    try:
        return msgspec.convert(content, Timings, strict=True)
    except msgspec.ValidationError as error:
        raise InputError(file, f"expected timings as pyprof plan --measure writes them: {str(error)[:200]}") from error


def timings_text(timings: Timings) -> bytes:
    """The file's text: one call per line, so that two files can be compared."""
    content = plain(timings)
    calls = content.pop("calls")
    head = json.dumps(content, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps({key: value for key, value in call.items() if value not in (None, "") or
                                          key == "seconds"}) for call in calls)  # fmt: skip
    return f'{head},\n "calls": [\n{lines}\n ]\n}}\n'.encode()


def check_device(timings: Timings, file: str, gpus: Sequence[str], remedy: str) -> None:
    """Raise InputError, which ends with ``remedy``, if the timings are of another device than the capture."""
    others = [name for name in gpus if name and name != timings.device]
    if others:
        found = f"found those of {timings.device[:80]}; {remedy}"
        raise InputError(file, f"expected timings of the capture's {others[0][:80]}, {found}")
