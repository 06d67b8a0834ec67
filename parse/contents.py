"""What a file holds, in figures: made of its kernel table, or of less where a summary is all that is wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyprof.table.columns import NULL, Coded, Ints, Table, distinct


class Estimate(NamedTuple):
    """How far an attributed time is known that was not summed up over all operations."""

    operations: int  # that were looked at
    looked_at_ns: int  # their time
    low_ns: int  # the attributed time lies between these
    high_ns: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """How much of the time has an op, and why the rest has none."""

    total_ns: int
    attributed_ns: int
    reasons: dict[str, int]  # reason -> ns, the largest first
    estimate: Estimate | None = None  # None: exact, as the total always is

    @property
    def share(self) -> float | None:
        """Percent; None of no time."""
        return self.percent(self.attributed_ns)

    def percent(self, ns: int) -> float | None:
        """A part of the time; None of no time."""
        return 100 * ns / self.total_ns if self.total_ns else None

    @classmethod
    def of(cls, duration: Ints, op: Coded, reason: Coded) -> Attribution:
        """Sum up which rows have an op. Reasons that name a range count as one."""
        has_op = np.append(np.array([bool(text) for text in op.values], bool), False)[op.codes]
        found: Counter[str] = Counter()
        for code in np.unique(reason.codes[~has_op]).tolist():
            text = reason.values[code].partition(": ")[0] if code >= 0 else "unknown"
            found[text] += int(duration[~has_op & (reason.codes == code)].sum())
        return cls(int(duration.sum()), int(duration[has_op].sum()), _largest_first(found))


class Span(NamedTuple):
    """A process's device at work."""

    pid: int | None
    device: int | None
    span_ns: int  # from its first start to its last end
    busy_ns: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the rows of a file are."""

    kinds: dict[str, int]  # how many of each
    attribution: Attribution
    gpus: dict[str, int]  # how many GPUs of each name, a process's device being one; an unknown name is empty
    pids: list[int]
    ranks: list[int]
    steps: list[int]
    devices: list[Span]

    @property
    def rows(self) -> int:
        return sum(self.kinds.values())

    @property
    def is_cpu(self) -> bool:
        """Whether the rows are ops of a CPU."""
        return set(self.kinds) == {"cpu"}

    @classmethod
    def of(cls, table: Table) -> Held:
        pid, device, kind = table.ints("pid"), table.ints("device"), table.coded("kind")
        counted = kinds(kind)
        return cls(
            counted,
            Attribution.of(table.ints("kDuration"), table.coded("op"), table.coded("reason")),
            {} if set(counted) == {"cpu"} else gpus(table.coded("gpu"), pid, device),
            known_numbers(pid),
            known_numbers(table.ints("rank")),
            known_numbers(table.ints("step")),
            devices(pid, device, table.ints("start"), table.ints("kDuration")),
        )


def kinds(kind: Coded) -> dict[str, int]:
    """How many rows of each kind."""
    numbers = np.bincount(kind.codes[kind.codes >= 0], minlength=len(kind.values)).tolist()
    return {name: n for name, n in zip(kind.values, numbers, strict=True) if n}


def gpus(name: Coded, pid: Ints, device: Ints) -> dict[str, int]:
    """How many GPUs of each name, a process's device being one; an unknown name is empty."""
    texts = [*name.values, ""]  # code -1 finds the last
    return Counter(texts[code] for code, _, _ in distinct(name.codes, pid, device)[0])


def devices(pid: Ints, device: Ints, start: Ints, duration: Ints) -> list[Span]:
    """The span and the busy time of each process's device."""
    pairs, number = distinct(pid, device)
    found = []
    for place, pair in enumerate(pairs):
        mine = number == place
        begin, end = start[mine], start[mine] + duration[mine]
        process, ordinal = (None if value == NULL else value for value in pair)
        found.append(Span(process, ordinal, int(end.max() - begin.min()), busy_ns(begin, end)))
    return found


def busy_ns(start: Ints, end: Ints) -> int:
    """The length of the union of intervals: overlapping kernels count once."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0)
    return int(reach[-1] - start[0] - gaps.sum())


def known_numbers(values: Ints) -> list[int]:
    """The distinct ones, ascending, without NULL."""
    return sorted(number for (number,) in distinct(values)[0] if number != NULL)


def together(parts: Sequence[Held]) -> Held:
    """Several files' figures as one. Exact parts count in an estimate's bounds as what they are."""
    told = [part.attribution for part in parts]
    reasons: Counter[str] = Counter()
    for each in told:
        reasons.update(each.reasons)
    estimate = None
    if any(each.estimate for each in told):
        whole = (
            each.estimate or Estimate(part.rows, each.total_ns, each.attributed_ns, each.attributed_ns)
            for part, each in zip(parts, told, strict=True)
        )
        estimate = Estimate(*map(sum, zip(*whole, strict=True)))
    return Held(
        _added(part.kinds for part in parts),
        Attribution(
            sum(each.total_ns for each in told),
            sum(each.attributed_ns for each in told),
            _largest_first(reasons),
            estimate,
        ),
        _added(part.gpus for part in parts),
        _united(part.pids for part in parts),
        _united(part.ranks for part in parts),
        _united(part.steps for part in parts),
        [span for part in parts for span in part.devices],
    )


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(found)


def _united(numbers: Iterable[list[int]]) -> list[int]:
    return sorted({number for each in numbers for number in each})


def _largest_first(found: dict[str, int]) -> dict[str, int]:
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
