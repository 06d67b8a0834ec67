"""The critical path across two H200 with an injected straggler, and the step without it, against runs without either.

tests/golden/ranks/joint has both ranks' kernels and calls of four steps, by one clock. truth.json has the steps of the
same programs without a profiler: 29.6 ms of DDP without a straggler, 35.0 and 41.2 ms with late data and more layers.
"""

import json
from functools import cache

import pytest

from pyprof.prof.load import load_table
from pyprof.prof.ranks.job_path import JobPath, job_path
from pyprof.prof.ranks.pace import Pace, pace_of_table
from pyprof.prof.ranks.path_sentences import path_sentences
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

FOLDER = GOLDEN / "ranks" / "joint"
TRUTH = json.loads((GOLDEN / "ranks" / "truth.json").read_text())
CASES = ("ddp.clean", "ddp.data", "ddp.layers", "moe.skew", "pipe.layers", "tp.clean")
MS = 1e6


@cache
def path(case: str) -> JobPath:
    loaded = load_table(FOLDER / f"{case}.pyprof", host=True)
    assert loaded.host is not None
    found = job_path(loaded.table, loaded.host, case, 2, 20_000.0)
    assert found is not None
    return found


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

    The GPU's idle time says "pauses of the host" and "late launches", which are what the further blocks bring.
    """
    loaded = load_table(FOLDER / "tp.layers.pyprof", host=True)
    pace = pace_of_table(loaded.table, annotate(loaded.table), path("tp.layers"))
    assert pace is not None
    first, *others = pace.slow[0].causes
    assert (pace.slow[0].rank, first.cause) == (0, "calls")
    assert {each.cause for each in others} == {"host", "launch"}
    hosts = pace.path.hosts if pace.path else []
    assert hosts[0].operations / hosts[1].operations == pytest.approx(1.41, rel=0.01)
    assert first.ns == pytest.approx(0.41 * hosts[1].host_ns, rel=0.01)
