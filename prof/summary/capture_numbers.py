"""The numbers of a whole capture, used by the sentences, the tables, the page's figures and the JSON.

Times are ns. With several GPUs, times are summed over the GPUs, including their spans.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.parse.attribute.reasons import UNKNOWN
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.memory.memory_numbers import DeviceMemory, memory_numbers
from pyprof.prof.ranks import pace_of_table
from pyprof.prof.ranks.pace_records import JobPath, Pace
from pyprof.prof.step.run_step import HostPlace, RunStep, host_places, run_step
from pyprof.prof.summary import work_numbers as work
from pyprof.prof.summary.captured_graphs import GraphContent, graph_contents
from pyprof.prof.summary.components import Part, Series, StepPart, components, parts_of, series
from pyprof.prof.summary.expert_rows import ExpertTokens, PaddedTiles, expert_tokens, padded_tiles
from pyprof.prof.summary.measured_work import Measured, measured_work
from pyprof.prof.summary.withheld import withheld
from pyprof.prof.timing.clocks import Clocks, clocks
from pyprof.prof.timing.collectives import Collective, collectives
from pyprof.prof.timing.gpus import device_rows, ends
from pyprof.prof.timing.loading import Leading, without_loading
from pyprof.prof.timing.profiler_cost import Unprofiled, unprofiled
from pyprof.prof.timing.serving import ServingPhase, serving_phases
from pyprof.prof.timing.steps import PHASES, Step, phase_places, phase_times, slowest_steps
from pyprof.prof.timing.stragglers import RankWaits, stragglers
from pyprof.prof.timing.timeline import Timeline, exposed_ns, timeline
from pyprof.prof.timing.usage import Usage, usage
from pyprof.prof.timing.waiting import Waits, waits
from pyprof.prof.timing.warmup import WarmUp, warm_up
from pyprof.prof.work.annotate import Annotation, sum_known
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.attribution import AttributedTime, attributed_rows, launched_alone
from pyprof.table.columns import NULL, Bools, Ints, MemoryTable, Table
from pyprof.table.losses import Loss, losses


@dataclass(frozen=True, slots=True)
class Summary:
    on_cpu: Annotated[bool, doc("whether the rows are CPU ops")]
    incomplete: Annotated[
        tuple[Loss, ...],
        doc(
            "what the capture has lost, where it lacks records: then idle and busy times and shares of the span are "
            "null, and there is no advice, because they would be false"
        ),
    ]
    warm_up: Annotated[
        WarmUp | None, doc("the first steps, where they take long, and what was before: left out of all figures")
    ]
    kinds_of_rows: Annotated[tuple[Part, ...], doc("rows by kind: kernel, memcpy, memset, graph or cpu")]
    launches_alone: Annotated[
        bool, doc("whether CPU ops launched GPU work that the capture does not have: their time gives no rates")
    ]
    total_ns: Annotated[int, doc("time of all rows except warm-up and loading; overlaps count twice")]
    attributed_ns: Annotated[int, doc("time of the rows that have an op")]
    reasons: Annotated[tuple[Part, ...], doc("rows without an op, by the reason")]
    devices: Annotated[tuple[Usage, ...], doc("one record per device")]
    span_ns: Annotated[int, doc("of the capture, from the first operation to the last, of all devices")]
    busy_ns: Annotated[int | None, doc("time with at least one operation; null in an incomplete capture")]
    idle_ns: Annotated[int | None, doc("time without an operation; null in an incomplete capture")]
    waits: Annotated[Waits, doc("why the GPU waits")]
    step: Annotated[
        RunStep | None, doc("the step as the user runs it, and what limits it; null if no operation has a time")
    ]
    host_places: Annotated[tuple[HostPlace, ...], doc("lines before which the host pauses, the longest pauses first")]
    steps: Annotated[tuple[StepPart, ...], doc("one per step, as captured")]
    unprofiled: Annotated[
        Unprofiled | None, doc("the steps timed before the profiler started, with pyprof run --warmup and the like")
    ]
    phases: Annotated[
        tuple[Part, ...],
        doc("time by phase: forward, backward, optimizer, data, prefill, decode, mixed, other; overlaps counted once"),
    ]
    components: Annotated[tuple[Part, ...], doc("parts of the model")]
    has_layers: Annotated[bool, doc("whether the capture names layers")]
    has_sizes: Annotated[bool, doc("whether the capture records shapes, or markers that contain them")]
    series: Annotated[Series | None, doc("the layers that the model repeats")]
    kinds: Annotated[tuple[Part, ...], doc("kinds of work")]
    matrix: Annotated[work.Matrix, doc("matrix math")]
    attention: Annotated[work.Attention, doc("fused and unfused attention")]
    copies: Annotated[Leading | None, doc("copies between host and device")]
    communication_ns: Annotated[int, doc("time of collectives")]
    exposed_ns: Annotated[
        int | None, doc("time of communication while nothing else ran; null in an incomplete capture")
    ]
    collectives: Annotated[tuple[Collective, ...], doc("by kind and number of ranks, where they are on record")]
    pace: Annotated[
        Pace | None,
        doc("the ranks of the table, and who waits for whom; null for one rank, and for an incomplete capture"),
    ]
    waiting: Annotated[
        RankWaits, doc("how long ranks wait for each other in collectives, where all ranks of a group are in the table")
    ]
    counted_ns: Annotated[int, doc("time of the rows whose FLOPs are counted")]
    flop: Annotated[int | None, doc("FLOPs of these rows; null if no operation could be counted")]
    nbytes: Annotated[int | None, doc("bytes of the rows whose bytes are counted; null if none could be counted")]
    limits: Annotated[work.Limits, doc("the rows against the hardware's limits")]
    uncounted: Annotated[tuple[Part, ...], doc("ops whose FLOPs no model counts")]
    notes: Annotated[tuple[str, ...], doc("where the peaks come from")]
    bytes_counted_ns: Annotated[int, doc("time of the rows whose bytes are counted")]
    bytes_uncounted: Annotated[tuple[Part, ...], doc("ops whose FLOPs are counted, and not their bytes")]
    memory: Annotated[
        tuple[DeviceMemory, ...], doc("the memory of each device over the whole capture, where it records allocations")
    ]
    clocks: Annotated[tuple[Clocks, ...], doc("clocks, power and energy of each GPU, where --nvml read them")]
    clock_peaks: Annotated[tuple[work.ClockPeak, ...], doc("what the clocks allow, of the peaks that MFU refers to")]
    autotuning: Annotated[work.Autotuning, doc("trials of cuDNN's algorithms")]
    dropout_without_gradients: Annotated[work.Dropout, doc("dropout where no op could record a gradient")]
    experts: Annotated[
        tuple[ExpertTokens, ...], doc("tokens per expert, by layer, where each expert has products of its own")
    ]
    expert_tiles: Annotated[
        tuple[PaddedTiles, ...], doc("rows of fused experts, padded to tiles, by the length of a tile")
    ]
    serving: Annotated[tuple[ServingPhase, ...], doc("an inference server's batches by phase")]
    graphs: Annotated[
        tuple[GraphContent, ...],
        doc("CUDA graphs that are one operation in the capture, of all rows: what they captured"),
    ]
    measured: Annotated[Measured | None, doc("what Nsight Compute measured, with --ncu")]

    @property
    def worker(self) -> str:
        """Whether the rows ran on a GPU or a CPU."""
        return "CPU" if self.on_cpu else "GPU"

    def in_makers_words(self, text: str) -> str:
        """A text about the hardware in the words of the GPUs' maker."""
        return hardware_words(text, [device.name for device in self.devices])

    @property
    def flop_per_s(self) -> float:
        """The mean of the GPUs over the steps, idle time included; NaN where nothing has a time or a count."""
        return self._rate(self.flop, "flop")

    @property
    def byte_per_s(self) -> float:
        """The mean of the GPUs over the steps, idle time included; NaN where nothing has a time or a count."""
        return self._rate(self.nbytes, "nbytes")

    def _rate(self, amount: float | None, key: str) -> float:
        span_ns = self.span_ns
        if self.devices:
            counts = [getattr(device, key) for device in self.devices]
            amount = None if all(count is None for count in counts) else sum(count or 0 for count in counts)
            span_ns = sum(device.span_ns for device in self.devices)
        known = span_ns and amount is not None and not self.incomplete
        return amount / (span_ns * 1e-9) if known and amount is not None else math.nan

    def mean(self, key: str) -> float:
        """The mean over the GPUs of one field of ``Usage``; NaN if no GPU has it."""
        values = [getattr(device, key) for device in self.devices]
        known = [value for value in values if not math.isnan(value)]
        return sum(known) / len(known) if known else math.nan


