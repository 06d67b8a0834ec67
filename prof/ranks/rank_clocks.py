"""The ranks' clocks beside each other, from the ends of collectives, with their uncertainty.

The kernels of a collective from all ranks to all ranks end together. So the difference of their ends, each by its own
rank's clock, is the difference of the clocks. Ends differ by some microseconds from call to call: the median of many
calls is taken, and their spread is the uncertainty. Ranks without a common communicator are compared by way of others;
the uncertainties of such a chain add up, and of several chains the most certain counts.
"""

from __future__ import annotations

import heapq

import numpy as np
import pyarrow as pa

from pyprof.prof.ranks.pace_records import Clock

CLOCKS = pa.schema(
    [
        ("rank", pa.int64()),
        ("last", pa.int64()),  # the rank that came last to the collectives of this row
        ("ahead_ns", pa.float64()),  # median over them: how much later `rank`'s clock says that they ended
        ("within_ns", pa.float64()),  # half of the range in which nine of ten of them lie
        ("calls", pa.int64()),
    ]
)


SIMILAR = 0.5  # of one direction's collectives: with so many in the other, each came last about as often


def compared(matched: pa.Table) -> pa.Table:
    """CLOCKS of matched collectives. ``matched``: columns rank, last, end_ns and last_end_ns."""
    rank, last = np.asarray(matched["rank"]), np.asarray(matched["last"])
    ahead = np.asarray(matched["end_ns"]) - np.asarray(matched["last_end_ns"])
    order = np.lexsort((last, rank))
    rank, last, ahead = rank[order], last[order], ahead[order]
    new = (np.diff(rank) != 0) | (np.diff(last) != 0)
    first = np.flatnonzero(np.r_[True, new]) if len(rank) else np.zeros(0, np.int64)
    rows = []
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(rank)], strict=False):
        if rank[low] != last[low]:
            least, middle, most = np.quantile(ahead[low:high], [0.05, 0.5, 0.95])
            rows.append((int(rank[low]), int(last[low]), float(middle), float(most - least) / 2, high - low))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(CLOCKS)
    return pa.table(dict(zip(CLOCKS.names, columns, strict=True)), schema=CLOCKS)


def _both_ways(table: pa.Table) -> dict[tuple[int, int], tuple[float, float]]:
    """By pair of ranks, how far the first one's clock is ahead, and the uncertainty.

    A rank that has waited may end a little later than the one that came last: on two H200 by 14 µs in transfers. Where
    each of two ranks came last about as often, and what both say differs by more than is uncertain, the truth is in
    between; otherwise the more certain one is taken.
    """
    said = {(row["rank"], row["last"]): row for row in table.to_pylist()}
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for (a, b), row in said.items():
        ahead, within = row["ahead_ns"], row["within_ns"]
        back = said.get((b, a))
        if back is None or (within, a) < (back["within_ns"], b):
            found[a, b] = ahead, within
            calls = (0, 1) if back is None else sorted((row["calls"], back["calls"]))
            apart = 0.0 if back is None else abs(ahead + back["ahead_ns"])
            if back is not None and calls[0] >= SIMILAR * calls[1] and apart > within + back["within_ns"]:
                found[a, b] = (ahead - back["ahead_ns"]) / 2, max(apart / 2, within)
    return found


def clocks(table: pa.Table, ranks: list[int]) -> list[Clock]:
    """Each rank's clock against that of the first, by the most certain chain of comparisons."""
    edges: dict[int, list[tuple[int, float, float]]] = {rank: [] for rank in ranks}
    for (a, b), (ahead, within) in _both_ways(table).items():
        edges[b].append((a, ahead, within))
        edges[a].append((b, -ahead, within))
    found: dict[int, tuple[float, float]] = {}
    todo = [(0.0, ranks[0], 0.0)] if ranks else []
    while todo:
        within, rank, ahead = heapq.heappop(todo)
        if rank in found:
            continue
        found[rank] = ahead, within
        for other, more, spread in edges[rank]:
            if other not in found:
                heapq.heappush(todo, (within + spread, other, ahead + more))
    unknown = (None, None)
    pairs = [(rank, *found.get(rank, unknown)) for rank in ranks]
    return [Clock(rank=rank, ahead_ns=ahead, within_ns=within) for rank, ahead, within in pairs]
