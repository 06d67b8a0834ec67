"""What the host takes in a capture; pageable copies; communication that nothing covers."""

import numpy as np
import pytest

from pyprof.prof.changes.effect.host_time import _between
from tests.prof.changes.rules.advice_rows import changes, run


def kernel(start, ns, **more):
    return {"kShortName": "kernel", "aten": "aten::relu", "start": start, "ns": ns, "phase": "forward", **more}


def test_gaps_are_what_no_stream_covers():
    found = run(kernel(0, 100), kernel(50, 10), kernel(70, 60), kernel(150, 10), kernel(7, 5, device=1)).gaps
    assert found.tolist() == [0, 0, 0, 20, 0]


def test_steps_and_what_runs_in_them():
    # From the first kernel of a step to that of the next, the last one to its end: 10 and 3 µs, of which 2 and 3 run
    made = run(kernel(0, 2_000, step=1), kernel(10_000, 3_000, step=2))
    assert [(step.number, step.span_ns, step.idle_ns) for step in made.times] == [(1, 10_000, 8_000), (2, 3_000, 0)]
    assert (made.step_ns, made.busy_ns) == (6_500, 2_500)


def test_without_start_times_a_step_is_as_busy_as_its_kernels_are_long():
    made = run(kernel(None, 2_000, step=1), kernel(None, 3_000, step=2))
    assert (made.steps, made.busy_ns) == (2, 2_500)


def timed(count, every, ns=2_000, **more):
    """As torch.profiler records: launched at once, each call 4 µs."""
    return [kernel(i * every, ns, apiStart=i * every - 6_000, apiDuration=4_000, tid=1, occupancy=50.0, **more)
            for i in range(count)]  # fmt: skip


def test_the_hosts_time_is_that_of_its_calls_and_of_what_is_between_them():
    assert run(*timed(100, 30_000)).captured_host_ns == (99 * 26_000 + 100 * 4_000, 0)


def test_a_graph_s_launch_takes_the_host_once():
    # Two graphs of 30 kernels; their launches take 4 µs each, and 76 µs between them: 84 µs
    rows = [
        kernel(
            launch + i * 1_000,
            500,
            apiStart=launch - 5_000,
            apiDuration=4_000,
            tid=1,
            api="cudaGraphLaunch",
            graphNode=i + 1,
            occupancy=50.0,
        )
        for launch in (0, 80_000)
        for i in range(30)
    ]
    made = run(*rows)
    assert made.in_graph.all()
    assert made.captured_host_ns == (84_000, 0)


def test_pauses_of_the_host_are_its_own_and_are_no_launches():
    rows = timed(10, 30_000)
    for row in rows[5:]:
        row["start"] += 5_000_000
        row["apiStart"] += 5_000_000
    # 8 gaps of 26 µs and 10 calls. The pause is 5,026 µs long; the kernel before it ends 8 µs after its launch's begin,
    # which is 4 µs after the begin of the pause
    launching, pauses = run(*rows).captured_host_ns
    assert launching == 8 * 26_000 + 10 * 4_000
    assert pauses == 5_026_000 - 4_000


def test_a_pause_is_longer_than_half_a_millisecond():
    # Calls of 4 µs, and 500 or 501 µs between them, of which the GPU was idle for all but the first 2 µs
    for gap, found in ((500_000, (508_000, 0)), (501_000, (8_000, 499_000))):
        made = run(kernel(4_000, 2_000), kernel(9_000 + gap, 2_000))
        assert _between(made, np.arange(2), np.array([0, 4_000 + gap]), np.array([4_000, 4_000])) == found


def test_what_the_host_waits_for_the_gpu_is_not_its_work():
    first, *rest = timed(3, 30_000)
    first["ns"] = 5_000_000  # a kernel of 5 ms; then .item(), which waits for it
    for row in rest:
        row["start"] += 5_000_000
        row["apiStart"] += 5_000_000
    # a pause of 5.026 ms, from 4 µs after the first launch's begin; the GPU works until 5.006 ms after it: 24 µs remain
    assert run(first, *rest).captured_host_ns[1] == 24_000


def batch(start, name="Memcpy HtoD (Pinned -> Device)", ns=300_000, **more):
    return {"kShortName": name, "kind": "memcpy", "bytes": 19_267_584, "start": start, "ns": ns, "phase": "data",
            "aten": "aten::copy_", **more}  # fmt: skip


PAGEABLE = "Memcpy HtoD (Pageable -> Device)"


def test_a_pageable_copy_by_hand():
    # 19267584 bytes at 50e9/s (an H200's PCIe 5): 385.4 µs, now 3000
    (change,) = changes(batch(0, PAGEABLE, 3_000_000))
    assert (change.rule, change.gpu_ms) == ("pageable_copy", pytest.approx(3 - 0.3854, abs=0.0001))


PINNED = {
    "pinned": [batch(0, ns=3_000_000)],
    "not told": [batch(0, "[CUDA memcpy Host-to-Device]", 3_000_000)],
    "as fast as pinned": [batch(0, PAGEABLE, 380_000)],
    "small": [batch(0, PAGEABLE, 3_000_000, bytes=4096)],
    "size unknown": [batch(0, PAGEABLE, 3_000_000, bytes=None)],
}


@pytest.mark.parametrize("why", PINNED)
def test_no_pageable_copy(why):
    assert changes(*PINNED[why], rule="pageable_copy") == []


def allreduce(start, ns, elements, **more):
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    told = {"kShortName": name, "sizes": [[[elements]], []], "phase": "backward", "stream": 20}
    return {**kernel(start, ns, aten="record_param_comms"), **told, **more}


def test_exposed_is_what_nothing_covers():
    made = run(kernel(0, 100), allreduce(50, 100, 10), kernel(120, 10))
    assert made.exposed(np.array([1])).tolist() == [40]


def test_communication_by_hand():
    # 40 MB in 200 µs is the fastest: 5 ns a kB. The last takes 400 µs for 40 MB, all exposed: 200 of it move bytes,
    # half of which a 2-byte message saves, less its casts: 12 × 1e7 bytes at 4.08e12/s, 29.4 µs; the others are covered
    (change,) = changes(
        kernel(0, 2_000_000),
        *(allreduce(100_000 + 210_000 * i, 200_000, 10_000_000) for i in range(7)),
        allreduce(2_000_000, 400_000, 10_000_000),
    )
    assert (change.rule, change.gpu_ms) == ("communication", pytest.approx(0.100 - 0.0294, abs=0.0001))


COVERED = {
    "small: latency, not bytes": [allreduce(0, 400_000, 100_000), allreduce(500_000, 20_000, 100_000)],
    "covered": [kernel(0, 1_000_000), allreduce(100_000, 200_000, 10_000_000)],
    "sizes unknown": [allreduce(0, 400_000, 1, sizes=None)],
    "bf16 already": [allreduce(0, 400_000, 10_000_000, kShortName="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")],
}


@pytest.mark.parametrize("why", COVERED)
def test_no_word_on_communication(why):
    assert changes(*COVERED[why], rule="communication") == []
