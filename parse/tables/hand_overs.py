"""Where a thread waits for another one of its process before it goes on calling the GPU's API.

Autograd runs the backward pass on a thread of its own: ``backward()`` gives it the work and waits, and between the
passes that thread waits in turn. So if other threads call the API in the time between two calls of a thread, it waited
for the last of their calls, unless its own ranges show that it worked in the meantime: threads that run side by side,
as of several GPUs, wait for nobody. A few ranges do not count, because the thread that waits in ``backward()`` runs the
nodes of tensors on the CPU. Threads that give the GPU no work, such as NCCL's watchdog, count for nothing.
"""

import numpy as np

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.table.api_kinds import GIVING
from pyprof.table.columns import NULL, Coded, Ints

BUSY = 0.1  # the least number of a thread's ranges, for each range of the thread that it may wait for


@given_back()
def hand_overs(kind: Coded, pid: Ints, thread: Ints, start: Ints, end: Ints, tree: RangeTree) -> Ints:
    """Per call, the row of the other thread's call that it came after; ``NULL``: none.

    The calls are in order of process, thread and start. ``thread``: each one's, as an index into Capture.threads.
    """
    found = np.full(len(start), NULL, np.int64)
    giving = kind.among(*GIVING)
    for process in np.unique(pid).tolist():
        mine = np.flatnonzero(pid == process)
        threads = np.unique(thread[mine][giving[mine]]).tolist()
        calls = {number: mine[thread[mine] == number] for number in threads}
        activity = {number: _activity(tree, number) for number in threads if len(threads) > 1}
        for own, of_own in activity.items():
            for other in threads:
                if other != own:
                    after = _came_after(calls[own], calls[other], start, end, (of_own, activity[other]))
                    found[calls[own]] = _later(found[calls[own]], after, end)
    return found


def _later(one: Ints, other: Ints, end: Ints) -> Ints:
    """Of two calls the one that ended later."""
    ended = (np.where(rows == NULL, NULL, end[np.maximum(rows, 0)]) for rows in (one, other))
    return np.where(np.greater_equal(*ended), one, other)


def _activity(tree: RangeTree, thread: int) -> Ints:
    """The times at which ranges of a thread begin or end, sorted."""
    own = slice(*np.searchsorted(tree.thread, [thread, thread + 1]).tolist())  # ranges are in order of thread
    times = np.concatenate([tree.start[own], tree.end[own]])
    times.sort()
    return times


def _came_after(rows: Ints, others: Ints, start: Ints, end: Ints, activity: tuple[Ints, Ints]) -> Ints:
    """For one thread's calls, in order: the call of another thread (``others``) that each came after, or ``NULL``."""
    reached = np.maximum.accumulate(end[rows])
    since = np.append(start[others].min(), reached[:-1])  # of the first call: all that went before
    by_end = others[np.argsort(end[others], kind="stable")]
    last = np.searchsorted(end[by_end], start[rows], "right") - 1
    by_start = np.sort(start[others])
    first = np.searchsorted(by_start, since)  # the first call of another thread in the gap
    begun = by_start[np.minimum(first, len(by_start) - 1)]
    until = end[by_end[np.maximum(last, 0)]]
    gap = (last >= 0) & (until > since) & (first < len(by_start)) & (begun < start[rows])
    own, other = (np.searchsorted(times, until) - np.searchsorted(times, begun, "right") for times in activity)
    busy = own > BUSY * np.maximum(other, 0)
    return np.where(gap & ~busy, by_end[np.maximum(last, 0)], NULL)
