"""Kernel table -> FLOPs, bytes, tensor cores and role of every row.

A model runs once a distinct signature of an op, not once a row. An op's work goes to its main kernels, split by
duration where several share it; aux kernels get no FLOPs and their own bytes. So sums over rows are sums over ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import pyprof.prof.ops.families  # noqa: F401 (fills the registry)
from pyprof.prof.kernels.operand_dtypes import NOTHING, Dtypes, kernel_dtypes, merged
from pyprof.prof.kernels.roles import MAIN, assign_parts, role
from pyprof.prof.kernels.tensor_cores import tensor_core
from pyprof.prof.kernels.transfers import stays_on_device
from pyprof.prof.ops.embedding_updates import may_leave_work
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.model import FAMILY, MATRIX
from pyprof.prof.ops.plugins import load_models
from pyprof.prof.work.casts import uncover
from pyprof.prof.work.count import Counted, OpCall, count_call
from pyprof.prof.work.cut_lists import proven_lists
from pyprof.prof.work.helpers.rows import fill_own
from pyprof.prof.work.integer_shares import split
from pyprof.prof.work.multi_tensor import fill_multi_tensor
from pyprof.prof.work.repeats import fill_repeats, repeats
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct

MOVES = frozenset({"copy", "indexing", "view", "embedding", "rng"})  # families that a copy may serve
MOST_BYTES = 1 << 60  # that one copy can move: more is damage, and its double would not fit the column
SIGNATURE = ("aten", "sizes", "dtypes", "strides", "args", "outs", "marker", "dir", "nodes", "comm", "forward")


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the models say of each row, aligned with the table."""

    flops: Ints  # NULL: unknown
    bytes: Ints  # NULL: unknown
    tc: Coded  # "1", "0", or "-" where the op has no matrix product
    tcprec: Coded  # precision that entered the tensor cores
    role: Coded  # "main", "aux" or empty
    family: Coded
    uncounted: dict[str, int]  # op without a count -> ns of its rows

    def take(self, rows: Any) -> Annotation:
        """The annotation of some rows; ``uncounted`` stays that of all (``uncounted_of`` tells theirs)."""
        coded = {name: getattr(self, name).take(rows) for name in ("tc", "tcprec", "role", "family")}
        return Annotation(self.flops[rows], self.bytes[rows], **coded, uncounted=self.uncounted)


def annotate(table: Table) -> Annotation:
    """Annotate every row. Unknown stays unknown: NULL, and the op named in ``uncounted``."""
    names, calls = kernel_names(table), call_numbers(table)
    signature, counted = _counted(table, names, calls)
    family = np.array([c.family for c in counted] or [""], object)[signature]
    roles, precision, tensor = _kernels(table, signature, counted, names)
    _someone_works(table, calls, signature, counted, roles)
    flops, nbytes = _shares(table, calls, signature, counted, names, roles)
    _own_bytes(table, roles, flops, nbytes)
    fill_own(table, calls, signature, counted, names, roles, flops, nbytes)
    fill_multi_tensor(table, names, flops, nbytes)
    fill_repeats(table, names, flops, nbytes)
    return Annotation(
        flops=flops,
        bytes=nbytes,
        tc=Coded.of(tensor),
        tcprec=Coded.of(precision),
        role=Coded.of(roles),
        family=Coded.of(family.tolist()),
        uncounted=uncounted_of(table, flops),
    )


def signatures(table: Table) -> tuple[Ints, list[Counted]]:
    """The number of each row's signature, and the signatures' counts: what `annotate` shares among the rows."""
    return _counted(table, kernel_names(table), call_numbers(table))


def repetition(table: Table, row: int) -> tuple[int, int] | None:
    """(the attributed row that a row without an op repeats, kernels in the run that both stand in), or None."""
    for rows, copies in repeats(table, kernel_names(table)):
        place = np.flatnonzero(rows == row)
        if len(place):
            return int(copies[0][int(place[0])]), len(rows)
    return None


def _counted(table: Table, names: Coded, calls: Ints) -> tuple[Ints, list[Counted]]:
    """The number of each row's signature, and the signatures' counts."""
    load_models()
    lists = proven_lists(table, calls)
    columns = [*(table.coded(key) for key in SIGNATURE), lists]
    told, hints = _told(table, names, calls, lists)
    signatures, signature = distinct(*(c.codes for c in columns), told)
    texts = [[*c.values, ""] for c in columns]
    counted = []
    for *codes, hint in signatures:
        cells = {key: text[code] for key, text, code in zip((*SIGNATURE, "lists"), texts, codes, strict=True)}
        counted.append(count_call(OpCall(**cells, kernel=hints[hint])))
    return signature, counted


