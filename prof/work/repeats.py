"""Unattributed kernels, recognised as a repetition of attributed kernels.

A profiler that starts while the GPU is still busy records kernels whose launches it did not see: on an H100, 436
kernels at the start of a trace, a third of its GPU time, followed by the model's next complete pass. A program that
repeats a step launches the same kernels in the same order on the same grids. So a run of unattributed kernels that
equals a run of attributed ones, launch for launch, did the same work, and its rows get the same FLOPs and bytes.

Two runs are equal if every kernel has the same name with template arguments, grid and block; a run has at least
``LEAST`` consecutive kernels on one stream, ``KINDS`` of them different. If several longest runs disagree about a row's
work, that row stays unknown. The op, layer and line also stay unknown.
"""

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import Bools, Coded, Ints, Table, distinct

LEAST = 16  # consecutive kernels; shorter sequences (an optimizer, a layer) may occur with several sizes
KINDS = 8
MOST = 64  # number of candidate positions that are compared
Hashes = NDArray[np.uint64]


def repeats(table: Table, names: Coded) -> list[tuple[Ints, list[Ints]]]:
    """For each run that is a repetition: (its unattributed rows in order, [attributed rows of the same launches, ...]).

    ``names`` are the kernels' long names, with one code per distinct name.
    """
    attributed = ~table.coded("aten").among("") | (table.ints("opId") >= 0)
    kernel = table.coded("kind").among("kernel")
    if np.count_nonzero(kernel & ~attributed) < LEAST or np.count_nonzero(kernel & attributed) < LEAST:
        return []
    order = np.lexsort([table.ints(key) for key in ("start", "stream", "device", "pid")])
    order = order[kernel[order]]
    grid, block = table.coded("grid"), table.coded("block")
    _, key = distinct(names.codes[order], grid.codes[order], block.codes[order])
    _, stream = distinct(*(table.ints(column)[order] for column in ("pid", "device", "stream")))
    matches = _matches(key, stream, attributed[order])
    return [(order[begin:end], [order[at : at + end - begin] for at in places]) for begin, end, places in matches]


def _matches(key: Ints, stream: Ints, known: Bools) -> list[tuple[int, int, list[int]]]:
    """(begin, end, [begin of an equal known run, ...]) of each match, found from the left, the longest first."""
    hashes, whole = _windows(key, stream, known)
    sources = np.flatnonzero(whole & known[: len(whole)])
    targets = np.flatnonzero(whole & ~known[: len(whole)])
    if not len(sources):
        return []
    sources = sources[np.argsort(hashes[sources], kind="stable")]
    ordered = hashes[sources]
    targets = targets[np.isin(hashes[targets], ordered)]
    ends = np.flatnonzero(np.append(known[1:] | (stream[1:] != stream[:-1]), True)) + 1  # ends of unattributed runs
    found, after = [], 0
    for begin in targets.tolist():
        if begin < after:
            continue
        low = int(np.searchsorted(ordered, hashes[begin], "left"))
        high = int(np.searchsorted(ordered, hashes[begin], "right"))
        end = int(ends[np.searchsorted(ends, begin, "right")])
        places = sources[low : min(high, low + MOST)].tolist()
        lengths = [(_length(key, stream, known, slice(begin, end), at), at) for at in places]
        longest = max(length for length, _ in lengths)
        if longest >= LEAST and len(np.unique(key[begin : begin + longest])) >= KINDS:
            after = begin + longest
            found.append((begin, after, [at for length, at in lengths if length == longest]))
    return found


def _windows(key: Ints, stream: Ints, known: Bools) -> tuple[Hashes, Bools]:
    """A hash of the ``LEAST`` keys from each position on; whether they are on one stream, all known or all unknown."""
    count = len(key) - LEAST + 1
    hashes, whole = np.zeros(count, np.uint64), np.ones(count, bool)
    for step in range(LEAST):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + key[step : step + count].astype(np.uint64) + np.uint64(1)
        whole &= (stream[step : step + count] == stream[:count]) & (known[step : step + count] == known[:count])
    return hashes, whole


def _length(key: Ints, stream: Ints, known: Bools, run: slice, at: int) -> int:
    """How many launches of an unattributed run equal those from ``at`` on, which are attributed and on one stream."""
    most = min(run.stop - run.start, len(key) - at)
    unknown, original = slice(run.start, run.start + most), slice(at, at + most)
    same = (key[unknown] == key[original]) & known[original] & (stream[original] == stream[at])
    ends = np.flatnonzero(~same)
    return int(ends[0]) if len(ends) else most


def fill_repeats(table: Table, names: Coded, flops: Ints, nbytes: Ints) -> None:
    """Fill in unknown ``flops`` and ``nbytes`` that are known for the kernels that a run repeats."""
    for rows, copies in repeats(table, names):
        for amounts in (flops, nbytes):
            original = amounts[copies[0]]
            agreed = np.all([amounts[copy] == original for copy in copies], axis=0)
            unknown = agreed & (amounts[rows] < 0)
            amounts[rows[unknown]] = original[unknown]


def repetition(table: Table, names: Coded, row: int) -> tuple[int, int] | None:
    """(the attributed row that this row without an op repeats, number of kernels in their run), or None."""
    for rows, copies in repeats(table, names):
        place = np.flatnonzero(rows == row)
        if len(place):
            return int(copies[0][int(place[0])]), len(rows)
    return None
