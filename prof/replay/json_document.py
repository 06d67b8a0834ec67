"""What pyprof replay prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated

from pyprof.command.json_schema import FileWritten, Record, doc
from pyprof.prof.replay.critical_path import CriticalPath, PathClass
from pyprof.prof.replay.path_places import PathPlace
from pyprof.prof.replay.replay_device import OnOtherGpu
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import ROOM, STREAM_WAIT
from pyprof.prof.replay.without_profiler import WithoutProfiler
from pyprof.prof.timing.loading import loading
from pyprof.prof.timing.profiler_cost import unprofiled
from pyprof.prof.work.annotate import annotate


class StepReplayed(Record):
    number: Annotated[int, doc("of the step")]
    recorded_ns: Annotated[int, doc("from the GPU's end of the step before to the end of this one, in the capture")]
    replayed_ns: Annotated[int, doc("the same in the replay")]


class PathTime(Record):
    """The critical path by what its time goes to; the sum is replayed_ns."""

    host: Annotated[int, doc("ns of the host between calls and in calls")]
    kernels: Annotated[int, doc("ns of kernels and of opaque CUDA graphs")]
    copies: Annotated[int, doc("ns of copies and memsets")]
    communication: Annotated[int, doc("ns of the kernels of collectives")]
    synchronisation: Annotated[int, doc("ns from the end of the work that the host waited for to the call's return")]
    latency: Annotated[int, doc("ns between a launch and its start, between kernels, and between streams")]


class PlaceOnPath(Record):
    what: Annotated[PathClass, doc("as in critical_path")]
    op: Annotated[
        str,
        doc(
            "what the user called; where that is unknown, the name of the kernel or call, or before which call the "
            "host worked"
        ),
    ]
    line: Annotated[str, doc("the innermost line of the user's code; empty: unknown")]
    ns: Annotated[int, doc("its time on the path")]
    tasks: Annotated[int, doc("number of its tasks on the path")]


class ProfilerRemoved(Record):
    """The replay without the profiler's cost on the host."""

    measured_ns: Annotated[float | None, doc("the step as it was timed before the profiler started; null: it was not")]
    step_ns: Annotated[float, doc("the mean step of this replay; of the whole run where no steps are marked")]
    low_ns: Annotated[float, doc("the same with the low end of the interval of host_share")]
    high_ns: Annotated[float, doc("and with its high end")]
    profiled_ns: Annotated[float, doc("the mean step of the replay with the profiler's cost")]
    host_share: Annotated[float, doc("how much of the host's recorded time is the program's own")]
    host_share_measured: Annotated[bool, doc("whether it follows from measured steps; otherwise it is an estimate")]
    per_range_ns: Annotated[float, doc("what a range (op, marker, layer) costs the profiler, on average")]
    per_call_ns: Annotated[float, doc("what a call of the GPU's API costs it")]


class ReplayedDevice(Record):
    """The GPU that the replay is for, where it is not the capture's."""

    name: Annotated[str, doc("of the GPU")]
    source: Annotated[str, doc("of its peaks")]
    captured_on: Annotated[str, doc("the capture's GPU")]
    step_ns: Annotated[float, doc("the mean step of this replay; of the whole run where no steps are marked")]
    low_ns: Annotated[float, doc("one case in ten is below")]
    high_ns: Annotated[float, doc("one case in ten is above")]


class Simulation(Record):
    """A capture and its replay: how they differ, and the critical path."""

    recorded_ns: Annotated[int, doc("from the first event of the capture to the last")]
    replayed_ns: Annotated[int, doc("the same in the replay")]
    difference: Annotated[float, doc("replayed_ns / recorded_ns - 1")]
    idle_recorded_ns: Annotated[int, doc("time in which a GPU had nothing to do between its first and last operation")]
    idle_replayed_ns: Annotated[int, doc("the same in the replay, where it follows from dependencies alone")]
    steps: Annotated[list[StepReplayed], doc("the steps that the capture marks")]
    critical_path: Annotated[PathTime, doc("what the replay's length is made of")]
    places: Annotated[list[PlaceOnPath], doc("the path by op and line, most time first")]
    operations: Annotated[int, doc("of the GPU")]
    calls: Annotated[int, doc("of the GPU's API")]
    stream_waits: Annotated[int, doc("dependencies between streams")]
    stream_waits_recorded: Annotated[bool, doc("whether the capture says them; otherwise they are inferred")]
    room_waits: Annotated[int, doc("kernels that wait until another stream's kernel leaves room, inferred")]
    launched_share: Annotated[float, doc("share of the GPU's time whose launch is in the capture")]
    complete: Annotated[bool, doc("whether that is at least 0.99: without launches, operations begin as recorded")]
    without_profiler: Annotated[ProfilerRemoved, doc("the step without the profiler's cost: measured or estimated")]
    profiler_removed: Annotated[bool, doc("whether all other figures are without that cost, too (--without-profiler)")]
    output: Annotated[FileWritten | None, doc("the simulated timeline, with -o")]
    device: Annotated[ReplayedDevice | None, doc("the GPU of all figures replayed, with --device")] = None
    loading_ns: Annotated[
        int,
        doc("time of the copies that load the model, a part of the capture that the summary leaves out; 0: of none"),
    ] = 0


def simulation(
    replayed: Replayed,
    removed: WithoutProfiler,
    path: CriticalPath,
    places: list[PathPlace],
    output: str | None,
    other: OnOtherGpu | None = None,
    without: bool = False,
) -> Simulation:
    """The document. ``replayed``: the run that it describes, ``without`` the profiler's cost or on an ``other`` GPU."""
    idle, table = replayed.idle_ns(), replayed.table
    causes = replayed.tasks.cause
    return Simulation(
        recorded_ns=replayed.recorded_ns,
        replayed_ns=replayed.replayed_ns,
        difference=replayed.difference,
        idle_recorded_ns=idle[0],
        idle_replayed_ns=idle[1],
        steps=[StepReplayed(step.number, step.recorded_ns, step.replayed_ns) for step in replayed.steps()],
        critical_path=PathTime(**path.by_class()),
        places=[PlaceOnPath(place.what, place.op, place.line, place.ns, place.tasks) for place in places],
        operations=len(replayed.run.work),
        calls=len(replayed.run.calls),
        stream_waits=int((causes == STREAM_WAIT).sum()),
        stream_waits_recorded=bool((replayed.run.calls.record >= 0).any()),
        room_waits=int((causes == ROOM).sum()),
        launched_share=replayed.launched_share,
        complete=replayed.is_complete,
        without_profiler=_removed(removed),
        profiler_removed=without,
        output=FileWritten.of(output) if output else None,
        device=None if other is None else _device(other),
        loading_ns=int(table.ints("kDuration")[loading(table, annotate(table))].sum()),
    )


def _device(other: OnOtherGpu) -> ReplayedDevice:
    device = other.moved.device
    return ReplayedDevice(device.part, device.source, other.here, other.step_ns, other.low_ns, other.high_ns)


def _removed(removed: WithoutProfiler) -> ProfilerRemoved:
    measured = unprofiled(removed.replayed.table.measured)
    return ProfilerRemoved(
        measured_ns=None if measured is None else measured.step_ns,
        step_ns=removed.step_ns,
        low_ns=removed.low_ns,
        high_ns=removed.high_ns,
        profiled_ns=removed.profiled_ns,
        host_share=removed.share.share,
        host_share_measured=removed.share.measured,
        per_range_ns=removed.per_range_ns,
        per_call_ns=removed.per_call_ns,
    )
