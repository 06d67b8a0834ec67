"""Two H200 with an injected straggler (tests/device/job_programs.py): rank, cause and time, against what was injected.

truth.json has the delays as the program measured them while it was captured, in ms per step, the times of steps without
a profiler, and of collectives by CUDA events in the captured run. Of each capture's three steps the first is left out.
"""

import json
import re
from functools import cache

import pytest

from pyprof.prof.diff.compare import compare
from pyprof.prof.diff.lines import make_side
from pyprof.prof.diff.sentences import sentences
from pyprof.prof.load import load_table
from pyprof.prof.ranks import pace_of_table
from pyprof.prof.ranks.pace_records import Excess, Pace, SlowRank
from pyprof.prof.ranks.slow_sentences import expert_sentence
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Coded
from tests.paths import GOLDEN

FOLDER = GOLDEN / "ranks"
TRUTH = json.loads((FOLDER / "truth.json").read_text())
MIB = 1 << 20


@cache
def found(case: str) -> Pace:
    table = load_table(FOLDER / f"{case}.parquet").table
    result = pace_of_table(table, annotate(table))
    assert result is not None
    return result


def slowest(case: str) -> SlowRank:
    return found(case).slow[0]


def cause(case: str, name: str) -> Excess:
    [excess] = [each for each in slowest(case).causes if each.cause == name]
    return excess


def injected_ms(case: str) -> float:
    """The mean of the steps that count."""
    later = TRUTH[case]["injected_ms"][1:3]
    return float(sum(later) / len(later))


TABLES = [case for case in TRUTH if (FOLDER / f"{case}.parquet").exists()]  # test_injected_path.py has the others
INJECTED = [case for case in TABLES if "slow" in TRUTH[case] and case not in ("ddp.data", "pipe.layers")]


@pytest.mark.parametrize("case", INJECTED)
def test_the_rank_with_the_injected_delay_is_the_one_that_others_wait_for(case: str) -> None:
    assert slowest(case).rank == TRUTH[case]["slow"]


def test_without_an_injection_nobody_is_held_up() -> None:
    assert found("ddp.clean").slow == []


@pytest.mark.parametrize(
    ("case", "name", "place", "least"),
    [
        ("ddp.host", "host", "ones_like", 0.75),  # the backward pass's first op follows the sleep; some work was queued
        ("fsdp.host", "host", "ones_like", 0.85),
        ("tp.host", "host", "ones_like", 0.9),
        ("fsdp.data", "data", "to", 0.95),
        ("ddp.gc", "host", "ones_like", 0.95),
        ("ddp.copy", "copies", "to", 0.8),  # the GPU's part of a pageable copy; the host also copies to a buffer
    ],
)
def test_the_injected_delay_is_found_at_its_place(case: str, name: str, place: str, least: float) -> None:
    """The excess at the place is at most the delay and what the other rank idles there, 0.3 ms."""
    [ns] = [each.ns for each in cause(case, name).places if each.op == place]
    assert least * injected_ms(case) <= ns / 1e6 <= 1.02 * injected_ms(case) + 0.3


def test_more_layers_are_more_kernels_and_flops() -> None:
    """Two blocks beside four and the head, which does 3 * 2 * 8192 * 2048 * 8192 of their 10.73e12 FLOPs: 46%."""
    head = 3 * 2 * 8192 * 2048 * 8192 / 10.732e12
    for case in ("ddp.layers", "fsdp.layers"):
        more = cause(case, "kernels")
        assert more.more_flops == pytest.approx((1 - head) / 2, rel=0.01)
        assert more.places[0].where.startswith(("DistributedDataParallel.Gpt.extra.", "FSDPGpt.extra."))


def test_a_gpu_shared_with_another_program_works_slower() -> None:
    busy = cause("ddp.busy", "work")
    assert (busy.kernels, busy.more_flops) == (0, 0)
    longer = (sum(TRUTH["ddp.busy"]["step_ms"]) - sum(TRUTH["ddp.clean"]["step_ms"])) / 2
    assert busy.ns / 1e6 == pytest.approx(longer, rel=0.2)  # 37 ms without the profiler


def test_an_expert_with_more_tokens_has_larger_inputs() -> None:
    """Rank 1's expert gets 1.5 times as many tokens as are its own, rank 0's 0.5 times.

    Per token an expert's layer does 3 * 2 * 2 * 4 W^2 FLOPs, a block 3 * 2 * 12 W^2 and attention, 1.3% of all.
    """
    inputs = cause("moe.skew", "inputs")
    width, tokens, layers = 2048, 8192, 4
    expert = 3 * 2 * 2 * 4 * width**2 * tokens * layers
    block = 3 * 2 * 12 * width**2 * tokens * layers
    head = 3 * 2 * width * 8192 * tokens
    assert inputs.more_flops == pytest.approx(expert / (0.5 * expert + block + head), rel=0.04)


def test_the_load_of_experts_is_said_with_its_cost() -> None:
    """Each rank has 8,192 tokens of its own; three quarters of all go to rank 1, half of the mean to rank 0.

    Without the skew, a step takes 5.5 ms less.
    """
    load = found("moe.skew").experts
    assert load is not None
    assert (load.by, load.groups, load.ranks, load.rank) == ("tokens", 1, 2, 1)
    assert (load.most, load.worst) == (1.5, 1.5)
    cost = sum(TRUTH["moe.skew"]["step_ms"]) / 2 - sum(TRUTH["moe.clean"]["step_ms"]) / 2
    assert load.wait_ns is not None
    assert load.wait_ns / 1e6 == pytest.approx(cost, rel=0.15)
    assert expert_sentence(load, True) == (
        "Experts: rank 1 computes 1.50 times as many tokens as the mean of the ranks. "
        f"That costs each rank {load.wait_ns / 1e6:.3g} ms per step on average."
    )


