"""What is known of a job's ranks, as records: who waits for whom and why, clocks, collectives, the critical path.

The modules beside this one compute them, with Arrow. Every summary imports the records, also of one rank alone, so they
stand apart: Arrow takes a tenth of the time of a summary.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pyprof.command.json_schema import Record, doc
from pyprof.prof.timing.waiting import CAUSES

Cause = Literal["work", "kernels", "calls", "inputs", "copies", "launch", "sync", "data", "copy", "host", "queued"]
IDLE_CAUSES: tuple[Cause, ...] = ("launch", "sync", "data", "copy", "host", "queued")
assert IDLE_CAUSES == CAUSES
MORE = 0.02  # a rank that launches so many more kernels, or as many with so many more FLOPs, does more work
EVEN = 1.02  # the most over the mean; a side of an all-to-all that is less even is uneven
GroupKind = Literal["tensor", "sharded", "data", "expert", "context", "pipeline", ""]
PATH_KINDS = ("host", "data", "kernels", "copies", "communication", "latency")


class ExcessPlace(Record):
    """Where a rank takes longer than the others."""

    op: Annotated[str, doc("what the user called; empty: unknown")]
    where: Annotated[str, doc("line of the user's code that ends the idle time, or layer and phase of the work")]
    ns: Annotated[float, doc("time per step beyond the mean of the other ranks")]


class Excess(Record):
    """One thing that a rank takes longer for."""

    cause: Annotated[
        Cause,
        doc(
            '"kernels": more of them, "calls": the host work for more of them, "inputs": as many with more FLOPs, '
            '"work": as many in more time, "copies": those between host and GPU; others: causes of idle time'
        ),
    ]
    ns: Annotated[float, doc("time per step beyond the mean of the other ranks")]
    kernels: Annotated[float, doc("kernels per step beyond the mean of the others")]
    more_kernels: Annotated[float | None, doc("the same as a share of that mean; null: they have none")]
    more_flops: Annotated[float | None, doc("FLOPs beyond the mean of the others, as a share of it; null: not known")]
    places: Annotated[list[ExcessPlace], doc("where, the longest first")]


class SlowRank(Record):
    """A rank that others wait for."""

    rank: Annotated[int, doc("its number")]
    file: Annotated[str, doc("its capture; empty: one file has several ranks")]
    group: Annotated[str, doc("the communicator in which most of this wait is")]
    peers: Annotated[int, doc("other ranks of that communicator, with which it is compared")]
    times: Annotated[int, doc("collectives to which it came last")]
    held_ns: Annotated[
        float, doc("time per step that each of the others waits for it while its own GPU does nothing else, on average")
    ]
    wait_ns: Annotated[float, doc("the same with the waits that run beside other work")]
    causes: Annotated[list[Excess], doc("what it takes longer for, the most first")]


class Waits(Record):
    """How long each rank was held up by others in each step."""

    ranks: Annotated[list[int], doc("numbers of the ranks")]
    steps: Annotated[list[int | None], doc("numbers of the steps; null: the capture marks none")]
    held_ns: Annotated[list[list[int | None]], doc("a list per rank with a value per step; null: not known")]


class Wait(Record):
    """How long one rank waits for another."""

    rank: Annotated[int, doc("the one that waits")]
    last: Annotated[int, doc("the one that comes last")]
    held_ns: Annotated[float, doc("time per step in which its GPU does nothing else")]


class Communication(Record):
    """The time of communication, per step and rank."""

    ns: Annotated[float, doc("in which communication ran, each instant counted once")]
    exposed_ns: Annotated[float, doc("of that, the time in which nothing else ran on the GPU")]
    held_ns: Annotated[float | None, doc("of exposed_ns, the wait for other ranks; null: not known")]


class Bubble(Record):
    """How long a rank of a pipeline waits for its neighbours' data."""

    rank: Annotated[int, doc("its number")]
    ns: Annotated[float, doc("time per step in sends and receives, while its GPU does nothing else")]
    work_ns: Annotated[float, doc("time per step in which its GPU works")]


class Clock(Record):
    """A rank's clock against that of the first rank."""

    rank: Annotated[int, doc("its number")]
    ahead_ns: Annotated[float | None, doc("what its clock shows more at the same instant; null: nothing compares them")]
    within_ns: Annotated[
        float | None, doc("uncertainty: nine of ten collectives lie this close, summed over the ranks in between")
    ]


class CollectiveKind(Record):
    """All collectives of one operation in the communicators of one kind and size."""

    op: Annotated[
        str, doc("all_reduce, all_gather, .., send and recv; a kernel's name where the capture has no records")
    ]
    kind: Annotated[
        GroupKind, doc("what the communicators are for, inferred from their operations; empty: nothing says it")
    ]
    groups: Annotated[int, doc("number of communicators")]
    group: Annotated[str, doc("the communicator's name, where it is one; empty: several, or not recorded")]
    ranks: Annotated[int, doc("ranks that take part, of those in the job")]
    calls: Annotated[float, doc("per step")]
    complete: Annotated[bool, doc("whether all ranks of the communicators are in the job with the same sequence")]
    ns: Annotated[float, doc("time per step and rank, the waiting included")]
    exposed_ns: Annotated[float, doc("of that, the time in which nothing but communication ran on the rank's GPU")]
    wait_ns: Annotated[float | None, doc("of ns, the wait until the last rank came; null: not all ranks are here")]
    bus_gbps: Annotated[
        float | None, doc("bytes that a rank must send per time without the wait, GB/s; null: not known")
    ]


