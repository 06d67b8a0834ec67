"""The first steps of a run, which say nothing of the others."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.parse.kineto.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.sentences import sentences
from pyprof.prof.timing.warmup import warm_up
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Table

SAMPLE = "pytorch+kineto__tb_plugin__samples__resnet50_autograd_api_num_workers_0__worker0.pt.trace_4a9c9ae521.json.gz"


def run(*steps: int, before: tuple[int, ...] = ()) -> Table:
    """A kernel of 10 ns at each start of ``before``, then steps of these lengths, with a kernel at both ends."""
    starts, numbers = list(before), [NULL] * len(before)
    at = 1000
    for number, ns in enumerate(steps):
        starts += [at, at + ns - 10]
        numbers += [number, number]
        at += ns
    rows = len(starts)
    return Table(
        rows,
        {
            "kShortName": Coded.of(["k"] * rows),
            "kind": Coded.of(["kernel"] * rows),
            "start": np.array(starts),
            "kDuration": np.full(rows, 10),
            "step": np.array(numbers),
            "device": np.zeros(rows, np.int64),
        },
    )


def test_a_long_first_step_is_left_out() -> None:
    warm, rows = warm_up(run(900, 100, 110, 120))
    assert warm is not None
    assert (warm.steps, warm.longest_ns, warm.median_ns, warm.rows, warm.ns) == (1, 900, 110, 2, 900)
    assert rows.tolist() == [True] * 2 + [False] * 6


def test_several_are_as_long_as_each_is_twice_the_median_of_what_follows() -> None:
    warm, _ = warm_up(run(2000, 500, 100, 100, 210, 100))
    assert warm is not None and warm.steps == 2  # not step 4: later steps are the program's own


def test_what_comes_long_before_the_first_step_is_left_out() -> None:
    warm, rows = warm_up(run(100, 100, 100, before=(0, 700)))
    assert warm is not None
    assert (warm.steps, warm.longest_ns, warm.rows, warm.ns) == (0, 0, 2, 1000)
    assert rows.tolist() == [True] * 2 + [False] * 6


@pytest.mark.parametrize(
    "table",
    [
        run(190, 100, 100),  # less than twice
        run(900, 100),  # one step would remain
        run(900),
        run(100, 100, 100, before=(950,)),  # 50 ns before
        run(900, 100, 100).with_column("step", np.full(6, NULL)),
    ],
)
def test_nothing_is_left_out(table: Table) -> None:
    warm, rows = warm_up(table)
    assert warm is None
    assert not rows.any()


def test_the_sample_of_pytorchs_tensorboard_plugin(data: Path) -> None:
    """Six steps of ResNet-50: 4,493 ms until step 1 begins, then 114 to 155 ms each with the wait for data."""
    table = correlate(read(data / "kineto" / SAMPLE))
    notes = annotate(table)
    found = summarise(table, notes)
    (said,) = [text for text in sentences(found) if "warm-up" in text]
    assert said == (
        "The first step (4,493 ms, 30.5 times the median of the other steps) is taken for warm-up: it and what ran"
        " before, 2,573 operations in 4,493 ms, are left out of all figures."
    )
    assert [part.name for part in found.steps] == ["1", "2", "3", "4", "5"]
    assert sum(part.rows for part in found.kinds_of_rows) == len(table) - 2573
    assert Run(table, notes).marked == 5
