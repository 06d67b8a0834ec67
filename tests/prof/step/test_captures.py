"""What limits the steps of programs that nobody here wrote: one capture of each kind of limit, in PYPROF_DATA.

The expected times are those of the raw traces, added up by other code: marks of steps, the union of the operations'
times, and the DataLoader's ranges.
"""

import pytest

from pyprof.prof.notebook import load
from pyprof.table.losses import times_are_wrong

MS = 1e6


@pytest.fixture(scope="module")
def summary(data):
    """A function: the numbers and sentences of a capture."""
    return lambda name: load(data / f"{name}.json.gz").summary()


def step_of(found):
    step = found.numbers.step
    assert sum(share.ns for share in step.shares) == pytest.approx(step.wall_ns, rel=1e-9)
    return step


def shares(step):
    return {share.cause: share.ns / MS for share in step.shares}


def test_a_pipeline_whose_host_decodes_videos_first(summary):
    """ProfilerStep#6 takes 382.54, the GPU works for 158.43, and begins 218.12 after the mark."""
    step = step_of(summary("round3/h100_timesformer"))
    assert (step.begins, step.steps, step.limit) == ("mark", 1, "data")  # the first operation brings the batch
    assert step.wall_ns / MS == pytest.approx(382.54, abs=0.01)
    assert step.lead_ns / MS == pytest.approx(218.12, abs=0.01)
    assert shares(step)["gpu"] == pytest.approx(158.43, abs=0.01)
    assert shares(step)["data"] == pytest.approx(218.12, abs=0.2)  # until the batch's copy is launched


def test_worker_processes_that_are_too_slow(summary):
    """No marks. Behind the first step, the trace has 9.76 s for 29 steps; the GPU works for 4.64 s of them."""
    step = step_of(summary("round3/rtx2080ti_resnet_loader"))
    assert (step.begins, step.loader, step.of, step.limit) == ("loader", "workers", "mean", "data")
    assert step.wall_ns / MS == pytest.approx(336.6, rel=0.01)
    assert shares(step)["gpu"] == pytest.approx(160, rel=0.01)
    assert shares(step)["data"] > 150


def test_a_small_model_that_waits_for_workers(summary):
    """Marks of 53.92, 34.58 and 73.95. The loader's three calls take 131.39, and most of that the GPU is idle."""
    step = step_of(summary("round3/t4_amp_workers"))
    assert (step.begins, step.loader, step.count, step.limit) == ("mark", "workers", 3, "data")
    assert step.wall_ns / MS == pytest.approx(53.92, abs=0.05)
    assert shares(step)["data"] / (step.wall_ns / MS) == pytest.approx(131.39 / 162.45, abs=0.03)


def test_a_loader_in_the_programs_own_process(summary):
    """ProfilerStep#6 takes 1211.18. The loader's six calls take 619.05, and the GPU works for 566.76."""
    step = step_of(summary("round2/tracelens_h100_owlv2"))
    assert (step.begins, step.loader, step.limit) == ("mark", "single process", "data")
    assert step.wall_ns / MS == pytest.approx(1211.18, abs=0.01)
    assert shares(step)["gpu"] == pytest.approx(566.76, abs=0.01)
    assert shares(step)["data"] == pytest.approx(619.05, abs=0.01)


def test_a_step_cut_out_of_a_longer_trace(summary):
    """Its first kernel waits for work that the file lacks, so the step begins with it: the GPU works 492.81 of 494."""
    step = step_of(summary("round3/mi300x_sglang_split"))
    assert (step.limit, step.begins) == ("gpu", "mark")
    assert step.wall_ns / MS == pytest.approx(494.0, abs=0.1)
    assert shares(step)["gpu"] == pytest.approx(492.81, abs=0.01)


def test_a_slow_all_reduce(summary):
    """The GPU is busy for nearly all of each step of 19, mostly with nothing but communication."""
    step = step_of(summary("round3/mi300x_resnet_slow_allreduce"))
    assert (step.limit, step.count) == ("communication", 3)
    assert shares(step)["communication"] > shares(step)["gpu"] > 0
    assert step.busy_ns == pytest.approx(step.wall_ns, rel=0.01)


@pytest.mark.parametrize("name", ["ts_zero_half", "dur_overflow"])
def test_wrong_times_are_named_and_withheld(summary, name):
    found = summary(f"round3/cases/{name}")
    assert times_are_wrong(found.numbers.incomplete)
    assert found.numbers.step is None and found.numbers.steps == ()
    assert [device.busy_ns for device in found.numbers.devices] == [None]
    said = ("A step takes", "The step takes", "The capture takes", "limits the step", "GPU is busy", "MFU")
    assert [text for text in found.sentences if any(words in text for words in said)] == []


def test_a_loop_in_a_cuda_graph_that_nsys_does_not_record(summary):
    """The host waits for 2.957 of 3.077 while nothing is on record."""
    found = summary("round3/cases/while_node")
    assert not times_are_wrong(found.numbers.incomplete)
    assert [loss.why.partition(" the host waits")[0] for loss in found.numbers.incomplete] == ["for 2.957 of 3.077 ms"]
    assert (found.numbers.step.limit, found.numbers.step.shares) == ("incomplete", ())
    assert [device.busy_ns for device in found.numbers.devices] == [None]
