"""The kernels that a compiler makes of a run's element-wise kernels, norms, softmaxes, sums, copies and dropout.

Products, convolutions, attention, sorts and collectives stay as they are. Between two of them, a kernel that reads what
another one there wrote becomes one kernel with it. The capture does not say which op's result an op reads: that of the
same number of elements that was made last is taken. Three equal calls or more, and nothing else, stay apart, as those
of a benchmark's loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.rules.kernels.fusion import CHAIN, FUSED_NS, NEW_BACKWARD, NEW_FORWARD, repeats
from pyprof.prof.timing.gpus import WITHIN, named_rows
from pyprof.table.columns import Bools

SUMS = ("reduction", "norm", "softmax")
FUSED = ("pointwise", "reduction", "norm", "softmax", "copy", "rng")
PASSES = ("fill", "indexing", "embedding")  # families that stay as they are, but do not keep their neighbours apart
PHASES = ("forward", "backward", "other", "")
# Ops that stay: of no element-wise kind, or of the loss, which is seldom part of the model.
STAYS = tuple(
    "argmax argmin multinomial bernoulli_ cumsum cumprod topk _local_scalar_dense _log_softmax "
    "_log_softmax_backward_data".split()
)
MOST = 64  # ops in a kernel: max_fusion_size of inductor 2.11
TWO_PASSES = ("batch_norm", "group_norm")  # ops that read their input for the sums, and again to apply them
DROPOUT = ("native_dropout", "dropout", "feature_dropout")
# Kernels that inductor generated on an H200 (whole_transformer, whole_convolutions; tests/device/advice_whole.py):
RATE = 0.8  # of the bandwidth that copies reach, where several tensors are read and written at once
RANDOM_NS = 0.002  # per element of dropout, whose random numbers are computed in forward
SUMS_NS = 10_000.0  # for each of the two gradients of a norm's parameters, which are sums of parts
NORM_LAUNCHES = 3  # of a norm over all but the channels: sums of parts, sums of these, their use
RESULTS = ("copy_", "_to_copy")  # ops whose first operand is the result


@dataclass
class Fused:
    """One kernel in place of ``rows``: the bytes that it moves without its last result, that result's, its launches."""

    rows: list[int]
    nbytes: float = 0.0
    last: float = 0.0
    launches: int = 1
    more_ns: float = 0.0  # besides moving bytes
    elements: int = 0  # of its largest tensor
    stage: int = 0  # 1: it has sums over rows; 2: and has used them on all elements

    def ns(self, run: Run) -> float:
        """Its expected duration, never longer than what it replaces. A copy alone is generated, too: PyTorch's
        own copies into another layout, and cat, reach half of the rate (174 MB in 98 µs, generated in 41)."""
        before = float(run.dur[self.rows].sum())
        if len(self.rows) == 1 and run.family[self.rows[0]] != "copy":
            return before
        moved = 1e9 * (self.nbytes + self.last) / (RATE * run.bandwidth)
        return min(before, FUSED_NS * self.launches + moved + self.more_ns)


def fused_kernels(run: Run, fits: Bools) -> Iterator[Fused]:
    """The kernels that a compiler generates for these rows, in order of their first row."""
    keys = (run.lane, run.table.coded("phase").codes, run.table.ints("stream"), run.table.ints("step"))
    barrier = ~(fits | (run.role == "aux") | np.isin(run.family, PASSES))
    # Rows of one number have nothing between them that keeps them apart.
    apart = np.cumsum(np.any([np.diff(key, prepend=key[:1]) != 0 for key in keys], axis=0) | barrier)
    number, group = -1, _Group(run)
    for row in np.flatnonzero(fits).tolist():
        if apart[row] != number:
            yield from group.found()
            number, group = apart[row], _Group(run)
        group.add(row)
    yield from group.found()


def fusible(run: Run) -> Bools:
    """A mask of the rows that a compiler replaces by code of its own; those without shapes are left alone.

    A contiguous tensor's clone is a copy within the GPU's memory, as ``masked_fill`` makes it.
    """
    clones = (run.texts("kind") == "memcpy") & named_rows(run.table, *WITHIN)
    computes = (run.texts("kind") == "kernel") | clones
    found: Bools = np.isin(run.family, FUSED) & np.isin(run.phase, PHASES) & computes
    known = run.table.coded("sizes").where(lambda text: any(sign in text for sign in "123456789"))
    return found & known & ~np.isin(run.aten, STAYS)


def _operands(run: Run, row: int) -> list[tuple[int, float]]:
    """(elements, bytes per element) of each of an op's tensors, those of lists, too."""
    usual = ITEM_BYTES.get(str(run.dtype[row]), 4.0)
    return list(_flat(run.listed("sizes", row), run.listed("dtypes", row), usual))


def _flat(sizes: list[Any], dtypes: list[Any], usual: float) -> Iterator[tuple[int, float]]:
    for place, size in enumerate(sizes):
        dtype = dtypes[place] if place < len(dtypes) else ""
        if isinstance(size, list) and size and isinstance(size[0], list):
            yield from _flat(size, dtype if isinstance(dtype, list) else [], usual)
        elif numel(size):
            yield numel(size), ITEM_BYTES.get(str(dtype), usual)


def _takes(kernel: Fused, sums: bool) -> bool:
    """Whether one more op fits into a kernel."""
    return len(kernel.rows) < MOST and not (sums and kernel.stage == 2)


