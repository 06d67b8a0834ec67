"""The step's time after edits, with the interval that contains it in four cases of five.

What is not known is the host's pace without the profiler, unless the step was measured without it; the durations that
edits say; what a rule leaves out; and how steps differ from run to run, by clocks and more so by the host. The first
two are drawn together: the pace at equal shares of its distribution, the edits' errors in an order of their own, so
that few replays are enough and the result is the same each time. The others widen the interval that results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.scenario import Scenario, captured
from pyprof.prof.replay.without_profiler import LEAST_SHARE, TENTH, run_to_run_ns
from pyprof.prof.timing.profiler_cost import OwnShare, host_ran_ahead, unprofiled
from pyprof.table.columns import Floats, Ints

DRAWS = 11
MEASURED = 0.06  # half of an 80% interval, in logarithms: how near a step's measured time is to that of other steps
MEASURED_ALONE = 0.1  # the same of the host's time for a single step that began on an idle GPU
LEAST, REPLAYS, POINTS = 0.04, 21, 400  # the least share; replays at shares between it and 1; shares between these
HALVINGS = 40  # after which a factor is known to 12 digits
SURE = 0.1  # the share of cases beyond each end of an interval
# Of the time of work that is done again: the measured times beside the predictions in docs/how-to/memory.md.
REPEATED_DEVIATION = 0.08
# How far savings are from what rules predict, besides the errors of durations: standard deviations of the logarithm of
# measured over predicted savings, of each rule's pairs in docs/explanation/advice.md (golden captures, and programs
# with several faults), with two more pairs at the deviation of all, because few pairs that happen to agree do not make
# a rule sure.
ERROR = 0.35  # of all 75 pairs
ERRORS = {
    "data_loader": 0.22,
    "attention_backend": 0.23,
    "zero_grad": 0.23,
    "conv_bias": 0.24,
    "weight_casts": 0.24,
    "alignment": 0.25,
    "amp": 0.25,
    "cross_entropy": 0.26,
    "fusion": 0.26,
    "cell_loop": 0.27,
    "pageable_copy": 0.27,
    "channels_last": 0.28,
    "cuda_graph": 0.29,
    "allocator": 0.3,
    "select_in_loop": 0.3,
    "sparse_grad": 0.33,
    "compile": 0.36,
    "attention": 0.44,
    "repeats": 0.44,
    "optimizer": 0.45,
    "copy_to_host": 0.48,
    "tf32": 0.49,
    "parameter_loop": 0.5,
    "inference_mode": 0.55,
    "made_on_cpu": 0.59,
    "item": 0.63,
    "sibling_layers": 0.74,
}


@dataclass(frozen=True, slots=True)
class Forecast:
    """The time of a step in ns: the mean over the draws, and an 80% interval."""

    ns: float
    low: float
    high: float


class Forecaster:
    """Times of edited runs of one capture.

    ``step_ns``: what a step takes without the profiler, where it is known from elsewhere than the capture. It sets the
    host's pace, if the host is the limit, and what the profiler added to the GPU's time otherwise. ``captured_ns``: its
    time in the capture; no estimate is longer. What a lone step does before its first operation stays as it is.
    """

    def __init__(self, base: BaseRun, step_ns: float | None = None, captured_ns: float | None = None) -> None:
        known = unprofiled(base.table.measured)
        timed = known is not None and (captured_ns is None or known.step_ns <= captured_ns)
        self.base = base
        self.measured = step_ns is not None or timed
        wanted = step_ns if step_ns is not None else known.step_ns if known is not None and timed else 0.0
        alone = known.host_alone_ns if known is not None else None
        self.shares: Floats = likely_shares(base, wanted, alone or 0.0, DRAWS)
        self._normal = np.array([NormalDist().inv_cdf((each + 0.5) / DRAWS) for each in range(DRAWS)])
        # Times of the replays of runs, as long as these are kept
        self._drawn: WeakKeyDictionary[Scenario, Floats] = WeakKeyDictionary()
        self._rough: WeakKeyDictionary[Scenario, float] = WeakKeyDictionary()
        self.scale, self.scale_of_gpu, self.outside = 1.0, 1.0, 0.0
        if wanted or captured_ns:
            if base.run.marked < 2 and captured_ns:  # a lone step's operations are replayed
                self.outside = max(captured_ns - base.run.extent_ns, 0.0)
            replayed, whole = float(self._times(captured(base)).mean()) - self.outside, wanted or captured_ns or 0.0
            within = max(whole - self.outside, 0.0) or replayed
            self.scale = self.scale_of_gpu = within / replayed if wanted else min(within / replayed, 1.0)
            times = self._replayed(captured(base))
            least = float(self._least(captured(base), float(times[DRAWS]), np.ones((1, 0)))[0])
            if self.scale < 1 and least <= within:
                self.scale_of_gpu = 1.0
                self.scale = _scale(times[:DRAWS], least, within)

    def forecast(self, scenario: Scenario) -> Forecast:
        """The step's time, its mean and interval over all draws."""
        times = self._times(scenario)
        after = float(times.mean())
        before = after if not scenario.edits else float(self._times(captured(self.base)).mean())
        return _summary(times, math.hypot(self._noise(scenario, after), _left_out(scenario.edits, before, after)))

    def difference(self, before: Scenario, after: Scenario) -> Forecast:
        """What edits save, with the same pace and errors before and after them.

        ``after`` has the edits of ``before`` and more, in any order.
        """
        now, then = self._times(before), self._times(after)
        ns, left = float(now.mean()), float(then.mean())
        known = {edit.key for edit in before.edits}
        more = [edit for edit in after.edits if edit.key not in known]
        return _summary(now - then, math.hypot(self._noise(before, ns), _left_out(more, ns, left)))

    def lengthened(self, longer: Ints) -> Forecast:
        """What a step of a long run gets longer by with so much longer tasks, ns: a line for each draw."""
        run = captured(self.base)
        times = (run.lasting_ns(self.shares, longer) - run.lasting_ns(self.shares)) / self.base.step_count
        return _summary(times, REPEATED_DEVIATION * abs(float(times.mean())))

    def _times(self, scenario: Scenario) -> Floats:
        """The step's time in each draw."""
        replayed = self._replayed(scenario)
        return self._scaled(replayed[:DRAWS], self._least(scenario, float(replayed[DRAWS]), self._errors(scenario)))

    def _scaled(self, replayed: Floats, least: Floats) -> Floats:
        """Times of steps by those of a replay, which are longer where the replayed steps take longer than most.

        What they take longer is not the GPU's work, so no step gets shorter than that (``least``).
        """
        found: Floats = self.outside + np.maximum(self.scale * replayed, self.scale_of_gpu * least)
        return found

    def _least(self, scenario: Scenario, hostless: float, errors: Floats) -> Floats:
        """The GPU's work in a step, per line of errors; where it overlaps, in proportion to it the step's time by a
        replay with hardly any host time."""
        expected = float(scenario.gpu_ns(np.ones((1, len(scenario.edits))))[0])
        found: Floats = scenario.gpu_ns(errors) * min(hostless / max(expected, 1.0), 1.0)
        return found

    def _replayed(self, scenario: Scenario) -> Floats:
        """The step's time in each draw, with hardly any host time, and at the middle of the host's pace."""
        if scenario not in self._drawn:
            shares = np.array([*self.shares, LEAST_SHARE, self.shares[DRAWS // 2]])
            errors = np.append(self._errors(scenario), np.ones((2, len(scenario.edits))), axis=0)
            self._drawn[scenario] = scenario.step_ns(shares, errors)
        return self._drawn[scenario]

    def _noise(self, scenario: Scenario, step_ns: float) -> float:
        """The standard deviation of a difference between this step and another in ns, by what limits it."""
        hostless, whole = self._replayed(scenario)[DRAWS:].tolist()
        return run_to_run_ns(step_ns, hostless / max(whole, 1.0) * step_ns)

    def roughly(self, scenario: Scenario) -> float:
        """The step's time in ns by three draws of the host's pace alone, to compare edits by."""
        if scenario not in self._rough:
            few, one = self.shares[[1, DRAWS // 2, DRAWS - 2]], np.ones(len(scenario.edits))
            shares = np.append(few, LEAST_SHARE) if self.scale < self.scale_of_gpu else few
            replayed = scenario.step_ns(shares, one)
            hostless = float(replayed[-1]) if len(shares) > len(few) else 0.0
            least = self._least(scenario, hostless, np.ones((1, len(scenario.edits))))
            self._rough[scenario] = float(self._scaled(replayed[: len(few)], least).mean())
        return self._rough[scenario]

    def limits(self, scenario: Scenario) -> tuple[float, float]:
        """A step's time in ns where the GPU is idle when the host begins one, and where the host takes no time."""
        one = np.ones(len(scenario.edits))
        host, gpu = scenario.alone_ns(self.shares[DRAWS // 2]), scenario.step_ns(LEAST_SHARE, one)
        return self.scale * float(host[0]), self.scale * float(gpu[0])

    def work(self, scenario: Scenario) -> Floats:
        """The GPU's work and the host's own work in a step, ns, without waits, at the middle of the host's pace."""
        gpu = scenario.gpu_ns(np.ones((1, len(scenario.edits))))
        return np.append(gpu, scenario.host_ns(self.shares[[DRAWS // 2]]))

    def _errors(self, scenario: Scenario) -> Floats:
        """Per draw and edit, the factor on its durations: for each edit, the same quantiles in an order of its own."""
        errors = [self.errors(" ".join(edit.key), edit.deviation) for edit in scenario.edits]
        return np.array(errors, np.float64).reshape(len(errors), DRAWS).T

    def errors(self, key: str, deviation: float) -> Floats:
        """The factors with this standard deviation of their logarithm, one for each draw, in the order of the key."""
        order: Floats = np.random.default_rng(crc32(key.encode())).permutation(self._normal)
        return np.exp(order * deviation)


def likely_shares(base: BaseRun, step_ns: float, alone_ns: float, count: int) -> Floats:
    """So many shares of the host's captured time, each as likely to be its pace without the profiler, rising.

    Two things say it: what the shares of other programs were; and times without the profiler, to which the replay comes
    near at some shares, and not at others: the step's, and the host's where it ran ahead of the GPU. Where the GPU
    limits the step, it does so at many shares, and the other two decide.

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


def _scale(replayed: Floats, least: float, wanted: float) -> float:
    """The factor on times of a replay with which their mean is the wanted one, where none is less than ``least``.

    >>> _scale(np.array([100.0, 200.0]), 40.0, 60.0)  # of 40 and 80, none is less than 40
    0.4
    >>> round(_scale(np.array([100.0, 200.0]), 50.0, 60.0), 9)  # 50 and 70
    0.35
    """
    low, high = 0.0, wanted / float(replayed.mean())
    if float(np.maximum(high * replayed, least).mean()) <= wanted:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        longer = float(np.maximum(middle * replayed, least).mean()) > wanted
        low, high = (low, middle) if longer else (middle, high)
    return low


def _left_out(edits: Sequence[Edit], before_ns: float, after_ns: float) -> float:
    """The standard deviation of what rules leave out of the step after their edits, ns.

    It is a share of what they save, or of what remains where that is less.
    """
    if not edits or before_ns <= 0:
        return 0.0
    share = math.sqrt(sum(ERRORS.get(edit.rule, ERROR) ** 2 for edit in edits)) / len(edits)
    return share * abs(before_ns - after_ns) * min(after_ns / before_ns, 1.0)


def _summary(times: Floats, deviation: float) -> Forecast:
    """The mean of the times, and the interval of their own and of what this standard deviation adds to it."""
    low, high = np.quantile(times, (SURE, 1 - SURE)).tolist()
    mean, more = float(times.mean()), NormalDist().inv_cdf(1 - SURE) * deviation
    return Forecast(mean, mean - math.hypot(max(mean - low, 0), more), mean + math.hypot(max(high - mean, 0), more))
