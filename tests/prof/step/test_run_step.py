"""The step's time and what limits it, of tables made by hand. Times in the comments are µs."""

import numpy as np
import pytest

from pyprof.prof.step.device_shares import SHARES
from pyprof.prof.step.run_step import RunStep, Share, _limit, run_step, without_profiler
from pyprof.prof.step.step_times import step_times
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Table
from pyprof.table.measured_steps import MeasuredStep
from tests.prof.changes.rules.advice_rows import table

US = 1000
ITEM = "Memcpy DtoH (Device -> Pageable)"
ALL_REDUCE = "ncclDevKernel_AllReduce_RING_LL"


def kernel(start, took, called, **more):
    """A kernel whose launch takes the host 5."""
    times = {"start": start * US, "ns": took * US, "apiStart": called * US, "apiDuration": 5 * US}
    return {"kShortName": "k", **times, **more}


def marked(number, begin, end, **more):
    """The step that a row is in: its mark, and its times on the GPU, which are the same."""
    keys = {"markStart": begin, "markEnd": end, "stepStart": begin, "stepEnd": end}
    return {"step": number, **{key: time * US for key, time in keys.items()}, **more}


def timed(made, *times):
    """The table with steps that were timed without the profiler."""
    steps = [MeasuredStep(number, round(time * US), None) for number, time in enumerate(times)]
    return Table(len(made), made.columns, (), steps)


def found(made) -> RunStep:
    step = run_step(made, annotate(made))
    assert step is not None
    assert_shares_add_up(step)
    return step


def assert_shares_add_up(step: RunStep) -> None:
    for shares in filter(None, (step.shares, *(device.shares for device in step.devices))):
        assert sum(share.ns for share in shares) == pytest.approx(step.wall_ns, rel=1e-9)
        assert sum(share.captured_ns for share in shares) == pytest.approx(step.captured_ns, rel=1e-9)
        assert min(share.ns for share in shares) >= 0


def in_us(shares) -> dict[str, float]:
    """The shares that are not 0, in µs."""
    rounded = {share.cause: round(share.ns / US, 6) for share in shares}
    return {cause: us for cause, us in rounded.items() if us}


def two_marked_steps():
    """From 0 to 100, with a kernel from 20 to 60, and from 100 to 200, with one from 120 to 170."""
    return table(kernel(20, 40, 15, **marked(0, 0, 100)), kernel(120, 50, 115, **marked(1, 100, 200)))


def test_marked_steps_last_from_mark_to_mark():
    step = found(two_marked_steps())
    assert (step.unit, step.count, step.numbers, step.begins) == ("step", 2, (0, 1), "mark")
    assert (step.wall_ns, step.captured_ns, step.timed) == (100 * US, 100 * US, False)
    assert (step.of, step.low_ns, step.high_ns, step.steps) == ("median", 100 * US, 100 * US, 2)
    # The GPU works for 40 + 50. The host is late for the first 20, from 60 to 120, and for the last 30: 110. Halved:
    assert in_us(step.shares) == {"gpu": 45, "host": 55}
    assert step.lead_ns == 20 * US  # in both steps
    assert step.limit == "host"
    assert step.total_ns == 200 * US and step.busy_ns == 45 * US


def test_a_step_that_begins_while_the_gpu_works_has_no_lead():
    """The first kernel of step 1 runs from 100 on, behind one of step 0 that ends there: leads of 20 and 0."""
    made = table(kernel(20, 80, 15, **marked(0, 0, 100)), kernel(100, 90, 60, **marked(1, 100, 200)))
    step = found(made)
    assert step.lead_ns == 10 * US
    assert in_us(step.shares) == {"gpu": 85, "host": 15}  # 170 of 200; 20 before the first, 10 after the last
    assert step.limit == "gpu"  # 85%


def test_without_the_profiler_the_host_is_faster():
    """Of four timed steps the later half counts: 70 and 80. 25 less than captured, which the host's 55 lose."""
    step = found(timed(two_marked_steps(), 95, 90, 70, 80))
    assert (step.timed, step.wall_ns, step.captured_ns) == (True, 75 * US, 100 * US)
    assert (step.of, step.low_ns, step.high_ns, step.steps) == ("median", 70 * US, 80 * US, 2)
    assert in_us(step.shares) == {"gpu": 45, "host": 30}
    assert [round(share.captured_ns) for share in step.shares if share.cause == "host"] == [55 * US]
    assert step.total_ns == 150 * US  # two steps of 75


