"""Tensors that the forward pass makes anew from numbers alone, such as windows, masks, indices and angles.

On the CPU, from where they are copied, or on the GPU, in layer after layer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.host_waits import made_on_host, released_by, segments_of
from pyprof.prof.changes.rules.host.part_graphs import graded
from pyprof.table.columns import Bools, numbered

TIMES = 4  # calls that make the same, within a step, at least
COUNTED = ("arange", "linspace", "logspace")  # ops whose result follows from their numbers
FILLS = ("fill", "zero")
BEGINS = (*COUNTED, *FILLS, "copy")  # ops that a table can begin with
CUT = ("tril", "triu")  # ops that make a mask of a tensor of equal values
OF_EQUAL = (*CUT, "masked_fill")  # ops that may read such a tensor: others may belong to what is done with data
ANGLES = {"cos", "sin"}
WITHIN = ("pointwise", "copy", "fill", "gemm")  # families of a table's ops; of products, outer ones
IN_FORWARD = ("forward", "other", "")
FLOATING = ("float", "bfloat")
SAME_TYPE = ("add", "sub", "rsub", "mul", "div", "neg", "pow", "exp", "log", "reciprocal", "cos", "sin", "cat", *CUT)


class _Tensor(NamedTuple):
    shape: list[int]
    dtype: str


@edit_rule("made_on_cpu")
def made_on_cpu(scenario: Scenario) -> Iterator[Proposal]:
    """Copies to the GPU of what a layer or a loss makes on the CPU, of the same sizes in each step (``made_on_host``).

    As buffers they stay on the GPU: the copy, the work of the CPU before it and the wait for it go away.

    Refuted by: sizes that differ between steps.
    """
    run = scenario.run
    rows = made_on_host(scenario)
    calls = scenario.calls(rows)
    rows, calls = rows[calls >= 0], calls[calls >= 0]
    if not len(rows):
        yield Abstained("made_on_cpu", "no layer or loss makes tensors of equal sizes on the CPU in each step")
        return
    yield Edit(
        rule="made_on_cpu",
        change=(
            "Keep on the GPU what is made on the CPU each time: make it once, register_buffer(..., "
            "persistent=False), or make it with device=x.device."
        ),
        why=(
            f"{run.number(rows, 'copy', 'copies')} to the GPU of tensors that a layer or a loss makes on the CPU "
            f"({run.trace(int(rows[0]))}): the host makes each, and waits for its copy"
        ),
        cost=COSTS["made_on_cpu"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
        released=released_by(scenario, rows),
        prompt=segments_of(scenario, calls),
    )


@dataclass
class _Table:
    """The rows of one call that makes tensors from numbers, which follow each other."""

    rows: list[int] = field(default_factory=list)
    given: list[bool] = field(default_factory=list)  # per row, as of what it makes
    made: dict[tuple[int, str], bool] = field(default_factory=dict)  # by elements and dtype, if that is known, likewise
    blank: dict[int, int] = field(default_factory=dict)  # by elements, the row that fills a tensor with one value
    unread: set[int] = field(default_factory=set)  # such rows, and those of numbers, that no op here reads
    casts: set[int] = field(default_factory=set)  # rows that convert integers which the call is given
    begun: bool = False  # whether it has made more than tensors of equal values

    def takes(self, run: Run, row: int, graded_rows: Bools) -> bool:
        """Whether the row is of this table; then it is added."""
        op = str(run.aten[row]).rstrip("_")
        if run.family[row] not in WITHIN or not (self.rows or op in BEGINS) or not run.listed("args", row):
            return False
        tensors = _tensors(run, row)
        if op in COUNTED:
            return self._takes_counted(run, row, tensors)
        if op in FILLS:
            self._fill(row, numel(tensors[0].shape) if tensors else 0)
            return True
        if op == "copy" and len(tensors) == 2:
            return self._takes_copy(row, *tensors)
        return self._takes_op(run, row, op, tensors, bool(graded_rows[row]))

    def _add(self, row: int, elements: int, dtype: str, given: bool) -> bool:
        self.rows.append(row)
        self.given.append(given)
        self.made[elements, dtype] = given
        return True

    def _takes_counted(self, run: Run, row: int, tensors: list[_Tensor]) -> bool:
        elements = numel(tensors[-1].shape) if tensors else _counted(run, row)
        if not elements or not _is_own(run, row):
            return False
        self.begun = True
        dtypes = [each for each in run.listed("dtypes", row) if each and isinstance(each, str)]
        return self._add(row, elements, dtypes[-1] if dtypes else "", False)

    def _fill(self, row: int, elements: int) -> None:
        """A tensor of equal values, which the program may write to later, or a number."""
        self.rows.append(row)
        self.given.append(False)
        self.unread.add(row)
        if elements:
            self.blank[elements] = row

    def _takes_copy(self, row: int, into: _Tensor, source: _Tensor) -> bool:
        """Integers that the call is given, such as positions, may become floating-point numbers."""
        known = self._read(source)
        if known is None and not (source.dtype.startswith("int") and into.dtype.startswith(FLOATING)):
            return False
        self.casts |= {row} if known is None else set()
        return self._add(row, numel(into.shape), into.dtype, known is not False)

    def _read(self, tensor: _Tensor) -> bool | None:
        """Whether what the tensor can be, of all that was made, depends on what is given; None if it is none of it."""
        elements = numel(tensor.shape)
        fits = [
            given
            for (count, dtype), given in self.made.items()
            if count == elements and (dtype == tensor.dtype or not dtype or not tensor.dtype)
        ]
        return any(fits) if fits else None

    def _takes_op(self, run: Run, row: int, op: str, tensors: list[_Tensor], has_gradient: bool) -> bool:
        """A vector that the call is given may be multiplied with one that it has made, unless it learns."""
        known = [self._read(tensor) for tensor in tensors]
        filled = {self.blank[n] for n in (numel(t.shape) for t in tensors) if op in OF_EQUAL and n in self.blank}
        foreign = [at for at, each in enumerate(known) if each is None]
        outer = len(tensors) == 2 and all(max(tensor.shape) == numel(tensor.shape) for tensor in tensors)
        by_vector = outer and len(foreign) == 1 and not has_gradient
        if (
            not tensors
            or _are_two(op, tensors)
            or (foreign and not filled and not by_vector)
            or (run.family[row] == "gemm" and not outer)
        ):
            return False
        elements = _joined(op, [t.shape for t in tensors], outer and (bool(foreign) or run.family[row] == "gemm"))
        if not elements:
            return False
        self.begun |= op in CUT
        self.unread -= filled
        if self.rows[-1] in self.unread and not numel(run.first_shape(self.rows[-1])):
            self.unread.remove(self.rows[-1])  # a number that this op takes
        given = (bool(foreign) and not filled) or any(known)
        return self._add(row, elements, _result(op, tensors), given)

    def whole(self, run: Run) -> _Table | None:
        """Without what may be of the ops around it: tensors of equal values, casts of what is given; None: no table."""
        chosen = [(row, given) for row, given in zip(self.rows, self.given, strict=True) if row not in self.unread]
        while chosen and chosen[-1][0] in self.casts:
            chosen.pop()
        ops = {str(run.aten[row]) for row, _ in chosen}
        if len(chosen) < 2 or not (self.begun or ops >= ANGLES):
            return None
        return _Table([row for row, _ in chosen], [given for _, given in chosen])


@edit_rule("made_again")
def made_again(scenario: Scenario) -> Iterator[Proposal]:
    """Tensors that follow from numbers alone, such as angles and masks, made anew in layer after layer of a step.

    Such a table begins with arange and the like, tril or triu, or it is of cosines and sines of integers. Its ops
    follow each other in one layer, and read what it made before; which op's result an op reads is not recorded, so the
    number of elements says it. Calls of one line with the same ops, sizes and numbers make the same. What a call makes
    of integers that it is given, such as positions, or multiplies with a vector, is the same in all layers, but not in
    all calls of one layer.

    Refuted by: other numbers, sizes or lines; what a table is multiplied with.
    """
    run = scenario.run
    calls: dict[tuple[object, ...], list[_Table]] = {}
    kind = numbered(*(run.table.coded(key).codes for key in ("aten", "sizes", "dtypes", "args")))[1]
    for table in _tables(run):
        first = table.rows[0]
        key = (int(run.lane[first]), int(run.table.ints("step")[first]), run.trace(first), *kind[table.rows].tolist())
        calls.setdefault(key, []).append(table)
    often = [(tables, _needless(run, tables)) for tables in calls.values() if len(tables) >= TIMES]
    often = sorted((each for each in often if each[1]), key=lambda each: -len(each[1]))
    if not often:
        yield Abstained("made_again", f"no {TIMES} calls of a step make the same tensors from numbers alone")
        return
    rows = np.array(sorted(row for _, needless in often for row in needless), np.int64)
    most = often[0][0][0].rows
    line = run.trace(most[0])
    yield Edit(
        rule="made_again",
        change=(
            "Make once what each call makes anew from the same numbers: tables of angles, masks and the like as "
            "buffers (register_buffer(..., persistent=False)), or in the model's forward, which hands them to the "
            "layers."
        ),
        why=(
            f"{run.number(sum(len(tables) for tables, _ in often), 'call makes', 'calls make')} the same tensors as "
            f"another one, by {', '.join(dict.fromkeys(run.op(row) for row in most))}{f' ({line})' if line else ''}: "
            f"{run.number(rows, 'launch', 'launches')} too many"
        ),
        cost=COSTS["made_again"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
    )


def _tables(run: Run) -> Iterator[_Table]:
    """The tables of the forward passes, in order."""
    fits = np.isin(run.phase, IN_FORWARD) & (run.texts("kind") == "kernel")
    with_gradient = graded(run)
    places = numbered(run.lane, run.table.ints("step"), run.table.coded("layer").codes, run.table.ints("stream"))[1]
    table, before = _Table(), -1
    for row in np.flatnonzero(fits).tolist():
        follows = bool(table.rows) and row == before + 1 and places[row] == places[before]
        if not (follows and table.takes(run, row, with_gradient)):
            if whole := table.whole(run):
                yield whole
            table = _Table()
            table.takes(run, row, with_gradient)
        before = row
    if whole := table.whole(run):
        yield whole


def _needless(run: Run, tables: list[_Table]) -> list[int]:
    """The rows of equal tables that need not run: of what follows from numbers all, of the rest that of other layers
    than the one with most calls."""
    layers = Counter(run.layer(table.rows[0]) for table in tables)
    most = "" if "" in layers else layers.most_common(1)[0][0]
    return [
        row
        for table in tables
        for row, given in zip(table.rows, table.given, strict=True)
        if not given or (most and run.layer(table.rows[0]) != most)
    ]


def _is_own(run: Run, row: int) -> bool:
    """Whether the program itself calls the op, or a window's, and no function of PyTorch that does more."""
    op = run.op(row).rpartition("::")[2].partition(".")[0]
    return op == str(run.aten[row]) or op.endswith("_window")


