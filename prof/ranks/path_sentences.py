"""A job's critical path in sentences: on which ranks a step lies, and what it would be if one were like the others."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.prof.ranks.pace_records import PATH_KINDS, JobPath, LikeOthers, OnRank, Pace
from pyprof.prof.ranks.slow_sentences import brief_ms
from pyprof.quantities import rounded

LEAST = 0.02  # of the step: shorter parts are left out
TOKENS = " But the tokens that it would not compute, others would."
_NAMES = {"host": "host", "data": "waiting for data", "latency": "latencies"}


def path_sentences(pace: Pace) -> Iterator[str]:
    """The path by rank and kind, and the ranks without whose delays the step would be shorter."""
    path = pace.path
    if path is None:
        return
    unit = "a step" if path.steps else "the run"
    parts = "; ".join(_on_rank(each, path.step_ns) for each in path.on if each.ns >= LEAST * path.step_ns)
    yield (
        f"Without the profiler {unit} takes {_interval(path.step_ns, path.low_ns, path.high_ns)}{_measured(path)}, "
        f"by a replay of {_replayed(path)}. Its critical path: {parts}."
    )
    slow = {each.rank for each in pace.slow}
    for alike in path.like_others:
        if alike.saves or alike.rank in slow:
            moves = pace.experts is not None and pace.experts.rank == alike.rank
            yield _like_others(alike, path, unit) + (TOKENS if moves else "")


def _like_others(alike: LikeOthers, path: JobPath, unit: str) -> str:
    others = "the other rank" if len(path.ranks) == 2 else "the median of the others"
    step = _interval(alike.step_ns, alike.low_ns, alike.high_ns)
    if alike.saves:
        return f"If rank {alike.rank} were like {others}, {unit} would take {step}."
    return f"If rank {alike.rank} were like {others}, {unit} would take {step}: it is not certain that this is less."


def _on_rank(on: OnRank, step_ns: float) -> str:
    parts = [(getattr(on, kind), kind) for kind in PATH_KINDS if getattr(on, kind) >= LEAST * step_ns]
    told = ", ".join(f"{brief_ms(ns)} ms {_NAMES.get(kind, kind)}" for ns, kind in sorted(parts, reverse=True))
    who = "all ranks" if on.rank is None else f"rank {on.rank}"
    return f"{who} {told or f'{brief_ms(on.ns)} ms'}"


def _interval(ns: float, low: float, high: float) -> str:
    return f"{brief_ms(ns)} ms ({brief_ms(low)} to {brief_ms(high)})"


def _measured(path: JobPath) -> str:
    return "" if path.measured_ns is None else f", {brief_ms(path.measured_ns)} as measured before"


def _replayed(path: JobPath) -> str:
    of = f" of {path.of_ranks:,}" if path.of_ranks > len(path.ranks) else ""
    steps = f", steps {path.steps[0]} to {path.steps[-1]}" if len(path.steps) > 1 else ""
    within = "" if path.within_ns is None else f", whose clocks agree within {rounded(path.within_ns / 1e3, 3)} µs"
    return f"{len(path.ranks)}{of} ranks together{within}{steps}"
