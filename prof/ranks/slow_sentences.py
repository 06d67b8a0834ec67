"""A slow rank in sentences: how long the others wait for it, and what it does longer than they."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.prof.ranks.pace_records import EVEN, IDLE_CAUSES, MORE, Excess, ExpertLoad, Pace, SlowRank
from pyprof.quantities import rounded
from pyprof.text import printable

# cause: what a rank that has it does longer than the others
_CAUSES = {
    "kernels": "it launches {kernels:,.0f} kernels more{per_step}, which take {ms} ms",
    "calls": "it launches {kernels:,.0f} kernels more{per_step}, {ms} ms of work for its host at the others' pace",
    "inputs": "its GPU takes {ms} ms longer{per_step} for as many kernels with {flops:.0%} more FLOPs: larger inputs",
    "work": "its GPU takes {ms} ms longer{per_step} for as many kernels{same}",
    "copies": "its GPU spends {ms} ms more{per_step} in copies between host and GPU",
    "launch": "its GPU is idle {ms} ms longer{per_step} because launches come late",
    "host": "its GPU is idle {ms} ms longer{per_step} in pauses of the host",
    "data": "its GPU is idle {ms} ms longer{per_step} because no batch is ready",
    "copy": "its GPU is idle {ms} ms longer{per_step} while the host is inside a blocking copy",
    "sync": "its GPU is idle {ms} ms longer{per_step} after the host has waited for a value from it",
    "queued": "its GPU is idle {ms} ms longer{per_step} between kernels that have been launched",
}
PROFILED = 1.1  # times the step without the profiler: from there on its cost is mentioned
NOTHING = "nothing of its own takes much longer: it may come last by chance, or wait for ranks of another communicator"


def whole(pace: Pace) -> str:
    """What times are shares of: the captures of a job may mark no steps."""
    return "a step" if pace.steps else "the capture"


def held_sentence(slow: SlowRank, pace: Pace) -> str:
    """Who waits for the rank, and for how long."""
    share = f" ({slow.held_ns / pace.step_ns:.0%} of {whole(pace)})" if pace.step_ns else ""
    per_step = " per step" if pace.steps else ""
    others = "the other rank waits" if slow.peers == 1 else f"each of {slow.peers} other ranks waits"
    who = "In the capture, rank" if slowed_by_profiler(pace) else "Rank"
    return f"{who} {slow.rank} holds the others up: {others} {brief_ms(slow.held_ns)} ms{per_step} for it{share}."


def slowed_by_profiler(pace: Pace) -> bool:
    """Whether ranks wait for each other in steps that the profiler made longer: what is said of the program itself
    then comes before what is seen in the capture."""
    return pace.unprofiled_ns is not None and bool(pace.slow) and pace.step_ns > PROFILED * pace.unprofiled_ns


def profiler_sentences(pace: Pace) -> Iterator[str]:
    """That a part of the waits is the profiler's, where it made the steps longer."""
    before = pace.unprofiled_ns
    if pace.path is not None and pace.path.measured_ns is not None:
        before = pace.path.measured_ns  # the replayed ranks' steps, which the sentence on them gives, too
    if before is not None and slowed_by_profiler(pace):
        yield (
            f"Without the profiler a step took {brief_ms(before)} ms, with it {brief_ms(pace.step_ns)} ms: late "
            "launches and pauses of the host, and the waits for them, are partly the profiler's."
        )


def bubble_sentence(pace: Pace) -> str:
    """The stage of a pipeline that waits longest, and the one that works longest."""
    most = pace.bubbles[0]
    slowest = max(pace.bubbles, key=lambda each: each.work_ns)
    return (
        f"Pipeline: rank {most.rank} waits longest for data of other stages, {brief_ms(most.ns)} ms; rank "
        f"{slowest.rank} works longest, {brief_ms(slowest.work_ns)} ms."
    )


def cause_text(cause: Excess, pace: Pace) -> str:
    """What takes the rank longer than the others, as a clause."""
    per_step, flops = " per step" if pace.steps else "", cause.more_flops
    same = ": slower clocks, larger inputs, or other programs on its GPU"
    if flops is not None:
        same = " and FLOPs: slower clocks, or other programs on its GPU"
    text = _CAUSES[cause.cause].format(
        ms=brief_ms(cause.ns), kernels=cause.kernels, flops=flops or 0.0, same=same, per_step=per_step
    )
    more = cause.more_kernels is not None and cause.more_kernels > MORE and cause.cause in IDLE_CAUSES
    return f"{text}; it launches {cause.kernels:,.0f} kernels more{per_step}" if more else text


def places(cause: Excess) -> Iterator[tuple[float, str]]:
    """Where the time goes: ns per step and the place, for places with a tenth of it or more."""
    for place in cause.places:
        where = " · ".join(filter(None, (printable(place.op), printable(place.where))))
        if where and place.ns >= 0.1 * cause.ns:
            yield place.ns, where


def brief_ms(ns: float) -> str:
    """
    >>> brief_ms(6_020_000), brief_ms(999_600_000)
    ('6.02', '1,000')
    """
    return rounded(ns / 1e6, 3)


def expert_sentence(load: ExpertLoad, marked: bool) -> str:
    """The load in a sentence. ``marked``: whether the captures mark steps."""
    what = "tokens" if load.by == "tokens" else "FLOPs of experts"
    if load.most <= EVEN:
        return f"Experts: each rank computes as many {what} as the others."
    who = "the fullest rank" if load.rank is None else f"rank {load.rank}"
    worst = "" if load.worst is None or load.worst < 1.05 * load.most else f", {load.worst:.2f} in the least even layer"
    unit = "per step" if marked else "in the capture"
    cost = f" That costs each rank {brief_ms(load.wait_ns)} ms {unit} on average." if load.wait_ns else ""
    return f"Experts: {who} computes {load.most:.2f} times as many {what} as the mean of the ranks{worst}.{cost}"
