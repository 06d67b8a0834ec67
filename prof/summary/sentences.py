"""The summary's headline, figures and quotable sentences: each sentence is true on its own and has its numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pyprof.command.json_schema import doc
from pyprof.prof.summary import clock_sentences as clock
from pyprof.prof.summary import step_sentences as step
from pyprof.prof.summary import time_sentences as time
from pyprof.prof.summary import work_sentences as work
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.expert_sentences import expert_sentences
from pyprof.prof.summary.memory_sentences import memory_sentences
from pyprof.prof.summary.rank_sentences import rank_sentences
from pyprof.prof.summary.serving_sentences import serving_sentences
from pyprof.prof.summary.wording import amount, joined
from pyprof.prof.timing.usage import Usage
from pyprof.quantities import counted, ms, share
from pyprof.table.attribution import AttributedTime
from pyprof.table.losses import incomplete_line, times_are_wrong

ROWS = {"kernel": "kernel", "memcpy": "copy", "memset": "memset", "graph": "graph launch", "cpu": "CPU op"}
MAKERS = (
    step.step_sentences,
    rank_sentences,
    time.warm_up_sentences,
    time.loading_sentences,
    time.queue_sentences,
    time.sync_sentences,
    time.blocking_sentences,
    time.backward_sentences,
    serving_sentences,
    work.kind_sentences,
    work.matrix_sentences,
    work.attention_sentences,
    expert_sentences,
    work.autotuning_sentences,
    work.dropout_sentences,
    work.rate_sentences,
    work.usage_sentences,
    work.limit_sentences,
    work.counter_sentences,
    clock.clock_sentences,
    clock.fall_sentences,
    clock.peak_sentences,
    clock.power_sentences,
    lambda summary: memory_sentences(summary.memory),
    time.communication_sentences,
    time.layer_sentences,
    work.graph_sentences,
    work.unattributed_sentences,
    work.uncounted_sentences,
)

OF_TIMES = (  # false where times are wrong
    time.queue_sentences,
    time.sync_sentences,
    time.blocking_sentences,
    time.backward_sentences,
    work.kind_sentences,
    work.matrix_sentences,
    work.attention_sentences,
    work.usage_sentences,
    work.limit_sentences,
    time.communication_sentences,
    time.layer_sentences,
)


def headline(summary: Summary) -> str:
    """That the capture is incomplete, if it is, and what ran, where, for how long, and how much of it is attributed."""
    return " ".join([*incomplete_lines(summary), what_ran(summary)])


def incomplete_lines(summary: Summary) -> list[str]:
    """The first line of an incomplete capture: why it is, what is withheld, how to record it anew."""
    return [incomplete_line(summary.incomplete, withheld=True)] if summary.incomplete else []


def what_ran(summary: Summary) -> str:
    """What ran, where, for how long, and how much of it is attributed."""
    operations = [counted(part.rows, ROWS.get(part.name, part.name)) for part in summary.kinds_of_rows]
    where = "the CPU" if summary.on_cpu else _device_names(summary.devices)
    attributed = AttributedTime(summary.total_ns, summary.attributed_ns, summary.on_cpu)
    return f"{joined(operations)} on {where}. {attributed.sentence()}."


def _device_names(devices: Sequence[Usage]) -> str:
    names = [device.name or "GPU" for device in devices]
    counts = {name: names.count(name) for name in names}
    nameless = counts.pop("GPU", 0)
    texts = [f"{count} × {name}" if count > 1 else f"one {name}" for name, count in counts.items()]
    if nameless:
        texts.append("one GPU" if nameless == 1 else f"{nameless} GPUs")
    return joined(texts) or "a GPU whose name is not recorded"


def sentences(summary: Summary) -> list[str]:
    """Where the time went, the most important first."""
    wrong = times_are_wrong(summary.incomplete)
    makers = [make for make in MAKERS if not (wrong and make in OF_TIMES)]
    return [summary.in_makers_words(sentence) for make in makers for sentence in make(summary)]


def assumptions(summary: Summary) -> list[str]:
    """The assumptions behind the numbers."""
    texts = [] if summary.on_cpu else [f"{note[0].upper()}{note[1:]}." for note in summary.notes]
    if not summary.has_layers and summary.attributed_ns:
        remedy = "capture with pyprof.init(), or with torch.profiler's with_modules=True"
        texts.append(f"The capture names no layers: {remedy}.")
    texts.append("FLOPs and bytes are what the algorithm needs; a multiply-add counts as 2 FLOPs. Peaks are dense.")
    if summary.measured is not None:
        texts.append(
            "Counters are those of Nsight Compute's run, each kernel alone; without --cache-control none and "
            "--clock-control none, with empty caches and at the base clock."
        )
    texts.append(f"{summary.worker} time is the sum of all durations, so that overlapping time counts more than once.")
    return texts


@dataclass(frozen=True, slots=True)
class Figure:
    """A headline figure: its value, its name and what it refers to."""

    name: Annotated[str, doc("what it is")]
    value: Annotated[str, doc("with its unit")]
    of: Annotated[str, doc("what it is of, or empty")] = ""


def figures(summary: Summary) -> list[Figure]:
    """Attributed share, times, busy share, rate and MFU, each only if it is known."""
    worker, total = summary.worker, summary.total_ns
    least = work.at_least(summary.counted_ns, summary).replace("at least", "≥")
    shown = [
        Figure("attributed", share(summary.attributed_ns, total), f"of {worker} time"),
        Figure(f"{worker} time", ms(total), "sum of all durations"),
        *_length(summary),
    ]
    if summary.devices and summary.span_ns:
        if summary.step is not None and summary.step.shares:
            busy, wall = summary.step.busy_ns, summary.step.wall_ns
            shown.append(Figure("GPU busy", share(busy, wall), f"of {ms(round(wall))}"))
        if not math.isnan(summary.flop_per_s):
            known = f"{work.per_gpu(summary).strip()}, known for {share(summary.counted_ns, total)} of {worker} time"
            rate = f"{least}{amount(summary.flop_per_s, 'FLOP/s')}"
            shown.append(Figure("FLOP rate", rate, known))
        if not math.isnan(summary.mean("mfu")):
            peak = summary.in_makers_words(work.peak_text(summary))
            shown.append(Figure("MFU", f"{least}{work.mfu_text(summary)}", f"of {peak}"))
    return shown


def _length(summary: Summary) -> list[Figure]:
    """The time of a step, or of the whole capture if it marks no steps."""
    found = summary.step
    if found is None:
        return []
    name = "step time" if found.unit == "step" else "capture"
    return [Figure(name, ms(round(found.wall_ns)), step.figure_of(found))]
