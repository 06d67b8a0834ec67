"""Divide an op's work among its rows: roles, tensor cores, and each row's FLOPs and bytes.

The work is attributed to the op's main kernels, in proportion to duration if there are several; aux kernels get no
FLOPs. So sums over rows equal sums over ops.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise

import numpy as np

from pyprof.prof.kernels.name_patterns import stays_on_device
from pyprof.prof.kernels.roles import AUX, MAIN, assign_parts, part_of, role
from pyprof.prof.kernels.tensor_cores import tensor_core
from pyprof.prof.ops.embedding_updates import may_leave_work
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.work.autotuning import trials
from pyprof.prof.work.calls import Calls
from pyprof.prof.work.count import Counted
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct, value_at

MOVES = frozenset({"copy", "fill", "indexing", "view", "embedding", "rng"})  # families whose work may be done by a copy
VIEWS = frozenset({"view", "copy", "fill"})  # their ops may have nothing to do; if a kernel ran, it moved something
MOST_BYTES = 1 << 60  # per copy; more means a damaged file, and twice as much would not fit the column


def kernels(table: Table, calls: Calls) -> tuple[Coded, Coded, Coded]:
    """Role, tensor-core precision and use of each row, decided once per distinct (kernel name, signature, kind)."""
    kinds = table.coded("kind")
    keys, row = distinct(calls.names.codes, calls.signature, kinds.codes)
    kind_texts = [*kinds.values, ""]
    decided = [_kernel(calls.names.values[name], calls.counted[op], kind_texts[kind]) for name, op, kind in keys]
    roles, precision, use = (Coded.of(decision[i] for decision in decided).take(row) for i in range(3))
    roles = _with_workers(table, calls, roles)
    return _changed(roles, trials(table, calls, roles), AUX), precision, use


def _kernel(name: str, op: Counted, kind: str) -> tuple[str, str, str]:
    """Role, precision of the tensor cores' inputs, and whether tensor cores were used."""
    what = _role(name, op, kind)
    if op.family not in MATRIX and (op.name or kind != "kernel"):
        return what, "", "-"
    if kind != "kernel" or what == AUX:
        return what, "", "0"
    use = tensor_core(name, op.family, op.dtype)
    if use is None:
        return what, "", "-"
    return what, use.precision, "?" if use.tc is None else str(use.tc)


def _role(name: str, op: Counted, kind: str) -> str:
    if not op.name:
        return ""
    what = MAIN if kind == "cpu" else role(name, op.name, op.family)
    if kind == "memcpy" and what == MAIN and op.family not in MOVES:
        return AUX  # copies parameters or results for the kernels that do the work (see _with_workers)
    return what


def _with_workers(table: Table, calls: Calls, roles: Coded) -> Coded:
    """If all kernels of an op are helpers by name, they did the op's work and become main kernels. An exception is the
    node of a C++ Function that leaves its work to other ops (FBGEMM's since 0.5)."""
    has_main = np.bincount(calls.number, weights=roles.among(MAIN)) > 0
    may_work = roles.among(AUX) & table.coded("kind").among("kernel", "memcpy")
    promoted = may_work & ~has_main[calls.number] & ~_may_leave_work(calls)
    return _changed(roles, promoted, MAIN)


def _changed(roles: Coded, rows: Bools, what: str) -> Coded:
    """The roles, with ``what`` in some rows."""
    values = list(dict.fromkeys((*roles.values, what)))
    return Coded(np.where(rows, values.index(what), roles.codes).astype(np.int32), values)


def _may_leave_work(calls: Calls) -> Bools:
    return calls.where([may_leave_work(op.name) for op in calls.counted])


# --- FLOPs and bytes -----------------------------------------------------------------------------------------------