def _tensors(run: Run, row: int) -> list[_Tensor]:
    """An op's tensors, those of lists, too, but for those of one number without dimensions."""
    sizes, dtypes = run.listed("sizes", row), run.listed("dtypes", row)
    found = []
    for place, size in enumerate(sizes):
        dtype = dtypes[place] if place < len(dtypes) and isinstance(dtypes[place], str) else ""
        listed = isinstance(size, list) and bool(size) and isinstance(size[0], list)
        found += [_Tensor(each, dtype) for each in (size if listed else [size]) if numel(each)]
    return found


def _counted(run: Run, row: int) -> int:
    """How many elements arange or linspace makes, by its numbers; 0 if they are not known."""
    try:
        numbers = [float(text) for text in run.listed("args", row)[:3] if text]
    except (TypeError, ValueError):
        return 0
    if run.aten[row] != "arange":
        count = numbers[2] if len(numbers) > 2 else 0.0
    elif not numbers:
        return 0
    else:
        begin, end, step = (0.0, numbers[0], 1.0) if len(numbers) == 1 else (*numbers, 1.0)[:3]
        count = (end - begin) / step if step else 0.0
    return math.ceil(count) if 0 < count < 1 << 62 else 0  # neither for infinity nor for NaN


def _joined(op: str, shapes: list[list[int]], outer: bool) -> int:
    """How many elements the result has; 0 if the shapes do not fit each other."""
    if op in ("cat", "stack"):
        return sum(map(numel, shapes))
    if outer:
        return numel(shapes[0]) * numel(shapes[1])
    try:
        return numel(list(np.broadcast_shapes(*map(tuple, shapes))))
    except ValueError:
        return 0


def _are_two(op: str, tensors: list[_Tensor]) -> bool:
    """Whether one of two tensors must be other integers: no program compares places with themselves, one by one."""
    same = len(tensors) == 2 and tensors[0] == tensors[1]
    return same and op != "cat" and tensors[0].dtype.startswith("int")


def _result(op: str, tensors: list[_Tensor]) -> str:
    """The dtype of the result where operands of one floating-point type say it."""
    dtypes = {tensor.dtype for tensor in tensors}
    only = dtypes.pop() if len(dtypes) == 1 else ""
    return only if only.startswith(FLOATING) and op in SAME_TYPE else ""
