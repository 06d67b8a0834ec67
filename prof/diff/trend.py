"""One program's step over many captures, such as those of each night: which one changed it, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from pyprof.command.json_schema import Record, doc
from pyprof.command.terminal_text import cut_to, wrapped
from pyprof.prof.diff.compare import Comparison, Entry
from pyprof.prof.diff.json_document import CaptureSide, Times, times_of
from pyprof.prof.diff.sentences import digits, percent, shown_ms, signed_ms
from pyprof.text import printable

NAMED = 3  # parts of a step that a line names
OF_CHANGE = 0.1  # of the step's change: parts that changed less are not reasons
BAR = 20  # characters of the longest step's bar
NUMBERS = 22  # characters of the columns with the step's time and its change, blanks before them included
LEAST_NAME = 12  # characters of a capture's name that are left on the shortest line
INDENT = "    "  # of lines that say what changed the step of the capture above


class PartOfChange(Record):
    """A part of the step that changed beyond noise."""

    name: Annotated[str, doc("layer and op, or kind of work")]
    phase: Annotated[str, doc("forward, backward, ...; empty: unknown")]
    change_ns: Annotated[int, doc("per step")]


class Point(Record):
    """A capture of the trend."""

    capture: Annotated[CaptureSide, doc("its file and steps")]
    step_ns: Annotated[int, doc("mean step")]
    change: Annotated[Times | None, doc("the step against that of the capture before; null: it is the first")]
    changed: Annotated[bool, doc("by the least share that was asked for or more, and beyond the noise of the steps")]
    because: Annotated[
        list[PartOfChange], doc("parts that changed the same way by a tenth of it or more, the greatest change first")
    ]


class Trend(Record):
    """One program's step over several captures, in their order."""

    least: Annotated[float, doc("a step that differs by less than this share is reported as unchanged")]
    points: Annotated[list[Point], doc("a capture each")]
    best: Annotated[int, doc("place of the capture with the shortest step, from 0")]
    since_best: Annotated[float, doc("how much longer the last capture's step is, as a share of the best one's")]


class Compared(NamedTuple):
    """A capture's numbers once its tables are gone."""

    side: CaptureSide
    profiler: str | None
    step_ns: float
    found: Comparison | None  # against the capture before


def trend(captures: Sequence[Compared], least: float) -> Trend:
    times = [capture.step_ns for capture in captures]
    best = min(range(len(times)), key=times.__getitem__)
    return Trend(
        least=least,
        points=[_point(capture, least) for capture in captures],
        best=best,
        since_best=times[-1] / times[best] - 1 if times[best] else 0.0,
    )


def _point(capture: Compared, least: float) -> Point:
    found = capture.found
    changed = found is not None and found.step.counts and abs(found.step.ratio) >= least
    return Point(
        capture=capture.side,
        step_ns=round(capture.step_ns),
        change=None if found is None else times_of(found.step),
        changed=changed,
        because=[_part(entry) for entry in _reasons(found)] if found is not None and changed else [],
    )


def _reasons(found: Comparison) -> Iterator[Entry]:
    """The entries that changed the way the step did, by a tenth of its change or more."""
    least = OF_CHANGE * found.step.change  # negative where the step got faster
    return (entry for entry in found.entries if entry.ns.counts and entry.ns.change / least >= 1)


def _part(entry: Entry) -> PartOfChange:
    return PartOfChange(name=entry.name, phase=entry.phase, change_ns=round(entry.ns.change))


def trend_lines(captures: Sequence[Compared], document: Trend, width: int) -> Iterator[str]:
    """The trend as text, in lines of ``width`` characters or fewer: a line per capture.

    Where a bar does not fit, none is drawn; where what changed does not fit, it is on lines of its own.
    """
    longest = max((point.step_ns for point in document.points), default=0)
    places = max((digits(capture.found) for capture in captures if capture.found is not None), default=2)
    names = [_short(point.capture.name, document) for point in document.points]
    shown = [cut_to(name, max(width - NUMBERS, LEAST_NAME), "middle") for name in names]
    size = max(map(len, shown))
    yield f"{'capture':{size}}  {'step, ms':>10}  {'change':>8}"
    words = [_words(*each, places) for each in zip(document.points, captures, strict=True)]
    bars = size + NUMBERS + 2 + BAR <= width
    room = width - size - NUMBERS - (2 + BAR) * bars - 2
    beside = all(len(text) <= room for text in words)
    for name, point, capture, text in zip(shown, document.points, captures, words, strict=True):
        bar = "█" * max(round(BAR * point.step_ns / longest), 1) if longest else ""
        moved = percent(capture.found.step.ratio) if capture.found is not None and point.changed else ""
        line = f"{name:{size}}  {shown_ms(point.step_ns, places):>10}  {moved:>8}" + f"  {bar:{BAR}}" * bars
        yield f"{line}  {text if beside else ''}".rstrip()
        if not beside:
            yield from wrapped(text, width, INDENT, INDENT)
    yield ""
    if not all(point.changed for point in document.points[1:]):
        blank = f"Blank: less than {document.least:.1%}, or less than the steps of a capture differ among themselves."
        yield from wrapped(blank, width)
    for sentence in _conclusion(document, names, places):
        yield from wrapped(sentence, width)


def _words(point: Point, capture: Compared, places: int) -> str:
    """What changed the step: the greatest parts."""
    if capture.found is None or not point.changed:
        return ""
    parts = list(_reasons(capture.found))
    named = [" ".join(filter(None, (e.name, e.phase, signed_ms(e.ns, places)))) for e in parts[:NAMED]]
    more = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    return printable("; ".join(named) + more) if parts else "idle time" if capture.found.idle.counts else ""


def _conclusion(document: Trend, names: Sequence[str], places: int) -> Iterator[str]:
    best, last = document.points[document.best], document.points[-1]
    yield f"The shortest step is that of {names[document.best]}: {shown_ms(best.step_ns, places)} ms."
    if document.since_best > document.least:
        worse = f"{shown_ms(last.step_ns, places)} ms, {document.since_best:.1%} longer than that"
        yield f"The last capture's step takes {worse}."


def _short(name: str, document: Trend) -> str:
    """A file's name without the folder that all share."""
    folders = {point.capture.name.rpartition("/")[0] for point in document.points}
    return printable(name.rpartition("/")[2] if len(folders) == 1 else name)
