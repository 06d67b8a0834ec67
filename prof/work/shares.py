"""Divide an op's work among its rows: roles, tensor cores, and each row's FLOPs and bytes.

The work is attributed to the op's main kernels, in proportion to duration if there are several; aux kernels get no
FLOPs. So sums over rows equal sums over ops.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from pyprof.prof.kernels.name_patterns import stays_on_device
from pyprof.prof.kernels.roles import AUX, MAIN, assign_parts, role
from pyprof.prof.kernels.tensor_cores import tensor_core
from pyprof.prof.ops.embedding_updates import may_leave_work
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.work.autotuning import trials
from pyprof.prof.work.calls import Calls
from pyprof.prof.work.count import Counted
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct

MOVES = frozenset({"copy", "indexing", "view", "embedding", "rng"})  # families whose work may be done by a copy
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
    """FLOPs and bytes of each row, its share of its op's work; NULL if unknown."""
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
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(rows):
            _share(rows, table, calls, main, (flops, nbytes))
    return flops, nbytes


def _share(rows: Ints, table: Table, calls: Calls, main: Bools, amounts: tuple[Ints, Ints]) -> None:
    """Divide the work of one call with several main kernels, or several parts of work, among its rows."""
    op = calls.of(rows[0])
    if op.flop is None:
        return
    workers = rows[main[rows]] if main[rows].any() else rows
    names = calls.names.take(workers).texts()
    several = len(op.parts) > 1
    parts = np.array(assign_parts(names, list(op.parts)) if several else [next(iter(op.parts))] * len(names))
    for part in set(parts.tolist()):
        of_part = workers[parts == part]
        ns = table.ints("kDuration")[of_part].tolist()
        for column, amount in zip(amounts, op.parts.get(part, (0, 0)), strict=True):
            column[of_part] = NULL if amount is None else split(amount, ns)


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


def fill_copies(table: Table, main: Bools, flops: Ints, nbytes: Ints) -> None:
    """Write the work of copies and memsets that are not an op's main work: no FLOPs, and the bytes in the capture.

    A copy within a device reads and writes each byte; one to or from the host accesses the GPU's memory once per byte.
    """
    name, size = table.coded("kShortName"), table.ints("bytes")
    copies = table.coded("kind").among("memcpy")
    rows = (copies | table.coded("kind").among("memset")) & (~main | (nbytes == NULL))
    rows &= (size >= 0) & (size < MOST_BYTES)
    within = copies & name.where(stays_on_device)
    flops[rows] = 0
    nbytes[rows] = np.where(within, 2 * np.where(rows, size, 0), size)[rows]
