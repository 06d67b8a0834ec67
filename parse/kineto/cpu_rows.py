"""In captures without GPU activity, the rows are the CPU ops that do work themselves.

They are not simply the innermost ops: ``aten::addmm`` calls ``expand`` and ``copy_`` but computes the product itself,
while ``aten::linear`` only calls other ops. ``data/cpu_ops.txt`` lists the ops that do work. An op that runs once more
within itself, as under dispatch modes, in DTensor and vmap, is a row only there.

A row's time is the op's time minus that of the rows inside it. What a caller itself takes, around its rows, belongs to
the longest of them. So no nanosecond counts twice and none is lost: the rows' time is that of the outermost ops, except
of those that only make views or allocate, which have no row.

Ops on fake tensors are no rows: PyTorch runs them to learn shapes and types. They are those within pyprof's range
around such ops, or within the ranges of torch.compile while it compiles. An op in which nothing else works is no row
either. If the program itself runs on fake tensors, so that there are no other rows, they are rows.
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyprof.compiled_record import CPP_KERNEL
from pyprof.marker import FAKE_TENSORS
from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.nesting import nest
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.table.columns import NULL, Coded, Ints

# Ops that work themselves or, for some dtypes and layouts, call another op that does.
_CONVOLUTIONS = "conv_depthwise mkldnn_ _nnpack slow_conv _slow_conv thnn_conv xnnpack convolution"
INSTEAD = {
    "convolution_backward": ("_slow_conv2d_backward", "slow_conv_", "mkldnn_", "convolution_backward_"),
    "_convolution": tuple(_CONVOLUTIONS.split()),
    "max_pool1d": ("max_pool2d", "max_pool1d_with_indices", "mkldnn_max_pool2d", "quantized_max_pool1d"),
}
# Products, of which a batched or a distributed one runs another: vmap of mm runs bmm.
PRODUCTS = frozenset("mm bmm addmm baddbmm addbmm matmul linear mv addmv dot vdot ger einsum _addmm_activation".split())
# Ops with a kernel that only prepare or check the operands of the op that calls them.
PREPARING = frozenset(
    "copy_ clone fill_ zero_ triu triu_ tril tril_ eye _linalg_check_errors any all eq ne is_nonzero arange".split()
)
_COMPILING = " (dynamo_timed)"  # the end of the names of torch.compile's own ranges
# LAPACK runs in the kernel of such an op, around which others check and copy: only these and products do its work.
_FACTORING = re.compile(r"_?linalg_(?!check|vector_norm)|cholesky|lu_|geqrf|ormqr|orgqr|triangular_solve")


class Role(IntEnum):
    """The role of an op on a CPU, from the table."""

    CALLS = 0  # it only calls other ops, makes a view or allocates; never a row
    UNKNOWN = 1  # a row, unless a row inside does more than prepare
    WORKS = 2  # a row, unless an op inside does its work


@cache
def op_roles() -> dict[str, Role]:
    """The table of tools/host_ops.py: name without ``aten::`` -> role."""
    text = (Path(__file__).parent / "data" / "cpu_ops.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {**{name: Role[role.upper()] for name, role in rows}, **dict.fromkeys(INSTEAD, Role.WORKS)}


def host_rows(capture: Capture, is_op: NDArray[np.bool_]) -> None:
    """Make the CPU ops that do work the rows of a capture that has none."""
    ranges, scopes = capture.ranges, capture.scopes
    ops, parent = _nested(ranges, np.flatnonzero(is_op))
    duration = ranges.end[ops] - ranges.start[ops]
    fake = _on_fake_tensors(ranges.scope[ops], parent, scopes)
    is_row, own_duration = _working_ops(ranges.scope[ops], parent, duration, scopes, fake)
    if not is_row.any() and fake.any():
        is_row, own_duration = _working_ops(ranges.scope[ops], parent, duration, scopes, np.zeros(len(ops), bool))
    is_part = _within_rows(is_row, parent)
    rows = np.flatnonzero(is_row)
    rows = rows[np.argsort(ranges.start[ops[rows]], kind="stable")]
    _fill(capture, ops[rows], own_duration[rows], is_part[rows])


def _nested(ranges: Ranges, ops: Ints) -> tuple[Ints, Ints]:
    """The ops, outer ops before inner ops, and for each the index of its parent among them (-1: none)."""
    nesting = nest(ranges.thread[ops], ranges.start[ops], ranges.end[ops])
    first = np.sort(np.unique(nesting.source, return_index=True)[1])  # an overlapping range may be cut into pieces
    place = np.empty(len(ops), np.int64)
    place[nesting.source[first]] = np.arange(len(first))
    around = nesting.parent[first]
    return ops[nesting.source[first]], np.where(around >= 0, place[nesting.source[around]], -1)


def _role(scope: Scope) -> Role:
    if CPP_KERNEL.fullmatch(scope.name):
        return Role.WORKS
    if scope.kind != Kind.OP or "::" not in scope.name:
        return Role.CALLS
    return op_roles().get(scope.name.removeprefix("aten::"), Role.UNKNOWN)


def _on_fake_tensors(scope: Ints, parent: Ints, scopes: list[Scope]) -> NDArray[np.bool_]:
    """A mask of the ops (in order, outer before inner) within ranges of work on fake tensors, and of these ranges."""
    found: NDArray[np.bool_] = np.array([s.name == FAKE_TENSORS or s.name.endswith(_COMPILING) for s in scopes], bool)[
        scope
    ]
    if found.any():
        for index in np.flatnonzero(parent >= 0).tolist():
            found[index] |= found[parent[index]]
    return found


def _working_ops(
    scope: Ints, parent: Ints, duration: Ints, scopes: list[Scope], fake: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """A mask of the ops (in order, outer before inner) that are rows, and the time of each row.

    ``fake``: the ops on fake tensors, which are not.
    """
    count = len(scope)
    ops = _Ops([s.name.rpartition("::")[2] for s in scopes])
    roles, is_op = [_role(s) for s in scopes], [s.kind == Kind.OP for s in scopes]
    own = duration.tolist()  # the op's time without that of the ops inside
    replaced, busy = [False] * count, [False] * count  # whether a row inside does its work; more than prepares
    real, faked = [False] * count, fake.tolist()  # whether a row inside is one; whether an op on fake tensors would be
    is_row = np.zeros(count, bool)
    parents, codes = parent.tolist(), scope.tolist()
    for index in range(count - 1, -1, -1):  # inner ops first
        code, outer = codes[index], parents[index]
        unknown = roles[code] == Role.UNKNOWN and not busy[index]
        is_row[index] = (roles[code] == Role.WORKS or unknown) and not replaced[index]
        works_on_fake = faked[index] and not real[index]
        if outer >= 0:
            own[outer] -= duration[index]
        while is_row[index] and outer >= 0:
            replaces, works = ops.relation(code, codes[outer])
            replaced[outer] |= replaces
            busy[outer] |= works
            if works_on_fake:
                faked[outer] = True
            else:
                real[outer] = True
            outer = parents[outer]
        is_row[index] &= not works_on_fake
    return is_row, _times(is_row, np.maximum(own, 0), parent, np.array(is_op, bool)[scope])


@dataclass(slots=True)
class _Ops:
    """The ops' names, without their namespaces, and what an op inside of another does for it."""

    names: list[str]
    known: dict[tuple[int, int], tuple[bool, bool]] = field(default_factory=dict)  # (inner, outer) -> the answers

    def relation(self, inner: int, outer: int) -> tuple[bool, bool]:
        """Whether the inner op does the outer op's work, and whether it does more for it than to prepare it."""
        found = self.known.get((inner, outer))
        if found is None:
            found = self.known[inner, outer] = _relation(self.names[inner], self.names[outer])
        return found


