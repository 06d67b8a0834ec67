"""A trace as Chrome's trace events, which ui.perfetto.dev, chrome://tracing and scripts read.

Their times are microseconds, written without conversion to a float so that no nanosecond is lost. Their tracks are
threads of a process, so streams get numbers that no thread has, and events name them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat
from math import floor, log10
from typing import BinaryIO

import numpy as np

from pyprof._version import __version__
from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace, Track, in_order, per_value
from pyprof.table import netdict
from pyprof.table.columns import NULL, Coded

DIGITS = 9
BLOCK = 8192  # events that are written together


def write_json(trace: Trace, out: BinaryIO) -> None:
    """Write the trace. Times must not be negative."""
    notes = ",".join(map(json_string, trace.notes))
    head = f'{{"displayTimeUnit":"ns","otherData":{{"pyprof":{json_string(__version__)},"notes":[{notes}]}},'
    out.write(f'{head}"traceEvents":[\n'.encode())
    events, before = _events(trace), ""
    while block := list(islice(events, BLOCK)):
        out.write((before + ",\n".join(block)).encode())
        before = ",\n"
    out.write(b"\n]}\n")


def json_string(text: str) -> str:
    """A JSON string. A backslash at its end is written as a number: Perfetto (v52) takes the quote after it as escaped.

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
    for i in which[begins].tolist():  # an outer slice before the inner ones
        yield slices[i]
    for part in trace.slices:
        yield from _flows(part, places)
    for counter in trace.counters:
        yield from _values(counter, trace)


def _places(trace: Trace) -> list[str]:
    """The process and thread of each track as in an event; tracks that are no thread get numbers that no thread has."""
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
    """The name of a track; one below a GPU says which GPU: ``stream 7, GPU 0``."""
    above = trace.tracks[track.parent]
    return f"{track.name}, {above.name.partition(':')[0]}" if above.kind == "group" else track.name


def _meta(what: str, place: str, key: str, value: str) -> str:
    return f'{{"ph":"M","name":"{what}",{place},"args":{{"{key}":{value}}}}}'


def _slices(part: Slices, places: Sequence[str]) -> Iterator[str]:
    fields: list[Iterable[str]] = [
        per_value(part.name, lambda text: f'"name":{json_string(text or "(no name)")},'),
        per_value(part.category, lambda text: f'"cat":{json_string(text)},'),
        [places[track] for track in part.track.tolist()],
        [f',"ts":{_us(ns)}' for ns in part.start.tolist()],
        [f',"dur":{_us(ns)},"args":{{' for ns in part.duration.tolist()],
    ]
    args = [_argument(arg) for arg in part.args]
    values = zip(*args, strict=True) if args else repeat(())
    heads = zip(*fields, strict=True)
    return (
        '{"ph":"X",' + "".join(head) + ",".join(filter(None, known)) + "}}"
        for head, known in zip(heads, values, strict=False)
    )


def _argument(arg: Arg) -> list[str]:
    key = f"{json_string(arg.name)}:"
    if isinstance(arg.data, Coded):
        return per_value(arg.data, lambda text: f"{key}{json_string(text)}" if text else "")
    if arg.data.dtype.kind == "f":
        return per_value(arg.data, lambda value: f"{key}{_float(value)}" if np.isfinite(value) else "")
    return per_value(arg.data, lambda value: f"{key}{value}" if value != NULL else "")


def _flows(part: Slices, places: Sequence[str]) -> Iterator[str]:
    """The two ends of each flow; each belongs to the slice that is open on that track at that time."""
    for flows, phase in ((part.opens, '"ph":"s"'), (part.closes, '"ph":"f","bp":"e"')):
        if flows is None or not len(flows.values):
            continue
        for track, start, numbers in zip(part.track.tolist(), part.start.tolist(), flows.lists(), strict=True):
            for flow in numbers:
                yield f'{{{phase},"id":{flow},"name":"flow","cat":"flow",{places[track]},"ts":{_us(start)}}}'


def _values(counter: Counter, trace: Trace) -> Iterator[str]:
    track = trace.tracks[counter.track]
    name = json_string(_name(track, trace))
    head = f'{{"ph":"C","name":{name},"pid":{track.pid},"tid":0,"ts":'
    for at, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
        yield f'{head}{_us(at)},"args":{{"value":{_float(value)}}}}}'
