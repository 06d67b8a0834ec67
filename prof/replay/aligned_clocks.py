"""One clock for the processes of a job, whose captures each count time from their own begin.

The kernels of a collective end together in all ranks. So the clock of each process is moved by the median difference of
their ends to those of the first process. Below ``SAME_NS``, the kernels differ and the clocks are the same.
"""

from collections.abc import Sequence

import numpy as np

from pyprof.table.columns import NULL, HostTable, Ints, Table

SAME_NS = 100_000


def aligned(table: Table, host: HostTable, meetings: Sequence[Ints]) -> tuple[Table, HostTable]:
    """The tables with the times of all processes on the clock of one. ``meetings``: the rows of each collective."""
    shifts = _shifts(table, meetings)
    if not shifts:
        return table, host
    for key in ("start", "apiStart"):
        table = table.with_column(key, _moved(table.ints(key), table.ints("pid"), shifts))
    return table, host.with_column("start", _moved(host.ints("start"), host.ints("pid"), shifts))


def _shifts(table: Table, meetings: Sequence[Ints]) -> dict[int, int]:
    """By how many ns the clock of each process is ahead of the first one's; those that are the same are left out."""
    end, pid = table.ints("start") + np.maximum(table.ints("kDuration"), 0), table.ints("pid")
    ahead: dict[int, list[int]] = {}
    reference: dict[int, int] = {}  # process -> the one whose clock it is compared with
    for rows in meetings:
        first, *others = rows[np.argsort(pid[rows], kind="stable")].tolist()
        for row in others:
            if reference.setdefault(int(pid[row]), int(pid[first])) == pid[first]:
                ahead.setdefault(int(pid[row]), []).append(int(end[row] - end[first]))
    found: dict[int, int] = {}
    for process in sorted(ahead):  # a process is compared with one of a smaller number, which has been moved before
        found[process] = round(float(np.median(ahead[process]))) + found.get(reference[process], 0)
    return {process: shift for process, shift in found.items() if abs(shift) > SAME_NS}


def _moved(times: Ints, pid: Ints, shifts: dict[int, int]) -> Ints:
    found = times.copy()
    for process, shift in shifts.items():
        found[(pid == process) & (times != NULL)] -= shift
    return found
