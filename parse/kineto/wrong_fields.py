"""Events with values of another type than the format's: the event stays, and the value counts as unknown."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import fields

from pyprof.parse.kineto.event_types import Args, Event, FloatEvent, MemoryArgs, MemoryEvent, Number
from pyprof.parse.kineto.events import CATEGORIES, LONGEST_US, integers
from pyprof.table.columns import NULL, Ints

Decoded = TypeVar("Decoded", bound=Struct)
_OBJECT = Decoder(dict[str, Raw])
_GPU = frozenset(CATEGORIES["gpu"].split())
_decoder = cache(Decoder)


def salvaged(piece: bytes, wrong: list[tuple[Event, str]], form: type[FloatEvent] = FloatEvent) -> Event | None:
    """The event of a JSON object some of whose values have wrong types; their keys are added to ``wrong``.

    A time that is unknown is nan. An event whose category is unknown is a GPU operation if its args are those of one
    (see ``_gpu_category``). None if the text is not an object, or does not say what kind of event it is.
    """
    try:
        values = _OBJECT.decode(piece)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    keys: list[str] = []
    event = _filled(form(), {key: value for key, value in values.items() if key != "args"}, keys)
    if "cat" not in values or ("ph" in keys and "dur" not in values):
        return None
    try:
        args = MemoryArgs() if form is MemoryEvent else Args()
        event.args = _filled(args, _OBJECT.decode(values["args"]), keys) if "args" in values else None
    except (DecodeError, RecursionError):
        keys.append("args")
    event.cat = _gpu_category(event) if "cat" in keys else event.cat
    if "cat" in keys and not event.cat:
        return None
    event.ph = "X" if "ph" in keys else event.ph  # only complete events have a duration
    event.ts, event.dur = (math.nan if key in keys else getattr(event, key) for key in ("ts", "dur"))
    wrong += [(event, key) for key in keys]
    return event


def _gpu_category(event: Event) -> str:
    """The category of a GPU operation without one; empty if the event may be something else.

    libkineto writes a grid or block for kernels only, and bytes on a stream for copies and memsets, whose names tell
    them apart (`Memcpy HtoD (Pageable -> Device)`, `Memset (Device)`).
    """
    if event.args is None:
        return ""
    if bytes(event.args.grid) or bytes(event.args.block):
        return "kernel"
    is_memory = event.args.stream != NULL and event.args.bytes != NULL
    return f"gpu_{event.name[:6].lower()}" if is_memory and event.name.startswith(("Memcpy", "Memset")) else ""


def _filled(target: Decoded, values: Mapping[str, Raw], wrong: list[str]) -> Decoded:
    """The record with the values that have their field's type; the keys of the others are added to ``wrong``."""
    for field in fields(target):
        if field.encode_name in values:
            try:
                setattr(target, field.name, _decoder(field.type, strict=False).decode(values[field.encode_name]))
            except (DecodeError, UnicodeDecodeError, RecursionError):
                wrong.append(field.encode_name)
    return target


def checked(values: Sequence[Number], key: str, events: Sequence[Event], wrong: list[tuple[Event, str]]) -> Ints:
    """A column of whole numbers; events with a value that is no whole number are added to ``wrong``."""
    column = integers(list(values))
    unknown = np.flatnonzero(column == NULL).tolist()
    wrong += [(events[row], key) for row in unknown if values[row] is not None and values[row] != NULL]
    return column


def wrong_fields(wrong: Sequence[tuple[Event, str]]) -> list[str]:
    """The warning about the events with wrong values."""
    if not wrong:
        return []
    events = list({id(event): event for event, _ in wrong}.values())
    rows = [event for event in events if event.cat in _GPU]
    took = sum(round(1000 * event.dur) for event in rows if 0 < event.dur < LONGEST_US)
    keys = ", ".join(dict.fromkeys(key for _, key in wrong))
    what = f"{len(events):,} events have values of another type than the format's, which are unknown ({keys})"
    return [f"{what}; {len(rows):,} of these events are GPU operations, which took {took:,} ns"]
