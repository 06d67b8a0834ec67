"""Why a GPU waits: gaps and their causes, the launches' queue, places where the CPU waits."""

import pytest

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.notebook import load
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.timing.gpus import launched_at
from pyprof.prof.timing.loading import without_loading
from pyprof.prof.timing.timeline import timeline
from pyprof.prof.timing.waiting import SyncPoint, sync_points, waiting, waits
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL
from pyprof.table.netdict import write_netdict
from tests.prof.changes.rules.advice_rows import table

US = 1000


def kernel(start, ns, api, call=5 * US, **more):
    return {"kShortName": "k", "start": start * US, "ns": ns * US, "apiStart": api * US, "apiDuration": call, **more}


def copy(start, ns, api, name, call=5 * US, **more):
    return kernel(start, ns, api, call, **{"kShortName": name, "kind": "memcpy", "bytes": 4, **more})


ITEM = "Memcpy DtoH (Device -> Pageable)"
PINNED = "Memcpy HtoD (Pinned -> Device)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"

GAPS = {  # what comes before and what ends the gap -> its length in µs and its cause
    "no gap": ([kernel(10, 40, 0), kernel(50, 10, 1)], 0, ""),
    "queued": ([kernel(10, 40, 0), kernel(52, 10, 1)], 2, "queued"),
    "a launch that was late": ([kernel(10, 40, 0), kernel(90, 10, 80)], 40, "launch"),
    "nothing was launched for long": ([kernel(10, 40, 0), kernel(300, 10, 290)], 250, "host"),
    "launched early in a long gap": ([kernel(10, 40, 0), kernel(300, 10, 60)], 250, "queued"),
    "a launch that took long itself": ([kernel(10, 40, 0), kernel(300, 10, 60, 245 * US)], 250, "host"),
    "a copy's call that took long itself": ([kernel(10, 40, 0), copy(300, 10, 60, PINNED, 245 * US)], 250, "host"),
    "item() and what the CPU does then": ([copy(10, 40, 0, ITEM), kernel(90, 10, 80)], 40, "sync"),
    "a copy to the host that nobody waits for": ([copy(10, 40, 0, ITEM), kernel(90, 10, 1)], 40, "queued"),
    "a batch": ([kernel(10, 40, 0), copy(900, 10, 890, PINNED, phase="data", bytes=65_536)], 850, "data"),
    "a batch whose copy took long to call": (
        [kernel(10, 40, 0), copy(900, 10, 60, PINNED, 845 * US, phase="data", bytes=65_536)],
        850,
        "host",
    ),
    "the model's second parameter": (
        [copy(10, 40, 0, PINNED, phase="data"), copy(900, 10, 890, PINNED, phase="data", bytes=65_536)],
        850,
        "host",
    ),
    "a batch in time": ([kernel(10, 40, 0), copy(52, 10, 1, PINNED, phase="data")], 2, "queued"),
    "a pageable copy": ([kernel(10, 40, 0), copy(90, 10, 1, PAGEABLE, 95 * US)], 40, "copy"),
    "a pageable copy that was called late": ([kernel(10, 40, 0), copy(900, 10, 890, PAGEABLE, 15 * US)], 850, "host"),
    "called in the middle": ([kernel(10, 40, 0), copy(90, 10, 70, PAGEABLE, 25 * US)], 40, "copy"),  # 20 of 40 µs
    "called behind the middle": ([kernel(10, 40, 0), copy(90, 10, 71, PAGEABLE, 25 * US)], 40, "launch"),
    "launches unknown": ([kernel(10, 40, 0), {**kernel(90, 10, 80), "apiStart": None}], 40, ""),
}


@pytest.mark.parametrize("why", GAPS)
def test_the_cause_of_a_gap(why):
    rows, length, cause = GAPS[why]
    found = waiting(table(*rows))
    assert found.idle_ns.tolist() == [0, length * US]
    code = int(found.cause.codes[1])
    assert (found.cause.values[code] if code >= 0 else "") == cause


def test_a_kernel_long_after_a_pageable_copys_call():
    # the call of the copy lasts until 95, its GPU is idle from 30 on: 65 of 870 µs are the call's
    rows = [copy(20, 10, 0, PAGEABLE, 95 * US), kernel(900, 10, 890)]
    found = waiting(table(*rows))
    assert (found.idle_ns[1], found.cause.values[found.cause.codes[1]]) == (870 * US, "host")


def test_a_launch_that_takes_long_is_done_when_its_kernel_begins():
    """µs: the GPU is idle from 50 to 300, and the call lasts from 60 to 305; another began at 310 and took 4."""
    made = table(kernel(10, 40, 0), kernel(300, 10, 60, 245 * US), kernel(320, 10, 310, 4 * US))
    assert launched_at(made).tolist() == [0, 300 * US, 310 * US]
    assert timeline(made).late_ns.tolist() == [0, 250 * US, 0]  # the last gap, 310 to 320, follows its launch


