"""The rows of the tables, whose printed numbers sum to the printed totals exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyprof.prof.diff.compare import IDLE, OVERLAP, Change, Comparison, Entry
from pyprof.prof.diff.noise import Delta
from pyprof.prof.diff.sentences import percent

LEAST = 0.0005  # share of the step: smaller changes share a row


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: one entry of the difference, several entries, or a total. Times are whole numbers of a unit."""

    name: str
    ns: Delta
    before: int
    change: int
    entry: Entry | None = None
    total: bool = False
    several: int = 0  # how many entries it sums

    @property
    def after(self) -> int:
        return self.before + self.change

    @property
    def label(self) -> str:
        """Its name, with the number of layers that it stands for."""
        return self.name + (f" ×{self.entry.layers}" if self.entry and self.entry.layers > 1 else "")

    def cells(self, places: int) -> tuple[str, str, str, str]:
        """The times before and after, the change and its percentage as texts; ``places`` are digits after the point."""
        before, after, change = (
            f"{value / 10**places:,.{places}f}" for value in (self.before, self.after, self.change)
        )
        if not self.change:
            return before, after, change, ""
        return before, after, f"+{change}" if self.change > 0 else change, percent(self.ns.ratio)

    def noise(self, places: int) -> str:
        """The noise as a text; empty if it is unknown."""
        return "" if math.isnan(self.ns.band) else f"±{self.ns.band / 1e6:,.{places}f}"


# A row before its numbers are rounded: name, time, entry and the number of entries that it sums.
Line = tuple[str, Delta, Entry | None, int]


def fitted(values: Sequence[float], unit: float, total: int) -> list[int]:
    """The values rounded to whole units that sum to ``total``; the values that rounding moved most absorb the
    difference.

    >>> fitted([1.4, 1.4, 1.4], 1.0, 4), fitted([-0.4, 2.0, 0.0], 1.0, 2)
    ([2, 1, 1], [0, 2, 0])
    """
    whole = [round(value / unit) for value in values]
    missing = total - sum(whole)
    way = 1 if missing > 0 else -1
    left = sorted(range(len(values)), key=lambda i: (not values[i], -way * (values[i] / unit - whole[i]), i))
    for i in left[: abs(missing)]:
        whole[i] += way
    return whole


def contributions(found: Comparison, unit: float, top: int | None = None) -> list[Row]:
    """The rows that sum to the step's difference: the ``top`` greatest changes (None: all), then one row each for the
    other changes beyond noise, the changes within noise, overlap, idle time, and the step.
    """
    changed = [entry for entry in found.entries if entry.ns.counts]
    still = [entry for entry in found.entries if not entry.ns.counts]
    least = LEAST * max(found.step.before, found.step.after)
    shown = changed if top is None else [entry for entry in changed[:top] if abs(entry.ns.change) >= least]
    lines: list[Line] = [(entry.name, entry.ns, entry, 0) for entry in shown]
    rest = changed[len(shown) :]
    if len(rest) == 1:
        lines.append((rest[0].name, rest[0].ns, rest[0], 0))
    elif rest:
        lines.append((f"{len(rest)} smaller changes", _sum(rest), None, len(rest)))
    if still:
        lines.append((f"{len(still)} {_unchanged(still)}", _sum(still), None, len(still)))
    return _rows([*lines, *_frame(found)], found, unit)


def every_entry(found: Comparison, unit: float) -> list[Row]:
    """All entries, none of them summed with others, overlap, idle time, and the step."""
    return _rows([*((e.name, e.ns, e, 0) for e in found.entries), *_frame(found)], found, unit)


def _unchanged(entries: Sequence[Entry]) -> str:
    return "within noise" if any(entry.ns.change for entry in entries) else "without any change"


def table_rows(found: Comparison, changes: Sequence[Change], unit: float, top: int | None, work: bool) -> list[Row]:
    """The rows of one of the other tables. ``work``: its times are sums of rows, from which overlap is subtracted."""
    least = LEAST * max(found.step.before, found.step.after)
    telling = [change for change in changes if abs(change.ns.change) >= least]
    shown = list(changes) if top is None else telling[:top]
    rest = [change for change in changes if all(change is not other for other in shown)]
    if len(rest) == 1:
        shown, rest = [*shown, *rest], []
    lines: list[Line] = [(change.name, change.ns, None, 0) for change in shown]
    if rest:
        lines.append((f"{len(rest)} others", _sum(rest), None, len(rest)))
    frame = _frame(found)
    return _rows([*lines, *(frame if work else [line for line in frame if line[0] != OVERLAP])], found, unit)


def _frame(found: Comparison) -> list[Line]:
    """Overlap, where there is any, and idle time."""
    lines = [(OVERLAP, found.overlap), (IDLE, found.idle)]
    return [(name, ns, None, 0) for name, ns in lines if ns.a.any() or ns.b.any()]


def _sum(rows: Sequence[Entry | Change]) -> Delta:
    first, *others = (row.ns for row in rows)
    return Delta(sum((ns.a for ns in others), first.a), sum((ns.b for ns in others), first.b))


def _rows(lines: Sequence[Line], found: Comparison, unit: float) -> list[Row]:
    before = fitted([ns.before for _, ns, _, _ in lines], unit, round(found.step.before / unit))
    wanted = round(found.step.after / unit) - round(found.step.before / unit)
    change = fitted([ns.change for _, ns, _, _ in lines], unit, wanted)
    rows = [
        Row(name, ns, start, by, entry, several=several)
        for (name, ns, entry, several), start, by in zip(lines, before, change, strict=True)
    ]
    return [*rows, Row("step", found.step, sum(before), sum(change), total=True)]
