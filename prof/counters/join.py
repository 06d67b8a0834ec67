"""A report of Nsight Compute joined to a kernel table: which launch of the report each kernel of the capture is.

They are two runs of one program. ncu runs it with the same kernels in the same order, one at a time, each with several
replays; the capture has them as they ran. The report may have a part of the run, the capture several steps of which
ncu measured one, and both several processes. What was measured of a kernel in one step holds for the other steps, too.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from pyprof.parse.ncu.report import Report
from pyprof.prof.counters.kernel_keys import Class, Compared, bare_names, compare, names_of_rows
from pyprof.prof.counters.passes import rows_of_passes, whole_runs
from pyprof.prof.counters.sequence_alignment import KEY, ORDER, align
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table

MOST = 0.9  # share of the launches that one step must hold to be taken for what ncu measured
KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Kernels that one side has and the other has not."""

    in_report: bool  # launches of the report; else kernels of the capture
    name: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Join:
    """Which launch each row is.

    ``launches``: for each row the launch, -1 if it has none; several arrays if the report measured the run several
    times (application replay, a process for each pass): the first known value counts. ``certainty``: "key" where no
    other kernel could be meant, "order" where several are alike and their order decides; else empty. ``reason``: why a
    kernel of the capture has no launch.
    """

    report: Report
    launches: tuple[Ints, ...]
    certainty: Coded
    reason: Coded
    unmatched: tuple[Unmatched, ...]

    @property
    def matched(self) -> Bools:
        """The rows that have a launch."""
        found: Bools = self.launches[0] >= 0
        return found


def join(report: Report, table: Table) -> Join:
    """Find the launch of each kernel of the table. Rows that are no kernels have none, nor a reason."""
    rows = _in_launch_order(table)
    compared = compare(report.launches, table, rows)
    matches = _Matches(len(table), len(report))
    groups = _groups_of_rows(table, rows)
    taken: set[int] = set()
    for launches in _by_process(report):
        group = _group_for(compared, launches, rows, groups, report, table, taken)
        if group is None:
            continue
        taken.add(group)
        firsts, others = rows_of_passes(report, launches)
        for part in whole_runs(compared, firsts, _one_run(table, rows, groups[group])):
            _join_part(compared, part, rows, groups[group], table, matches)
        matches.add_passes(dict(zip(firsts.tolist(), others, strict=True)))
    matched = matches.launches[0] >= 0
    certainty = Coded.of(np.where(matched, np.where(matches.certain, KEY, ORDER), "").tolist())
    reason, unmatched = _why(report, table, rows, matched, matches.used)
    return Join(report, tuple(matches.launches), certainty, reason, unmatched)


class _Matches:
    """What has been matched: ``Join.launches`` in the making."""

    def __init__(self, rows: int, launches: int) -> None:
        self.launches: list[Ints] = [np.full(rows, -1, np.int64)]
        self.certain = np.zeros(rows, bool)  # of the first match of each row
        self.used = np.zeros(launches, bool)

    def add(self, rows: Ints, launches: Ints, certain: Bools) -> None:
        """Give rows a launch, or, where they have one, another."""
        self.used[launches] = True
        free = next((column for column in self.launches if (column[rows] < 0).all()), None)
        if free is None:
            free = np.full(len(self.certain), -1, np.int64)
            self.launches.append(free)
        free[rows] = launches
        if free is self.launches[0]:
            self.certain[rows] = certain

    def add_passes(self, others: dict[int, list[int]]) -> None:
        """Give the rows of each launch its other passes, too. ``others``: launch -> the rows of its further passes."""
        for number in range(max(map(len, others.values()), default=0)):
            column = np.full(len(self.certain), -1, np.int64)
            for row in np.flatnonzero(self.launches[0] >= 0).tolist():
                more = others.get(int(self.launches[0][row]), [])
                column[row] = more[number] if number < len(more) else -1
            self.used[column[column >= 0]] = True
            self.launches.append(column)


def _in_launch_order(table: Table) -> Ints:
    """The kernels, in the order of their launches; of a graph's, and where launches are not known, of their start."""
    kernels = np.flatnonzero(table.coded("kind").among(KERNEL))
    start, api = table.ints("start")[kernels], table.ints("apiStart")[kernels]
    begin = start if (api == NULL).any() else api
    order: Ints = kernels[np.lexsort((start, begin))]
    return order


def _by_process(report: Report) -> list[Ints]:
    """The launches of each process and device in ncu's numbering, in which it saw them; a report may be sorted."""
    groups: dict[tuple[int | None, int | None], list[int]] = {}
    for index, launch in enumerate(report.launches):
        groups.setdefault((launch.process_id, launch.device), []).append(index)
    return [np.array(sorted(each, key=lambda i: report.launches[i].id), np.int64) for each in groups.values()]


