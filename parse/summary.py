"""What a file holds, in words: one line after parsing, or a page with --summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pyprof.parse.capture import Capture
from pyprof.parse.scope import Kind
from pyprof.parse.selection import range_names
from pyprof.table import NULL, Ints, Table
from pyprof.text import printable

MOST = 8  # reasons, GPUs: what a page shows of a list
NAMING = (Kind.OP, Kind.NODE, Kind.MARKER, Kind.COMM, Kind.OPTIMIZER)  # ranges that can give a row its op
NO_OPS = "no PyTorch ranges in the capture: profile with pyprof.init(), or nsys --pytorch=autograd-shapes-nvtx, for ops"
_NAMES = {"cpu": "CPU op", "memcpy": "copy", "graph": "opaque graph"}


@dataclass(frozen=True, slots=True)
class Told:
    """What a capture says besides its table."""

    file: str
    profiler: str
    warnings: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)  # names of the user's ranges, the commonest

    @classmethod
    def of(cls, capture: Capture) -> Told:
        warnings = list(capture.warnings)
        if capture.rows and not any(scope.kind in NAMING for scope in capture.scopes):
            warnings.append(NO_OPS)
        return cls(capture.file, capture.profiler, warnings, range_names(capture))

    @property
    def nothing(self) -> str:
        """Why there is no row: the reader's first warning."""
        return f"expected GPU operations or CPU ops, found none; {next(iter(self.warnings), 'profile again')}"


@dataclass(frozen=True, slots=True)
class Attribution:
    """How much of the time has an op, and why the rest has none."""

    total_ns: int
    attributed_ns: int
    reasons: dict[str, int]  # reason -> ns, the largest first

    @property
    def share(self) -> float | None:
        """Percent; None of no time."""
        return 100 * self.attributed_ns / self.total_ns if self.total_ns else None


def attribution(table: Table) -> Attribution:
    """Sum up which rows have an op. Reasons that name a range count as one."""
    duration, op, reason = table.ints("kDuration"), table.coded("op"), table.coded("reason")
    has_op = np.append(np.array([bool(text) for text in op.values], bool), False)[op.codes]
    found: dict[str, int] = {}
    for code in np.unique(reason.codes[~has_op]).tolist():
        text = reason.values[code].partition(": ")[0] if code >= 0 else "unknown"
        found[text] = found.get(text, 0) + int(duration[~has_op & (reason.codes == code)].sum())
    ordered = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
    return Attribution(int(duration.sum()), int(duration[has_op].sum()), ordered)


def one_line(profiler: str, table: Table) -> str:
    """What a table holds and how much of its GPU time has an op."""
    found = attribution(table)
    share = "0.0%" if found.share is None else f"{found.share:.1f}%"
    return f"{profiler}: {counts(table)}, {_ms(found.total_ns)}, {share} of it attributed to an op"


def counts(table: Table) -> str:
    """`52 kernels, 5 memsets`."""
    return ", ".join(f"{n:,} {_plural(name, n)}" for name, n in kinds(table).items()) or "no rows"


def kinds(table: Table) -> dict[str, int]:
    """How many rows of each kind."""
    kind = table.coded("kind")
    numbers = np.bincount(kind.codes[kind.codes >= 0], minlength=len(kind.values)).tolist()
    return {name: n for name, n in zip(kind.values, numbers, strict=True) if n}


def page(told: Told, table: Table) -> list[str]:
    """Aligned lines: a word, then what the file says."""
    lines = [
        ("file", told.file),
        ("profiler", told.profiler),
        ("GPU", _gpus(table)),
        ("processes", _processes(table)),
        ("rows", counts(table)),
        *_times(table),
        ("steps", _steps(table)),
        ("ranges", ", ".join(told.ranges)),
        *(("warning", text) for text in told.warnings),
    ]
    width = max(len(word) for word, _ in lines)
    return [f"{word:{width}}  {printable(text)}" for word, text in lines if text]


def busy_ns(start: Ints, end: Ints) -> int:
    """The length of the union of intervals: overlapping kernels count once."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0)
    return int(reach[-1] - start[0] - gaps.sum())


def _plural(kind: str, count: int) -> str:
    name = _NAMES.get(kind, kind)
    return name if count == 1 else "copies" if name == "copy" else f"{name}s"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def gpus(table: Table) -> dict[str, int]:
    """How many GPUs of each name, a process's device being one; an unknown name is empty."""
    name = table.coded("gpu")
    if not len(table) or set(table.coded("kind").texts()) == {"cpu"}:
        return {}
    used = np.unique(np.stack([name.codes, table.ints("pid"), table.ints("device")]), axis=1)
    texts = [*name.values, ""]  # code -1 finds the last
    return Counter(texts[code] for code in used[0].tolist())


def _gpus(table: Table) -> str:
    named = {text or "unknown": number for text, number in gpus(table).items()}
    return ", ".join(f"{number} x {text}" if number > 1 else text for text, number in named.items())


def _processes(table: Table) -> str:
    pids, ranks = (known_numbers(table.ints(key)) for key in ("pid", "rank"))
    if not pids:
        return ""
    shown = ", ".join(map(str, pids[:MOST])) + (f" and {len(pids) - MOST} more" if len(pids) > MOST else "")
    told = f"; {'rank' if len(ranks) == 1 else 'ranks'} {spread(ranks)}" if ranks else ""
    return f"{len(pids)} ({shown}){told}"


def known_numbers(values: Ints) -> list[int]:
    found: list[int] = np.unique(values[values != NULL]).tolist()
    return found


def spread(numbers: Sequence[int]) -> str:
    """`0-3` where none is missing, else a list."""
    whole = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers[: 2 * MOST]))


def _steps(table: Table) -> str:
    return spread(known_numbers(table.ints("step")))


def _times(table: Table) -> Iterable[tuple[str, str]]:
    found = attribution(table)
    if found.share is None:
        return
    what = "CPU time" if set(table.coded("kind").texts()) == {"cpu"} else "GPU time"
    yield what, _ms(found.total_ns)
    yield from _spans(table)
    yield "attributed", f"{found.share:.1f}% of {what} has an op"
    reasons = list(found.reasons.items())
    for reason, ns in reasons[:MOST]:
        yield "  without", f"{100 * ns / found.total_ns:.1f}%: {reason}"
    if len(reasons) > MOST:
        yield "  without", f"{len(reasons) - MOST} reasons more"


class Span(NamedTuple):
    """A process's device at work."""

    pid: int | None
    device: int | None
    span_ns: int  # from its first start to its last end
    busy_ns: int


def spans(table: Table) -> list[Span]:
    """Of each process's device."""
    start, pid, device = table.ints("start"), table.ints("pid"), table.ints("device")
    end = start + table.ints("kDuration")
    found = []
    for owner, number in np.unique(np.stack([pid, device]), axis=1).T.tolist():
        mine = (pid == owner) & (device == number)
        span = int(end[mine].max() - start[mine].min())
        process, ordinal = (None if value == NULL else value for value in (owner, number))
        found.append(Span(process, ordinal, span, busy_ns(start[mine], end[mine])))
    return found


def _spans(table: Table) -> Iterable[tuple[str, str]]:
    found = spans(table)
    for owner, number, span, busy in found[:MOST]:
        which = "" if len(found) == 1 else f"process {_told(owner)}, device {_told(number)}: "
        share = f" ({100 * busy / span:.1f}%)" if span else ""
        yield "span", f"{which}{_ms(span)}, busy {_ms(busy)}{share}"


def _told(number: int | None) -> str:
    return "unknown" if number is None else str(number)