def _told(table: Table, names: Coded, calls: Ints, lists: Coded) -> tuple[Ints, list[Dtypes]]:
    """What the names of each op's main kernels tell of dtypes, where the capture records shapes without them: all of
    NVTX's, and Kineto's lists of tensors (`[["", ""], ...]`, or `[[], ...]` where they are cut)."""
    aten, sizes, dtypes, outs = (table.coded(key) for key in ("aten", "sizes", "dtypes", "outs"))
    told, hints = np.zeros(len(table), np.int64), {NOTHING: 0}
    whole = np.array([*(bool(text) and '[""' not in text[1:] for text in dtypes.values), False])[dtypes.codes]
    rows = np.flatnonzero(_filled(sizes) & (~whole | (lists.codes >= 0) | (outs.codes >= 0)) & (names.codes >= 0))
    pairs, pair = distinct(names.codes[rows], aten.codes[rows])
    atens = [*aten.values, ""]  # code -1 finds the last
    each = [_hint(names.values[name], atens[op]) for name, op in pairs]
    told[rows] = np.array([hints.setdefault(hint, len(hints)) for hint in each], np.int64)[pair]
    if told.any():
        told = uncover(table, _together(calls, told, hints), hints)
    return told, list(hints)


def _filled(column: Coded) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([*(bool(value) for value in column.values), False])[column.codes]


def _hint(name: str, aten: str) -> Dtypes:
    op = aten.removeprefix("aten::")
    family = FAMILY.get(find(op) or "", "")
    return kernel_dtypes(name, op, family) if role(name, op, family) == MAIN else NOTHING


