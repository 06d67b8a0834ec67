"""A trace's events in lists by category, and their numbers as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from pyprof.parse.kineto.event_types import MEMORY, NO_ARGS, Args, Event, Number
from pyprof.table.columns import NULL, Ints

# List in Events -> the categories of its events: today's names, then the names of 2021.
CATEGORIES = {
    "ops": "cpu_op Operator",
    "annotations": "user_annotation",
    "frames": "python_function",
    "syncs": "cuda_sync",
    "gpu": "kernel gpu_memcpy gpu_memset mtia_ccp_events Kernel Memcpy Memset",
    "calls": "cuda_runtime cuda_driver hip_runtime hip_driver xpu_runtime xpu_driver privateuse1_runtime "
    "privateuse1_driver mtia_runtime glow_runtime Runtime",
}
# Categories of libkineto that do not describe executed work (ActivityType.h of 2021 to 2026).
IGNORED = {
    "",
    *"Trace ac2g async_cpu_to_gpu async_gpu async fwdbwd gpu_user_annotation overhead cpu_instant_event".split(),
    *"xpu_sync cuda_event cuda_profiler_range external_correlation gpu_pm_counter mtia_insight".split(),
    "collective_comm",
}
LONGEST_US = 2**53  # 285 years; a larger time means a damaged file, and would not fit into the table


@dataclass(slots=True)
class Events:
    """The events that pyprof uses, by category."""

    ops: list[Event] = field(default_factory=list)
    annotations: list[Event] = field(default_factory=list)
    frames: list[Event] = field(default_factory=list)
    gpu: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    syncs: list[Event] = field(default_factory=list)  # synchronisations (enable_cuda_sync_events=True)
    flow_starts: list[Event] = field(default_factory=list)  # starts of flows from a forward op to a backward node
    flow_ends: list[Event] = field(default_factory=list)
    memory: list[Event] = field(default_factory=list)  # allocations and frees
    begin: float | Decimal | None = None  # the time at which the profiler started
    impossible: int = 0  # number of events that were left out for impossible times
    unplaced: list[Event] = field(default_factory=list)  # GPU operations without a possible start; they are in ``gpu``
    untimed: int = 0  # number of GPU operations without a possible duration, which is now 0
    categories: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)  # unknown category -> number of its events on a stream

    @property
    def known(self) -> bool:
        return bool(self.ops or self.annotations or self.frames or self.gpu or self.calls)


def sort(events: Sequence[Event]) -> Events:
    """Put every event into its list; unused events are dropped."""
    found = Events()
    lists: dict[str, Callable[[Event], None]] = {
        category: getattr(found, name).append
        for name, categories in CATEGORIES.items()
        for category in categories.split()
    }
    gpu = frozenset(CATEGORIES["gpu"].split())
    flows = {"s": found.flow_starts.append, "f": found.flow_ends.append}
    for event in events:
        append = lists.get(event.cat) if event.ph == "X" else None
        if append is None and event.cat == "fwdbwd":
            append = flows.get(event.ph)
        if append is None and event.name == MEMORY:
            append = found.memory.append
        if append is None:
            _note_other(found, event)
        elif -LONGEST_US < event.ts < LONGEST_US and -LONGEST_US < event.dur < LONGEST_US:
            append(event)
        elif event.cat in gpu:
            _settle(found, event)
        else:
            found.impossible += 1
    first = min((event.ts for event in found.gpu), default=found.begin or 0.0)
    for event in found.unplaced:
        event.ts = first
    found.gpu += found.unplaced
    found.categories -= {"", "Trace", "ac2g"}
    found.unread = +found.unread
    return found


def _settle(found: Events, event: Event) -> None:
    """Keep a GPU operation whose start or duration is impossible. Without a duration it lasts 0; see ``unplaced``."""
    if not -LONGEST_US < event.dur < LONGEST_US:
        event.dur = 0.0
        found.untimed += 1
    (found.gpu if -LONGEST_US < event.ts < LONGEST_US else found.unplaced).append(event)


def _note_other(found: Events, event: Event) -> None:
    """Record information about the trace from an event that belongs to no list."""
    found.categories.add(event.cat)
    if event.ph == "X" and event.args is not None and event.args.stream != NULL:
        found.unread[event.cat] += event.cat not in IGNORED
    if event.cat == "Trace" and found.begin is None and abs(float(event.ts)) < LONGEST_US:
        found.begin = event.ts


@dataclass(slots=True)
class Clock:
    """Converts the file's microseconds to exact nanoseconds since the capture began."""

    begin_ns: int

    @classmethod
    def of(cls, events: Events) -> Clock:
        begin = events.begin
        if begin is None:
            lists = (events.ops, events.annotations, events.frames, events.gpu, events.calls)
            begin = min(event.ts for some in lists for event in some)
        return cls(int(_nanoseconds([begin])[0]))

    def times(self, events: Sequence[Event]) -> Ints:
        return _nanoseconds([event.ts for event in events]) - self.begin_ns


def _nanoseconds(times: Sequence[float | Decimal]) -> Ints:
    """Microseconds as nanoseconds.

    Whole part and fraction are converted separately: 50 days in µs, as a float, are exact to 0.5 ns, but the product
    with 1000 is not.
    """
    if any(isinstance(time, Decimal) for time in times):
        return np.array([round(time * 1000) for time in times], np.int64)
    values = np.array(times, np.float64)
    whole = np.floor(values)
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)


def durations(events: Sequence[Event]) -> Ints:
    return _nanoseconds([event.dur for event in events])


@dataclass(slots=True)
class Threads:
    """Numbers the file's threads (pid, tid) consecutively."""

    numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(self.numbers)

    def of(self, events: Sequence[Event]) -> Ints:
        written = [(event.pid, event.tid) for event in events]
        # "14412" and 14412 are one thread
        same = {pair: (integer(pair[0]), integer(pair[1])) for pair in dict.fromkeys(written)}
        codes = {pair: self.numbers.setdefault(thread, len(self.numbers)) for pair, thread in same.items()}
        return np.array([codes[pair] for pair in written], np.int64)

    def processes(self, threads: Ints) -> Ints:
        """The pid of each thread number."""
        return np.array([pid for pid, _ in self.pairs], np.int64)[threads] if self.pairs else threads


def args(events: Sequence[Event]) -> list[Args]:
    return [event.args or NO_ARGS for event in events]


def integers(values: list[Number]) -> Ints:
    """A column of whole numbers; ``NULL`` for values that are not numbers."""
    if all(type(value) is int for value in values):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass  # one of them is beyond 64 bits, so convert them one by one below
    return np.array([integer(value) for value in values], np.int64)


def integer(value: object) -> int:
    """The whole number in a field; ``NULL`` if it has none.

    >>> integer("0x10"), integer("7"), integer(7.0)
    (16, 7, 7)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):  # a stranger's may be anything
        return NULL
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (ValueError, OverflowError):  # for example a word, or infinity
        return NULL
    is_whole = not isinstance(value, float) or number == value
    return number if is_whole and abs(number) < 2**63 else NULL
