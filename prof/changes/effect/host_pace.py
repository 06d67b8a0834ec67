"""What is known of the host's pace without the profiler, as equally likely shares of its captured time.

Two things say it: what the shares of other programs were; and times without the profiler, to which the replay comes
near at some shares, and not at others: the step's, and the host's where it ran ahead of the GPU. Where the GPU limits
the step, it does so at many shares, and the other two decide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.scenario import captured
from pyprof.prof.replay.without_profiler import TENTH
from pyprof.prof.timing.profiler_cost import OwnShare, host_ran_ahead, unprofiled
from pyprof.table.columns import Floats

MEASURED = 0.06  # half of an 80% interval, in logarithms: how near a step's measured time is to that of other steps
MEASURED_ALONE = 0.1  # the same of the host's time for a single step that began on an idle GPU
LEAST, REPLAYS, POINTS = 0.04, 21, 400  # the least share; replays at shares between it and 1; shares between these


def likely_shares(base: BaseRun, step_ns: float, alone_ns: float, count: int) -> Floats:
    """So many shares, each as likely as the others, in rising order.

    ``step_ns``: the step without the profiler; ``alone_ns``: the host's time for a step that began on an idle GPU,
    without it; 0 where that is not known.
    """
    share, run, known = np.geomspace(LEAST, 1.0, POINTS), captured(base), unprofiled(base.table.measured)
    chance = _by_estimate(base.host_share, share)
    if step_ns:
        chance = chance + _by_time(lambda each: run.step_ns(each, np.zeros(0)), share, step_ns, MEASURED)
    if base.timed is None and known is not None and host_ran_ahead(known):
        chance = chance + _by_time(run.host_ns, share, known.host_ns, MEASURED)
    if base.timed is None and alone_ns:  # calls that were timed one by one say the same, of the same iteration
        chance = chance + _by_time(run.alone_ns, share, alone_ns, MEASURED_ALONE)
    chance = np.exp(chance - chance.max())
    reached = (np.cumsum(chance) - chance / 2) / chance.sum()
    wanted = (np.arange(count, dtype=np.float64) + 0.5) / count
    found: Floats = np.exp(np.interp(wanted, reached, np.log(share)))
    return found


def _by_estimate(own: OwnShare, share: Floats) -> Floats:
    """The logarithm of each share's likelihood by an estimate with its interval, but for a constant."""
    far = np.log(share / own.share)
    below, above = float(np.log(own.share / own.low)), float(np.log(own.high / own.share))
    wide: Floats = np.where(far < 0, below, above) / TENTH
    wide = np.maximum(wide, MEASURED / TENTH)
    found: Floats = -0.5 * (far / wide) ** 2 - np.log(wide)  # both halves of the distribution hold as much
    return found


def _by_time(replayed: Callable[[Floats], Floats], share: Floats, measured_ns: float, half: float) -> Floats:
    """The logarithm of each share's likelihood by how near the replay comes to a measured time, but for a constant.

    ``half``: half of the 80% interval of the logarithm of that time.
    """
    some = np.geomspace(LEAST, 1.0, REPLAYS)
    far = np.interp(np.log(share), np.log(some), np.log(np.maximum(replayed(some), 1.0) / measured_ns))
    found: Floats = -0.5 * (far * TENTH / half) ** 2
    return found
