"""A GPU that waits: for launches, after synchronisations, for data, for pageable copies, for other ranks."""

import numpy as np
import pytest

from pyprof.prof.advice.host_time import _between, interval_ns
from tests.prof.advice.advice_rows import cards, run


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


def short(count, every=30_000, ns=2_000, **more):
    return [kernel(i * every, ns, **more) for i in range(count)]


def test_what_is_launched_and_waits_counts_per_step():
    # Two steps of two kernels of 1 µs, launched before the first, with 10 µs before each of the three others: all
    # but the usual 1.1 µs is a wait, 26.7 µs, 13.35 a step
    rows = [kernel(11_000 * i, 1_000, apiStart=-9_000 + i, apiDuration=1, step=i // 2) for i in range(4)]
    assert run(*rows).stalled_ns == 13_350


def test_launch_bound_by_hand():
    # 100 kernels of 2 µs, one each 30, launches not timed: 6 µs each, 0.6 ms. As a graph 1.1 × 0.2 ms + 100 × 0.25 µs
    (card,) = cards(*short(100))
    assert (card.rule, card.confidence, card.kernels, card.op) == ("launch_bound", "low", 100, "")
    assert card.saved_ms == pytest.approx(0.6 - 0.245)


def test_launch_bound_where_the_host_is_the_slower_one_four_times_in_five():
    # The host 100 × 6 µs; the GPU takes 100 × (3.5 + 1.1) µs, 0.46 ms: 1.304 times that, over exp(0.3 × 0.84) = 1.287.
    # As a graph 1.1 × 0.35 ms + 25 µs. With 3.7 µs each 0.48 ms: 1.25
    (card,) = cards(*short(100, ns=3_500), rule="launch_bound")
    assert card.saved_ms == pytest.approx(0.6 - 0.41)
    assert cards(*short(100, ns=3_700), rule="launch_bound") == []


def timed(count, every, ns=2_000, **more):
    """As torch.profiler records: launched at once, each call 4 µs."""
    return [kernel(i * every, ns, apiStart=i * every - 6_000, apiDuration=4_000, tid=1, occupancy=50.0, **more)
            for i in range(count)]  # fmt: skip


def test_half_of_the_hosts_time_under_torch_profiler_is_its_own():
    # 99 gaps of 26 µs and 100 calls of 4: 2.974 ms, of which 0.53, the median of 45 programs
    made = run(*timed(100, 30_000))
    assert made.launching_ns == pytest.approx(1_576_220) and made.host_ns == made.launching_ns


def test_a_graph_s_launch_takes_the_host_once():
    # Two graphs of 30 kernels; their launches take 4 µs each, 76 µs between them: 84 µs, of which 0.53
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
    assert made.host_ns == pytest.approx(84_000 * 0.53)
    low, high = interval_ns(made)
    assert low <= made.host_ns <= high


def test_the_time_of_many_launches_is_bounded_and_lies_in_its_interval():
    # 100 calls, one each 96 µs: 9.508 ms, of which 0.53 are 5.04; but a launch takes 25 µs at most
    made = run(*timed(100, 96_000))
    assert made.host_ns == 100 * 25_000
    low, high = interval_ns(made)
    assert low <= made.host_ns <= high


def test_pauses_of_the_host_are_its_own_and_are_no_launches():
    rows = timed(10, 30_000)
    for row in rows[5:]:
        row["start"] += 5_000_000
        row["apiStart"] += 5_000_000
    made = run(*rows)  # 8 gaps of 26 µs and 10 calls; the GPU was idle from 2 µs after the launch before it on
    assert made.launching_ns == pytest.approx((8 * 26_000 + 40_000) * 0.53)
    pauses = made.host_ns - made.launching_ns
    assert pauses == pytest.approx(5_022_000, abs=10_000)
    # of the launches 0.35 to 0.66 are the host's own, of the pauses all
    assert interval_ns(made) == pytest.approx((248_000 * 0.35 + pauses, 248_000 * 0.66 + pauses))


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
    made = run(first, *rest)  # a pause of 5.026 ms, of which the GPU worked until 24 - 6 µs before its end
    assert made.host_ns - made.launching_ns < 30_000


BUSY = {
    "the GPU works most of the step": short(100, every=4_000),
    "a handful of launches": short(20),
    "long kernels: the host was held up by something else": [kernel(i * 100_000, 12_000) for i in range(100)],
    "gaps too long for launches": short(100, every=1_000_000),
    "from a graph": short(100, graphNode=7),
}


@pytest.mark.parametrize("why", BUSY)
def test_not_launch_bound(why):
    assert [card for card in cards(*BUSY[why], rule="launch_bound") if card.saved_ms > 0] == []


def item(start, lead=500_000, **more):
    return {"kShortName": "Memcpy DtoH (Device -> Pinned)", "kind": "memcpy", "bytes": 4, "start": start, "ns": 1_000,
            "apiStart": start - lead, "aten": "aten::_local_scalar_dense", "phase": "forward", **more}  # fmt: skip


def test_a_sync_costs_what_the_gpu_waits_after_it():
    # idle for 80 µs: 20 µs until the next launch, of the rest the part that is not the ranges' (0.35)
    (card,) = cards(kernel(0, 1_000_000), item(1_000_000), kernel(1_081_000, 500_000))
    assert (card.rule, card.saved_ms) == ("sync_in_step", pytest.approx(0.020 + 0.35 * 0.060))


SYNC = {
    "nothing follows": [kernel(0, 1_000_000), item(1_000_000)],
    "the next step follows": [kernel(0, 1_000_000, step=1), item(1_000_000, step=1), kernel(1_081_000, 5000, step=2)],
    "the host had no lead to lose": [kernel(0, 1_000_000), item(1_000_000, lead=3_000), kernel(1_081_000, 500_000)],
    "the GPU went on": [kernel(0, 1_000_000), item(1_000_000), kernel(1_001_000, 500_000)],
    "no launch times": [kernel(0, 1_000_000), {**item(1_000_000), "apiStart": None}, kernel(1_081_000, 500_000)],
    "a large copy": [kernel(0, 1_000_000), item(1_000_000, bytes=4096), kernel(1_081_000, 500_000)],
}


@pytest.mark.parametrize("why", SYNC)
def test_no_sync_to_avoid(why):
    assert cards(*SYNC[why], rule="sync_in_step") == []


def batch(start, name="Memcpy HtoD (Pinned -> Device)", ns=300_000, **more):
    return {"kShortName": name, "kind": "memcpy", "bytes": 19_267_584, "start": start, "ns": ns, "phase": "data",
            "aten": "aten::copy_", **more}  # fmt: skip


def test_the_gpu_waits_for_a_batch():
    (card,) = cards(kernel(0, 1_000_000, phase="backward"), batch(5_000_000), kernel(5_300_000, 1_000_000))
    assert (card.rule, card.saved_ms) == ("data_loader", pytest.approx(4))


def test_a_batch_has_64_kibibytes_at_least():
    rows = [[kernel(0, 1_000_000, phase="backward"), batch(5_000_000, bytes=size)] for size in (65_535, 65_536)]
    assert [len(cards(*each, rule="data_loader")) for each in rows] == [0, 1]


DATA = {
    "in time": [kernel(0, 1_000_000, phase="backward"), batch(1_000_100), kernel(1_300_100, 1_000_000)],
    "a server's requests": [kernel(0, 1_000_000), batch(5_000_000), kernel(5_300_000, 1_000_000)],
    "no batch": [kernel(0, 1_000_000, phase="backward"), batch(5_000_000, bytes=8), kernel(5_300_000, 1_000_000)],
    "no data": [kernel(0, 1_000_000, phase="backward"), batch(5_000_000, phase="other")],
}


@pytest.mark.parametrize("why", DATA)
def test_not_waiting_for_data(why):
    assert cards(*DATA[why], rule="data_loader") == []


PAGEABLE = "Memcpy HtoD (Pageable -> Device)"


def test_a_pageable_copy_by_hand():
    # 19267584 bytes at 50e9/s (an H200's PCIe 5): 385.4 µs, now 3000
    (card,) = cards(batch(0, PAGEABLE, 3_000_000))
    assert (card.rule, card.saved_ms) == ("pageable_copy", pytest.approx(3 - 0.3854, abs=0.0001))


UNTOLD = "[CUDA memcpy Host-to-Device]"


def under_nsys(start, call, **more):
    """A copy of 19 MB in 3 ms, its call a µs before it."""
    return batch(
        start, UNTOLD, 3_000_000, api="cudaMemcpyAsync_v3020", apiStart=start - 1_000, apiDuration=call, **more
    )


def test_under_nsys_the_call_tells_a_pageable_copy():
    (card,) = cards(kernel(0, 1000), under_nsys(10_000, 2_950_000), rule="pageable_copy")
    assert card.saved_ms == pytest.approx(3 - 0.3854, abs=0.0001)
    assert cards(kernel(0, 1000), under_nsys(10_000, 6_000), rule="pageable_copy") == []  # from pinned memory
    assert (
        cards(under_nsys(10_000, 2_950_000), kernel(4_000_000, 1000), rule="pageable_copy") == []
    )  # a model's loading
    rows = [under_nsys(10_000, 2_950_000, step=1), kernel(4_000_000, 1000, step=1)]
    assert len(cards(*rows, rule="pageable_copy")) == 1


PINNED = {
    "pinned": [batch(0, ns=3_000_000)],
    "not told": [batch(0, "[CUDA memcpy Host-to-Device]", 3_000_000)],
    "as fast as pinned": [batch(0, PAGEABLE, 380_000)],
    "small": [batch(0, PAGEABLE, 3_000_000, bytes=4096)],
    "size unknown": [batch(0, PAGEABLE, 3_000_000, bytes=None)],
}


@pytest.mark.parametrize("why", PINNED)
def test_no_pageable_copy(why):
    assert cards(*PINNED[why], rule="pageable_copy") == []


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
    (card,) = cards(
        kernel(0, 2_000_000),
        *(allreduce(100_000 + 210_000 * i, 200_000, 10_000_000) for i in range(7)),
        allreduce(2_000_000, 400_000, 10_000_000),
    )
    assert (card.rule, card.saved_ms) == ("communication", pytest.approx(0.100 - 0.0294, abs=0.0001))


def test_small_collectives_by_hand():
    # 64 all-reduces of 64 kB while nothing else runs, by all_reduce after the backward pass: 63 calls of 22 µs fewer.
    # The host: 65 launches of 6 µs, 390 µs; the GPU takes less
    calls = [allreduce(20_000 + 30_000 * i, 5_000, 16_384, phase="forward") for i in range(64)]
    (card,) = cards(kernel(0, 10_000, phase="backward"), *calls, rule="small_collectives")
    assert card.kernels == 64 and "22 µs" in card.why and 0 < card.saved_ms <= 0.64


def test_small_collectives_of_old_releases_of_nccl():
    # Until 2.7 the algorithm follows the function's name: ncclAllReduceRingLLKernel_sum_f32
    name = {"kShortName": "ncclAllReduceRingLLKernel_sum_f32"}
    rows = [allreduce(30_000 * i, 5_000, 16_384, **name) for i in range(64)]
    (card,) = cards(*rows, rule="small_collectives")
    assert card.kernels == 64


FEW = {
    "a few": [allreduce(30_000 * i, 5_000, 16_384) for i in range(10)],
    "large ones": [allreduce(300_000 * i, 200_000, 6_553_600) for i in range(20)],
    "sizes unknown": [allreduce(30_000 * i, 5_000, 1, sizes=None) for i in range(64)],
}


@pytest.mark.parametrize("why", FEW)
def test_no_word_on_small_collectives(why):
    assert cards(*FEW[why], rule="small_collectives") == []


COVERED = {
    "small: latency, not bytes": [allreduce(0, 400_000, 100_000), allreduce(500_000, 20_000, 100_000)],
    "covered": [kernel(0, 1_000_000), allreduce(100_000, 200_000, 10_000_000)],
    "sizes unknown": [allreduce(0, 400_000, 1, sizes=None)],
    "bf16 already": [allreduce(0, 400_000, 10_000_000, kShortName="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")],
}


@pytest.mark.parametrize("why", COVERED)
def test_no_word_on_communication(why):
    assert cards(*COVERED[why], rule="communication") == []