def test_a_kernel_behind_a_pageable_copys_call():
    # the copy's call lasts until 95; the kernel is launched at 96, and its GPU idle from 30 on
    rows = [copy(20, 10, 0, PAGEABLE, 95 * US), kernel(100, 10, 96)]
    found = waiting(table(*rows))
    assert (found.idle_ns[1], found.cause.values[found.cause.codes[1]]) == (70 * US, "copy")


def test_gaps_are_of_each_gpu():
    found = waiting(
        table(kernel(0, 10, 0), kernel(100, 10, 0, device=1), kernel(10, 10, 0), kernel(111, 5, 0, device=1))
    )
    assert found.idle_ns.tolist() == [0, 0, 0, 1 * US]


def test_ranks_of_two_hosts_may_have_the_same_process_and_device_number():
    """Per rank a gap of 90 and none; as one GPU's, rank 1's kernel would fill the gap of rank 0."""
    rows = [kernel(0, 10, 0, rank=0), kernel(10, 90, 0, rank=1), kernel(100, 10, 0, rank=0), kernel(100, 5, 0, rank=1)]
    made = table(*rows)
    assert waiting(made).idle_ns.tolist() == [0, 0, 90 * US, 0]
    found = Run(made, annotate(made))
    assert found.lanes == 2
    assert [made.ints("rank")[found.origin[rows]].tolist() for rows in found.lane_rows] == [[0, 0], [1, 1]]


def test_two_merged_files_of_the_same_process_number_are_two_gpus(tmp_path):
    """Each file: kernels from 0 to 10 and from 100 to 110. As one GPU's, there would be four kernels in a row."""
    for name in ("a", "b"):
        with (tmp_path / f"{name}.dict").open("wb") as out:
            write_netdict(table(kernel(0, 10, 0), kernel(100, 10, 0)), out)
    made = load(tmp_path / "a.dict", tmp_path / "b.dict").table
    assert sorted(waiting(made).idle_ns.tolist()) == [0, 0, 90 * US, 90 * US]
    assert Run(made, annotate(made)).lanes == 2


def test_the_queue_is_from_the_calls_end_to_the_start():
    rows = [kernel(100, 10, 20), kernel(200, 10, 198), {**kernel(300, 1, 0), "apiStart": None}]
    assert waiting(table(*rows)).queue_ns.tolist() == [75 * US, 0, NULL]


def test_cpu_ops_wait_for_nothing():
    found = waiting(table(kernel(0, 10, 0, kind="cpu"), kernel(50, 10, 0, kind="cpu")))
    assert found.idle_ns.tolist() == [NULL, NULL] and found.cause.codes.tolist() == [-1, -1]


def test_places_where_the_cpu_waits():
    told = {"op": ["Tensor.item"], "trace": ["train.py:9", "loop.py:41"]}  # one place, from two callers
    rows = [
        kernel(10, 90, 0),
        copy(100, 1, 20, ITEM, **told),
        kernel(131, 9, 121),  # from 20 to 101, then idle for 30
        copy(140, 1, 130, ITEM, **{**told, "trace": ["eval.py:3", "loop.py:41"]}),
        kernel(151, 9, 145),  # 11, and 10
        copy(160, 2, 155, "Memcpy DtoH (Device -> Pinned)"),
        kernel(170, 9, 156),  # launched before the copy's end
    ]
    made = table(*rows)
    found = waits(made)
    assert found.syncs == (SyncPoint("Tensor.item", "loop.py:41", 2, 92 * US, 40 * US),)
    assert sync_points(made, waiting(made)) == list(found.syncs)
    assert found.causes == (("sync", 2, 40 * US), ("queued", 1, 8 * US))


def test_pageable_copies_are_summed():
    made = table(copy(0, 10, 0, PAGEABLE, bytes=1000), copy(20, 30, 1, PAGEABLE, bytes=None), copy(60, 5, 2, PINNED))
    found = waits(made)
    assert (found.pageable_rows, found.pageable_ns, found.pageable_bytes) == (2, 40 * US, 1000)


def test_copies_of_unknown_size_have_no_bytes_and_not_zero():
    made = table(kernel(0, 5, 0), copy(10, 10, 1, PAGEABLE, bytes=None), copy(30, 10, 2, PAGEABLE, bytes=None))
    assert waits(made).pageable_bytes is None
    _, _, copies = without_loading(made, annotate(made))
    assert (copies.rows, copies.nbytes, copies.before_rows, copies.before_nbytes) == (2, None, 0, 0)


def test_exposed_communication_a_row():
    rows = [
        kernel(0, 100, 0, aten="aten::mm"),
        kernel(50, 100, 0, kShortName="ncclDevKernel_AllReduce_RING_LL"),
        kernel(120, 10, 0, aten="aten::mm"),
    ]
    made = table(*rows)
    # from 100 to 120 and from 130 to 150
    assert COLUMN["exposed"].get(made, annotate(made)).tolist() == [NULL, 40 * US, NULL]
