"""Read traces that are not valid JSON, event by event. Invalid events are repaired, or else left out and counted.

The causes are cut files, ``nan`` and ``inf`` as C++ prints them, paths and quotes that are not escaped, and bytes that
are not UTF-8.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError
from msgspec.json import Decoder

from pyprof.errors import InputError
from pyprof.parse.kineto.event_types import WANTED, Event, FloatEvent, Header, Trace
from pyprof.parse.kineto.foreign_json import described, is_memory_timeline
from pyprof.parse.kineto.wrong_fields import salvaged
from pyprof.table.losses import Loss

Decoded = TypeVar("Decoded")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_KEYS = rb'"(?:ph|cat|name|pid|tid|ts|dur|id|args|bp|s|cname)"\s*:'
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')
_FRAME = re.compile(rb'"cat"\s*:\s*"python_function"')
_NEXT = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb")")


def piecewise(file: Path, text: bytes, form: type[FloatEvent] = FloatEvent) -> Trace:
    """Decode event by event and repair invalid events. Events that are still invalid are left out and counted.

    ``form``: the type of the events.
    """
    start = _EVENTS.search(text) if text[:4096].lstrip()[:1] == b"{" else re.compile(rb"\s*\[\s*").match(text)
    if start is None or is_memory_timeline(text):
        raise InputError(file, f"{WANTED}, found {described(text)}")
    found = _Found(Decoder(form, strict=False), form)  # the decoder also accepts times written as texts
    tails: list[bytes | None] = []  # for each trace in the file: the text after its events
    for piece, last in _pieces(text, start.end()):
        if last:
            piece, tail = _end_of(piece)
            tails.append(tail)
        found.add(piece)
    tail = tails[-1]
    header = _header(text[: start.end()] + b"]}", b"" if tail is None else b"{" + tail.lstrip(b"], \t\r\n"))
    cut = None in tails
    found.lost -= cut and found.lost > 0
    if found.lost and not found.events:
        raise InputError(file, f"{WANTED}, found {found.lost:,} events of which none has a trace's form")
    damage = _damage(len(text), found, cut)
    if len(tails) > 1:
        damage.append(f"{len(tails)} traces stand in the file, one behind the other: they are read as one")
    losses = _losses(found.lost - found.frames, cut)
    return Trace(found.events, warnings=damage, losses=losses, wrong=found.wrong).with_header(header)


@dataclass(slots=True)
class _Found:
    """The events of a text that is read piece by piece."""

    decoder: Decoder[Event]
    form: type[FloatEvent]
    events: list[Event] = field(default_factory=list)
    wrong: list[tuple[Event, str]] = field(default_factory=list)
    mended: int = 0
    lost: int = 0  # number of events that could not be read
    lost_frames: int = 0  # so many of them are frames of Python
    unread: bytes = b""  # the piece before, if it could not be read

    @property
    def frames(self) -> int:
        return min(self.lost, self.lost_frames)

    def add(self, piece: bytes) -> None:
        """Read one event's text. A name may have the text between two events, which cuts it in two pieces."""
        before, self.unread = self.unread, b""
        try:
            self.events.append(self.decoder.decode(piece))
            return
        except (DecodeError, UnicodeDecodeError, RecursionError):
            event = _decoded(self.decoder, _mend(piece))
        if event is None and before and (event := _decoded(self.decoder, _mend(before + b", " + piece))) is not None:
            self.lost -= 1
            self.lost_frames -= _FRAME.search(before) is not None
        self.mended += event is not None
        event = event or salvaged(_mend(piece), self.wrong, self.form)
        if event is not None:
            self.events.append(event)
            return
        self.lost += 1
        self.lost_frames += _FRAME.search(piece) is not None
        self.unread = piece


def _losses(lost: int, cut: bool) -> list[Loss]:
    again = "copy the file again, or export the trace again"
    stopped = f"{again} once the profiler has stopped"
    losses = [Loss("the file is cut, so that its last events are lost", stopped)] if cut else []
    if lost:
        losses.append(Loss(f"{lost:,} events of the file could not be read", again))
    return losses


def _damage(size: int, found: _Found, cut: bool) -> list[str]:
    warnings, events = [], len(found.events)
    if cut:
        warnings.append(f"the file is cut: its {size:,} bytes hold {events:,} whole events, which were read")
    if found.mended:
        mended = f"{found.mended:,} of {events:,} events were no valid JSON (nan, unescaped text) and were mended"
        warnings.append(mended)
    if found.lost > found.frames:
        warnings.append(f"{found.lost - found.frames:,} events could not be read and are left out")
    if found.frames:
        warnings.append(f"{found.frames:,} frames of Python could not be read: layers and lines may lack them")
    return warnings


