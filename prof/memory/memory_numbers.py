"""The numbers of a capture's memory, which the sentences, the tables, the page and the JSON show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.memory.categories import Blocks, blocks_of
from pyprof.prof.memory.checkpointing import Checkpointing, candidates, predict
from pyprof.prof.memory.peak_content import LayerShare, PeakContent, layer_shares, peak_content
from pyprof.prof.memory.step_window import Kernels, Window
from pyprof.prof.memory.timeline import StepPeak, Timeline, step_peaks, timelines
from pyprof.prof.work.layer_path import layer_texts
from pyprof.source_path import place_of
from pyprof.table.columns import NULL, MemoryTable, Table, known
from pyprof.table.schema import first_text, list_texts

LEAST = 0.001  # share of the peak; checkpointing that drops less is not listed


@dataclass(frozen=True, slots=True)
class PeakOfStep:
    """The peak of one step."""

    step: Annotated[int, doc("number of the step")]
    peak_bytes: Annotated[
        int, doc("what torch.cuda.max_memory_allocated() returns, if reset at the step's begin", "bytes")
    ]
    reserved_bytes: Annotated[int | None, doc("the most in reserve; null where it is not recorded", "bytes")]


@dataclass(frozen=True, slots=True)
class Moment:
    """What the program did when the memory peaked."""

    time_ns: Annotated[int | None, doc("since the capture began; null: the peak is what was in use before", "ns")]
    step: Annotated[int | None, doc("the training step")]
    phase: Annotated[str, doc("forward, backward, optimizer, data or other; empty if unknown")]
    op: Annotated[str, doc("what the user called; empty if unknown")]
    layer: Annotated[str, doc("the layer; empty if unknown")]
    line: Annotated[str, doc("the innermost of the user's lines; empty if unknown")]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device of one process."""

    kind: Annotated[str, doc("cuda, hip, cpu, ...")]
    device: Annotated[int | None, doc("its number as the process saw it")]
    pid: Annotated[int | None, doc("the process")]
    rank: Annotated[int | None, doc("the rank of the process")]
    level: Annotated[
        str, doc("allocator: blocks that PyTorch hands out; driver: memory from cudaMalloc, which is what is reserved")
    ]
    events: Annotated[int, doc("allocations and frees")]
    exact: Annotated[bool, doc("whether the profiler recorded the total; otherwise it counts from the first event")]
    missing: Annotated[int, doc("recorded totals that do not follow from the event before: events are missing there")]
    before_bytes: Annotated[int | None, doc("in use before the first event; null where it is not recorded", "bytes")]
    peak_bytes: Annotated[int, doc("the most bytes in use", "bytes")]
    reserved_bytes: Annotated[int | None, doc("the most bytes in reserve; null where it is not recorded", "bytes")]
    at: Annotated[Moment, doc("what the program did at the peak")]
    steps: Annotated[list[PeakOfStep], doc("the peak of each step")]
    content: Annotated[PeakContent, doc("what is alive at the peak")]
    saved: Annotated[
        list[LayerShare],
        doc("activations that the forward pass of the peak's step leaves for its backward pass, by group of layers"),
    ]
    checkpointing: Annotated[
        list[Checkpointing], doc("what checkpointing each group of layers would change, the greatest effect first")
    ]

    @property
    def is_gpu(self) -> bool:
        return self.kind not in ("cpu", "pageable", "pinned", "unknown", "static", "managed static")


def memory_numbers(
    memory: MemoryTable, kernels: Table | None = None, checkpoint: str | None = None
) -> list[DeviceMemory]:
    """The numbers of each device, GPUs first.

    ``kernels``: the capture's kernel table, for the time that checkpointing costs. ``checkpoint``: a pattern of layers
    (``GPT:h.*``); then only these are predicted, all of them checkpointed.
    """
    return [_device(memory, line, kernels, checkpoint) for line in timelines(memory)]


def _device(memory: MemoryTable, line: Timeline, kernels: Table | None, checkpoint: str | None) -> DeviceMemory:
    blocks, peaks = blocks_of(memory, line), step_peaks(memory, line)
    window = _window(memory, line, blocks, peaks, kernels)
    return DeviceMemory(
        kind=line.kind,
        device=line.device,
        pid=line.pid,
        rank=line.rank,
        level=line.level,
        events=len(line.rows),
        exact=line.initial is not None,
        missing=line.missing,
        before_bytes=line.initial,
        peak_bytes=line.peak.nbytes,
        reserved_bytes=line.most_reserved(),
        at=_moment(memory, line),
        steps=[PeakOfStep(each.step, each.peak.nbytes, each.reserved) for each in peaks],
        content=peak_content(memory, line, blocks),
        saved=_saved(window),
        checkpointing=_checkpointing(window, checkpoint),
    )


def _window(
    memory: MemoryTable, line: Timeline, blocks: Blocks, peaks: Sequence[StepPeak], kernels: Table | None
) -> Window:
    """The step in which the memory peaks; the whole capture if no steps are marked."""
    highest = max(peaks, key=lambda peak: peak.peak.nbytes, default=None)
    begin, end = (0, len(line.rows)) if highest is None else (highest.begin, highest.end)
    return Window(memory, line, blocks, begin, end, _kernels_of(kernels, line, highest))


def _kernels_of(kernels: Table | None, line: Timeline, highest: StepPeak | None) -> Kernels | None:
    """The kernels that the step launched in the timeline's process."""
    if kernels is None:
        return None
    chosen = np.ones(len(kernels), bool)
    if line.pid is not None:
        chosen &= kernels.ints("pid") == line.pid
    if highest is not None and bool((kernels.ints("step") != NULL).any()):
        chosen &= kernels.ints("step") == highest.step
    return Kernels.of(kernels.take(np.flatnonzero(chosen))) if chosen.any() else None


def _moment(memory: MemoryTable, line: Timeline) -> Moment:
    place = line.peak.place
    if place < 0:
        return Moment(None, None, "", "", "", "")
    at = memory.take([int(line.rows[place])])
    texts = {key: at.coded(key).texts()[0] for key in ("phase", "op", "layer", "trace")}
    return Moment(
        time_ns=line.peak.time_ns,
        step=known(int(at.ints("step")[0])),
        phase=texts["phase"],
        op=first_text(texts["op"]) if texts["op"] else "",
        layer=layer_texts(at.coded("layer")).texts()[0],
        line=str(place_of(list_texts(texts["trace"]))) if texts["trace"] else "",
    )


def _saved(window: Window) -> list[LayerShare]:
    """The activations of the step that are alive when its backward pass begins, by group of layers."""
    chosen = window.saved_blocks()
    layers = window.layers.take(window.begin_of[chosen])
    return layer_shares(layers, window.category.take(chosen), window.nbytes[chosen])


def _checkpointing(window: Window, pattern: str | None) -> list[Checkpointing]:
    if pattern is None:
        return candidates(window, least=max(1, int(LEAST * window.peak)))
    found = predict(window, pattern, _matching(window.paths.values, pattern))
    return [] if found is None else [found]


def _matching(paths: Sequence[str], pattern: str) -> list[str]:
    """The layers, among the paths and what is above them, whose name a pattern fits; * does not match a colon."""
    parts = pattern.split(":")
    above = {":".join(path.split(":")[: len(parts)]) for path in paths}
    return sorted(
        path
        for path in above
        if path.count(":") == len(parts) - 1
        and all(fnmatchcase(a, b.replace("[", "[[]")) for a, b in zip(path.split(":"), parts, strict=True))
    )