def _groups_of_rows(table: Table, rows: Ints) -> list[Ints]:
    """The places in ``rows`` of each process and device."""
    pairs = list(zip(table.ints("pid")[rows].tolist(), table.ints("device")[rows].tolist(), strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    number = np.array([numbers[pair] for pair in pairs], np.int64)
    return [np.flatnonzero(number == each) for each in range(len(numbers))]


def _group_for(
    compared: Compared, launches: Ints, rows: Ints, groups: list[Ints], report: Report, table: Table, taken: set[int]
) -> int | None:
    """The process and device of the capture that has most of the launches; of the same device number, if there is one.

    Of equal ones it is the first that no other launches have taken.
    """
    device = report.launches[int(launches[0])].device
    same = [n for n, group in enumerate(groups) if table.ints("device")[rows[group[0]]] == device]
    wanted = Counter(compared.classes(launches))
    best, score = None, (0, False)
    for number in same or range(len(groups)):
        count = _matchable(compared, wanted, groups[number])
        if count and (count, number not in taken) > score:
            best, score = number, (count, number not in taken)
    return best


def _matchable(compared: Compared, wanted: Counter[Class], place: Ints) -> int:
    """How many of some launches could be among some rows, one row each."""
    places = compared.places(wanted, place)
    return sum(min(count, len(places[each])) for each, count in wanted.items())


def _one_run(table: Table, rows: Ints, group: Ints) -> Ints:
    """The kernels of one step, the one with most; of all the group if it has no steps."""
    step = table.ints("step")[rows[group]]
    numbers, counts = np.unique(step[step != NULL], return_counts=True)
    return group[step == numbers[np.argmax(counts)]] if len(numbers) > 1 else group


def _join_part(compared: Compared, launches: Ints, rows: Ints, group: Ints, table: Table, matches: _Matches) -> None:
    """Match launches with each step of the group, or with all of it."""
    for place in _steps(compared, launches, rows, group, table):
        aligned = align(compared, launches, place)
        ok = np.flatnonzero(aligned.row >= 0)
        matches.add(rows[place[aligned.row[ok]]], launches[ok], aligned.certain[ok])


def _steps(compared: Compared, launches: Ints, rows: Ints, group: Ints, table: Table) -> list[Ints]:
    """The parts of the group that the launches are matched with: each step, if one holds what ncu measured.

    Without marks of steps: each repetition, if the group is the launches' sequence again and again.
    """
    step = table.ints("step")[rows[group]]
    numbers = np.unique(step[step != NULL])
    wanted = Counter(compared.classes(launches))
    known = int(np.count_nonzero(compared.level[launches] >= 0))
    steps = [group[step == number] for number in numbers.tolist()]
    if len(steps) > 1 and max(_matchable(compared, wanted, place) for place in steps) >= MOST * known:
        outside = group[step == NULL]
        return [*steps, *([outside] if len(outside) else [])]
    return _repetitions(compared, launches, group) or [group]


def _repetitions(compared: Compared, launches: Ints, group: Ints) -> list[Ints]:
    """The group's parts that each are the whole sequence of the launches; none if it is not such a repetition."""
    size = len(launches)
    if not size or len(group) < 2 * size or (compared.level[launches] < 0).any():
        return []
    classes = compared.classes(launches)
    places = compared.places(classes, group)
    place = np.unique(np.concatenate(list(places.values())))
    times = len(place) // size
    if len(place) < len(group) or len(place) % size:
        return []  # of a part of the kernels it is not known what repeats: steps or layers
    wanted = [(compared.rows[level], number) for level, number in classes] * times
    same = all(rows[group[at]] == number for (rows, number), at in zip(wanted, place.tolist(), strict=True))
    return np.split(group[place], times) if same else []


# ----- why not -----


def _why(report: Report, table: Table, rows: Ints, matched: Bools, used: Bools) -> tuple[Coded, tuple[Unmatched, ...]]:
    """The reason of each kernel without a launch, and what is unmatched on both sides, most first."""
    of_launch, of_row = bare_names(report.launches), names_of_rows(table, rows).texts()
    in_report, in_capture = Counter(of_launch), Counter(of_row)
    reasons = [""] * len(table)
    lists: Counter[tuple[bool, str, str]] = Counter()
    for place, row in enumerate(rows.tolist()):
        if matched[row]:
            continue
        name = of_row[place]
        reasons[row] = _reason(in_report[name], in_capture[name], "report", "capture")
        lists[False, name, reasons[row]] += 1
    for index in np.flatnonzero(~used).tolist():
        name = of_launch[index]
        lists[True, name, _reason(in_capture[name], in_report[name], "capture", "report")] += 1
    unmatched = tuple(Unmatched(side, name, why, n) for (side, name, why), n in lists.most_common())
    return Coded.of(reasons), unmatched


def _reason(there: int, here: int, other: str, own: str) -> str:
    if not there:
        return f"the {other} has no kernel of this name"
    if there >= here:
        return f"the {other} has this kernel with another grid, block or op"
    return f"the {other} has {there:,} of this name, the {own} {here:,}"
