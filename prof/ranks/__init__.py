"""What the ranks of a job say of themselves, merged: which rank the others wait for, for how long, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyprof.table.columns import NULL

if TYPE_CHECKING:
    from pyprof.prof.ranks.pace_records import JobPath, Pace
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Table


def pace_of_table(table: Table, annotation: Annotation, path: JobPath | None = None) -> Pace | None:
    """The pace of the ranks in a kernel table; None if it has fewer than two."""
    rank = table.ints("rank")
    if len(np.unique(rank[rank != NULL])) < 2:
        return None
    from pyprof.prof.ranks.merged_ranks import ranks_of  # not at the top: they import Arrow, for several ranks alone
    from pyprof.prof.ranks.pace import pace
    from pyprof.prof.ranks.rank_tables import rank_tables

    return pace(ranks_of(rank_tables(table, annotation)), path)
