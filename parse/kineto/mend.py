"""Read traces that are not valid JSON, event by event. Invalid events are repaired, or else left out and counted.

The causes are cut files, ``nan`` and ``inf`` as C++ prints them, paths and quotes that are not escaped, and bytes that
are not UTF-8.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError
from msgspec.json import Decoder

from pyprof.errors import InputError
from pyprof.parse.kineto.event_types import WANTED, Event, FloatEvent, Header, Trace
from pyprof.parse.kineto.wrong_fields import salvaged
from pyprof.table.losses import Loss

Decoded = TypeVar("Decoded")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_KEYS = rb'"(?:ph|cat|name|pid|tid|ts|dur|id|args|bp|s|cname)"\s*:'
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')
_NEXT = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb")")


def piecewise(file: Path, text: bytes, form: type[FloatEvent] = FloatEvent) -> Trace:
    """Decode event by event and repair invalid events. Events that are still invalid are left out and counted.

    ``form``: the type of the events.
    """
    start = _EVENTS.search(text) if text[:4096].lstrip()[:1] == b"{" else re.compile(rb"\s*\[\s*").match(text)
    if start is None:
        raise InputError(file, f"{WANTED}, found {_other_json(text)}")
    decoder = Decoder(form, strict=False)  # also accepts times written as texts
    events: list[Event] = []
    wrong: list[tuple[Event, str]] = []
    mended = lost = 0
    tails: list[bytes | None] = []  # for each trace in the file: the text after its events
    for piece, last in _pieces(text, start.end()):
        if last:
            piece, tail = _end_of(piece)
            tails.append(tail)
        try:
            events.append(decoder.decode(piece))
        except (DecodeError, UnicodeDecodeError, RecursionError):
            event: Event | None = _decoded(decoder, piece := _mend(piece))
            mended += event is not None
            event = event or salvaged(piece, wrong, form)
            lost += event is None
            if event is not None:
                events.append(event)
    tail = tails[-1]
    header = _header(text[: start.end()] + b"]}", b"" if tail is None else b"{" + tail.lstrip(b"], \t\r\n"))
    cut = None in tails
    lost -= cut and lost > 0
    if lost and not events:
        raise InputError(file, f"{WANTED}, found {lost:,} events of which none has a trace's form")
    damage = _damage(len(text), len(events), mended, lost, cut)
    if len(tails) > 1:
        damage.append(f"{len(tails)} traces stand in the file, one behind the other: they are read as one")
    losses = _losses(lost, cut)
    return Trace(events, warnings=damage, losses=losses, wrong=wrong).with_header(header)


def _losses(lost: int, cut: bool) -> list[Loss]:
    again = "copy the file again, or export the trace again once the profiler has stopped"
    losses = [Loss("the file is cut, so that its last events are lost", again)] if cut else []
    if lost:
        losses.append(Loss(f"{lost:,} events of the file could not be read", again))
    return losses


def _damage(size: int, events: int, mended: int, lost: int, cut: bool) -> list[str]:
    warnings = []
    if cut:
        warnings.append(f"the file is cut: its {size:,} bytes hold {events:,} whole events, which were read")
    if mended:
        warnings.append(f"{mended:,} of {events:,} events were no valid JSON (nan, unescaped text) and were mended")
    if lost:
        warnings.append(f"{lost:,} events could not be read and are left out")
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


def _other_json(text: bytes) -> str:
    try:
        keys = list(json.loads(text))
    except (ValueError, RecursionError):
        return "no JSON, or JSON that is cut before its first event: copy it again"
    return f"JSON with {', '.join(map(repr, keys[:4])) or 'nothing'} but no list of traceEvents"


def _decoded(decoder: Decoder[Decoded], text: bytes) -> Decoded | None:
    try:
        return decoder.decode(text)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


# Each pattern passes over a text once, whatever the text is: a stranger's name may have a million quotes and no end.
_NAME = re.compile(rb'"name"\s*:\s*"')
_NAME_END = re.compile(rb'"(?=\s*(?:,\s*' + _KEYS + rb"|\}))")
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
    """Escape the quotes within names. A name ends at the first quote that another key or a brace follows."""
    ends = (match.start() for match in _NAME_END.finditer(piece))
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