def test_without_sizes_the_experts_flops_say_their_load() -> None:
    """As the tokens: 1.5 times the mean. What it costs, and of which communicator, is not known."""
    table = load_table(FOLDER / "moe.skew.parquet").table
    comm = table.coded("comm")
    left = [re.sub(r'"(in|out)": \d+, ', "", text) for text in comm.values]
    assert left != comm.values
    bare = table.with_column("comm", Coded(comm.codes, left))
    load = getattr(pace_of_table(bare, annotate(bare)), "experts", None)
    assert load is not None
    assert (load.by, load.groups, load.ranks, load.rank, load.worst, load.wait_ns) == ("flops", 0, 2, 1, None, None)
    assert load.most == pytest.approx(1.5, rel=0.001)


@pytest.mark.parametrize("case", ["ddp.clean", "tp.host", "fsdp.data", "pipe.layers"])
def test_a_job_without_experts_has_no_load(case: str) -> None:
    assert found(case).experts is None


def test_who_waits_where_both_ranks_are_late_is_said_of_both() -> None:
    """In fsdp.data the profiled host of rank 0 is late for other reasons; each rank has its own cause."""
    ranks = {slow.rank: [each.cause for each in slow.causes] for slow in found("fsdp.data").slow}
    assert ranks[1] == ["data"]
    assert "data" not in ranks[0]


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("mib", "within"), [(64, 0.06), (256, 0.02)])
def test_bus_bandwidth_is_that_of_cuda_events(mib: int, op: str, within: float) -> None:
    """Events also time the pauses between calls, 5 µs of 155 for the shortest.

    Each of two ranks sends 2 (n - 1) / n = 1 of the buffer in an all-reduce, half of it in the others.
    """
    [kind] = [kind for kind in found(f"bus.{mib}").collectives if kind.op == op]
    ms = sum(TRUTH[f"bus.{mib}"]["call_ms"][op][1:]) / 2
    expected = mib * MIB * (1 if op == "all_reduce" else 0.5) / ms / 1e6
    assert kind.bus_gbps == pytest.approx(expected, rel=within)
    assert kind.complete


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("ddp.clean", {"all_reduce": "data"}),
        ("fsdp.layers", {"all_gather": "sharded", "reduce_scatter": "sharded"}),
        ("tp.host", {"all_reduce": "tensor"}),
        ("moe.skew", {"all_to_all": "expert", "all_reduce": "data"}),
        ("pipe.layers", {"send and recv": "pipeline"}),
    ],
)
def test_what_communicators_are_for(case: str, kinds: dict[str, str]) -> None:
    assert {kind.op: kind.kind for kind in found(case).collectives} == kinds


def test_a_pipeline_shows_bubbles_and_its_longest_stage() -> None:
    """Stage 0 has four blocks, stage 1 two and the head: 1 waits. No rank is called slow for what is a schedule."""
    pace = found("pipe.layers")
    assert pace.slow == []
    work = {bubble.rank: bubble.work_ns for bubble in pace.bubbles}
    assert pace.bubbles[0].rank == 1
    assert work[0] > 1.5 * work[1]


def test_exposed_communication_is_split_into_waiting_and_moving() -> None:
    """Tensor parallel all-reduces run alone; of DDP's, all but the last buckets run beside the backward pass."""
    tensor, data = found("tp.host").communication, found("ddp.clean").communication
    assert tensor is not None
    assert data is not None
    assert tensor.exposed_ns == pytest.approx(tensor.ns, rel=0.01)
    assert data.exposed_ns < 0.15 * data.ns
    for each in (tensor, data):
        assert each.held_ns is not None
        assert 0 <= each.held_ns <= each.exposed_ns


def test_the_profilers_part_is_said_where_it_lengthens_steps() -> None:
    """Steps without the profiler, timed before it: as by the program's own clock in another run."""
    for case in ("ddp.layers", "tp.host", "ddp.gc"):
        before = found(case).unprofiled_ns
        assert before is not None
        assert before / 1e6 == pytest.approx(sum(TRUTH[case]["step_ms"]) / 2, rel=0.1)


@pytest.mark.parametrize(
    ("case", "ahead_ns"),
    [
        ("ddp.clean", 229_864),
        ("tp.host", -1_719_403),
        ("bus.256", -20_391),
        ("fsdp.data", 2_596_667),
        ("ddp.busy", -2_219_745),
        ("moe.skew", -117_337),
    ],
)
def test_clocks_agree_with_the_hosts_clock(case: str, ahead_ns: int) -> None:
    """Both processes ran on one host, so Kineto's times of the captures' beginnings say how far their clocks differ.

    Its times on the GPU are converted in each process apart, which explains some 20 µs.
    """
    clock = found(case).clocks[1]
    assert clock.ahead_ns == pytest.approx(ahead_ns, abs=40_000)
    assert clock.within_ns is not None
    assert clock.within_ns < 30_000


def test_a_difference_says_that_longer_collectives_are_waiting() -> None:
    """Two more blocks on rank 0: 11.5 ms per step by the program's clock."""
    sides = [make_side(load_table(FOLDER / f"{case}.parquet")) for case in ("ddp.clean", "ddp.layers")]
    difference = compare(*sides)
    longer = sum(TRUTH["ddp.layers"]["step_ms"]) / 2 - sum(TRUTH["ddp.clean"]["step_ms"]) / 2
    assert difference.step.change / 1e6 == pytest.approx(longer, rel=0.2)  # of two captured steps each
    first, second = sentences(difference)[:2]
    assert first.startswith("B: Rank 0 holds the others up")
    assert "201 kernels more" in first
    assert second.endswith("are waiting for other ranks, not communication.")