def _together(op: Ints, told: Ints, hints: dict[Dtypes, int]) -> Ints:
    """All rows of an op share what its kernels told; ``hints`` grows by what several told together."""
    known, size = list(hints), len(hints)
    least, most = np.full(int(op.max(initial=0)) + 1, size, np.int64), np.zeros(int(op.max(initial=0)) + 1, np.int64)
    some = told > 0
    np.minimum.at(least, op[some], told[some])
    np.maximum.at(most, op[some], told[some])
    rows = np.flatnonzero(some & (least < most)[op])
    pairs = np.sort(op[rows] * size + told[rows])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    bounds = np.flatnonzero(np.diff(pairs // size, prepend=-1, append=-1))
    joined: dict[tuple[int, ...], int] = {}
    for begin, end in pairwise(bounds.tolist()):
        several = tuple((pairs[begin:end] % size).tolist())
        if several not in joined:
            joined[several] = hints.setdefault(merged(known[i] for i in several), len(hints))
        most[pairs[begin] // size] = joined[several]
    return most[op]


def kernel_names(table: Table) -> Coded:
    """Kernel names, one code a distinct (short, long) pair; the long one tells more."""
    short, long = table.coded("kShortName"), table.coded("kLongName")
    pairs, codes = distinct(short.codes, long.codes)
    values = [([*long.values, ""][b] or [*short.values, ""][a]) for a, b in pairs]
    return Coded(codes.astype(np.int32), values)


def _kernels(
    table: Table, signature: Ints, counted: Sequence[Counted], names: Coded
) -> tuple[list[str], list[str], list[str]]:
    """Role, tensor-core precision and tensor-core use of each row, decided once a (kernel name, op)."""
    kinds = table.coded("kind")
    keys, inverse = distinct(names.codes, signature, kinds.codes)
    decided = [_kernel(names.values[name], counted[op], [*kinds.values, ""][kind]) for name, op, kind in keys]
    rows = inverse.tolist()
    roles, precision, tensor = ([decision[i] for decision in decided] for i in range(3))
    return [roles[i] for i in rows], [precision[i] for i in rows], [tensor[i] for i in rows]


def _kernel(name: str, op: Counted, kind: str) -> tuple[str, str, str]:
    what = ("main" if kind == "cpu" else role(name, op.name, op.family)) if op.name else ""
    if kind == "memcpy" and what == "main" and op.family not in MOVES:
        what = "aux"  # parameters or results on their way, beside the kernels that work (see _someone_works)
    if op.family not in MATRIX and (op.name or kind != "kernel"):
        return what, "", "-"
    if kind != "kernel" or what == "aux":
        return what, "", "0"
    use = tensor_core(name, op.family, op.dtype)
    if use is None:
        return what, "", "-"
    return what, use.precision, "?" if use.tc is None else str(use.tc)


def _someone_works(table: Table, op: Ints, signature: Ints, counted: Sequence[Counted], roles: list[str]) -> None:
    """An op whose kernels are all chores by name did its work with them: none of its work may vanish. But for a C++
    Function's node that leaves it to ops of its own (FBGEMM's since 0.5)."""
    outer = _may_leave_work(signature, counted)
    kind = table.coded("kind").texts()
    main = np.array([r == "main" for r in roles], bool)
    mains = np.bincount(op, weights=main)
    for i in np.flatnonzero((mains[op] == 0) & ~outer).tolist():
        if roles[i] == "aux" and kind[i] in ("kernel", "memcpy"):
            roles[i] = "main"


def _may_leave_work(signature: Ints, counted: Sequence[Counted]) -> Bools:
    """Rows of an op that does its work itself in some versions of its library, and by ops of its own in others."""
    found: Bools = np.array([may_leave_work(c.name) for c in counted] or [False])
    return found[signature]


def _shares(
    table: Table, op: Ints, signature: Ints, counted: Sequence[Counted], names: Coded, roles: Sequence[str]
) -> tuple[Ints, Ints]:
    """Each row's part of its op's work."""
    flops, nbytes = np.full(len(table), NULL, np.int64), np.full(len(table), NULL, np.int64)
    flop_of = np.array([NULL if c.flop is None else c.flop for c in counted] or [0], np.int64)
    bytes_of = np.array([NULL if c.nbytes is None else c.nbytes for c in counted] or [0], np.int64)
    pieces = np.array([len(c.parts) > 1 for c in counted] or [False])
    pieces = pieces[signature] & (np.array(table.coded("kind").texts(), object) != "cpu")  # a CPU op is all of it
    main = np.array([r == "main" for r in roles], bool)
    _, group, size = np.unique(op, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    mains = np.bincount(group, weights=main, minlength=len(size))
    left = _may_leave_work(signature, counted) & (mains[group] == 0)
    simple = (size[group] == 1) & ~pieces & ~left  # one kernel did it all
    flops[simple], nbytes[simple] = flop_of[signature[simple]], bytes_of[signature[simple]]
    alone = ~simple & main & (mains[group] == 1) & ~pieces  # one main kernel among aux ones
    flops[alone], nbytes[alone] = flop_of[signature[alone]], bytes_of[signature[alone]]
    aux = ~simple & ~main & (mains[group] > 0)
    flops[aux] = np.where(flop_of[signature[aux]] == NULL, NULL, 0)
    shared = np.flatnonzero(~simple & ~alone & ~aux & ~left)
    _share(table, shared, group, signature, counted, names, main, flops, nbytes)
    return flops, nbytes


def call_numbers(table: Table) -> Ints:
    """One number an op's call: (pid, opId), and the launch where the call was captured into a CUDA graph: each replay
    does its work again. A row without an op stands alone."""
    op, pid = table.ints("opId"), table.ints("pid")
    replay = np.where(table.ints("graphNode") == NULL, 0, table.ints("corr"))
    _, dense = distinct(pid, op, replay)
    alone = op == NULL
    dense[alone] = dense.max(initial=0) + 1 + np.arange(int(alone.sum()))
    return dense


def _share(
    table: Table,
    rows: Ints,
    group: Ints,
    signature: Ints,
    counted: Sequence[Counted],
    names: Coded,
    main: Ints,
    flops: Ints,
    nbytes: Ints,
) -> None:
    """Split the work of ops with several main kernels or several pieces of work."""
    duration = table.ints("kDuration")
    order = rows[np.argsort(group[rows], kind="stable")]
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if not len(members):
            continue
        op = counted[int(signature[members[0]])]
        if op.flop is None:
            continue
        workers = [int(i) for i in members if main[i]] or [int(i) for i in members]
        parts = _pieces(op, [names.values[names.codes[i]] for i in workers])
        for part in set(parts):
            mine = [i for i, p in zip(workers, parts, strict=True) if p == part]
            work = op.parts.get(part, (0, 0))
            ns = [int(duration[i]) for i in mine]
            flops[mine] = split(work[0], ns) if work[0] is not None else NULL
            nbytes[mine] = split(work[1], ns) if work[1] is not None else NULL


def _pieces(op: Counted, names: list[str]) -> list[str]:
    if len(op.parts) <= 1:
        return [next(iter(op.parts))] * len(names)
    return assign_parts(names, list(op.parts))


def _own_bytes(table: Table, roles: Sequence[str], flops: Ints, nbytes: Ints) -> None:
    """Copies and memsets that are not an op's main work: no FLOPs, and the bytes that the profiler counted.

    A copy within a device reads and writes; one to or from the host moves each byte once through the GPU's memory.
    """
    kind, name, size = table.coded("kind").texts(), table.coded("kShortName").texts(), table.ints("bytes")
    for i, what in enumerate(kind):
        if what in ("memcpy", "memset") and (roles[i] != "main" or nbytes[i] == NULL) and 0 <= size[i] < MOST_BYTES:
            both = what == "memcpy" and stays_on_device(name[i])
            flops[i] = 0
            nbytes[i] = size[i] * (2 if both else 1)


def uncounted_of(table: Table, flops: Ints) -> dict[str, int]:
    """The ops (without one the kernels) of rows without a count, with their ns, the longest first."""
    rows = np.flatnonzero(flops == NULL)
    aten, op, name = (table.coded(key) for key in ("aten", "op", "kShortName"))
    sums: dict[str, int] = {}
    for i in rows.tolist():
        what = _text(aten, i) or _text(op, i) or _text(name, i)
        sums[what] = sums.get(what, 0) + int(table.ints("kDuration")[i])
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _text(column: Coded, row: int) -> str:
    code = int(column.codes[row])
    return column.values[code] if code >= 0 else ""
