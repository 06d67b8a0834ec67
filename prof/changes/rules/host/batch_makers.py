"""Who makes a program's batches, by its DataLoader's calls, and what is advised where workers make them."""

from __future__ import annotations

import numpy as np

from pyprof.prof.changes.effect.run import Run

BY_WORKERS = (
    "Let the DataLoader's workers prepare batches whole: the program works on them itself before it copies them. Do so "
    "in the dataset or its collate_fn, or on the GPU."
)
MORE_WORKERS = (
    "Give the DataLoader more workers or cheaper samples: it has worker processes, which are too slow for the step. "
    "num_workers up to the number of cores, a greater prefetch_factor where batches differ, less work per sample: "
    "decode and augment on the GPU, or keep what is decoded."
)
FOR_LOADER = {"workers": MORE_WORKERS, "besides": BY_WORKERS}  # by who makes the batches


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