def test_one_timed_step_is_no_median():
    step = found(timed(two_marked_steps(), 75))
    assert (step.timed, step.of, step.steps, step.wall_ns) == (True, "one", 1, 75 * US)


def test_a_step_is_never_longer_without_the_profiler_than_with_it():
    step = found(timed(two_marked_steps(), 120, 120))
    assert (step.timed, step.wall_ns) == (False, 100 * US)


def test_steps_shorter_than_the_captured_work_take_from_the_gpu_last():
    """40 in place of 100: the host's 55 go, and 5 of the GPU's 45."""
    step = found(timed(two_marked_steps(), 40, 40))
    assert in_us(step.shares) == {"gpu": 40}
    assert step.limit == "gpu"


LENGTHS = [  # lengths of the steps, and the figure that is the step's time
    ((100, 100, 400), ("mean", 200)),  # 600 / 3, twice the median
    ((100, 100, 110), ("median", 100)),  # the mean is 103.3
    ((100, 300, 500), ("median", 300)),  # and the mean, too
    ((100,), ("one", 100)),
]


@pytest.mark.parametrize(("lengths", "figure"), LENGTHS)
def test_the_mean_counts_where_some_steps_take_far_longer(lengths, figure):
    rows, begin = [], 0
    for number, length in enumerate(lengths):
        rows.append(kernel(begin + 10, 80, begin + 5, **marked(number, begin, begin + length)))
        begin += length
    step = found(table(*rows))
    assert (step.of, step.wall_ns) == (figure[0], figure[1] * US)
    assert (step.low_ns, step.high_ns) == (min(lengths) * US, max(lengths) * US)


def test_of_unmarked_steps_the_last_ones_length_is_not_known():
    """They begin with their operations, at 0, 100 and 220. So the whole ones take 100 and 120, 110 at the median."""
    made = table(kernel(0, 40, -5, step=0), kernel(100, 50, 95, step=1), kernel(220, 200, 215, step=2))
    step = found(made)
    assert (step.begins, step.count, step.numbers) == ("operation", 2, (0, 1))
    assert (step.steps, step.low_ns, step.high_ns, step.wall_ns) == (2, 100 * US, 120 * US, 110 * US)
    assert [window.whole for window in step_times(made).windows] == [True, True, False]
    assert in_us(step.shares) == {"gpu": 45, "host": 65}  # 90 of the 220; the last kernel is not in a whole step
    assert step.lead_ns == 0


def test_a_capture_without_steps_is_one():
    step = found(table(kernel(0, 60, -5), kernel(90, 10, 85)))
    assert (step.unit, step.count, step.numbers, step.of) == ("capture", 1, (), "one")
    assert step.wall_ns == 100 * US
    assert in_us(step.shares) == {"gpu": 70, "host": 30}


def test_a_capture_without_steps_has_no_time_without_the_profiler():
    """The timed steps are not those of the capture."""
    assert not found(timed(table(kernel(0, 60, -5), kernel(90, 10, 85)), 50, 50)).timed


def test_nothing_has_a_time():
    made = table(kernel(0, 0, 0))
    assert run_step(made, annotate(made)) is None


def loaded(workers):
    """Two steps that begin when the program asks for a batch, at 10 and 100, and wait for it for 30."""
    return table(
        kernel(50, 40, 45, step=0, batches=[[workers, 10 * US, 40 * US]]),
        kernel(150, 40, 145, step=1, batches=[[workers, 100 * US, 130 * US]]),
    )


def test_a_step_begins_at_the_loaders_call():
    step = found(loaded(workers=0))
    assert (step.begins, step.loader) == ("loader", "single process")
    assert step.wall_ns == 90 * US  # 10 to 100, and 100 to 190, where the last operation ends
    # The GPU works for 80 of 180; it is idle from 10 to 50 and from 90 to 150, of which 60 are the loader's.
    assert in_us(step.shares) == {"gpu": 40, "data": 30, "host": 20}
    assert step.lead_ns == (40 + 50) / 2 * US
    assert step.limit == "data"  # a third of the step


def test_a_loader_in_the_programs_process_is_slowed_with_the_host():
    """Steps of 65: 25 less, half of the 50 that loader and host take."""
    step = found(timed(loaded(workers=0), 65, 65))
    assert in_us(step.shares) == {"gpu": 40, "data": 15, "host": 10}


