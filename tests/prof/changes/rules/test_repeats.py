"""Micro-batches as one batch: what a table made by hand says, and four programs that were measured both ways."""

import json

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.changes.find_changes import base_of
from pyprof.prof.changes.rules.repeats.micro_batches import FLOOR_NS, repeats
from pyprof.prof.load import load_table
from pyprof.prof.replay.replayed_steps import step_window
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import run

FOLDER = GOLDEN / "changes" / "repeats"
MEASURED = json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))
MS = 1_000_000


class Scenario:
    """What a rule reads of a scenario."""

    def __init__(self, *rows):
        self.run = run(*rows)


def row(phase, size=8, ns=10_000, step=1, **more):
    return {
        "kShortName": "k",
        "aten": "aten::relu",
        "sizes": [[size, 4]],
        "phase": phase,
        "ns": ns,
        "step": step,
        **more,
    }


def proposed(*rows):
    return list(repeats(Scenario(*rows)))


def test_two_passes_before_an_update_are_one_on_twice_the_samples():
    """Kernels of 10 µs twice: 20 µs, less one time what a kernel takes however little it does."""
    pair = [row("forward"), row("backward")]
    (edit,) = proposed(*pair, *pair, row("optimizer"))
    assert isinstance(edit, Edit) and edit.rows.tolist() == [0, 1, 2, 3]
    assert edit.ns.tolist() == [20_000 - FLOOR_NS, 20_000 - FLOOR_NS, 0, 0]
    assert edit.left.tolist() == [1, 1, 0, 0]
    assert "2 micro-batches" in edit.change


def test_what_the_first_pass_sets_the_others_add():
    add = row("backward", aten="aten::add_", nodes=["torch::autograd::AccumulateGrad"])
    pair = [row("forward"), row("backward")]
    (edit,) = proposed(*pair, *pair, add, row("optimizer"))
    assert edit.rows.tolist() == [0, 1, 2, 3, 4] and edit.ns[4] == 0


@pytest.mark.parametrize(
    "rows",
    [
        [row("forward"), row("backward"), row("optimizer")],
        [row("forward"), row("backward"), row("forward", 9), row("backward", 9), row("optimizer")],  # other sizes
        [row("forward"), row("backward"), row("optimizer"), row("forward"), row("backward"), row("optimizer")],
        [row("forward"), row("backward"), row("forward"), row("backward")],  # no update shows where a step ends
    ],
    ids=["one pass", "other sizes", "an update between them", "no update"],
)
def test_what_refutes_it(rows):
    (answer,) = proposed(*rows)
    assert isinstance(answer, Abstained)


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row["program"])
def test_programs_that_were_measured_both_ways(row):
    """The GPU's time as one batch within a fifth. Steps of the same program differ by up to 45% on this host (62 and
    90 ms of the transformer), so that its saving lies between that of the shortest and of the longest step."""
    loaded = load_table(FOLDER / f"{row['program']}.pyprof", host=True)
    base = base_of(step_window(loaded.table, annotate(loaded.table), loaded.host), row["program"])
    start, forecaster = captured(base), Forecaster(base)
    (edit,) = [each for each in repeats(start) if isinstance(each, Edit)]
    after = apply(edit, start)
    gpu_ms, _ = forecaster.work(after) / MS
    assert gpu_ms == pytest.approx(row["after_gpu_ms"], rel=0.2)
    saved = forecaster.difference(start, after)
    least, most = np.sort([row["before_ms"], row["again_ms"]]) - row["after_ms"]
    assert saved.low / MS <= most and saved.high / MS >= least
