"""What a file holds, in words: one line after parsing, or a page with --summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.scope import NAMING, Kind
from pyprof.parse.contents import Held
from pyprof.parse.selection import range_names
from pyprof.text import printable

MOST = 8  # reasons, GPUs: what a page shows of a list
NO_OPS = "no PyTorch ranges in the capture: profile with pyprof.init(), or nsys --pytorch=autograd-shapes-nvtx, for ops"
NO_AUTOGRAD = (
    "markers without PyTorch's own ranges: kernels of backward passes have no op; pyprof.init() pushes both"
    " (unless autograd=False), so do emit_nvtx and nsys --pytorch=autograd-shapes-nvtx"
)
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
        elif _lacks_autograd(capture):
            warnings.append(NO_AUTOGRAD)
        return cls(capture.file, capture.profiler, warnings, range_names(capture))

    @property
    def nothing(self) -> str:
        """Why there is no row: the reader's first warning."""
        return f"expected GPU operations or CPU ops, found none; {next(iter(self.warnings), 'profile again')}"


def _lacks_autograd(capture: Capture) -> bool:
    """There are markers, none of PyTorch's ranges, and launches on threads without a marker, as autograd's are."""
    kinds = np.array([scope.kind for scope in capture.scopes], np.int64)
    if Kind.MARKER not in kinds or np.isin(kinds, (Kind.OP, Kind.NODE, Kind.ENGINE)).any():
        return False
    marked = capture.ranges.thread[~np.isin(kinds[capture.ranges.scope], (Kind.USER, Kind.COMM))]
    return not bool(np.isin(capture.launch_thread[capture.launch_thread >= 0], marked).all())


def one_line(profiler: str, held: Held) -> str:
    """What a table holds and how much of its GPU time has an op."""
    found = held.attribution
    share = "0.0%" if found.share is None else f"{found.share:.1f}%"
    return f"{profiler}: {counts(held.kinds)}, {_ms(found.total_ns)}, {share} of it attributed to an op"


def counts(kinds: Mapping[str, int]) -> str:
    """`52 kernels, 5 memsets`."""
    return ", ".join(f"{n:,} {_plural(name, n)}" for name, n in kinds.items()) or "no rows"


def page(told: Told, held: Held) -> list[str]:
    """Aligned lines: a word, then what the file says."""
    lines = [
        ("file", told.file),
        ("profiler", told.profiler),
        ("GPU", _gpus(held.gpus)),
        ("processes", _processes(held)),
        ("rows", counts(held.kinds)),
        *_times(held),
        ("steps", spread(held.steps) if held.steps else ""),
        ("ranges", ", ".join(told.ranges)),
        *(("warning", text) for text in told.warnings),
    ]
    width = max(len(word) for word, _ in lines)
    return [f"{word:{width}}  {printable(text)}" for word, text in lines if text]


def _plural(kind: str, count: int) -> str:
    name = _NAMES.get(kind, kind)
    return name if count == 1 else "copies" if name == "copy" else f"{name}s"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f} ms"


def _gpus(gpus: Mapping[str, int]) -> str:
    named = {text or "unknown": number for text, number in gpus.items()}
    return ", ".join(f"{number} x {text}" if number > 1 else text for text, number in named.items())


def _processes(held: Held) -> str:
    pids, ranks = held.pids, held.ranks
    if not pids:
        return ""
    shown = ", ".join(map(str, pids[:MOST])) + (f" and {len(pids) - MOST} more" if len(pids) > MOST else "")
    told = f"; {'rank' if len(ranks) == 1 else 'ranks'} {spread(ranks)}" if ranks else ""
    return f"{len(pids)} ({shown}){told}"


def spread(numbers: Sequence[int]) -> str:
    """`0-3` where none is missing, else a list."""
    whole = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers[: 2 * MOST]))


def _times(held: Held) -> Iterable[tuple[str, str]]:
    found = held.attribution
    if not found.total_ns:
        return
    what = "CPU time" if held.is_cpu else "GPU time"
    about = "about " if found.estimate else ""
    yield what, _ms(found.total_ns)
    yield from _spans(held)
    yield "attributed", f"{about}{found.share:.1f}% of {what} has an op"
    if found.estimate:
        yield "  estimated", _looked_at(held, what)
    reasons = list(found.reasons.items())
    for reason, ns in reasons[:MOST]:
        yield "  without", f"{about}{found.percent(ns):.1f}%: {reason}"
    if len(reasons) > MOST:
        yield "  without", f"{len(reasons) - MOST} reasons more"


def _looked_at(held: Held, what: str) -> str:
    """How far the share is known, and how to know it."""
    found = held.attribution
    assert found.estimate is not None
    operations, looked_at, low, high = found.estimate
    return (
        f"{found.percent(low):.1f}% to {found.percent(high):.1f}%, from {operations:,} of {held.rows:,} rows with "
        f"{found.percent(looked_at):.1f}% of {what}; --exact looks at all"
    )


def _spans(held: Held) -> Iterable[tuple[str, str]]:
    for owner, number, span, busy in held.devices[:MOST]:
        which = "" if len(held.devices) == 1 else f"process {_told(owner)}, device {_told(number)}: "
        share = f" ({100 * busy / span:.1f}%)" if span else ""
        yield "span", f"{which}{_ms(span)}, busy {_ms(busy)}{share}"


def _told(number: int | None) -> str:
    return "unknown" if number is None else str(number)