def test_worker_processes_are_not_slowed():
    """Steps of 65: 25 less, the host's 20 and 5 of the wait for the workers."""
    made = loaded(workers=1)
    step = found(timed(made, 65, 65))
    assert step.loader == "workers"
    assert in_us(step.shares) == {"gpu": 40, "data": 25}


def test_a_gap_is_split_by_what_the_host_did():
    """A copy to the host ends at 50, and its call at 55. The program waits for a batch from 100 to 400, launches the
    next kernel at 1000, and the GPU begins it at 1050. So of the 1000 the loader has 300, the copy's call 5, and the
    launch after it the 50 that the host waited; it did something else for 595, and the last 50 the kernel was launched.
    """
    copy = kernel(10, 40, 0, kind="memcpy", kShortName=ITEM, **marked(0, 10, 1100))
    made = table(
        {**copy, "apiDuration": 55 * US},
        kernel(1050, 50, 1000, batches=[[1, 100 * US, 400 * US]], **marked(0, 10, 1100)),
    )
    step = found(made)
    assert step.wall_ns == 1090 * US
    assert in_us(step.shares) == {"gpu": 90, "data": 300, "sync": 55, "host": 595, "latency": 50}
    assert step.limit == "data"  # 27.5%, and surer than the host's 54.6%


@pytest.mark.parametrize(
    ("called", "shares", "limit"),
    [(60, {"gpu": 65, "sync": 17, "host": 78}, "host"), (0, {"gpu": 65, "sync": 70, "host": 5, "latency": 20}, "sync")],
)
def test_after_a_short_wait_for_a_copy_the_hosts_work_is_its_own(called, shares, limit):
    """Of 160, the GPU works from 20 to 60, from 65 to 70, where it copies to the host, and from 135 to 155. The copy's
    call lasts to 72, so that the host is in it for the 5 before the copy and for 2 after it; 63 later the next kernel
    is launched. Called at 60, the host waited 10 for the copy, and works for the other 53, for the 20 before the first
    kernel, and for the 5 at the end. Called at 0, it waited 70, to which all of the 63 are due; the first kernel was
    launched before that.
    """
    of_step = marked(0, 0, 160)
    copy = kernel(65, 5, called, kind="memcpy", kShortName=ITEM, **of_step) | {"apiDuration": (72 - called) * US}
    step = found(table(kernel(20, 40, called - 45, **of_step), copy, kernel(135, 20, 130, **of_step)))
    assert (in_us(step.shares), step.limit) == (shares, limit)


def test_without_the_copys_call_all_of_the_launch_after_it_is_due_to_the_wait():
    """From 0 to 60, a copy until 20, whose call is not known, and a kernel from 50 on that was launched at 45."""
    of_step = marked(0, 0, 60)
    copy = kernel(0, 20, 0, kind="memcpy", kShortName=ITEM, **of_step) | {"apiStart": None, "apiDuration": None}
    assert in_us(found(table(copy, kernel(50, 10, 45, **of_step))).shares) == {"gpu": 30, "sync": 30}


def test_communication_counts_where_nothing_else_runs():
    """From 0 to 100, of which a product runs from 50 to 80."""
    made = table(
        kernel(0, 100, -5, kShortName=ALL_REDUCE, **marked(0, 0, 100)),
        kernel(50, 30, 45, aten="aten::mm", **marked(0, 0, 100)),
    )
    step = found(made)
    assert in_us(step.shares) == {"gpu": 30, "communication": 70}
    assert (step.limit, step.busy_ns) == ("communication", 100 * US)


def test_each_device_has_its_limit():
    """Device 0 works for 90 of 100, device 1 for 20."""
    of_step = marked(0, 0, 100)
    made = table(
        kernel(0, 90, -5, **of_step),
        kernel(0, 10, -5, device=1, **of_step),
        kernel(90, 10, 85, device=1, **of_step),
    )
    step = found(made)
    assert [device.limit for device in step.devices] == ["gpu", "host"]
    assert [in_us(device.shares) for device in step.devices] == [{"gpu": 90, "host": 10}, {"gpu": 20, "host": 80}]
    assert in_us(step.shares) == {"gpu": 55, "host": 45}
    assert step.limit == "host"


