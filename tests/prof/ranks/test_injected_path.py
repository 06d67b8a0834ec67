"""The critical path across two H200 with an injected straggler, and the step without it, against runs without either.

tests/golden/ranks/joint has both ranks' kernels and calls of four steps, by one clock. truth.json has the steps of the
same programs without a profiler: 29.6 ms of DDP without a straggler, 35.0 and 41.2 ms with late data and more layers.

tp.data, tp.layers, tpbusy.* and ddp.launch are of another run, three steps each (tests/device/job_goldens.py). In tp,
hosts set the pace, and a step of one program takes 42 to 60 ms; in tpbusy, with a larger batch, the GPUs set it.
"""

import json
import math
from functools import cache

import pytest

from pyprof.prof.load import load_table
from pyprof.prof.ranks import pace_of_table
from pyprof.prof.ranks.job_path import job_path
from pyprof.prof.ranks.pace_records import Cause, JobPath, Pace, SlowRank
from pyprof.prof.ranks.path_sentences import path_sentences
from pyprof.prof.ranks.slow_ranks import _kept
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

FOLDER = GOLDEN / "ranks" / "joint"
TRUTH = json.loads((GOLDEN / "ranks" / "truth.json").read_text())
FIRST_RUN = ("ddp.clean", "ddp.data", "ddp.layers", "moe.skew", "pipe.layers", "tp.clean")
CASES = (*FIRST_RUN, "tp.data", "tp.layers", "tpbusy.data", "tpbusy.layers", "ddp.launch")
MS = 1e6


@cache
def path(case: str) -> JobPath:
    loaded = load_table(FOLDER / f"{case}.pyprof", host=True)
    assert loaded.host is not None
    found = job_path(loaded.table, loaded.host, case, 2, 20_000.0)
    assert found is not None
    return found


@cache
def slowest(case: str) -> SlowRank:
    loaded = load_table(FOLDER / f"{case}.pyprof", host=True)
    pace = pace_of_table(loaded.table, annotate(loaded.table), path(case))
    assert pace is not None
    return pace.slow[0]


def injected_ms(case: str) -> float:
    """The mean of the two steps that count."""
    return float(sum(TRUTH[case]["injected_ms"][1:3]) / 2)


def step_ms(case: str) -> float:
    """Without a profiler, by the program's clock."""
    return float(sum(TRUTH[case]["step_ms"]) / 2)


@pytest.mark.parametrize("case", CASES)
def test_the_ranks_replayed_together_take_as_long_as_in_the_capture(case: str) -> None:
    """The replay does not get the waits for other ranks as input: they follow from when each rank arrives."""
    assert path(case).replayed_ns == pytest.approx(path(case).recorded_ns, rel=0.001)
    assert sum(each.ns for each in path(case).on) == pytest.approx(path(case).step_ns)


@pytest.mark.parametrize("case", ["ddp.clean", "ddp.data", "ddp.layers", "moe.skew"])
def test_the_step_without_the_profiler(case: str) -> None:
    measured = path(case).measured_ns if case == "ddp.clean" else step_ms(case) * MS
    assert path(case).step_ns == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("case", "rank"), [("ddp.data", 1), ("ddp.layers", 0)])
def test_like_the_other_rank_the_step_is_that_of_a_job_without_straggler(case: str, rank: int) -> None:
    """In the capture of ddp.data nobody waits for rank 1, because the profiler slows the other rank's host."""
    [alike] = [each for each in path(case).like_others if each.saves]
    assert alike.rank == rank
    assert alike.low_ns <= step_ms("ddp.clean") * MS <= alike.high_ns
    assert alike.high_ns - alike.low_ns < 0.1 * alike.step_ns


@pytest.mark.parametrize("case", ["ddp.clean", "tp.clean"])
def test_where_no_rank_is_late_no_saving_is_claimed(case: str) -> None:
    """Under the profiler, one rank of tp.clean waits 38 of 78 ms for the other."""
    assert [each.rank for each in path(case).like_others if each.saves] == []


def test_late_data_is_on_the_path_of_its_rank() -> None:
    injected = sum(TRUTH["ddp.data"]["injected_ms"][1:3]) / 2
    on = path("ddp.data").on[0]
    assert (on.rank, len(path("ddp.data").on)) == (1, 1)
    assert injected * 0.98 <= on.data / MS <= injected * 1.1


def test_more_layers_are_kernels_on_the_path() -> None:
    """Two of six blocks and the head are 46% of the FLOPs more (test_injected): the path's kernels."""
    on = path("ddp.layers").on[0]
    assert on.rank == 0
    assert on.kernels > 0.9 * path("ddp.layers").step_ns


def test_the_path_of_a_pipeline_lies_on_its_longest_stage() -> None:
    """Stage 0 has four blocks, stage 1 two and the head. A schedule makes no rank a straggler."""
    on = path("pipe.layers").on[0]
    assert on.rank == 0
    assert on.kernels > 0.7 * path("pipe.layers").step_ns
    assert path("pipe.layers").like_others == []


def test_sentences() -> None:
    loaded = load_table(FOLDER / "ddp.data.pyprof", host=True)
    pace = pace_of_table(loaded.table, annotate(loaded.table), path("ddp.data"))
    assert isinstance(pace, Pace)
    first, second = path_sentences(pace)
    assert "by a replay of 2 ranks together, whose clocks agree within 20 µs, steps 3 to 6." in first
    assert "Its critical path: rank 1 27.6 ms kernels, 6." in first
    assert "ms waiting for data" in first
    assert second.startswith("If rank 1 were like the other rank, a step would take 29.")


