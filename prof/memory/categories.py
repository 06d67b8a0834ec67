"""What a block of memory holds: parameters, gradients, optimizer state, activations, or a temporary value.

What the capture itself records decides (``pyprof run --memory`` records the tensors of modules and optimizers).
For all other blocks, evidence decides: in which phase the block was allocated, and when it was freed.

A backward pass begins with the first event of autograd's nodes after an allocation of the forward pass, and ends with
the last one before the next such allocation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.memory.timeline import Timeline
from pyprof.table.columns import NULL, Bools, Coded, Ints, MemoryTable, value_at

PARAMETERS, BUFFERS, GRADIENTS, STATE = "parameters", "buffers", "gradients", "optimizer state"
ACTIVATIONS, TEMPORARIES, BEFORE, UNKNOWN = "activations", "temporaries", "before the capture", "unknown"
CATEGORIES = (PARAMETERS, BUFFERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARIES, BEFORE, UNKNOWN)
# The rule of each category, as docs/how-to/memory.md and the JSON state it.
RULES = {
    PARAMETERS: "recorded by the capture; or allocated before the first activation and alive after the last backward "
    "pass (buffers, and all else that the program keeps from its start, count as parameters)",
    BUFFERS: "recorded by the capture as buffers of modules",
    GRADIENTS: "recorded by the capture; or allocated in a backward pass and alive after it; where the others of that "
    "pass are freed by the end of the next one, what stays longer is unknown (a library's workspace, for example)",
    STATE: "recorded by the capture; or allocated in the optimizer's step and not freed before the last such step ends",
    ACTIVATIONS: "allocated in the forward pass, or where it is recomputed, and alive when the next backward pass "
    "begins; what stays alive into the next forward pass and is not freed then is unknown",
    TEMPORARIES: "freed within the phase in which it was allocated",
    BEFORE: "allocated before the capture began; its bytes are the recorded total without the blocks that are known",
    UNKNOWN: "none of these rules applies, or the capture has no addresses or no phases",
}
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a timeline, in order of allocation; those from before the capture first."""

    row: Ints  # of the memory table
    nbytes: Ints
    begin: Ints  # place of the allocation in the timeline; -1: before its first event
    end: Ints  # place of the free; the number of events if it is not freed
    category: Coded

    def alive_at(self, place: int) -> Bools:
        """A mask of the blocks in use after the event ``place``."""
        alive: Bools = (self.begin <= place) & (self.end > place)
        return alive


@dataclass(frozen=True, slots=True)
class Passes:
    """The backward passes of a process: the times of their first and last event."""

    start: Ints
    end: Ints
    forward: Ints  # the times of all allocations in a forward pass, ascending

    @classmethod
    def of(cls, time: Ints, is_forward: Bools, is_backward: Bools) -> Passes:
        """``time`` ascends; ``is_forward``: allocations in a forward pass, ``is_backward``: events of autograd."""
        marks = np.flatnonzero(is_forward | is_backward)
        backward = is_backward[marks]
        first = backward & ~np.append(False, backward[:-1])
        last = backward & ~np.append(backward[1:], False)
        return cls(time[marks[first]], time[marks[last]], time[is_forward])

    def next_start(self, time: Ints) -> Ints:
        """The start of the first pass after each time; ``NEVER`` if there is none."""
        return np.append(self.start, NEVER)[np.searchsorted(self.start, time, "right")]

    def current_end(self, time: Ints) -> Ints:
        """The end of the last pass that began at or before each time; ``NEVER`` if there is none."""
        return np.append(NEVER, self.end)[np.searchsorted(self.start, time, "right")]

    def next_forward(self, time: Ints) -> Ints:
        """The first allocation of a forward pass after each time; ``NEVER`` if there is none."""
        return np.append(self.forward, NEVER)[np.searchsorted(self.forward, time, "right")]


def passes_of(memory: MemoryTable, line: Timeline) -> Passes:
    rows = line.rows
    phase = memory.coded("phase").take(rows)
    backward = phase.among("backward")
    return Passes.of(line.time, phase.among("forward") & (line.change > 0), backward)


