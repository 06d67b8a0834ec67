"""The rows of the tables, whose printed numbers sum to the printed totals exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyprof.prof.diff.compare import IDLE, OVERLAP, Change, Comparison, Entry
from pyprof.prof.diff.noise import Delta
from pyprof.prof.diff.sentences import percent
from pyprof.prof.diff.sentences import unit as unit_of

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

    @property
    def after(self) -> int:
        return self.before + self.change

    @property
    def label(self) -> str:
        """Its name, with the number of layers that it stands for."""
        return self.name + (f" ×{self.entry.layers}" if self.entry and self.entry.layers > 1 else "")

    def cells(self, places: int) -> tuple[str, str, str, str]:
        """The times before and after, the change and its percentage as texts; ``places`` are digits after the point."""
        times = (self.before, self.after, self.change)
        before, after, change = (f"{time / 10**places:,.{places}f}" for time in times)
        if not self.change:
            return before, after, change, ""
        return before, after, f"+{change}" if self.change > 0 else change, percent(self.ns.ratio)

    def noise(self, places: int) -> str:
        """The noise as a text; empty if it is unknown."""
        return "" if math.isnan(self.ns.band) else f"±{self.ns.band / 1e6:,.{places}f}"


Line = tuple[str, Delta, Entry | None]  # a row before its numbers are rounded: name, time and entry


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
    count = _shown(changed, found, top)
    lines: list[Line] = [(entry.name, entry.ns, entry) for entry in changed[:count]]
    lines += _together(changed[count:], "smaller changes")
    lines += _together(still, "within noise" if any(entry.ns.change for entry in still) else "without any change")
    return _rows([*lines, *_frame(found)], found, unit)


def every_entry(found: Comparison, unit: float) -> list[Row]:
    """All entries, none of them summed with others, overlap, idle time, and the step."""
    return _rows([*((e.name, e.ns, e) for e in found.entries), *_frame(found)], found, unit)


def table_rows(found: Comparison, changes: Sequence[Change], unit: float, top: int | None, work: bool) -> list[Row]:
    """The rows of one of the other tables. ``work``: its times are sums of rows, from which overlap is subtracted."""
    count = _shown(changes, found, top)
    lines: list[Line] = [(change.name, change.ns, None) for change in changes[:count]]
    lines += _together(changes[count:], "others")
    return _rows([*lines, *(line for line in _frame(found) if work or line[0] != OVERLAP)], found, unit)


def _shown(changes: Sequence[Entry | Change], found: Comparison, top: int | None) -> int:
    """How many of the changes have rows of their own: the ``top`` greatest, which are the first (None: all)."""
    least = LEAST * max(found.step.before, found.step.after)
    count = len(changes) if top is None else sum(abs(change.ns.change) >= least for change in changes[:top])
    return len(changes) if count == len(changes) - 1 else count


def _frame(found: Comparison) -> list[Line]:
    """Overlap, where there is any, and idle time."""
    lines = [(OVERLAP, found.overlap), (IDLE, found.idle)]
    return [(name, ns, None) for name, ns in lines if ns.a.any() or ns.b.any()]


def _together(changes: Sequence[Entry | Change], words: str) -> list[Line]:
    """One row for all of these changes, if there are any."""
    if not changes:
        return []
    first, *others = (change.ns for change in changes)
    ns = Delta(sum((other.a for other in others), first.a), sum((other.b for other in others), first.b))
    return [(f"{len(changes)} {words}", ns, None)]


def _rows(lines: Sequence[Line], found: Comparison, unit: float) -> list[Row]:
    before = fitted([ns.before for _, ns, _ in lines], unit, round(found.step.before / unit))
    wanted = round(found.step.after / unit) - round(found.step.before / unit)
    change = fitted([ns.change for _, ns, _ in lines], unit, wanted)
    numbers = zip(lines, before, change, strict=True)
    rows = [Row(name, ns, start, by, entry) for (name, ns, entry), start, by in numbers]
    return [*rows, Row(unit_of(found), found.step, sum(before), sum(change), total=True)]
