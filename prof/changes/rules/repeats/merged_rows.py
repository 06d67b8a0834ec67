"""What the kernels of a loop's iterations take if each op runs once for all iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.table.columns import Bools, Floats, Ints

# A kernel over the rows of all iterations takes this besides moving its bytes.
START_NS = 2000.0
GROUPED = 0.6  # of a large product's rate, products of one call with as many sizes as there were iterations reach
# Backward ops that write a whole tensor for each part of it; over all parts at once, once or not at all.
WHOLE = ("fill_", "zero_", "add_", "add", "copy_", "zeros", "new_zeros")


@dataclass
class Merged:
    """Durations in ns and shares of launches of some rows, which their edit says."""

    rows: list[int]
    ns: list[float]
    left: list[float]

    def put(self, rows: Iterable[int], ns: float, kept: int) -> None:
        """These rows take ``ns`` together from now on, in ``kept`` launches."""
        for place, row in enumerate(rows):
            self.rows.append(row)
            self.ns.append(ns / kept if place < kept else 0.0)
            self.left.append(1.0 if place < kept else 0.0)

    def arrays(self) -> tuple[Ints, Floats, Floats]:
        order = np.argsort(np.array(self.rows, np.int64), kind="stable")
        return np.array(self.rows, np.int64)[order], np.array(self.ns)[order], np.array(self.left)[order]


def place(run: Run, row: int) -> str:
    """Where a row's op is called: its line, or without lines its layer and op."""
    return run.trace(row) or f"{run.layer(row)} {run.op(row)}"


def alike(run: Run, rows: Iterable[int], where: Callable[[Run, int], str] = place) -> Iterator[list[int]]:
    """Rows of the same op, kernel role and place."""
    found: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        key = (str(run.phase[row]), str(run.aten[row]), str(run.role[row]), where(run, row), run.op(row))
        found.setdefault(key, []).append(row)
    yield from found.values()


def merge(run: Run, rows: Iterable[int], times: int, into: Merged, where: Callable[[Run, int], str] = place) -> None:
    """Each op once instead of ``times``. ``where``: what ops that become one have in common besides."""
    for group in alike(run, rows, where):
        kept = max(1, round(len(group) / times))
        if len(group) > kept:
            most = float(run.dur[group].sum()) * _padding(run, group)
            into.put(group, min(at_once_ns(run, group, kept), most), kept)


def _padding(run: Run, rows: list[int]) -> float:
    """How many times as much products of several sizes compute if each is as large as the largest of them.

    torch.nn.functional.grouped_mm takes them as they are, in bf16; torch.bmm, for other types, takes padded rows.
    """
    flop = run.flop[rows]
    if run.family[rows[0]] != "gemm" or run.dtype[rows[0]] == "bfloat16" or not flop.sum() > 0:
        return 1.0
    return float(len(rows) * flop.max() / flop.sum())


def at_once_ns(run: Run, rows: list[int], kept: int) -> float:
    """What these rows of one op take, ns, in ``kept`` kernels."""
    now = float(run.dur[rows].sum())
    flop, nbytes = float(run.flop[rows].sum()), float(run.nbytes[rows].sum())
    if run.role[rows[0]] == "aux":
        return now * kept / len(rows)
    if run.family[rows[0]] == "gemm" and flop > 0 and run.device is not None:
        code = run.limits.unit.codes[rows[0]]
        if code >= 0:
            unit, padding = run.limits.unit.values[code], _padding(run, rows)
            flop, nbytes = flop * padding, nbytes * padding
            return kept * run.product_ns(flop / kept, nbytes / kept if nbytes == nbytes else 0.0, unit, GROUPED)
    sizes = {str(run.shapes(row)) for row in rows}
    if run.phase[rows[0]] == "backward" and run.aten[rows[0]] in WHOLE and len(sizes) <= kept:
        return now * kept / len(rows)
    if nbytes == nbytes and nbytes > 0 and run.bandwidth == run.bandwidth:
        return kept * START_NS + 1e9 * nbytes / run.bandwidth
    return min(now, 2 * kept * now / len(rows))


def with_backward(run: Run, forward: Sequence[int], usual: set[str]) -> list[int]:
    """These rows, and those of the backward pass that have the numbers and lines of their ops."""
    rows, numbers = np.array(forward, np.int64), run.table.ragged("seqId")
    mine = numbers.take(rows).values
    if not len(mine):
        return list(forward)
    within = np.zeros(run.rows, bool)
    within[np.repeat(np.arange(run.rows), np.diff(numbers.offsets))[_between(numbers.values, mine)]] = True
    steps = run.table.ints("step")
    within &= (run.phase == "backward") & (steps == steps[rows[0]]) & (run.lane == run.lane[rows[0]])
    return [*forward, *(row for row in np.flatnonzero(within).tolist() if place(run, row) in usual)]


def _between(values: Ints, bounds: Ints) -> Bools:
    found: Bools = (values >= bounds.min()) & (values <= bounds.max())
    return found