def blocks_of(memory: MemoryTable, line: Timeline) -> Blocks:
    """The blocks of a timeline, each with its category."""
    allocated = np.flatnonzero(line.change > 0)
    row = np.concatenate([line.before_rows, line.rows[allocated]])
    place = np.full(len(memory), len(line.rows), np.int64)
    place[line.rows] = np.arange(len(line.rows))
    begin = np.concatenate([np.full(len(line.before_rows), -1, np.int64), allocated])
    peer = memory.ints("peer")[row]
    end = np.where(peer == NULL, len(line.rows), value_at(place, np.where(peer == NULL, -1, peer), len(line.rows)))
    evidence = _by_evidence(memory, line, row, peer)
    recorded = memory.coded("category").take(row).texts()
    is_before = np.arange(len(row)) < len(line.before_rows)
    texts = [
        given or (BEFORE if before else CATEGORIES[code])
        for given, before, code in zip(recorded, is_before.tolist(), evidence.tolist(), strict=True)
    ]
    return Blocks(row, memory.ints("bytes")[row], begin, end, Coded.of(texts))


def _by_evidence(memory: MemoryTable, line: Timeline, row: Ints, peer: Ints) -> Ints:
    """The category of each block by phase and lifetime, as an index into ``CATEGORIES``."""
    passes = passes_of(memory, line)
    time = memory.ints("time")[row]
    freed = np.where(peer == NULL, NEVER, value_at(memory.ints("time"), np.where(peer == NULL, -1, peer), NEVER))
    phase = memory.coded("phase").take(row)
    forward, backward, optimizer = (phase.among(name) for name in ("forward", "backward", "optimizer"))
    recomputed = backward & memory.coded("dir").take(row).among("fprop")
    starts, ends, next_forward = passes.next_start(time), passes.current_end(time), passes.next_forward(time)
    found = np.full(len(row), CATEGORIES.index(UNKNOWN), np.int64)

    def put(category: str, mask: Bools) -> None:
        found[mask & (found == CATEGORIES.index(UNKNOWN))] = CATEGORIES.index(category)

    if line.level == "driver":
        return found
    if not len(passes.start):  # nothing shows what stays for a backward pass
        put(TEMPORARIES, freed < NEVER)
        return np.where(memory.ints("address")[row] == NULL, CATEGORIES.index(UNKNOWN), found)
    saved = forward & (starts < NEVER) & (freed >= starts)  # a pass may begin with a free
    ended = passes.current_end(np.where(saved, starts, 0))
    first_activation = time[saved & (freed <= ended)].min(initial=NEVER)
    last_update = line.time[memory.coded("phase").take(line.rows).among("optimizer")].max(initial=NULL)
    at_start = (time < first_activation) & (first_activation < NEVER)
    put(PARAMETERS, at_start & ~backward & ~optimizer & (freed > passes.end[-1]))
    kept = backward & ~recomputed & (freed > ends)
    put(GRADIENTS, kept & ~_outstays(passes, time, freed, kept))
    put(STATE, optimizer & (freed > last_update) & (freed > next_forward))
    put(STATE, optimizer & (freed == NEVER))
    put(ACTIVATIONS, saved & ((freed < NEVER) | (passes.next_forward(ended) == NEVER)))
    put(ACTIVATIONS, recomputed)
    put(TEMPORARIES, forward & (freed < starts))
    put(TEMPORARIES, backward & (freed <= ends))
    put(TEMPORARIES, optimizer & (freed < next_forward) & (freed <= last_update))
    put(TEMPORARIES, ~optimizer & (freed < np.minimum(starts, next_forward)))
    return np.where(memory.ints("address")[row] == NULL, CATEGORIES.index(UNKNOWN), found)


def _outstays(passes: Passes, time: Ints, freed: Ints, kept: Bools) -> Bools:
    """Which blocks that a backward pass leaves behind are alive after the next pass, where others of it are not."""
    pass_of = np.searchsorted(passes.start, time, "right")
    next_end = np.append(passes.end, NEVER)[np.minimum(pass_of, len(passes.end))]
    replaced = np.zeros(len(passes.start) + 1, bool)
    replaced[pass_of[kept & (freed <= next_end) & (next_end < NEVER)]] = True
    outstays: Bools = kept & replaced[pass_of] & (freed > next_end)
    return outstays
