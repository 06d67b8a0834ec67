"""Where a report's launches lie in the capture's sequence of kernels.

ncu measures a run in full or in part: the first hundred kernels, those after the first fifty, those whose name has
"gemm", those in a range. Without the rows whose kernels the report has not at all, such a part is one unbroken stretch,
or several. So the longest common stretches are found, the longest first, each between those before and after it.
What is left is matched in order.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from pyprof.prof.counters.kernel_keys import Class, Compared
from pyprof.table.columns import Bools, Ints

KEY, ORDER = "key", "order"  # how certain a match is
LEAST = 2  # launches in a stretch
MOST_STRETCHES = 256
MOST_WORK = 200_000_000  # pairs of equal keys that may be looked at: seconds


@dataclass(frozen=True, slots=True)
class Aligned:
    """For each launch the row that it is, as an index into the rows that were given, or -1; and whether it is certain.

    Certain: no other row could be it, because as many launches as rows have the key, in the same order, or because
    the launches are one stretch, which fits nowhere else.
    """

    row: Ints
    certain: Bools


def align(compared: Compared, launches: Ints, rows: Ints) -> Aligned:
    """Find the row of each of some launches among some rows, both in the order of their start."""
    classes = compared.classes(launches)
    places_of = compared.places(classes, rows)
    places = [places_of[each] for each in classes]
    found = np.full(len(launches), -1, np.int64)
    certain = np.zeros(len(launches), bool)
    _stretches(places, len(rows), found, certain)
    _complete_classes(classes, places, found, certain)
    _rest(places, len(rows), found)
    return Aligned(found, certain & (found >= 0) & ~compared.doubtful[launches])


def _stretches(places: list[Ints], rows: int, found: Ints, certain: Bools) -> None:
    """Match the longest stretches that both sequences have, without the rows that no launch could be."""
    shared = {id(place): place for place in places}.values()
    used = np.unique(np.concatenate([*shared, np.zeros(0, np.int64)]))
    known = np.flatnonzero([len(place) > 0 for place in places])
    if len(known) == len(used) and all(
        _has(places[i], row) for i, row in zip(known.tolist(), used.tolist(), strict=True)
    ):
        found[known], certain[known] = used, True  # the whole sequence, the usual case
        return
    dense = np.full(rows, -1, np.int64)
    dense[used] = np.arange(len(used))
    within = {id(place): dense[place] for place in shared}
    work = sum(map(len, places))
    spots = [within[id(place)] for place in places]
    dense_found = np.full(len(places), -1, np.int64)
    for _ in range(min(MOST_STRETCHES, MOST_WORK // max(work, 1))):
        length, last, end, alone = _longest(spots, len(used), dense_found)
        if length < LEAST:
            return
        stretch, at = np.arange(last - length + 1, last + 1), np.arange(end - length + 1, end + 1)
        dense_found[stretch], found[stretch] = at, used[at]
        certain[stretch] = alone and length == len(known)


def _has(place: Ints, row: int) -> bool:
    """Whether a row is among sorted rows."""
    at = int(np.searchsorted(place, row))
    return at < len(place) and int(place[at]) == row


def _between(found: Ints, rows: int) -> tuple[Ints, Ints]:
    """For each launch the last row of those matched before it, and the first of those matched after it."""
    known = np.where(found >= 0, found, -1)
    after = np.where(found >= 0, found, rows)
    low = np.concatenate([[-1], np.maximum.accumulate(known)[:-1]]) if len(found) else known
    high = np.concatenate([np.minimum.accumulate(after[::-1])[::-1][1:], [rows]]) if len(found) else after
    return low, high


def _longest(places: list[Ints], rows: int, found: Ints) -> tuple[int, int, int, bool]:
    """The longest stretch of what is still free: its length, last launch and row, and whether it fits there only.

    The length of the common stretch that ends at launch i and row j is one more than that at i - 1 and j - 1.
    """
    lengths = np.zeros(rows + 1, np.int64)  # [j + 1]: of the stretch that ends at row j
    best = (0, -1, -1, False)
    before = nowhere = np.zeros(0, np.int64)
    low, high = _between(found, rows)
    for launch, place in enumerate(places):
        free = place[(place > low[launch]) & (place < high[launch])] if found[launch] < 0 else nowhere
        longer = lengths[free] + 1
        lengths[before + 1] = 0
        lengths[free + 1] = longer
        before = free
        if len(longer) and longer.max() > best[0]:
            most = int(longer.max())
            ends = free[longer == most]
            best = (most, launch, int(ends[0]), len(ends) == 1)
    return best


def _complete_classes(classes: list[Class], places: list[Ints], found: Ints, certain: Bools) -> None:
    """Match the launches of a key in order where there are as many rows of it.

    They are certain if the report is in the capture's order, or if there is but one.
    """
    count = Counter(classes)
    whole = [i for i, key in enumerate(classes) if key[0] >= 0 and count[key] == len(places[i])]
    owner = {int(row): i for i, row in enumerate(found.tolist()) if row >= 0}
    members: dict[Class, list[int]] = {}
    for i in whole:
        members.setdefault(classes[i], []).append(i)
    single = [places[i][0] for i in whole if count[classes[i]] == 1]
    in_order = bool(np.all(np.diff(np.array(single, np.int64)) > 0))
    for mine in members.values():
        rows = places[mine[0]].tolist()
        own = set(mine)
        if any(owner.get(row, mine[0]) not in own for row in rows):
            continue  # a launch at another level is one of them
        found[mine] = rows
        certain[mine] = len(mine) == 1 or in_order


def _rest(places: list[Ints], rows: int, found: Ints) -> None:
    """Match what is left with the first free row of its key, if possible between the matches before and after it."""
    taken = np.zeros(rows + 1, bool)
    taken[found[found >= 0]] = True
    low, high = _between(found, rows)
    last = -1
    for launch in np.flatnonzero(found < 0).tolist():
        place = places[launch]
        free = place[~taken[place]]
        if not len(free):
            continue
        inside = free[(free > max(int(low[launch]), last)) & (free < high[launch])]
        chosen = int(inside[0] if len(inside) else free[0])
        last = chosen if len(inside) else last
        found[launch], taken[chosen] = chosen, True
