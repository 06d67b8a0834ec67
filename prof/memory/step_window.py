"""One step of a timeline as arrays: its events, its blocks, the kernels that it launched, all by layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.memory.categories import ACTIVATIONS, Blocks
from pyprof.prof.memory.timeline import Timeline
from pyprof.prof.work.layer_path import layer_texts
from pyprof.table.columns import NULL, Bools, Coded, Ints, MemoryTable, Table


def is_within(path: str, layer: str) -> bool:
    """Whether a path of parts is a layer or below it.

    >>> is_within("GPT:h.1:attn", "GPT:h.1"), is_within("GPT:h.10", "GPT:h.1")
    (True, False)
    """
    return path == layer or path.startswith(f"{layer}:")


class Places:
    """The rows of each layer, found without a pass over all rows for each of them."""

    def __init__(self, paths: Coded) -> None:
        self._order = np.argsort(paths.codes, kind="stable")
        counts = np.bincount(paths.codes + 1, minlength=len(paths.values) + 1)
        self._ends = np.cumsum(counts)
        self._values = paths.values

    def within(self, layer: str) -> Ints:
        """The rows of a layer and of the layers below it, ascending."""
        codes = [code for code, path in enumerate(self._values) if is_within(path, layer)]
        parts = [self._order[self._ends[code] : self._ends[code + 1]] for code in codes]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels that a step launched, in order of launch."""

    table: Table
    launched: Ints
    is_forward: Bools  # launched by the forward pass, and not where it is recomputed
    places: Places

    @classmethod
    def of(cls, table: Table) -> Kernels:
        table = table.take(np.flatnonzero(table.ints("start") != NULL))
        called = np.where(table.ints("apiStart") == NULL, table.ints("start"), table.ints("apiStart"))
        order = np.argsort(called, kind="stable")
        table = table.take(order)
        forward = table.coded("dir").among("fprop") & table.coded("phase").among("forward")
        return cls(table, called[order], forward, Places(layer_texts(table.coded("layer"))))


class Window:
    """The events ``begin`` to ``end`` of a timeline, which are those of one step. Places count from ``begin``."""

    def __init__(
        self, memory: MemoryTable, line: Timeline, blocks: Blocks, begin: int, end: int, kernels: Kernels | None
    ) -> None:
        rows = line.rows[begin:end]
        self.events = end - begin
        self.kernels = kernels
        self.time, self.total = line.time[begin:end], line.total[begin:end]
        self.before = int(line.total[begin - 1]) if begin else line.first  # in use before the first event
        self.peak = line.peak_between(begin, end).nbytes
        self.layers = memory.coded("layer").take(rows).used()
        self.paths = layer_texts(self.layers)
        self.places = Places(self.paths)
        phase = memory.coded("phase").take(rows)
        self.is_forward: Bools = phase.among("forward") & (line.change[begin:end] > 0)  # allocations
        self.is_backward = phase.among("backward")
        backward = np.flatnonzero(self.is_backward)
        self.first_backward = int(backward[0]) if len(backward) else self.events
        chosen = np.flatnonzero((blocks.begin >= begin) & (blocks.begin < end))
        self.nbytes, self.category = blocks.nbytes[chosen], blocks.category.take(chosen)
        self.begin_of, self.end_of = blocks.begin[chosen] - begin, blocks.end[chosen] - begin
        self.block_at = np.full(self.events, -1, np.int64)  # the block that an allocation makes
        self.block_at[self.begin_of] = np.arange(len(chosen))

    def saved_blocks(self) -> Ints:
        """The activations that are alive when the backward pass begins."""
        alive = (self.begin_of < self.first_backward) & (self.end_of >= self.first_backward)
        return np.flatnonzero(alive & self.category.among(ACTIVATIONS) & (self.first_backward < self.events))
