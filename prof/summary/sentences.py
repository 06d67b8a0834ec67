"""The summary in sentences that a person can quote: each is true alone and has its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.missing_sentences import (
    graph_sentences,
    unattributed_sentences,
    uncounted_sentences,
)
from pyprof.prof.summary.time_sentences import (
    backward_sentences,
    busy_sentences,
    communication_sentences,
    idle_sentences,
    layer_sentences,
    loading_sentences,
    queue_sentences,
    step_sentences,
    sync_sentences,
    warm_up_sentences,
)
from pyprof.prof.summary.wording import counted, joined
from pyprof.prof.summary.work_sentences import (
    attention_sentences,
    kind_sentences,
    limit_sentences,
    matrix_sentences,
    rate_sentences,
    usage_sentences,
)
from pyprof.prof.timing.usage import Usage
from pyprof.table.attribution import AttributedTime

__all__ = ["assumptions", "headline", "sentences"]

ROWS = {"kernel": "kernel", "memcpy": "copy", "memset": "memset", "graph": "graph launch", "cpu": "CPU op"}
MAKERS = (
    warm_up_sentences,
    loading_sentences,
    busy_sentences,
    idle_sentences,
    queue_sentences,
    sync_sentences,
    step_sentences,
    backward_sentences,
    kind_sentences,
    matrix_sentences,
    attention_sentences,
    rate_sentences,
    usage_sentences,
    limit_sentences,
    communication_sentences,
    layer_sentences,
    graph_sentences,
    unattributed_sentences,
    uncounted_sentences,
)


def headline(summary: Summary) -> str:
    """What ran, where, for how long, and how much of it is attributed."""
    operations = [counted(part.rows, ROWS.get(part.name, part.name)) for part in summary.kinds_of_rows]
    where = "the CPU" if summary.on_cpu else _device_names(summary.devices)
    time = AttributedTime(summary.total_ns, summary.attributed_ns, summary.on_cpu)
    return f"{joined(operations)} on {where}. {time.sentence()}."


def _device_names(devices: Sequence[Usage]) -> str:
    names = [device.name or "GPU" for device in devices]
    counts = {name: names.count(name) for name in names}
    texts = [f"{count} × {name}" if count > 1 else f"one {name}" for name, count in counts.items()]
    return joined(texts) or "a GPU whose name is not recorded"


def sentences(summary: Summary) -> list[str]:
    """Where the time went, the most important first."""
    return [sentence for make in MAKERS for sentence in make(summary)]


def assumptions(summary: Summary) -> list[str]:
    """What the numbers rest on."""
    texts = [] if summary.on_cpu else [f"{note}." for note in summary.notes]
    if not summary.has_layers and summary.attributed_ns:
        texts.append(
            "The capture names no layers: capture with pyprof.init(), or with torch.profiler's with_modules=True."
        )
    texts.append("FLOPs and bytes are what the algorithm needs; a multiply-add counts as 2 FLOPs. Peaks are dense.")
    texts.append(f"{summary.worker} time is the sum of all durations, so that overlapping time counts more than once.")
    return texts