def _pieces(text: bytes, start: int) -> Iterator[tuple[bytes, bool]]:
    """The text of each event, and whether it is the last event before the end of the file or of its trace."""
    others = list(_EVENTS.finditer(text, start))
    for begin, end in zip(
        [start, *(match.end() for match in others)], [*(match.start() for match in others), len(text)], strict=True
    ):
        at = begin
        for gap in _NEXT.finditer(text, begin, end):
            yield text[at : gap.start() + 1], False
            at = gap.end()
        yield text[at:end], True


def _end_of(piece: bytes) -> tuple[bytes, bytes | None]:
    """The last event and the text after it; None if the file ends within the event or directly after it."""
    for candidate in (piece.decode("utf-8", "replace"), _mend(piece).decode()):
        try:  # numbers are not read here: Python refuses those of more than 4,300 digits
            _, end = json.JSONDecoder(strict=False, parse_int=len, parse_float=len).raw_decode(candidate)
        except RecursionError:
            end = _end_of_brackets(candidate)
        except ValueError:
            continue
        tail = candidate[end:].lstrip(", \t\r\n").rstrip()  # some writers put a comma after the last event
        return candidate[:end].encode(), tail.encode() if tail.startswith("]") else None
    return piece, None


def _end_of_brackets(text: str) -> int:
    """Where the first object of a text ends, however deep it is; the text's end if it does not."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += token[0] in "[{"
        depth -= token[0] in "]}"
        if not depth:
            return token.end()
    return len(text)


def _header(before: bytes, after: bytes) -> Header:
    """The keys before and after the events, as far as they can be read."""
    found = Header()
    for text in (before, after):
        header = _decoded(Decoder(Header), text) or _decoded(Decoder(Header), _mend(text)) or Header()
        found.deviceProperties = found.deviceProperties or header.deviceProperties
        found.distributedInfo = found.distributedInfo or header.distributedInfo
        found.baseTimeNanoseconds = found.baseTimeNanoseconds or header.baseTimeNanoseconds
        found.pyprof = found.pyprof if bytes(found.pyprof) else header.pyprof
        found.WARNING, found.ERROR = found.WARNING or header.WARNING, found.ERROR or header.ERROR
    return found


def _decoded(decoder: Decoder[Decoded], text: bytes) -> Decoded | None:
    try:
        return decoder.decode(text)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


# Each pattern passes over a text once, whatever the text is: a stranger's name may have a million quotes and no end.
_NAME = re.compile(rb'"name"\s*:\s*"')
_ENDS = rb"[}\]]\s*(?:\Z|,\s*\{)|\}\s*\]\s*,\s*" + b'"'  # of an event or of the list of events
_NAME_END = re.compile(rb'"(?=\s*(?:[}\]]\s*)*(?:,\s*' + _KEYS + rb"|" + _ENDS + rb"))")
# A complete event as libkineto's output_json.cpp writes it: the process follows the name.
_KINETO_EVENT = re.compile(rb'\s*\{\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"[^"]*"\s*,\s*"name"\s*:\s*"')
_KINETO_NAME_END = re.compile(rb'"(?=\s*,\s*"pid"\s*:)')
_QUOTE = re.compile(rb'(?<!\\)"')
_ESCAPE = re.compile(rb'\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\', re.DOTALL)
_TOKEN = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|-?\b(?:nan(?:\(ind\))?|inf(?:inity)?)(?![\w"])', re.DOTALL | re.IGNORECASE
)
_CONTROL = re.compile(rb"[\x00-\x1f]")


def _mend(piece: bytes) -> bytes:
    """Turn a profiler's text into valid JSON: fix bad escapes, bytes and unescaped quotes; nan and inf become null."""
    piece = piece.decode("utf-8", "replace").encode()
    piece = _ESCAPE.sub(_mend_escape, piece)
    piece = _mend_names(piece)
    return _TOKEN.sub(lambda m: _CONTROL.sub(b" ", m[0]) if m[0].startswith(b'"') else b"null", piece)


def _mend_names(piece: bytes) -> bytes:
    """Escape the quotes within names. A name ends at the first quote that another key or the event's end follows."""
    name_end = _KINETO_NAME_END if _KINETO_EVENT.match(piece) else _NAME_END
    ends = (match.start() for match in name_end.finditer(piece))
    parts: list[bytes] = []
    done, end = 0, next(ends, None)
    for name in _NAME.finditer(piece):
        if name.start() < done:  # it is part of a name
            continue
        while end is not None and end < name.end():
            end = next(ends, None)
        if end is None:
            break
        parts += [piece[done : name.end()], _QUOTE.sub(rb'\\"', piece[name.end() : end])]
        done = end
    return b"".join([*parts, piece[done:]])


def _mend_escape(match: re.Match[bytes]) -> bytes:
    text = match[0]
    if len(text) == 1:
        return b"\\\\"
    return b"\\ufffd" if len(text) == 6 and text[2:4].lower() in _HALVES else text


_HALVES = tuple(b"d%x" % digit for digit in range(8, 16))  # first digits of lone surrogates