def test_an_expert_with_fewer_tokens_leaves_them_to_others() -> None:
    """Like rank 0, rank 1 would compute a third of its tokens, which nobody else would."""
    loaded = load_table(FOLDER / "moe.skew.pyprof", host=True)
    pace = pace_of_table(loaded.table, annotate(loaded.table), path("moe.skew"))
    assert pace is not None
    [of_late] = [each for each in path_sentences(pace) if each.startswith("If rank 1 were like")]
    assert of_late.endswith("But the tokens that it would not compute, others would.")


def test_more_layers_are_the_cause_where_their_launches_take_the_time() -> None:
    """Tensor parallel: hosts set the pace. Rank 0 gives its GPU 41% more operations, its host works 46% longer.

    Steps before this capture were slowed by pyprof.
    The GPU's idle time says "pauses of the host" and "late launches", which are what the further blocks bring.
    """
    loaded = load_table(FOLDER / "tp.calls.pyprof", host=True)
    pace = pace_of_table(loaded.table, annotate(loaded.table), path("tp.calls"))
    assert pace is not None
    first, *others = pace.slow[0].causes
    assert (pace.slow[0].rank, first.cause) == (0, "calls")
    assert {each.cause for each in others} == {"host", "launch"}
    hosts = pace.path.hosts if pace.path else []
    assert hosts[0].operations / hosts[1].operations == pytest.approx(1.41, rel=0.01)
    assert first.ns == pytest.approx(0.41 * hosts[1].host_ns, rel=0.01)


@pytest.mark.parametrize("case", ["tp.data", "tp.layers", "tpbusy.data", "tpbusy.layers", "ddp.launch"])
def test_the_rank_made_late_is_the_one_waited_for(case: str) -> None:
    assert slowest(case).rank == TRUTH[case]["slow"]


@pytest.mark.parametrize("case", ["tp.data", "tpbusy.data"])
def test_late_data_is_the_cause_with_the_injected_time(case: str) -> None:
    """In tp.data the other rank waits 42 ms per step for all that comes 6.2 ms late, and its host works no less.

    The excess is at most the delay and what the other rank idles there, 0.3 ms.
    """
    cause = slowest(case).causes[0]
    assert cause.cause == "data"
    assert 0.98 * injected_ms(case) <= cause.ns / MS <= injected_ms(case) + 0.3
    assert cause.places[0].op == "to"


@pytest.mark.parametrize("case", ["tp.layers", "tpbusy.layers"])
def test_more_layers_of_a_tensor_parallel_rank(case: str) -> None:
    """A rank of two has half of each of four blocks, and the head; rank 0 all of two further ones.

    The head does 3 * 2 * 8192 * 2048 * 8192 of the 10.73e12 FLOPs of four blocks and itself.
    """
    cause = slowest(case).causes[0]
    head = 3 * 2 * 8192 * 2048 * 8192 / 10.732e12
    block = (1 - head) / 4
    assert (cause.cause, cause.kernels) == ("kernels", 201)
    assert cause.more_flops == pytest.approx(2 * block / (2 * block + head), rel=0.01)
    assert "extra" in cause.places[0].where


def test_more_layers_take_what_the_step_takes_longer() -> None:
    """61.1 ms by the program's clock, with them and without."""
    longer = step_ms("tpbusy.layers") - step_ms("tpbusy.clean")
    assert slowest("tpbusy.layers").causes[0].ns / MS == pytest.approx(longer, rel=0.03)


@pytest.mark.parametrize("case", ["tpbusy.data", "tpbusy.layers"])
def test_where_gpus_set_the_pace_the_step_and_the_one_without_delay_are_the_programs(case: str) -> None:
    assert path(case).step_ns / MS == pytest.approx(step_ms(case), rel=0.01)
    [alike] = [each for each in path(case).like_others if each.saves]
    assert alike.rank == TRUTH[case]["slow"]
    assert alike.low_ns <= step_ms("tpbusy.clean") * MS <= alike.high_ns


def test_where_hosts_set_the_pace_late_data_costs_what_was_injected() -> None:
    [alike] = [each for each in path("tp.data").like_others if each.saves]
    assert alike.rank == 1
    assert (path("tp.data").step_ns - alike.step_ns) / MS == pytest.approx(injected_ms("tp.data"), rel=0.15)


def test_a_pause_before_each_linear_layer() -> None:
    """37 of 0.2 ms. The host is also 8 ms slower for another reason; without the rank's lateness 8.9 ms are saved."""
    cause = slowest("ddp.launch").causes[0]
    assert cause.cause == "host"
    assert {place.op for place in cause.places} == {"linear"}
    [alike] = [each for each in path("ddp.launch").like_others if each.saves]
    assert alike.rank == 0
    assert (path("ddp.launch").step_ns - alike.step_ns) / MS == pytest.approx(injected_ms("ddp.launch"), rel=0.25)


FOUND: list[tuple[Cause, float]] = [("host", 19.7), ("launch", 15.6), ("data", 6.3), ("copy", 1.2)]


@pytest.mark.parametrize(
    ("longer", "causes"),
    [
        ((1.0, 1.0), ["data"]),  # the hosts work as long: their pauses are not what delays
        ((1.0, 1.5), ["data", "host"]),  # of 68.5 ms 2% are 1.37
        ((9.0, 8.0), ["launch", "host", "data"]),  # late data is a cause beside pauses that explain more
        ((math.inf, math.inf), ["host", "launch", "data"]),  # the hosts' work is not known
    ],
)
def test_pauses_are_causes_as_far_as_the_host_works_longer(longer: tuple[float, float], causes: list[str]) -> None:
    """A wait of 42 ms in a step of 68.5, of which data takes less than a fifth."""
    kept = _kept(FOUND, dict(zip(("launch", "host"), longer, strict=True)), 42.0, 68.5)
    assert [cause for cause, _ in kept] == causes
