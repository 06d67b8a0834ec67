"""Which rows a CUDA graph launched, and which replay each belongs to."""

import numpy as np

from pyprof.table.columns import NULL, Bools, Coded, Data, Ints, Table

LAUNCH_COLUMNS = ("kind", "graphNode", "api")  # the columns that tell whether a graph launched a row


def in_graphs(kind: Data, node: Data, api: Data) -> Bools:
    """A mask of the rows that a CUDA graph launched, from the columns ``LAUNCH_COLUMNS``.

    They are opaque graphs, numbered nodes of graphs, and rows of a graph's launch (Kineto often has no numbers).
    """
    assert isinstance(kind, Coded) and isinstance(node, np.ndarray) and isinstance(api, Coded)
    numbered: Bools = node != NULL
    return kind.among("graph") | numbered | api.where(lambda name: "GraphLaunch" in name)


def launched_by_graphs(table: Table) -> Bools:
    """A mask of the rows that a CUDA graph launched."""
    return in_graphs(*(table.columns[key] for key in LAUNCH_COLUMNS))


def replay_numbers(table: Table) -> Ints:
    """Per row: 0, or for a row that a CUDA graph launched, its launch's correlation id.

    All replays of a graph have the opId of the op that was captured. Each replay repeats the op's work, so that a call
    is (pid, opId, replay number).
    """
    return np.where(launched_by_graphs(table), table.ints("corr"), 0)