def summarise(
    table: Table,
    annotation: Annotation,
    peaks: Peaks | None = None,
    limits: Roofline | None = None,
    memory: MemoryTable | None = None,
    path: JobPath | None = None,
) -> Summary:
    """The summary of a capture. Warm-up and long loading are reported but left out of all other numbers.

    ``limits``: the limits of all rows with ``peaks``, if they have already been computed. ``memory``: the capture's
    allocations, of which nothing is left out. ``path``: across the ranks of a job, where they were replayed together.
    """
    devices, graphs = () if memory is None else tuple(memory_numbers(memory, table)), graph_contents(table)
    lost = losses(table)
    all_rows = len(table)
    steps = slowest_steps(table)  # of all rows: a step begins when the GPU is done with the one before
    step = run_step(table, annotation)
    launched = table.ints("step")
    warm, before = warm_up(table, steps)
    if warm is not None:
        kept = np.flatnonzero(~before)
        table, annotation = table.take(kept), annotation.take(kept)
    kinds_of_rows = parts_of(table.coded("kind"), table.ints("kDuration"), empty="kernel")
    table, annotation, copies = without_loading(table, annotation)
    if limits is None or len(table) < all_rows:
        limits = roofline(table, annotation, peaks)
    parts = _steps(table, steps, launched)
    counting = [steps[number] for number in steps if str(number) in {part.name for part in parts}]
    found = clocks(table, counting)
    batches = serving_phases(table, annotation, limits, {int(part.name): part.ns for part in parts})
    left_out: dict[str, Any] = {"kinds_of_rows": kinds_of_rows, "copies": copies, "warm_up": warm, "memory": devices}
    left_out["graphs"] = graphs
    left_out["host_places"] = () if step is None or lost else tuple(host_places(table, step))
    left_out["pace"] = None if lost else pace_of_table(table, annotation, path)
    numbers = _summary(
        table, annotation, limits, incomplete=lost, step=step, steps=parts, clocks=found, serving=batches, **left_out
    )
    return withheld(numbers) if lost else numbers