def _relation(inner: str, outer: str) -> tuple[bool, bool]:
    """For one pair of names. Overloads call each other: mul by a number, mul by a tensor."""
    products = inner in PRODUCTS and outer in PRODUCTS
    replaces = products or inner.strip("_") == outer.strip("_") or inner.startswith(INSTEAD.get(outer, ()))
    if _FACTORING.match(outer):
        return replaces, inner in PRODUCTS or _FACTORING.match(inner) is not None
    return replaces, inner not in PREPARING


def _times(is_row: NDArray[np.bool_], own: Ints, parent: Ints, is_op: NDArray[np.bool_]) -> Ints:
    """The time of each row: its own and that of what is inside and no row; of a caller, that around its longest row.

    Outside of ops, such as in an autograd node, nobody's time is a row's.
    """
    found = np.where(is_row, own, 0)
    parents, longest, most = parent.tolist(), [-1] * len(own), [0] * len(own)
    around = np.full(len(own), -1, np.int64)  # the row that an op is in
    for index, outer in enumerate(parents):
        around[index] = index if is_row[index] else around[outer] if outer >= 0 else -1
    loose = np.flatnonzero(~is_row & is_op)
    within = loose[around[loose] >= 0]
    np.add.at(found, around[within], own[within])
    rest = own.tolist()
    for index in range(len(own) - 1, -1, -1):  # inner ops first
        outer = parents[index]
        if around[index] < 0 and longest[index] >= 0 and is_op[index]:
            found[longest[index]] += rest[index]
            most[index] += rest[index]
        elif around[index] < 0 and outer >= 0 and is_op[index]:
            rest[outer] += rest[index]  # of a view: its caller's
        best, row = (int(found[index]), index) if is_row[index] else (most[index], longest[index])
        if outer >= 0 and row >= 0 and best > most[outer]:
            most[outer], longest[outer] = best, row
    return found


def _within_rows(is_row: NDArray[np.bool_], parent: Ints) -> NDArray[np.bool_]:
    """A mask of the ops (in order, outer before inner) within an op that is a row."""
    found = np.zeros(len(parent), bool)
    for index, outer in enumerate(parent.tolist()):
        found[index] = outer >= 0 and (is_row[outer] or found[outer])
    return found


def _fill(capture: Capture, ops: Ints, duration: Ints, is_part: NDArray[np.bool_]) -> None:
    """Store the rows in the capture: the ops' ranges in order of start, with their own durations."""
    ranges, rows = capture.ranges, len(ops)
    names = Coded.of([capture.scopes[code].name for code in ranges.scope[ops].tolist()])
    short = Coded(names.codes, [name.removeprefix("aten::") for name in names.values])
    thread = ranges.thread[ops]
    pid, tid = capture.pids_and_tids(thread)
    capture.rows = rows
    capture.columns = {
        "kind": Coded(np.zeros(rows, np.int32), ["cpu"]),
        "kShortName": short,
        "kLongName": names,
        "start": ranges.start[ops],
        "kDuration": duration,
        "pid": pid,
        "tid": tid,
        "device": np.full(rows, -1, np.int64),
        "part": np.where(is_part, 1, NULL),
    }
    capture.launch_thread, capture.launch_time = thread, ranges.start[ops]
    capture.launch_range, capture.is_host = ops, True
    capture.reason, capture.reason_code = [], np.full(rows, -1, np.int64)
