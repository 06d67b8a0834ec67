"""Reports in which a kernel has several rows: one for each pass of its replay, or one for each run of the program."""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.parse.ncu.report import Launch, Report
from pyprof.prof.counters.kernel_keys import Class, Compared
from pyprof.table.columns import Ints

# Metrics that tell of the launch or the device, not of what was counted in a pass.
ABOUT = re.compile(r"(?:launch|device|profiler|numa|nvlink|c2clink|gpu__time|gpc__cycles_elapsed).*")


def rows_of_passes(report: Report, launches: Ints) -> tuple[Ints, list[list[int]]]:
    """The first of all launches that are rows of one, each with what one pass counted; and the others of each.

    They follow one another, are alike, and no counter is known of two of them.
    """
    counters = [~np.isnan(values) for name, values in report.metrics.items() if not ABOUT.match(name)]
    known = np.array(counters, bool).reshape(len(counters), len(report))
    firsts: list[int] = []
    others: list[list[int]] = []
    for launch in launches.tolist():
        mine = known[:, launch]
        if firsts and _same(report.launches[firsts[-1]], report.launches[launch]) and mine.any():
            sofar = known[:, [firsts[-1], *others[-1]]].any(axis=1)
            if sofar.any() and not (sofar & mine).any():
                others[-1].append(launch)
                continue
        firsts.append(launch)
        others.append([])
    return np.array(firsts, np.int64), others


def _same(one: Launch, other: Launch) -> bool:
    return one[1:] == other[1:]  # all but their numbers


def whole_runs(compared: Compared, launches: Ints, group: Ints) -> Iterator[Ints]:
    """The launches, or the parts of them that each are the whole run: a report with a row of each kernel per pass.

    That is so if the report has all its kernels t times as often as a run has (``group``): each t times in a row, or
    the whole sequence t times.
    """
    known = launches[compared.level[launches] >= 0]
    keys = compared.classes(known)
    count = Counter(keys)
    places = compared.places(count, group)
    times = {n / max(len(places[each]), 1) for each, n in count.items()}
    repeats = times.pop() if len(times) == 1 else 1
    if repeats < 2 or repeats != int(repeats):
        yield launches
        return
    t, seen = int(repeats), Counter[Class]()
    nth = []
    for key in keys:
        nth.append(seen[key])
        seen[key] += 1
    in_a_row = all(keys[i : i + t] == [keys[i]] * t for i in range(0, len(keys), t))
    each = (
        np.array(nth) % t if in_a_row else np.array([n // (count[key] // t) for n, key in zip(nth, keys, strict=True)])
    )
    for number in range(t):
        yield known[each == number]
