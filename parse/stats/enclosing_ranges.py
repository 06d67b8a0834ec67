"""Which ranges contain which GPU operations: by the API call that launched each, on its own thread."""

from __future__ import annotations

import numpy as np

from pyprof.parse.attribute.nesting import innermost, nest
from pyprof.parse.stats.recording import Calls, Spans, same_threads
from pyprof.table.columns import Ints


def enclosing(spans: Spans, launch: Calls) -> tuple[Ints, Ints]:
    """Every pair of a launch and a range that contains the whole call: (rows of ``launch``, rows of ``spans``).

    All launches go outwards together, one range at a time. The two styles are nested separately, because start/end
    ranges overlap freely, and ranges that do not nest take long.
    """
    of_span, of_call = same_threads(spans, launch)
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for style in (False, True):
        styled = np.flatnonzero(spans.startend == style)
        nesting = nest(of_span[styled], spans.start[styled], spans.end[styled])
        around = innermost(nesting, of_call, launch.start)
        while True:
            rows = np.flatnonzero(around >= 0)
            if not len(rows):
                break
            pairs.append((rows, styled[nesting.source[around[rows]]]))
            around[rows] = nesting.parent[around[rows]]
    row, span = (np.concatenate(column) for column in zip(*pairs, strict=True))
    whole = launch.end[row] <= spans.end[span]
    return row[whole], span[whole]


def parents(spans: Spans) -> Ints:
    """The innermost range of the same thread that contains each range entirely; -1 for none."""
    if not len(spans):
        return np.zeros(0, np.int64)
    thread, _ = same_threads(spans, Calls.none())
    nesting = nest(thread, spans.start, spans.end)
    _, first = np.unique(nesting.source, return_index=True)  # of a range in pieces the first one
    around = nesting.parent[first]
    while True:
        source = nesting.source[around]
        outlived = (around >= 0) & (spans.end[source] < spans.end)
        if not outlived.any():
            return np.where(around >= 0, source, -1)
        around[outlived] = nesting.parent[around[outlived]]
