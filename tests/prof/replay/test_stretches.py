"""Ends of tasks by stretches, against the loop over single tasks."""

from dataclasses import replace

import numpy as np
import pytest

from pyprof.prof.replay import stretches as module
from pyprof.prof.replay.stretches import ends_of, stretches
from pyprof.prof.replay.tasks import CALL, DEPENDS, GAP, HOST, LAUNCH, SYNC, WORK, Tasks, simulate


def two_launches() -> Tasks:
    """Two calls with a kernel each, of which the second waits for the first kernel, and a call that waits for both."""
    kind = np.array([HOST, CALL, WORK, HOST, CALL, WORK, HOST, CALL])
    edges = [  # target, source, lag, cause
        (1, 0, 0, DEPENDS),
        (2, 1, 4, LAUNCH),
        (3, 1, 0, DEPENDS),
        (4, 3, 0, DEPENDS),
        (5, 4, 4, LAUNCH),
        (5, 2, 1, GAP),
        (6, 4, 0, DEPENDS),
        (7, 6, 0, DEPENDS),
        (7, 2, 9, SYNC),
        (7, 5, 2, SYNC),
    ]
    target, source, lag, cause = (np.array(column) for column in zip(*edges, strict=True))
    first = np.searchsorted(target, np.arange(9))
    return Tasks(
        kind, np.arange(8), np.array([10, 5, 50, 10, 5, 20, 1, 3]), np.zeros(8, int), first, source, lag, cause
    )


def test_ends_of_two_runs() -> None:
    """The host launches at 15 and 30; kernels run from 19 to 69 and from 70 to 90, and the last call ends at 92 + 3.

    With a host three times as slow, at 45 and 90: kernels from 49 to 99 and from 100 to 120, the call at 122 + 9.
    """
    tasks = two_launches()
    known = stretches(tasks)
    # The host until it waits; the kernels; the wait
    assert [known.order[places].tolist() for places, _ in known.parts] == [[0, 1, 3, 4, 6], [2, 5], [7]]
    slow = np.where(tasks.kind == WORK, tasks.duration, 3 * tasks.duration)
    ends = ends_of(tasks, known, np.array([tasks.duration, slow]), np.tile(tasks.lag, (2, 1)), tasks.release[None])
    assert ends.tolist() == [[10, 15, 69, 25, 30, 90, 31, 95], [30, 45, 99, 75, 90, 120, 93, 131]]


@pytest.mark.parametrize("slow", [0, 1 << 40])
def test_ends_are_those_of_the_loop(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """Of any tasks, by stretches (0) and one by one: 40 tasks with up to four dependencies on those before them."""
    monkeypatch.setattr(module, "SLOW", slow)
    draw = np.random.default_rng(7)
    for _ in range(50):
        count = np.minimum(draw.integers(0, 5, 40), np.arange(40))
        source = np.concatenate([draw.choice(task, some, replace=False) for task, some in enumerate(count) if some])
        first = np.append(0, np.cumsum(count))
        lag, cause = draw.integers(-30, 30, (3, len(source))), draw.integers(0, 6, len(source))
        duration, release = draw.integers(0, 100, (3, 40)), draw.integers(0, 300, (3, 40))
        kind = draw.integers(0, 3, 40)
        tasks = Tasks(kind, np.arange(40), duration[0], release[0], first, source, lag[0], cause)
        wanted = [
            simulate(replace(tasks, duration=d, lag=gap, release=r)).tolist()
            for d, gap, r in zip(duration, lag, release, strict=True)
        ]
        assert ends_of(tasks, stretches(tasks), duration, lag, release).tolist() == wanted
