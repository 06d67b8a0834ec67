"""The list of changes as records, which the JSON of summary, --advise and plan share."""

from __future__ import annotations

from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.changes.code_change import CodeChange
from pyprof.source_path import Place
from pyprof.table.losses import Loss

ON_CPU = "the program ran on the CPU, where ops run one after the other"
CPU_UNKNOWN = "the capture does not say what CPU it ran on; `pyprof run` records it"


class StepTime(Record):
    """The time of a step without a profiler, and the interval that contains it in four cases of five."""

    ms: Annotated[float, doc("mean over what is not known: the host's pace, durations after a change", "ms")]
    low_ms: Annotated[float, doc("one case in ten is below", "ms")]
    high_ms: Annotated[float, doc("one case in ten is above", "ms")]


class AbstainedRule(Record):
    """A rule that proposes nothing."""

    rule: Annotated[str, doc("its name")]
    why: Annotated[str, doc("why it proposes nothing")]


class Change(Record):
    """A change. Its amounts are per step, and those after the changes above it in the list."""

    rule: Annotated[str, doc("its name, the same in pyprof try and for --with and --without")]
    title: Annotated[str, doc("what to do, in a few words")]
    change: Annotated[str, doc("what to write instead")]
    why: Annotated[str, doc("what shows it, in numbers")]
    cost: Annotated[str, doc("what it costs: numerics, memory, code")]
    op: Annotated[str, doc("what the user called, for the kernel that gains most; empty: it concerns all, or none")]
    layer: Annotated[str, doc("its layer")]
    trace: Annotated[str, doc("its line of code; empty: none is known, or none is outside of installed packages")]
    library: Annotated[str, doc("the line of an installed package that its line leads to; empty: none")]
    kernels: Annotated[float, doc("number of kernels and copies per step that it concerns")]
    time_ms: Annotated[float, doc("what these take now: time of the GPU, or of a CPU's ops", "ms")]
    gpu_ms: Annotated[float, doc("the GPU's work, or a CPU's, that it removes", "ms")]
    host_ms: Annotated[
        float | None, doc("the host's work that it removes, without waits; null: the run is not replayed", "ms")
    ] = None
    saved_ms: Annotated[
        float | None,
        doc("what the step gets shorter; null: the run is not replayed, so that only gpu_ms is known", "ms"),
    ] = None
    low_ms: Annotated[float | None, doc("in one case of ten, the step gets shorter by less", "ms")] = None
    high_ms: Annotated[float | None, doc("in one case of ten, the step gets shorter by more", "ms")] = None
    step: Annotated[StepTime | None, doc("the step after it; null: the run is not replayed")] = None
    alone_ms: Annotated[
        float | None, doc("what it would save as the only change, roughly; null: its rule does not propose it so", "ms")
    ] = None
    needed_by: Annotated[
        str, doc("title of the change that it is made for, which brings more after it; empty: for itself")
    ] = ""
    timed: Annotated[float, doc("the share of its kernels' new durations that was measured, by time", "1")] = 0.0
    source: Annotated[str, doc("the program's statement there; empty: the file is not here, or has changed")] = ""
    code: Annotated[CodeChange | None, doc("the change in code; null: in words alone")] = None

    @property
    def place(self) -> Place:
        """Its line, and the library's line that it leads to."""
        return Place(self.trace, self.library)


class NotChosen(Record):
    """A change that would save less than 1% of the step after those of the list."""

    rule: Annotated[str, doc("its name")]
    title: Annotated[str, doc("what it would do")]
    saved_ms: Annotated[float, doc("what it would save, roughly; negative: the step would take longer", "ms")]


class Changes(Record, kw_only=True):
    """Changes in the order in which they bring most, each after those before it."""

    unit: Annotated[str, doc("what amounts are per: step, or capture where no steps are marked")]
    steps: Annotated[
        int,
        doc("on how many marked steps it rests, some in a row of a long capture; 0: none, and a step is the capture"),
    ]
    captured_ms: Annotated[
        float, doc("what a step takes as captured, with the profiler; the whole capture if unmarked", "ms")
    ]
    on_cpu: Annotated[bool, doc("whether the rows are CPU ops, whose time is the step's")] = False
    incomplete: Annotated[
        list[Loss], doc("what the capture has lost, where it lacks records: then there are no changes")
    ]
    now: Annotated[
        StepTime | None, doc("the step without a profiler, as the program is; null: the run is not replayed")
    ] = None
    measured: Annotated[bool, doc("whether that time was measured or given; otherwise it is an estimate")] = False
    not_judged: Annotated[str, doc("why no rule can judge the capture; empty: rules can")] = ""
    not_replayed: Annotated[str, doc("why only the GPU's work is known of changes; empty: the run is replayed")] = ""
    changes: Annotated[list[Change], doc("in order")]
    not_chosen: Annotated[list[NotChosen], doc("the greatest saving first")]
    abstained: Annotated[list[AbstainedRule], doc("rules that propose nothing, and why")]
    shapes: Annotated[bool, doc("whether the capture has shapes of ops, which most rules need")] = True
    besides_ms: Annotated[
        float,
        doc("of captured_ms, what launches that take long do besides, as load a kernel: now leaves it out", "ms"),
    ] = 0.0
    doubt: Annotated[str, doc("why all these times may be false: what the replay lacks; empty: it is faithful")] = ""
