"""The op calls in a kernel table: which rows belong to each call, and the work of each distinct call.

Calls with the same signature (op, shapes, dtypes, options, ...) have the same work, so a model runs once for each.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import pyprof.prof.ops.families  # noqa: F401 (fills the registry)
from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.kernels.roles import MAIN, role
from pyprof.prof.kernels.type_names import NOTHING, Dtypes, merged
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.experts import FINDS_WEIGHTS
from pyprof.prof.ops.model import FAMILY
from pyprof.prof.ops.plugins import load_models
from pyprof.prof.work.batches import batches_of_calls
from pyprof.prof.work.casts import uncover
from pyprof.prof.work.completed_arguments import Cells, completed_cells
from pyprof.prof.work.count import Counted, OpCall, count_call
from pyprof.prof.work.cut_lists import proven_lists
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct, distinct_texts, kept_with_table
from pyprof.table.graph_replays import replay_numbers

SIGNATURE = (
    *("aten", "sizes", "dtypes", "strides", "args", "outs", "marker", "dir", "nodes", "comm", "forward", "views"),
    "fused",
)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that a table's rows belong to, aligned with the rows."""

    number: Ints  # the number of each row's call
    signature: Ints  # each row's index into ``counted``
    counted: list[Counted]  # per distinct signature
    names: Coded  # of the kernels
    completed: list[Cells | None]  # per distinct signature, see completed_arguments.py

    def of(self, row: int) -> Counted:
        return self.counted[int(self.signature[row])]

    def where(self, flags: list[bool]) -> Bools:
        """Spread flags per signature to the rows."""
        return np.array(flags or [False])[self.signature]

    def amounts(self, values: list[int | None]) -> Ints:
        """Spread amounts per signature to the rows; NULL if unknown."""
        return np.array([NULL if value is None else value for value in values] or [0], np.int64)[self.signature]


def op_calls(table: Table) -> Calls:
    """Number the calls of a table and count each distinct one."""
    load_models()
    names, number = kernel_names(table), call_numbers(table)
    lists = proven_lists(table, number)
    hint, hints = dtypes_by_name(table, names, number, lists)
    columns = [*(table.coded(key) for key in SIGNATURE), lists]
    batch, batches = batches_of_calls(table, names, number)
    signatures, signature = distinct(*(column.codes for column in columns), hint, batch)
    texts = [[*column.values, ""] for column in columns]
    counted, completed = [], []
    for *codes, code, which in signatures:
        cells = {key: text[i] for key, text, i in zip((*SIGNATURE, "lists"), texts, codes, strict=True)}
        call = OpCall(**cells, kernel=hints[code], batch=batches[which])
        counted.append(count_call(call))
        completed.append(completed_cells(call, counted[-1]))
    return Calls(number, signature, counted, names, completed)


@kept_with_table
def call_numbers(table: Table) -> Ints:
    """The number of each row's call, which is identified by (pid, opId). For a call captured into a CUDA graph the
    launch is part of the identity, because each replay repeats the work. A row without an op is a call of its own."""
    op, pid = table.ints("opId"), table.ints("pid")
    _, dense = distinct(pid, op, replay_numbers(table))
    alone = op == NULL
    dense[alone] = dense.max(initial=0) + 1 + np.arange(int(alone.sum()))
    dense.flags.writeable = False
    return dense


def kernel_names(table: Table) -> Coded:
    """Kernel names, one code per distinct (short, long) pair: the long name, with template arguments, where known."""
    pairs, codes = distinct_texts(table.coded("kShortName"), table.coded("kLongName"))
    return Coded(codes.astype(np.int32), [long or short for short, long in pairs])


# --- dtypes by the names of an op's kernels ------------------------------------------------------------------------


def dtypes_by_name(table: Table, names: Coded, number: Ints, lists: Coded) -> tuple[Ints, list[Dtypes]]:
    """The dtypes that the names of each op's main kernels reveal: a list, and each row's index into it.

    Names are used where the capture records shapes without dtypes: everything in NVTX, and Kineto's lists of tensors
    (`[["", ""], ...]`, or `[[], ...]` where they are cut).
    """
    aten, sizes, dtypes, outs = (table.coded(key) for key in ("aten", "sizes", "dtypes", "outs"))
    hint, hints = np.zeros(len(table), np.int64), {NOTHING: 0}
    whole = dtypes.where(lambda text: text and '[""' not in text[1:])
    incomplete = ~whole | (lists.codes >= 0) | (outs.codes >= 0)
    rows = np.flatnonzero(~sizes.among("") & incomplete & (names.codes >= 0))
    pairs, pair = distinct(names.codes[rows], aten.codes[rows])
    atens = [*aten.values, ""]  # code -1 finds the last
    by_pair = [_of_kernel(names.values[name], atens[op]) for name, op in pairs]
    hint[rows] = np.array([hints.setdefault(dtypes, len(hints)) for dtypes in by_pair], np.int64)[pair]
    if hint.any():
        hint = uncover(table, _shared(number, hint, hints), hints)
    return hint, list(hints)


def _of_kernel(name: str, aten: str) -> Dtypes:
    op = aten.removeprefix("aten::")
    if op in FINDS_WEIGHTS:
        return NOTHING  # its products' operands are not its own: its weights, and hidden states in their type
    family = FAMILY.get(find(op) or "", "")
    return kernel_dtypes(name, op, family) if role(name, op, family) == MAIN else NOTHING


def _shared(number: Ints, hint: Ints, hints: dict[Dtypes, int]) -> Ints:
    """Give all rows of a call the combined hint of its kernels' names; new combinations are added to ``hints``."""
    known, size = list(hints), len(hints)
    count = int(number.max(initial=0)) + 1
    least, most = np.full(count, size, np.int64), np.zeros(count, np.int64)
    some = hint > 0
    np.minimum.at(least, number[some], hint[some])
    np.maximum.at(most, number[some], hint[some])
    rows = np.flatnonzero(some & (least < most)[number])
    pairs = np.sort(number[rows] * size + hint[rows])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    bounds = np.flatnonzero(np.diff(pairs // size, prepend=-1, append=-1))
    joined: dict[tuple[int, ...], int] = {}
    for begin, end in pairwise(bounds.tolist()):
        several = tuple((pairs[begin:end] % size).tolist())
        if several not in joined:
            joined[several] = hints.setdefault(merged(known[i] for i in several), len(hints))
        most[pairs[begin] // size] = joined[several]
    return most[number]
