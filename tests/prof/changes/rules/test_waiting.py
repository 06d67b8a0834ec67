"""What the host takes in a capture; pageable copies; communication that nothing covers."""

import numpy as np
import pytest

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
    assert made.step_ns == 6_500


def test_without_start_times_kernels_follow_one_another():
    made = run(kernel(None, 2_000, step=1), kernel(None, 3_000, step=2))
    assert (made.steps, made.start.tolist()) == (2, [0, 2_000])


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
