"""Advice for programs that run on the CPU alone: input data that the training process prepares itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, cpu_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.rules.host.data_loader import made_by
from pyprof.quantities import rounded

LEAST_SHARE = 0.05  # of the step


@cpu_rule("cpu_data_loader")
def cpu_data_loader(run: Run) -> Iterator[Finding]:
    """Ops of the phase "data" and the pauses before them: a DataLoader without workers.

    Workers share the cores with the step. Where PyTorch's threads use all cores, one core's work costs the step its
    share of a core: of D ms, D / cores remain. Abstains if the capture does not say how many cores there are.

    Refuted by: worker processes, by the loader's own marks.
    """
    facts = run.table.cpu
    rows = np.flatnonzero(run.phase == "data")
    if facts is None or facts.cores < 2 or not len(rows):
        return
    pauses = float(run.recurring_gaps[rows].sum())
    took = pauses + float(run.dur[rows].sum())
    if took < LEAST_SHARE * run.step_ns * run.steps * run.lanes or made_by(run, run.ms(took)) == "workers":
        return
    free = facts.threads < facts.cores
    share = 1.0 if free else 1 - 1 / facts.cores
    rest = "a core is free for it" if free else f"{facts.threads} threads already use {facts.cores} cores"
    why = (
        f"The step waits for its input data: {rounded(run.ms(took))} ms, of which ops take {rounded(run.ms_of(rows))} "
        f"ms. Workers prepare them beside the step ({rest})"
    )
    change = (
        "Prepare input data in other processes: DataLoader(num_workers=1 or more, persistent_workers=True). "
        "Each worker has one thread."
    )
    yield Finding(rows, share * run.dur[rows], why, change, idle_ns=share * pauses)
