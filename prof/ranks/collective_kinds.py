"""The collectives of a job by kind: how many, how long, how much of it waiting and exposed, and bus bandwidth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.prof.ranks.group_kinds import group_kinds
from pyprof.prof.ranks.merged_ranks import Ranks, complete
from pyprof.prof.ranks.pace_records import CollectiveKind
from pyprof.prof.ranks.slow_ranks import later_collectives, steps_counted


def collective_kinds(job: Ranks) -> list[CollectiveKind]:
    """By kind, the longest first; without the first step, in which captures begin at different times."""
    whole = later_collectives(job)
    kinds = group_kinds(whole)
    keys = zip(*(whole[name].to_pylist() for name in ("group", "ranks", "op")), strict=True)
    whole = whole.append_column("kind", pa.array([kinds[key] for key in keys], pa.string()))
    together = complete(whole, len(job.numbers))
    matched = {_key(row): row for row in _measured(together)}
    sums = [("arrived", "max"), ("arrived", "sum"), ("total_ns", "sum"), ("alone_ns", "sum"), ("place", "count")]
    sums.append(("group", "distinct"))
    rows = whole.group_by(["op", "ranks", "kind"]).aggregate(sums).to_pylist()
    found = [_kind(row, matched.get(_key(row)), steps_counted(job)) for row in rows]
    return sorted(found, key=lambda kind: (-kind.ns, kind.op, kind.kind, kind.ranks))


def _key(row: dict[str, Any]) -> tuple[object, ...]:
    return row["op"], row["ranks"], row["kind"]


def _kind(row: dict[str, Any], match: dict[str, Any] | None, steps: int) -> CollectiveKind:
    names, present = row["group_distinct"], row["arrived_max"]
    shares = present * len(names) * steps  # each rank is in one of the communicators
    return CollectiveKind(
        op=row["op"],
        kind=row["kind"],
        groups=len(names),
        group=names[0] if len(names) == 1 else "",
        ranks=present,
        calls=row["arrived_sum"] / shares,
        complete=match is not None and match["place_count"] == row["place_count"],
        ns=row["total_ns_sum"] / shares,
        exposed_ns=row["alone_ns_sum"] / shares,
        wait_ns=None if match is None else match["waited_sum"] / shares,
        bus_gbps=None if match is None or not match["moving_sum"] else match["wire_sum"] / match["moving_sum"],
    )


def _measured(together: pa.Table) -> list[dict[str, Any]]:
    """Sums of complete collectives by kind: the wait, and bytes and time of those whose size is on record."""
    waited = pc.subtract(together["total_ns"], pc.multiply(together["arrived"], together["least_ns"]))
    wire = np.asarray(together["wire"], np.float64)
    sized = np.isfinite(wire)
    moving = np.where(sized, np.asarray(together["least_ns"]), 0)
    added = (
        together.append_column("waited", waited)
        .append_column("moving", pa.array(moving))
        .drop_columns(["wire"])
        .append_column("wire", pa.array(np.where(sized, wire, 0.0)))
    )
    sums = [("waited", "sum"), ("moving", "sum"), ("wire", "sum"), ("place", "count")]
    rows: list[dict[str, Any]] = added.group_by(["op", "ranks", "kind"]).aggregate(sums).to_pylist()
    return rows
