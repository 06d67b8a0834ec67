"""What pyprof replay prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated

from pyprof.command.json_schema import FileWritten, Record, doc
from pyprof.prof.replay.critical_path import CriticalPath, PathTime, PlaceOnPath
from pyprof.prof.replay.replay_device import ReplayedDevice
from pyprof.prof.replay.replayed_run import Replayed, ReplayedStep
from pyprof.prof.replay.tasks import ROOM, STREAM_WAIT
from pyprof.prof.replay.without_profiler import ProfilerRemoved
from pyprof.prof.timing.loading import loading
from pyprof.prof.work.annotate import annotate


class Simulation(Record):
    """A capture and its replay: how they differ, and the critical path."""

    recorded_ns: Annotated[int, doc("from the first event of the capture to the last")]
    replayed_ns: Annotated[int, doc("the same in the replay")]
    difference: Annotated[float, doc("replayed_ns / recorded_ns - 1")]
    idle_recorded_ns: Annotated[int, doc("time in which a GPU had nothing to do between its first and last operation")]
    idle_replayed_ns: Annotated[int, doc("the same in the replay, where it follows from dependencies alone")]
    steps: Annotated[list[ReplayedStep], doc("the steps that the capture marks")]
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
    removed: ProfilerRemoved,
    path: CriticalPath,
    places: list[PlaceOnPath],
    output: str | None,
    device: ReplayedDevice | None = None,
    without: bool = False,
) -> Simulation:
    """The document. ``replayed``: what it describes, ``without`` the profiler's cost or on another ``device``."""
    idle, table = replayed.idle_ns(), replayed.table
    causes = replayed.tasks.cause
    return Simulation(
        recorded_ns=replayed.recorded_ns,
        replayed_ns=replayed.replayed_ns,
        difference=replayed.difference,
        idle_recorded_ns=idle[0],
        idle_replayed_ns=idle[1],
        steps=replayed.steps(),
        critical_path=path.by_class(),
        places=places,
        operations=len(replayed.run.work),
        calls=len(replayed.run.calls),
        stream_waits=int((causes == STREAM_WAIT).sum()),
        stream_waits_recorded=bool((replayed.run.calls.record >= 0).any()),
        room_waits=int((causes == ROOM).sum()),
        launched_share=replayed.launched_share,
        complete=replayed.is_complete,
        without_profiler=removed,
        profiler_removed=without,
        output=FileWritten.of(output) if output else None,
        device=device,
        loading_ns=int(table.ints("kDuration")[loading(table, annotate(table))].sum()),
    )
