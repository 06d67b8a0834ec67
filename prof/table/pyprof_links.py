"""Files written by PyProf (net.dict): copy a forward op's marker, layer and trace to its backward kernels.

PyProf's parser left this to prof.py: its backward rows have no marker, the module "na" and an op such as "Mm". Tables
from pyprof's parser are already linked and stay unchanged.
"""

import numpy as np

from pyprof.table.columns import NULL, Ints, Table

FROM_FORWARD = ("marker", "reprMarkers", "mod", "op", "layer", "trace")


def link_backward_rows(table: Table) -> Table:
    """Give each backward row the cells of the last forward row before it that has the same sequence number."""
    if np.any(table.ints("start") != NULL):  # PyProf's own files have no start times
        return table
    forward = _forward_rows(table)
    if not np.any(forward >= 0):
        return table
    source = np.where(forward >= 0, forward, np.arange(len(table)))
    columns = {key: table.coded(key).take(source) for key in FROM_FORWARD}
    return Table(len(table), {**table.columns, **columns}, table.samples, table.measured)


def _forward_rows(table: Table) -> Ints:
    """For each backward row without a marker, the row of its forward op (by seqId, else by altSeqId); -1: none."""
    forward = np.full(len(table), -1, np.int64)
    last: dict[int, int] = {}
    last_other: dict[int, int] = {}
    seqs, others = table.ragged("seqId").lists(), table.ragged("altSeqId").lists()
    marked = (table.coded("marker").codes >= 0).tolist()
    for row, direction in enumerate(table.coded("dir").texts()):
        if direction == "fprop":
            last.update(dict.fromkeys(seqs[row], row))
            last_other.update(dict.fromkeys(others[row], row))
        elif direction == "bprop" and not marked[row] and seqs[row]:
            seq = seqs[row][0]
            forward[row] = last.get(seq, last_other.get(seq, -1))
    return forward
