"""Which copies bring a program's input data, so that a wait before them means that no batch was ready."""

import numpy as np

from pyprof.prof.timing.gpus import SMALL, device_rows
from pyprof.table.columns import NULL, Bools, Ints, Table

BATCH = 1 << 16  # least bytes of a batch: 16 texts of 512 tokens


def input_data(table: Table) -> Bools:
    """The rows of the phase "data" that bring a batch.

    The phase has every copy to the GPU that the program makes outside of layers. So it also has a server's lists of
    requests and positions: 256 bytes, before which the server may have had no request. Operations of the phase that
    follow each other on a GPU are one batch. In training, a batch has more than ``SMALL`` bytes, or a size that is not
    known; in other programs ``BATCH`` or more, for nothing else tells it from such lists. What is no copy is work of a
    DataLoader, whatever its size.
    """
    phase = table.coded("phase")
    trains = bool(phase.among("backward", "optimizer").any())
    data, found = phase.among("data"), np.zeros(len(table), bool)
    start = table.ints("start")
    for _, rows in device_rows(table, ~table.coded("kind").among("cpu")):
        rows = rows[np.argsort(start[rows], kind="stable")]
        begins = data[rows] & ~np.concatenate(([False], data[rows][:-1]))
        batch = np.cumsum(begins)[data[rows]] - 1
        rows = rows[data[rows]]
        found[rows] = _are_batches(table, rows, batch, trains)[batch]
    return found


def _are_batches(table: Table, rows: Ints, batch: Ints, trains: bool) -> Bools:
    """Which of the batches are some. ``batch``: each row's, from 0 on."""
    size = table.ints("bytes")[rows]
    known = np.bincount(batch, weights=np.where(size == NULL, 0, size))
    unknown = np.bincount(batch, weights=(size == NULL) & trains) > 0
    other = np.bincount(batch, weights=~table.coded("kind").among("memcpy")[rows]) > 0
    enough: Bools = (known > SMALL if trains else known >= BATCH) | unknown | other
    return enough
