"""Loops that run the same products again and again, as sample by sample: found, but never proposed as one batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.edits.edit import Abstained, Proposal, edit_rule
from pyprof.prof.edits.scenario import Scenario
from pyprof.table.columns import Ints, numbered

TIMES = 8  # within a step, at least


@edit_rule("sample_loop")
def sample_loop(scenario: Scenario) -> Iterator[Proposal]:
    """Abstains, always, and says where such a loop is.

    Layers called sample by sample, which could be one batch, and layers called one after the other on their own
    results look the same in a capture. Products whose sizes prove that they are independent are small_grid's.
    """
    run = scenario.run
    row, times = _most(run)
    if times < TIMES:
        yield Abstained("sample_loop", f"no layer runs {TIMES} products of the same sizes within a {run.unit}")
        return
    yield Abstained(
        "sample_loop",
        f"{run.trace(row) or run.layer(row)} runs products of the same sizes {times} times within a {run.unit}; a "
        "capture does not show whether each needs the result of the one before, or all could be one batch",
    )


def _most(run: Run) -> tuple[int, int]:
    """The first row of the product of a layer or line that is repeated most within a step, and how often.

    Without both, the layers of a model look like the iterations of a loop.
    """
    products = np.isin(run.family, ("gemm", "conv")) & (run.role == "main") & (run.phase != "backward")
    placed = run.names("trace") | run.names("layer")
    rows: Ints = np.flatnonzero(products & placed & ~run.mentions("nodes", "_cell") & (run.largest > 0))
    if not len(rows):
        return -1, 0
    columns = [run.table.coded(key).codes[rows] for key in ("sizes", "layer", "trace", "op")]
    _, number = numbered(run.lane[rows], run.table.ints("step")[rows], *columns)
    counts = np.bincount(number)
    most = int(counts.argmax())
    return int(rows[np.flatnonzero(number == most)[0]]), int(counts[most])
