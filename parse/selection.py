"""Select rows of the kernel table by time, step, rank and named range.

A row belongs to the steps and ranges in which it was *launched*, on any thread: backward kernels are launched by
autograd's thread, while their step or range is open on the user's thread. It also belongs to the ranges in which its
forward op ran, if it is backward: those of a block of the model have the block's backward, too.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.forward_ops import backward_nodes, forward_ops
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.graphs.other_captures import with_graphs
from pyprof.table.columns import NULL, Ints, Table, value_at

UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?(ns|us|ms|s|)", re.ASCII)
_STEPS = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Selection:
    """The user's selection; a field that is None selects everything."""

    begin_ns: int | None = None  # selects rows that start at or after this time
    end_ns: int | None = None  # selects rows that start before this time
    steps: tuple[int, int] | None = None  # first and last step
    rank: int | None = None
    range_name: str | None = None  # may contain * and ?

    def options(self) -> str:
        """The selection as options of the command line, for messages.

        >>> Selection(begin_ns=5, steps=(2, 3)).options()
        '--from 5ns --step 2-3'
        """
        steps = "" if self.steps is None else "-".join(map(str, dict.fromkeys(self.steps)))
        options = (
            ("--from", None if self.begin_ns is None else f"{self.begin_ns}ns"),
            ("--to", None if self.end_ns is None else f"{self.end_ns}ns"),
            ("--step", steps or None),
            ("--rank", self.rank),
            ("--range", self.range_name),
        )
        return " ".join(f"{option} {value}" for option, value in options if value is not None)


class Spans(NamedTuple):
    """The times and processes of ranges."""

    pid: Ints
    start: Ints
    end: Ints


def parse_time(text: str) -> int:
    """A time as nanoseconds, exactly. Raises ValueError.

    >>> parse_time("12ms"), parse_time("1.5s"), parse_time("300us"), parse_time("42")
    (12000000, 1500000000, 300000, 42)
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a time like 12ms, 1.5s, 300us or 42 (ns), found {text!r}")
    sign, whole, fraction, unit = match.groups()
    parts = int(whole + (fraction or "")) * UNITS[unit]
    scale = int("1" + "0" * len(fraction or ""))
    if parts % scale:
        raise ValueError(f"expected whole nanoseconds, found {text!r}")
    return -(parts // scale) if sign else parts // scale


def parse_steps(text: str) -> tuple[int, int]:
    """``3`` or ``3-5`` as first and last. Raises ValueError."""
    match = _STEPS.fullmatch(text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ValueError(f"expected a step like 3, or the first and last like 3-5, found {text!r}")
    return int(match[1]), int(match[2] or match[1])


def select(
    table: Table, wanted: Selection, spans: Spans | None = None, forward: Ints | None = None
) -> NDArray[np.bool_]:
    """A mask of the rows that a selection keeps.

    ``spans``: the times of the ranges that it names. ``forward``: of each row in a backward node, when its forward op
    began (see ``forward_times``).
    """
    keep = np.ones(len(table), bool)
    start, step = table.ints("start"), table.ints("step")
    if wanted.begin_ns is not None:
        keep &= (start >= wanted.begin_ns) & (start != NULL)
    if wanted.end_ns is not None:
        keep &= (start < wanted.end_ns) & (start != NULL)
    if wanted.steps is not None:
        keep &= (step >= max(wanted.steps[0], NULL + 1)) & (step <= wanted.steps[1])
    if wanted.rank is not None:
        keep &= table.ints("rank") == wanted.rank
    if wanted.range_name is not None:
        times = (launched(table),) if forward is None else (launched(table), forward)
        pid = table.ints("pid")
        keep &= np.any([_inside(time, pid, spans) for time in times], axis=0) if spans is not None else False
    return keep


def launched(table: Table) -> Ints:
    """The launch time of each row: its API call's start, or a CPU op's own start; ``NULL`` if unknown."""
    return np.where(table.coded("kind").among("cpu"), table.ints("start"), table.ints("apiStart"))


def _inside(time: Ints, pid: Ints, spans: Spans) -> NDArray[np.bool_]:
    """A mask of the points that lie in a span of their process. Overlapping spans are merged by their furthest end."""
    inside = np.zeros(len(time), bool)
    for owner in np.unique(spans.pid).tolist():
        of_process = np.flatnonzero(spans.pid == owner)
        of_process = of_process[np.argsort(spans.start[of_process], kind="stable")]
        start = spans.start[of_process]
        reach = np.maximum.accumulate(np.maximum(spans.end[of_process], start + 1))  # a span of 0 ns counts as 1 ns
        rows = np.flatnonzero((pid == owner) & (time != NULL))
        at = np.searchsorted(start, time[rows], "right") - 1
        inside[rows] = (at >= 0) & (time[rows] < reach[at])
    return inside


def forward_times(capture: Capture) -> Ints:
    """When the forward op of each row in a backward node began; ``NULL`` for other rows."""
    joined = with_graphs(capture)
    tree = RangeTree(joined)
    if not tree.is_backward.any():
        return np.full(capture.rows, NULL, np.int64)
    inner, _, _ = tree.innermost_of_rows(joined)
    node, recomputed = backward_nodes(tree, Contexts(tree, inner), inner)
    return value_at(tree.start, forward_ops(tree, node, recomputed, inner), NULL)


def named_spans(capture: Capture, name: str) -> Spans:
    """The times of the ranges of a name (annotations, layers, ops, steps), with * and ? as in file names.

    NVTX start/end ranges are included like ranges of a thread.
    """
    # Scopes of layers lack the prefix, too, and square brackets stand for themselves.
    pattern = name.removeprefix("layer:").replace("[", "[[]")
    codes = [i for i, scope in enumerate(capture.scopes) if fnmatchcase(scope.name, pattern) or scope.name == name]
    found = []
    for ranges in (capture.ranges, capture.spans):
        rows = np.flatnonzero(np.isin(ranges.scope, np.array(codes, np.int64)))
        found.append((capture.pids()[ranges.thread[rows]], ranges.start[rows], ranges.end[rows]))
    return Spans(*(np.concatenate(column) for column in zip(*found, strict=True)))
