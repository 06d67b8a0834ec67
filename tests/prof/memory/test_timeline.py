"""Peaks of a device and of its steps, worked out by hand; totals that are not recorded; lost events."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.memory.timeline import step_peaks, timelines
from pyprof.table.columns import NULL
from tests.prof.memory.memory_rows import event, table


def test_the_peak_counts_what_was_there_before():
    (line,) = timelines(table(event(1, 30, 8), event(2, 20, 16), event(3, -30, 8), event(4, 5, 8), start=100))
    assert (line.initial, line.peak.nbytes, line.peak.place, line.peak.time_ns) == (100, 150, 1, 2)
    assert line.total.tolist() == [130, 150, 120, 125] and line.missing == 0


def test_the_peak_may_be_what_was_there_before():
    (line,) = timelines(table(event(1, -30, 8), event(2, 20, 16), start=100))
    assert (line.peak.nbytes, line.peak.place, line.peak.time_ns) == (100, -1, None)


def test_a_step_starts_with_what_the_one_before_left():
    """As torch.cuda.reset_peak_memory_stats() at its begin does."""
    found = table(
        event(1, 50, 8, step=3), event(2, -10, 900, step=3), event(3, -50, 8, step=4), event(4, 20, 8, step=4),
        event(5, 1, 9, step=NULL), start=100,
    )  # fmt: skip
    (line,) = timelines(found)
    # step 3: 100 -> 150 -> 140; step 4 begins with 140 and never has more: 90, 110
    assert [(each.step, each.peak.nbytes, each.begin, each.end) for each in step_peaks(found, line)] == [
        (3, 150, 0, 2), (4, 140, 2, 4),
    ]  # fmt: skip


def test_the_reserve_is_what_the_profiler_recorded():
    (line,) = timelines(
        table(event(1, 8, 8, reserved=2048), event(2, 8, 16, reserved=4096), event(3, -8, 8, reserved=2048))
    )
    assert line.most_reserved() == 4096
    (line,) = timelines(table(event(1, 8, 8)))
    assert line.most_reserved() is None


def test_without_totals_bytes_count_from_the_first_event():
    (line,) = timelines(table(event(1, 8, 8), event(2, -20, 99), event(3, 30, 8), start=None))
    assert (line.initial, line.total.tolist(), line.peak.nbytes) == (None, [8, -12, 18], 18)


def test_a_cpus_total_counts_from_the_profilers_start():
    (line,) = timelines(table(event(1, 8, 8), event(0, 99, 7, level="before"), kind="cpu"))
    assert (line.initial, line.peak.nbytes, len(line.before_rows)) == (None, 8, 0)


def test_totals_that_do_not_follow_are_counted():
    found = table(event(1, 8, 8), event(2, 8, 16), event(3, 8, 24))
    found.ints("allocated")[1:] += 1000  # an event of 1,000 bytes is missing before the second one
    (line,) = timelines(found)
    assert line.missing == 1 and line.peak.nbytes == 1024


def test_each_device_of_each_process_has_a_timeline_gpus_first():
    found = table(
        event(1, 5, 8, kind="cpu"), event(2, 7, 8, device=1), event(3, 9, 8, pid=8), event(4, 1, 8, level="driver"),
        start=None,
    )  # fmt: skip
    lines = timelines(found)
    assert [(each.kind, each.device, each.pid, each.level, each.peak.nbytes) for each in lines] == [
        ("cuda", 0, 8, "allocator", 9),
        ("cuda", 1, 7, "allocator", 7),
        ("cpu", 0, 7, "allocator", 5),
        ("cuda", 0, 7, "driver", 1),
    ]


@given(st.lists(st.integers(-9, 9).filter(bool), min_size=1, max_size=40), st.integers(0, 100), st.data())
def test_sums_and_peaks_agree_with_their_definition(changes, start, data):
    found = table(*(event(i, size, i + 1) for i, size in enumerate(changes)), start=start)
    (line,) = timelines(found)
    assert int(line.total[-1]) - start == sum(changes)  # the signed bytes sum to the total change
    running = [start, *(start + np.cumsum(changes)).tolist()]
    assert line.peak.nbytes == max(running)
    begin = data.draw(st.integers(0, len(changes)))
    end = data.draw(st.integers(begin, len(changes)))
    assert line.peak_between(begin, end).nbytes == max(running[begin : end + 1])


def test_the_drivers_total_is_never_that_of_the_allocator():
    (line,) = timelines(table(event(1, 8, 8), event(2, 8, 16), level="driver", start=5))
    assert (line.initial, line.total.tolist()) == (None, [8, 16])
