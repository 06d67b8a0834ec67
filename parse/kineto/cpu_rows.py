"""In captures without GPU activity, the rows are the CPU ops that do work themselves.

They are not simply the innermost ops: ``aten::addmm`` calls ``expand`` and ``copy_`` but computes the product itself,
while ``aten::linear`` only calls other ops. ``data/cpu_ops.txt`` lists the ops that do work. A row's time is the op's
time minus the time of the rows inside it, so that no nanosecond counts twice.
"""

from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.nesting import nest
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.table.columns import Coded, Ints

# Ops that work themselves or, for some dtypes and layouts, call another op that does.
INSTEAD = {"aten::convolution_backward": ("_slow_conv2d_backward", "slow_conv_", "mkldnn_", "convolution_backward_")}


class Role(IntEnum):
    """The role of an op on a CPU, from the table."""

    CALLS = 0  # it only calls other ops, makes a view or allocates; never a row
    UNKNOWN = 1  # a row if there is no row inside it
    WORKS = 2  # a row, unless an op inside does its work


@cache
def op_roles() -> dict[str, Role]:
    """The table of tools/host_ops.py: name without ``aten::`` -> role."""
    text = (Path(__file__).parent / "data" / "cpu_ops.txt").read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {name: Role[role.upper()] for name, role in rows}


def host_rows(capture: Capture, is_op: NDArray[np.bool_]) -> None:
    """Make the CPU ops that do work the rows of a capture that has none."""
    ranges, scopes = capture.ranges, capture.scopes
    ops, parent = _nested(ranges, np.flatnonzero(is_op))
    duration = ranges.end[ops] - ranges.start[ops]
    is_row, own_duration = _working_ops(ranges.scope[ops], parent, duration, scopes)
    rows = np.flatnonzero(is_row)
    rows = rows[np.argsort(ranges.start[ops[rows]], kind="stable")]
    _fill(capture, ops[rows], own_duration[rows])


def _nested(ranges: Ranges, ops: Ints) -> tuple[Ints, Ints]:
    """The ops, outer ops before inner ops, and for each the index of its parent among them (-1: none)."""
    nesting = nest(ranges.thread[ops], ranges.start[ops], ranges.end[ops])
    first = np.sort(np.unique(nesting.source, return_index=True)[1])  # an overlapping range may be cut into pieces
    place = np.empty(len(ops), np.int64)
    place[nesting.source[first]] = np.arange(len(first))
    around = nesting.parent[first]
    return ops[nesting.source[first]], np.where(around >= 0, place[nesting.source[around]], -1)


def _role(scope: Scope) -> Role:
    if scope.kind != Kind.OP or "::" not in scope.name:
        return Role.CALLS
    return op_roles().get(scope.name.removeprefix("aten::"), Role.UNKNOWN)


def _working_ops(
    scope: Ints, parent: Ints, duration: Ints, scopes: list[Scope]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """A mask of the ops (in order, outer before inner) that are rows, and each op's time minus its inner rows' time."""
    own_duration = duration.copy()
    inside = np.zeros(len(scope), np.int64)  # per op: the time of the outermost rows inside
    replaced = np.zeros(len(scope), bool)  # per op: whether a row inside does its work
    is_row = np.zeros(len(scope), bool)
    names, roles = [s.name for s in scopes], [_role(s) for s in scopes]
    parents, codes = parent.tolist(), scope.tolist()
    for index in range(len(codes) - 1, -1, -1):  # inner ops first
        role = roles[codes[index]]
        row = (role == Role.WORKS and not replaced[index]) or (role == Role.UNKNOWN and not inside[index])
        is_row[index] = row
        own_duration[index] -= inside[index]
        outer = parents[index]
        if outer >= 0:
            inside[outer] += duration[index] if row else inside[index]
            replaced[outer] |= (row or replaced[index]) and _does_work_of(names[codes[index]], names[codes[outer]])
    return is_row, np.maximum(own_duration, 0)


def _does_work_of(inner: str, outer: str) -> bool:
    """Whether the inner op does the outer op's work: overloads call each other (mul by a number, mul by a tensor)."""
    return inner == outer or inner.removeprefix("aten::").startswith(INSTEAD.get(outer, ()))


def _fill(capture: Capture, ops: Ints, duration: Ints) -> None:
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
    }
    capture.launch_thread, capture.launch_time = thread, ranges.start[ops]
    capture.launch_range, capture.is_host = ops, True
    capture.reason, capture.reason_code = [], np.full(rows, -1, np.int64)
