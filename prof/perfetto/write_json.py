"""A trace as Chrome's trace events, which ui.perfetto.dev, chrome://tracing and scripts read.

Their times are microseconds. Each is written as digits, so that no nanosecond is lost on the way through a float.
Tracks are threads of a process there, so streams get numbers of their own and their names by events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, repeat
from math import floor, log10
from typing import Any, BinaryIO

import numpy as np

from pyprof._version import __version__
from pyprof.prof.perfetto.events import in_order
from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace, Track
from pyprof.table import netdict
from pyprof.table.columns import NULL, Coded

__all__ = ["write_json"]

DIGITS = 9
BLOCK = 8192  # events that are written together


def write_json(trace: Trace, out: BinaryIO) -> None:
    """Write the trace. Times must not be negative."""
    notes = ",".join(map(json_string, trace.notes))
    head = f'{{"displayTimeUnit":"ns","otherData":{{"pyprof":{json_string(__version__)},"notes":[{notes}]}},'
    out.write(f'{head}"traceEvents":[\n'.encode())
    held: list[str] = []
    begun = False
    for event in _events(trace):
        held.append(event)
        if len(held) == BLOCK:
            out.write(((",\n" if begun else "") + ",\n".join(held)).encode())
            held, begun = [], True
    if held:
        out.write(((",\n" if begun else "") + ",\n".join(held)).encode())
    out.write(b"\n]}\n")


def json_string(text: str) -> str:
    """A string of JSON. A backslash at its end is a number: Perfetto (v52) takes the quote after it for an escaped one.

    >>> print(json_string("a" + 2 * chr(92)))
    "a\\\\\\u005c"
    """
    if text.endswith("\\"):
        return f'{netdict.json_string(text[:-1])[:-1]}\\u005c"'
    return netdict.json_string(text)


def _us(ns: int) -> str:
    """Microseconds, exactly.

    >>> _us(1234567), _us(5)
    ('1234.567', '0.005')
    """
    return f"{ns // 1000}.{ns % 1000:03d}"


def _float(value: float) -> str:
    """A number in nine digits, no exponent: Perfetto (v52) reads 0.00023674242424242425 as 0.00305.

    >>> _float(0.00023674242424242425), _float(100.0), _float(1234567890.5), _float(-0.0)
    ('0.000236742424', '100.0', '1234567890.5', '0.0')
    """
    size = floor(log10(abs(value))) if value else 0
    text = f"{value + 0.0:.{min(max(DIGITS - 1 - size, 1), 15)}f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text


def _events(trace: Trace) -> Iterator[str]:
    places = _places(trace)
    yield from _names(trace, places)
    slices = [text for part in trace.slices for text in _slices(part, places)]
    _, which, begins = in_order(trace.slices)
    for i in which[begins == 1].tolist():  # an outer slice before the inner ones
        yield slices[i]
    for part in trace.slices:
        yield from _flows(part, places)
    for counter in trace.counters:
        yield from _values(counter, trace)


def _places(trace: Trace) -> list[str]:
    """Each track's process and thread, as they stand in an event: other tracks have numbers that no thread has."""
    taken = {track.tid for track in trace.tracks if track.kind == "thread"}
    free = (number for number in count(1) if number not in taken)
    return [f'"pid":{track.pid},"tid":{track.tid if track.kind == "thread" else next(free)}' for track in trace.tracks]


def _names(trace: Trace, places: Sequence[str]) -> Iterator[str]:
    """Events that name processes and tracks, and put them in order."""
    for i, track in enumerate(trace.tracks):
        if track.kind == "process":
            yield _meta("process_name", places[i], "name", json_string(track.name))
        elif track.kind in ("thread", "slices"):
            yield _meta("thread_name", places[i], "name", json_string(_name(track, trace)))
            yield _meta("thread_sort_index", places[i], "sort_index", str(i))


def _name(track: Track, trace: Trace) -> str:
    """A track below a GPU says which: ``stream 7, GPU 0``."""
    above = trace.tracks[track.parent]
    return f"{track.name}, {above.name.partition(':')[0]}" if above.kind == "group" else track.name


def _meta(what: str, place: str, key: str, value: str) -> str:
    return f'{{"ph":"M","name":"{what}",{place},"args":{{"{key}":{value}}}}}'


def _slices(part: Slices, places: Sequence[str]) -> Iterator[str]:
    if not len(part):
        return iter(())
    fields: list[Iterable[str]] = [
        _coded(part.name, lambda text: f'"name":{json_string(text or "(no name)")},'),
        _coded(part.category, lambda text: f'"cat":{json_string(text)},'),
        [places[track] for track in part.track.tolist()],
        [f',"ts":{_us(ns)}' for ns in part.start.tolist()],
        [f',"dur":{_us(ns)},"args":{{' for ns in part.duration.tolist()],
    ]
    args = [_argument(arg) for arg in part.args]
    values = zip(*args, strict=True) if args else repeat(())
    heads = zip(*fields, strict=True)
    return (
        '{"ph":"X",' + "".join(head) + ",".join(filter(None, told)) + "}}"
        for head, told in zip(heads, values, strict=False)
    )


def _argument(arg: Arg) -> list[str]:
    key = f"{json_string(arg.name)}:"
    data = arg.data
    if isinstance(data, Coded):
        return _coded(data, lambda text: f"{key}{json_string(text)}" if text else "")
    if data.dtype.kind == "f":
        return _numbers(data, lambda value: f"{key}{_float(value)}" if np.isfinite(value) else "")
    return _numbers(data, lambda value: f"{key}{value}" if value != NULL else "")


def _coded(data: Coded, make: Callable[[str], str]) -> list[str]:
    made = {code: make(data.values[code] if code >= 0 else "") for code in np.unique(data.codes).tolist()}
    return [made[code] for code in data.codes.tolist()]


def _numbers(data: np.ndarray[tuple[int], np.dtype[Any]], make: Callable[[Any], str]) -> list[str]:
    values, which = np.unique(data, return_inverse=True)
    made = [make(value) for value in values.tolist()]
    return [made[i] for i in which.reshape(-1).tolist()]


def _flows(part: Slices, places: Sequence[str]) -> Iterator[str]:
    """A flow's two ends: each binds to the slice that is open there and then."""
    for flows, phase in ((part.opens, '"ph":"s"'), (part.closes, '"ph":"f","bp":"e"')):
        if flows is None or not len(flows.values):
            continue
        told = zip(part.track.tolist(), part.start.tolist(), flows.lists(), strict=True)
        for track, start, listed in told:
            for flow in listed:
                yield f'{{{phase},"id":{flow},"name":"flow","cat":"flow",{places[track]},"ts":{_us(start)}}}'


def _values(counter: Counter, trace: Trace) -> Iterator[str]:
    track = trace.tracks[counter.track]
    name = json_string(_name(track, trace))
    head = f'{{"ph":"C","name":{name},"pid":{track.pid},"tid":0,"ts":'
    for at, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
        yield f'{head}{_us(at)},"args":{{"value":{_float(value)}}}}}'
