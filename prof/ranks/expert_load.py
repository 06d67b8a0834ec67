"""How unevenly a mixture of experts spreads the tokens over the ranks, and what that costs.

Before the experts, an all-to-all sends each token to the rank of its expert, and after them another one sends it back.
So what a rank receives in the first, and sends in the second, are the tokens that it computes. Which of both an
all-to-all is follows from its sizes: ranks have equally many tokens of their own, and the uneven side is the experts'.
Where sizes are not recorded, the FLOPs of the experts' products say how much work each rank has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyprof.prof.ranks.group_kinds import group_kinds
from pyprof.prof.ranks.merged_ranks import Ranks, complete
from pyprof.prof.ranks.pace_records import EVEN, ExpertLoad
from pyprof.prof.ranks.rank_tables import ALL_TO_ALL
from pyprof.prof.ranks.slow_ranks import later_collectives, later_steps, steps_counted
from pyprof.table.columns import Floats


def expert_load(job: Ranks) -> ExpertLoad | None:
    """The load of the ranks of experts; None if the captures do not record it, or the job has no experts."""
    return _by_tokens(job) or _by_flops(job)


class _Exchange(NamedTuple):
    """The expert parallel all-to-alls of the counted steps, one value each."""

    group: list[str]
    mean: Floats  # bytes per rank, of either side
    most: Floats  # of the uneven side
    other: Floats  # the most of the other side
    after: Floats  # 1 where the experts come before it
    wait_ns: Floats  # mean of the ranks


def _by_tokens(job: Ranks) -> ExpertLoad | None:
    table = later_collectives(job)
    kinds = group_kinds(table)
    wanted = {key[:2] for key, kind in kinds.items() if kind == "expert" and ALL_TO_ALL in key[2]}
    keys = zip(table["group"].to_pylist(), table["ranks"].to_pylist(), table["op"].to_pylist(), strict=True)
    chosen = [(group, ranks) in wanted and op == ALL_TO_ALL for group, ranks, op in keys]
    whole = table.filter(pa.array(chosen, pa.bool_()))
    found = complete(whole, len(job.numbers))
    if not len(found) or len(found) < len(whole):
        return None
    all_to_alls = _exchange(found)
    if not np.isfinite(all_to_alls.mean).all() or not all_to_alls.mean.sum():
        return None
    uneven = all_to_alls.most > EVEN * all_to_alls.mean
    waited = float(all_to_alls.wait_ns[uneven & (all_to_alls.after > 0)].sum()) / steps_counted(job)
    groups = sorted(set(all_to_alls.group))
    return ExpertLoad(
        by="tokens",
        groups=len(groups),
        ranks=int(found["arrived"][0].as_py()),
        most=float(all_to_alls.most.sum() / all_to_alls.mean.sum()),
        worst=float((all_to_alls.most / np.maximum(all_to_alls.mean, 1.0)).max()),
        rank=_fullest(job, all_to_alls),
        wait_ns=waited / len(groups) if uneven.any() else None,
    )


def _exchange(found: pa.Table) -> _Exchange:
    column: Mapping[str, Floats] = {
        name: np.asarray(found[name], np.float64)
        for name in ("arrived", "read", "most_read", "written", "most_written", "total_ns", "least_ns")
    }
    arrived = column["arrived"]
    means = [column[name] / arrived for name in ("read", "written")]
    back = column["most_read"] * means[1] > column["most_written"] * means[0]
    sides = column["most_read"], column["most_written"]
    return _Exchange(
        group=found["group"].to_pylist(),
        mean=np.where(back, *means),
        most=np.where(back, *sides),
        other=np.where(back, *sides[::-1]) / np.maximum(np.where(back, *means[::-1]), 1.0),
        after=back.astype(np.float64),
        wait_ns=column["total_ns"] / arrived - column["least_ns"],
    )


def _fullest(job: Ranks, found: _Exchange) -> int | None:
    """The rank with the most tokens, where all have equally many of their own and the load is uneven."""
    if (found.other > EVEN).any() or not (found.most > EVEN * found.mean).any():
        return None
    means = later_steps(job).group_by("rank").aggregate([("exchanged", "mean")]).sort_by("rank")
    exchanged = np.asarray(means["exchanged_mean"], np.float64)
    return int(means["rank"][int(exchanged.argmax())].as_py()) if np.isfinite(exchanged).all() else None


def _by_flops(job: Ranks) -> ExpertLoad | None:
    means = later_steps(job).group_by("rank").aggregate([("expert_flops", "mean")]).sort_by("rank")
    flops = np.asarray(means["expert_flops_mean"], np.float64)
    if len(flops) < 2 or not np.isfinite(flops).all() or not flops.sum():
        return None
    most = float(flops.max() / flops.mean())
    fullest = int(means["rank"][int(flops.argmax())].as_py()) if most > EVEN else None
    return ExpertLoad(by="flops", groups=0, ranks=len(flops), most=most, worst=None, rank=fullest, wait_ns=None)