def _summary(table: Table, annotation: Annotation, limits: Roofline, **left_out: Any) -> Summary:
    """``left_out``: the fields that need rows that the rest leaves out."""
    duration, row_kinds, time = table.ints("kDuration"), kinds(table, annotation), timeline(table)
    has_op, attributed = attributed_rows(table.coded("op")), AttributedTime.of(table)
    communication, late = row_kinds.among(NCCL), stragglers(table, annotation)
    devices = tuple(_usage(table, annotation, limits, left_out["step"]))
    return Summary(
        **left_out,
        **asdict(attributed),
        clock_peaks=tuple(work.clock_peaks(left_out["clocks"], devices, limits)),
        launches_alone=bool(launched_alone(table.coded("reason")).any()),
        reasons=parts_of(table.coded("reason"), duration, np.flatnonzero(~has_op), empty=UNKNOWN),
        devices=devices,
        span_ns=int(time.own_ns.sum()) + int(time.idle_ns.sum()),
        busy_ns=int(time.own_ns.sum()),
        idle_ns=int(time.idle_ns.sum()),
        waits=waits(table),
        unprofiled=unprofiled(table.measured),
        phases=_phases(table, time),
        components=parts_of(components(table, annotation, row_kinds), duration),
        has_layers=bool((table.coded("layer").codes >= 0).any()),
        has_sizes=any(bool((table.coded(key).codes >= 0).any()) for key in ("sizes", "marker")),
        series=series(table.coded("layer"), duration),
        kinds=parts_of(row_kinds, duration),
        matrix=work.matrix_numbers(table, annotation, limits),
        attention=work.attention_numbers(table, annotation, row_kinds),
        communication_ns=int(duration[communication].sum()),
        exposed_ns=exposed_ns(table, communication) if communication.any() else 0,
        collectives=collectives(table, annotation, late.wait),
        waiting=late.waiting,
        **_counted(table, annotation, has_op),
        limits=work.limit_numbers(limits, duration),
        notes=tuple(limits.notes()),
        autotuning=work.autotuning_numbers(table, annotation),
        dropout_without_gradients=work.dropout_without_gradients(table),
        experts=expert_tokens(table, annotation),
        expert_tiles=padded_tiles(table),
        measured=measured_work(table, annotation, limits),
    )


