"""When the program asked a DataLoader for a batch, and whether worker processes made it.

PyTorch marks each call of a DataLoader's iterator: ``enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__``
makes the batch in the calling thread, ``_MultiProcessingDataLoaderIter`` waits for one that a worker process has made
(torch/utils/data/dataloader.py, PyTorch 1.7 to 2.13). Launches happen outside of these ranges, so that no row is in
one: the rows that follow carry them.
"""

import json

import numpy as np

from pyprof.parse.attribute.capture import OPEN, Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind
from pyprof.table.columns import NULL, Coded

LOADER = "enumerate(DataLoader)"
WORKERS = "MultiProcessing"  # in the name of the iterator that has worker processes


def loader_calls(capture: Capture, tree: RangeTree) -> Coded:
    """Per row, as JSON: the calls before its launch and after its process's launch before, each as a list of 1 (worker
    processes) or 0 (none), start and end, ns. Calls after the last launch are in the row of that launch.
    """
    found: dict[int, list[list[int]]] = {}
    in_loader = tree.scopes_where(Kind.DATA, lambda scope: scope.name.startswith(LOADER))
    calls = np.flatnonzero(tree.is_first & in_loader[tree.scope] & (tree.whole_end < OPEN // 2))
    calls = calls[~tree.inside(tree.parent[calls], in_loader[tree.scope])]  # a loader that wraps another one
    calls = calls[np.argsort(tree.start[calls], kind="stable")]
    pids = np.append(capture.pids(), NULL)[capture.launch_thread]
    for pid in np.unique(tree.pid[calls]).tolist():
        rows = np.flatnonzero((pids == pid) & (capture.launch_time != NULL))
        if not len(rows):
            continue
        rows = rows[np.argsort(capture.launch_time[rows], kind="stable")]
        of_process = calls[tree.pid[calls] == pid]
        place = np.searchsorted(capture.launch_time[rows], tree.whole_end[of_process])
        for call, row in zip(of_process.tolist(), rows[np.minimum(place, len(rows) - 1)].tolist(), strict=True):
            workers = int(WORKERS in tree.scopes[tree.scope[call]].name)
            found.setdefault(row, []).append([workers, int(tree.start[call]), int(tree.whole_end[call])])
    codes = np.full(capture.rows, -1, np.int32)
    codes[list(found)] = np.arange(len(found))
    return Coded(codes, [json.dumps(each, separators=(",", ":")) for each in found.values()])
