"""A step is never predicted to take less than the GPU's work that remains."""

import numpy as np
import pytest

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.parse.kineto.kineto_file import begin, call, kernel, op, write


@pytest.fixture
def run(tmp_path):
    """µs: three launches of 5 at 0, 50 and 100, each followed by a kernel of 20 that begins 5 after its call."""
    calls, kernels = [call(50 * n, n + 1) for n in range(3)], [kernel(50 * n + 10, 20, n + 1) for n in range(3)]
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 6), *calls, *kernels)
    loaded = load_table(file, host=True)
    return BaseRun(loaded.table, annotate(loaded.table), loaded.host, loaded.name)


def graph(run):
    rows = np.arange(3)
    return Edit("cuda_graph", "Graph.", "", "", rows=rows, ns=run.run.dur[rows], left=np.full(3, 0.01), graph=True)


def test_what_makes_steps_longer_than_most_is_not_the_gpus_work(run):
    """The replay takes 120 or less; a step of 61 scales that by a half or more. The kernels' 60 remain in any case."""
    forecaster = Forecaster(run, captured_ns=61_000)
    before = captured(run)
    assert forecaster.forecast(before).ns == pytest.approx(61_000, rel=1e-6)
    after = apply(graph(run), before)
    assert forecaster.forecast(after).ns >= 60_000 and forecaster.roughly(after) >= 60_000
    assert forecaster.forecast(after).ns <= forecaster.forecast(before).ns


def test_a_step_that_is_shorter_than_the_kernels_scales_them(run):
    """The kernels' 60 do not fit into a step of 30: then they take 30 of it, and no estimate is longer."""
    forecaster = Forecaster(run, captured_ns=30_000)
    assert forecaster.forecast(captured(run)).ns == pytest.approx(30_000)