def test_of_several_devices_the_slowest_ones_step_counts():
    """Unmarked: device 0's second step begins at 100, device 1's at 120."""
    made = table(
        kernel(0, 50, -5, step=0),
        kernel(0, 50, -5, step=0, device=1),
        kernel(100, 50, 95, step=1),
        kernel(120, 50, 115, step=1, device=1),
    )
    step = found(made)
    assert step.wall_ns == 120 * US
    # device 0 works for 50 of its 100, and then has no work for another 20
    assert [in_us(device.shares) for device in step.devices] == [{"gpu": 50, "host": 70}, {"gpu": 50, "host": 70}]


def test_a_device_that_hardly_works_is_idle():
    """Without steps: device 0 works from 0 to 100, device 1 from 40 to 50."""
    step = found(table(kernel(0, 100, -5), kernel(40, 10, 35, device=1)))
    assert [in_us(device.shares) for device in step.devices] == [{"gpu": 100}, {"gpu": 10, "host": 90}]
    assert in_us(step.shares) == {"gpu": 55, "host": 45}


def test_a_step_on_the_cpu_is_the_hosts():
    step = found(table(kernel(0, 50, 0, kind="cpu"), kernel(60, 40, 0, kind="cpu")))
    assert (step.limit, in_us(step.shares), step.wall_ns) == ("host", {"host": 100}, 100 * US)


def test_a_loader_on_the_cpu_is_a_part_of_the_step():
    """Of 100 µs, the program is in the DataLoader's call for 30."""
    batches = [[0, 55 * US, 85 * US]]
    step = found(table(kernel(0, 50, 0, kind="cpu"), kernel(90, 10, 86, kind="cpu", batches=batches)))
    assert (step.limit, in_us(step.shares)) == ("data", {"data": 30, "host": 70})


def test_an_incomplete_capture_has_no_shares():
    step = found(table(kernel(0, 50, 0, incomplete=[["records are lost", "record again"]]), kernel(60, 40, 55)))
    assert (step.limit, step.shares, step.devices) == ("incomplete", (), ())


def test_work_whose_launch_is_not_on_record_is_unknown():
    made = table(kernel(0, 50, -5), {**kernel(90, 10, 0), "apiStart": None, "apiDuration": None})
    step = found(made)
    assert in_us(step.shares) == {"gpu": 60, "unknown": 40}
    assert step.limit == "unknown"


LIMITS = [  # of 100: what the step is spent on, and its limit
    ({"gpu": 75, "host": 25}, "gpu"),
    ({"gpu": 74, "host": 26}, "host"),
    ({"gpu": 30, "data": 25, "host": 45}, "data"),
    ({"gpu": 31, "data": 24, "host": 45}, "host"),
    ({"gpu": 30, "sync": 25, "host": 45}, "sync"),
    ({"sync": 40, "data": 25, "host": 35}, "data"),
    ({"communication": 60, "sync": 25, "gpu": 15}, "sync"),
    ({"communication": 60, "sync": 15, "gpu": 25}, "communication"),
    ({"gpu": 60, "latency": 15, "host": 14, "sync": 11}, "latency"),  # none has a quarter: the longest
    ({"gpu": 50, "unknown": 50}, "unknown"),
]


@pytest.mark.parametrize(("of_step", "limit"), LIMITS)
def test_the_limit(of_step, limit):
    assert _limit(tuple(Share(name, of_step.get(name, 0), 0) for name in SHARES), 100) == limit


def test_the_profilers_cost_comes_off_the_host_then_off_other_waits_then_off_the_gpu():
    captured = np.array([40.0, 10, 20, 5, 20, 5, 0])  # in the order of SHARES; 100 in all
    assert SHARES == ("gpu", "communication", "data", "sync", "host", "latency", "unknown")
    assert without_profiler(captured, 90).tolist() == pytest.approx([40, 10, 20, 5, 10, 5, 0])
    # 15 beyond the host's 20, of the 30 of data, sync and latency: half of each
    assert without_profiler(captured, 65).tolist() == pytest.approx([40, 10, 10, 2.5, 0, 2.5, 0])
    # 25 beyond both, of the 50 in which the GPU works: half of each
    assert without_profiler(captured, 25).tolist() == pytest.approx([20, 5, 0, 0, 0, 0, 0])
    # with a loader in the program's process, 20 of the 40 of host and data
    assert without_profiler(captured, 80, ("host", "data")).tolist() == pytest.approx([40, 10, 10, 5, 10, 5, 0])
