"""Input data that the host makes or waits for, and who makes it: workers of a DataLoader or the program itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.copies import before_layers, made_on_host, segments_of
from pyprof.prof.changes.rules.host.host_waits import copies
from pyprof.prof.timing.gpus import TO_DEVICE
from pyprof.prof.timing.input_data import BATCH
from pyprof.quantities import rounded

WORKERS = (
    "Load data in the background: DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=...). As many "
    "workers as it takes to make a batch within a step."
)
MORE_WORKERS = (
    "Give the DataLoader more workers or cheaper samples: it has worker processes, which are too slow for the step. "
    "num_workers up to the number of cores, a greater prefetch_factor where batches differ, less work per sample: "
    "decode and augment on the GPU, or keep what is decoded."
)
BY_WORKERS = (
    "Let the DataLoader's workers prepare batches whole: the program works on them itself before it copies them. Do so "
    "in the dataset or its collate_fn, or on the GPU."
)
LOADERS = {  # by who makes the batches: the change, and what the host does meanwhile
    "workers": (MORE_WORKERS, "waits for a batch from worker processes"),
    "itself": (WORKERS, "makes the next batch itself"),
    "besides": (BY_WORKERS, "works on the next batch beside the DataLoader's workers"),
    "": (WORKERS, "pauses before copies of input data"),
}


@edit_rule("data_loader")
def data_loader(scenario: Scenario) -> Iterator[Proposal]:
    """Pauses of the host in a DataLoader's calls, and in training before the copies of a batch, which is then made
    while nothing else goes on.

    Refuted by: worker processes, by the loader's own marks; then they are too few, and it is this that is said.
    """
    run, base = scenario.run, scenario.base
    large = (run.phase == "data") & (run.table.ints("bytes") >= BATCH)
    early = np.isin(run.phase, ("data", "forward", "other", "")) & before_layers(run) & run.names("layer").any()
    rows = np.setdiff1d(np.flatnonzero(copies(run, *TO_DEVICE) & (large | early)), made_on_host(scenario))
    paused = base.loading > 0
    if np.isin(run.phase, ("backward", "optimizer")).any():
        paused[segments_of(scenario, rows[scenario.calls(rows) >= 0])] = True
    pauses = np.flatnonzero(paused & base.pauses & ~scenario.prompt)
    if not len(pauses):
        yield Abstained("data_loader", "the host does not pause before copies of input data, or nothing is trained")
        return
    spent = run.ms(float(base.segment[pauses].sum()))
    change, does = LOADERS[made_by(base.run, spent)]  # a change may have taken rows with the loader's marks
    yield Edit(
        rule="data_loader",
        change=change,
        why=f"The host {does}, for {rounded(spent)} ms per {run.unit} as captured, and launches nothing then",
        cost=COSTS["data_loader"],
        prompt=pauses,
        loads=True,
    )


def made_by(run: Run, waited_ms: float) -> str:
    """Who makes the batches for which the host waits so many ms per step: "workers", processes of the DataLoader, or
    the host "itself". Where the loader's marks do not explain half of the wait: "besides" workers, or empty."""
    spent = [0.0, 0.0]
    for row in np.flatnonzero(run.table.coded("batches").codes >= 0).tolist():
        for call in run.listed("batches", row):
            if isinstance(call, list) and [type(number) for number in call] == [int] * 3:
                spent[call[0] > 0] += run.ms(call[2] - call[1])
    workers = spent[1] > spent[0]
    if spent[workers] > waited_ms / 2:
        return "workers" if workers else "itself"
    return "besides" if workers else ""