def shares(table: Table, calls: Calls, main: Bools) -> tuple[Ints, Ints]:
    """FLOPs and bytes of each row, its share of its op's work; NULL if unknown.

    The rows of a call sum to its op's count, without parts that another op within it did or that did not run.
    """
    flops, nbytes = np.full(len(table), NULL, np.int64), np.full(len(table), NULL, np.int64)
    all_flops = calls.amounts([op.flop for op in calls.counted])
    all_bytes = calls.amounts([op.nbytes for op in calls.counted])
    pieces = calls.where([len(op.parts) > 1 for op in calls.counted])
    pieces &= ~table.coded("kind").among("cpu")  # a CPU op is a single row with all of the work
    _, group, sizes = np.unique(calls.number, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    mains = np.bincount(group, weights=main, minlength=len(sizes))[group]
    left = _may_leave_work(calls) & (mains == 0)
    simple = (sizes[group] == 1) & ~pieces & ~left  # one kernel did all of the work
    alone = ~simple & main & (mains == 1) & ~pieces  # one main kernel among aux ones
    whole = simple | alone
    flops[whole], nbytes[whole] = all_flops[whole], all_bytes[whole]
    aux = ~simple & ~main & (mains > 0)
    flops[aux] = np.where(all_flops[aux] == NULL, NULL, 0)
    several = np.flatnonzero(~simple & ~alone & ~aux & ~left)
    order = several[np.argsort(group[several], kind="stable")]
    inner = cache(lambda: _Inner.of(table, calls))
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(rows):
            _share(rows, table, calls, inner, (flops, nbytes))
    moved = main & table.coded("kind").among("kernel") & (nbytes == 0)
    nbytes[moved & calls.where([op.family in VIEWS for op in calls.counted])] = NULL
    return flops, nbytes


def _share(rows: Ints, table: Table, calls: Calls, inner: Callable[[], "_Inner"], amounts: tuple[Ints, Ints]) -> None:
    """Divide the work of one call with several main kernels, or several parts of work, among its main ``rows``."""
    op, ns = calls.of(rows[0]), table.ints("kDuration")
    several = len(op.parts) > 1
    workers = dict.fromkeys(op.parts, rows)
    if several:
        names = [calls.names.values[code] for code in calls.names.codes[rows].tolist()]
        workers = _workers(rows, names, ns[rows].tolist(), op, inner)
    for place, column in enumerate(amounts if op.parts else ()):
        column[rows] = 0
        given = {part: op.parts[part][place] for part in workers}
        for part, amount in given.items():
            column[workers[part]] += split(amount or 0, ns[workers[part]].tolist())
        for part in [part for part, amount in given.items() if amount is None]:
            column[workers[part]] = NULL


def _workers(
    rows: Ints, names: list[str], ns: list[int], op: Counted, inner: Callable[[], "_Inner"]
) -> dict[str, Ints]:
    """The rows that did each part of a call's work, by their kernels' names.

    A part without a kernel of its own was done by an op within the call, or did not run, or kernels did it along with
    another part: those whose names do not say what they compute, if there are any.
    """
    assigned = np.array(assign_parts(names, list(op.parts), op.all_ran, ns))
    workers = {part: rows[assigned == part] for part in op.parts}
    unnamed = rows[np.array([not part_of(name) for name in names])]
    for missing in [part for part, of_part in workers.items() if not len(of_part)]:
        if op.all_ran and not inner().did(int(rows[0]), op.parts[missing][0]):
            workers[missing] = unnamed if len(unnamed) else rows
    return {part: of_part for part, of_part in workers.items() if len(of_part)}


@dataclass(frozen=True, slots=True)
class _Inner:
    """The FLOPs of ops that ran within other ops, by process, autograd sequence number and the ops around them."""

    nodes: list[str]  # of each row, as JSON
    place: list[tuple[int, int]]  # of each row: process and sequence number
    counts: dict[tuple[int, int], set[tuple[str, int]]]  # by place: (nodes, FLOPs) of each op

    @classmethod
    def of(cls, table: Table, calls: Calls) -> "_Inner":
        nodes, seq = table.coded("nodes"), table.ragged("seqId")
        last = value_at(seq.values, np.where(np.diff(seq.offsets) > 0, seq.offsets[1:] - 1, -1))
        pid, flops = table.ints("pid"), calls.amounts([op.flop for op in calls.counted])
        counts: dict[tuple[int, int], set[tuple[str, int]]] = {}
        for process, number, code, flop in distinct(pid, last, nodes.codes, flops)[0]:
            if code >= 0:
                counts.setdefault((process, number), set()).add((nodes.values[code], flop))
        return cls(nodes.texts(), list(zip(pid.tolist(), last.tolist(), strict=True)), counts)

    def did(self, row: int, flop: int | None) -> bool:
        """Whether an op within the row's op did a part of its work: it has the part's FLOPs.

        So PyTorch sums a convolution's bias gradient, by ``aten::sum`` in the same backward node.
        """
        around = self.nodes[row].rstrip("]") + ", "
        there = self.counts.get(self.place[row], set())
        return len(around) > 2 and any(nodes.startswith(around) and count == flop for nodes, count in there)


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """Split ``amount`` into integer shares by weight; the shares sum to it exactly.

    >>> split(10, [1, 1, 1])
    [3, 4, 3]
    """
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    marks = [(2 * amount * edge + whole) // (2 * whole) for edge in accumulate(weights, initial=0)]
    return [b - a for a, b in pairwise(marks)]


def fill_copies(table: Table, flops: Ints, nbytes: Ints) -> None:
    """Write the work of copies and memsets whose size is recorded: no FLOPs, and the bytes in the capture.

    A copy within a device reads and writes each byte; one to or from the host accesses the GPU's memory once per byte.
    """
    name, size = table.coded("kShortName"), table.ints("bytes")
    copies = table.coded("kind").among("memcpy")
    rows = (copies | table.coded("kind").among("memset")) & (size >= 0) & (size < MOST_BYTES)
    within = copies & name.where(stays_on_device)
    flops[rows] = 0
    nbytes[rows] = np.where(within, 2 * np.where(rows, size, 0), size)[rows]