class _Group:
    """What lies between two kernels that no compiler touches."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.kernels: list[Fused] = []
        self._made: dict[int, Fused] = {}  # elements -> the kernel that last wrote as many
        self._read: dict[int, Fused] = {}
        self._latest: Fused | None = None

    def found(self) -> Iterator[Fused]:
        """The kernels, of which none has equal calls alone."""
        for kernel in self.kernels:
            if len(kernel.rows) < CHAIN or not repeats(self.run, kernel.rows):
                yield kernel
                continue
            for row in kernel.rows:
                alone = _Group(self.run)
                alone.add(row)
                yield from alone.kernels

    def add(self, row: int) -> None:
        run = self.run
        if self._latest is not None and self._same_op(row, self._latest.rows[-1]):
            self._latest.rows.append(row)  # another kernel of the same op, such as one for sums over columns
            return
        tensors = run.once(_operands, row)
        if not tensors:
            self.kernels.append(Fused([row]))
            self._latest = None
            return
        takes = tensors[1:] if run.aten[row] in RESULTS and len(tensors) > 1 else tensors
        result = self._result(row, tensors)
        kernel, joins = self._kernel(row, takes)
        kernel.rows.append(row)
        self._latest = kernel
        self._reads(row, kernel, takes, joins)
        kernel.last = result[0] * result[1]
        if run.family[row] in SUMS and not self._over_columns(row):
            kernel.stage = 1 if run.family[row] == "reduction" else 2
        elif kernel.stage == 1 and result[0] >= kernel.elements:
            kernel.stage = 2
        self._made[result[0]] = kernel

    def _result(self, row: int, tensors: list[tuple[int, float]]) -> tuple[int, float]:
        """(elements, bytes per element) of an op's result."""
        run = self.run
        if run.aten[row] in RESULTS:
            return tensors[0]
        wide = max(item for size, item in tensors if size == max(tensors)[0])
        if run.family[row] == "reduction":
            shape = run.first_shape(row)
            return (shape[-1] if self._over_columns(row) else numel(shape[:-1]) or 1), wide
        if run.aten[row] in ("cat", "stack"):
            return sum(size for size, _ in tensors), wide
        return max(tensors)[0], wide

    def _kernel(self, row: int, takes: list[tuple[int, float]]) -> tuple[Fused, bool]:
        """The kernel that an op becomes part of, and whether it made one of its operands; else a new one.

        Sums of what other sums were used for begin a new kernel: one norm after the other.
        """
        sums = self.run.family[row] in SUMS
        for known, joins in ((self._made, True), (self._read, False)):
            found = [known[size] for size, _ in takes if size > 1 and size in known and _takes(known[size], sums)]
            if found and joins and all(each.stage == 0 and each.launches == 1 for each in found):
                return self._one(found), True
            if found:  # what needs the results of several comes after the last of them
                return max(found, key=lambda kernel: kernel.rows[0]), joins
        self.kernels.append(Fused([]))
        return self.kernels[-1], False

    def _one(self, found: list[Fused]) -> Fused:
        """Element-wise kernels of which an op needs the results, as one; as many of them as fit into it."""
        one = max(found, key=lambda kernel: kernel.elements)
        for other in found:
            if other is not one and len(one.rows) + len(other.rows) < MOST:
                one.rows = sorted(one.rows + other.rows)
                one.nbytes, one.more_ns = one.nbytes + other.nbytes, one.more_ns + other.more_ns
                self.kernels = [each for each in self.kernels if each is not other]
                for known in (self._made, self._read):
                    known.update({size: one for size, kernel in known.items() if kernel is other})
        return one

    def _reads(self, row: int, kernel: Fused, takes: list[tuple[int, float]], joins: bool) -> None:
        """Adds the operands that the kernel did not make itself, and passes over them that it needs besides."""
        run = self.run
        new = NEW_BACKWARD if run.phase[row] == "backward" else NEW_FORWARD
        largest = max(takes)[0]
        kernel.elements = max(kernel.elements, largest)
        free = joins
        before = {size for size, _ in takes if joins or self._read.get(size) is kernel}
        for size, item in takes:
            if free and self._made.get(size) is kernel:
                free = False  # the one that it made
                continue
            kernel.nbytes += size * item * (new if size in before else 1.0)
            self._read[size] = kernel
        if run.aten[row] in DROPOUT:
            kernel.more_ns += RANDOM_NS * largest
        if run.family[row] == "norm":
            self._norm(row, kernel, takes, joins)
        elif self._over_columns(row):
            kernel.launches += 1  # sums of parts first, then of these

    def _norm(self, row: int, kernel: Fused, takes: list[tuple[int, float]], joins: bool) -> None:
        backward = self.run.phase[row] == "backward"
        largest = max(takes)[0]
        kernel.nbytes += kernel.last if joins else 0.0  # a residual sum before a norm is needed later on
        if any(name in self.run.aten[row] for name in TWO_PASSES):
            kernel.nbytes += sum(size * item for size, item in takes if size == largest)
            kernel.launches += NORM_LAUNCHES
        elif backward:
            kernel.launches += 2
            kernel.more_ns += 2 * (SUMS_NS - FUSED_NS)

    def _over_columns(self, row: int) -> bool:
        """Whether an op sums over all but the last dimension, as for the gradient of a bias."""
        if self.run.family[row] != "reduction":
            return False
        args = self.run.listed("args", row)
        dims = str(args[1]).replace(" ", "") if len(args) > 1 else ""
        return dims == "[0]" or dims.startswith("[0,")

    def _same_op(self, row: int, other: int) -> bool:
        """Whether a row is another kernel of the op that the row before it belongs to."""
        run = self.run
        if row - other != 1 or run.family[row] not in ("norm", "softmax"):
            return False
        aten, sizes, name = (run.table.coded(key).codes for key in ("aten", "sizes", "kShortName"))
        return bool(aten[row] == aten[other] and sizes[row] == sizes[other] and name[row] != name[other])