class ExpertLoad(Record):
    """How evenly the ranks of a mixture of experts are loaded."""

    by: Annotated[
        Literal["tokens", "flops"],
        doc('"tokens": by the bytes that all-to-alls send and receive, "flops": by those of the experts\' products'),
    ]
    groups: Annotated[int, doc("communicators of experts; 0: not known")]
    ranks: Annotated[int, doc("ranks of each; of the job where the communicator is not known")]
    most: Annotated[float, doc("the fullest rank's load over the mean, of all layers together")]
    worst: Annotated[float | None, doc("the same of the least even layer; null: not known")]
    rank: Annotated[int | None, doc("the fullest rank; null: not known")]
    wait_ns: Annotated[
        float | None,
        doc("wait per step for the fullest rank after the experts, mean of the ranks: the cost; null: not known"),
    ]


class OnRank(Record):
    """The critical path's time per step on one rank, ns."""

    rank: Annotated[int | None, doc("its number; null: collectives once the last rank has come, on all of them")]
    host: Annotated[float, doc("of the host between calls and in calls, and its returns from waits for the GPU")]
    data: Annotated[float, doc("of the host before copies of input data: batches that are not ready")]
    kernels: Annotated[float, doc("of kernels")]
    copies: Annotated[float, doc("of copies and memsets")]
    communication: Annotated[float, doc("of collectives; those of one rank alone have the wait for absent ranks")]
    latency: Annotated[float, doc("between a launch and its start, between kernels, and between streams")]

    @property
    def ns(self) -> float:
        return self.host + self.data + self.kernels + self.copies + self.communication + self.latency


class LikeOthers(Record):
    """The step if one rank came to each collective no later than the others, as the median of them does."""

    rank: Annotated[int, doc("its number")]
    step_ns: Annotated[float, doc("the mean step, without the profiler")]
    low_ns: Annotated[float, doc("the low end of its 80% interval")]
    high_ns: Annotated[float, doc("its high end")]
    saves: Annotated[bool, doc("whether the interval is below the step as it is by 2% or more")]


class HostPace(Record):
    """How fast a rank's host is."""

    rank: Annotated[int, doc("its number")]
    pace: Annotated[float, doc("time for the same calls at the same places as a multiple of the fastest rank's")]
    host_ns: Annotated[float, doc("its work per step in the capture, without waits for the GPU")]
    operations: Annotated[float, doc("kernels, copies and memsets per step")]


class JobPath(Record):
    """The critical path across ranks, by their replay together."""

    ranks: Annotated[list[int], doc("that were replayed")]
    of_ranks: Annotated[int, doc("ranks of the job")]
    steps: Annotated[list[int], doc("that were replayed; of the first one only the end counts; empty: not marked")]
    recorded_ns: Annotated[int, doc("the replayed part of the capture")]
    replayed_ns: Annotated[int, doc("the same in the replay, in which waits follow from dependencies")]
    within_ns: Annotated[float | None, doc("how certain the ranks' clocks are against each other; null: not known")]
    measured_ns: Annotated[float | None, doc("the step as timed before the profiler started; null: it was not")]
    step_ns: Annotated[float, doc("the mean step without the profiler, in the replay")]
    low_ns: Annotated[float, doc("the low end of its 80% interval")]
    high_ns: Annotated[float, doc("its high end")]
    on: Annotated[list[OnRank], doc("what that step is made of, the longest first; the sum is step_ns")]
    captured: Annotated[list[OnRank], doc("what the step of the capture is made of, with the profiler's cost")]
    like_others: Annotated[list[LikeOthers], doc("for the ranks with most of the path")]
    hosts: Annotated[list[HostPace], doc("of each rank")]


class Pace(Record):
    """The ranks of a job, and who waits for whom."""

    ranks: Annotated[list[int], doc("numbers of the ranks")]
    steps: Annotated[int, doc("steps per capture; 0: none are marked, and amounts per step are those per capture")]
    step_ns: Annotated[float, doc("the mean step of all ranks, without each one's first")]
    unprofiled_ns: Annotated[float | None, doc("the mean step without the profiler, where it was timed before")]
    known: Annotated[bool, doc("whether all ranks of some communicator are here with the same calls")]
    slow: Annotated[list[SlowRank], doc("ranks that others wait for, the most waited for first")]
    waits: Annotated[Waits, doc("how long each rank waited for others in each step")]
    pairs: Annotated[list[Wait], doc("who waits for whom, the longest first")]
    clocks: Annotated[list[Clock], doc("each rank's clock against the first rank's, by the ends of collectives")]
    communication: Annotated[Communication | None, doc("null: no communication in the capture")]
    bubbles: Annotated[list[Bubble], doc("of the ranks that send to each other and receive, the longest first")]
    collectives: Annotated[list[CollectiveKind], doc("by kind, the longest first")]
    experts: Annotated[ExpertLoad | None, doc("load of the ranks of a mixture of experts; null: none, or not known")]
    path: Annotated[JobPath | None, doc("the critical path across ranks; null: they were not replayed together")]