def _usage(table: Table, annotation: Annotation, limits: Roofline, step: RunStep | None) -> list[Usage]:
    """The use of each device by its steps, of the time that they take without the profiler where that is known."""
    if step is None or not step.numbers:
        return usage(table, annotation, limits)
    return usage(table, annotation, limits, np.isin(table.ints("step"), step.numbers), step.total_ns)


def _counted(table: Table, annotation: Annotation, has_op: Bools) -> dict[str, Any]:
    """The fields about FLOPs and bytes: their sums, the time for which they are known, and the ops without them."""
    duration, counted, bytes_counted = table.ints("kDuration"), annotation.flops != NULL, annotation.bytes != NULL
    return {
        "flop": sum_known(annotation.flops),
        "nbytes": sum_known(annotation.bytes),
        "counted_ns": int(duration[counted].sum()),
        "bytes_counted_ns": int(duration[bytes_counted].sum()),
        "uncounted": work.uncounted_ops(table, np.flatnonzero(has_op & ~counted)),
        "bytes_uncounted": work.uncounted_ops(table, np.flatnonzero(has_op & counted & ~bytes_counted)),
    }


def _steps(table: Table, steps: Mapping[int, Step], launched: Ints) -> tuple[StepPart, ...]:
    """Those of the steps that have rows in the table, and those after them without rows in the whole table.

    ``launched``: the steps of the whole table's rows.
    """
    number = table.ints("step")[table.ints("start") != NULL]
    rows = dict(zip(*(values.tolist() for values in np.unique(number, return_counts=True)), strict=True))
    first = min((step.start_ns for number, step in steps.items() if number in rows), default=0)
    empty = {number for number, step in steps.items() if step.start_ns > first and number not in launched}
    return tuple(
        StepPart(str(number), rows.get(number, 0), step.span_ns, step.idle_ns, step.mark_ns, step.extent_ns)
        for number, step in steps.items()
        if number in rows or number in empty
    )


def _phases(table: Table, time: Timeline) -> tuple[Part, ...]:
    """The phases in the order of a step. Overlaps count once; idle time belongs to the phase of the next row."""
    place = phase_places(table)
    start, end = table.ints("start"), ends(table)
    busy = dict.fromkeys(PHASES, 0)
    for _, rows in device_rows(table):
        for name, ns in phase_times(start[rows], end[rows], place[rows]).items():
            busy[name] += ns
    count = np.bincount(place, minlength=len(PHASES))
    idle = np.zeros(len(PHASES), np.int64)
    np.add.at(idle, place, time.idle_ns)
    return tuple(Part(name, int(count[i]), busy[name], int(idle[i])) for i, name in enumerate(PHASES) if count[i])
