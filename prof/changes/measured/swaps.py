"""What an edit replaces: groups of kernels, the calls that they belong to, and the calls that take their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.measured.timed_call import PLAIN, TF32, TimedCall
from pyprof.prof.ops.model import Tensor
from pyprof.prof.work.calls import Calls, op_calls
from pyprof.rerun.recorded_calls import owners
from pyprof.table.columns import Ints


@dataclass(frozen=True, slots=True)
class Swap:
    """Rows of a run whose time, together, changes as that of ``before`` to ``after`` does.

    Without ``before``, the time afterwards is that of ``after`` itself.
    """

    rows: tuple[int, ...]
    after: tuple[TimedCall, ...]
    before: tuple[TimedCall, ...] = ()


class RunCalls:
    """The calls of a run, as they could be made again."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def _calls(self) -> Calls:
        return op_calls(self.run.table)

    @cached_property
    def _owner(self) -> list[int]:
        """Per row, the number of its call; of an op that another op runs, that of the outer one."""
        found: list[int] = owners(self.run.table, self._calls.number).tolist()
        return found

    @cached_property
    def _members(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row, owner in enumerate(self._owner):
            found.setdefault(owner, []).append(row)
        return found

    def rows_of(self, row: int) -> list[int]:
        """All rows of the call that a row belongs to."""
        return self._members[self._owner[row]]

    def distinct(self, rows: list[int] | Ints) -> list[int]:
        """A row of each call that these rows belong to, which shows how it ran: of its main kernels, the longest."""
        seen = dict.fromkeys(self._owner[row] for row in (rows if isinstance(rows, list) else rows.tolist()))
        return [self._main(owner) for owner in seen]

    def _main(self, owner: int) -> int:
        number = self._calls.number
        rows = [row for row in self._members[owner] if number[row] == owner] or self._members[owner]
        main = [row for row in rows if self.run.role[row] != "aux"]
        return max(main or rows, key=lambda row: self.run.dur[row])

    def call(self, row: int) -> TimedCall:
        """The call of a row as it ran."""
        run, counted = self.run, self._calls.of(row)
        count = len(run.listed("sizes", row))
        tf32 = run.precision[row] == "tf32" and run.family[row] in ("gemm", "conv")
        mode = TF32 if tf32 else PLAIN
        return TimedCall(f"aten::{run.aten[row]}", counted.arguments[:count], "", mode, (), counted.flop)

    def calls(self, rows: list[int]) -> tuple[TimedCall, ...]:
        """The calls of these rows, one for each time that they ran."""
        return tuple(self.call(row) for row in self.distinct(rows))

    def each(self, rows: Ints) -> Iterator[tuple[list[int], TimedCall]]:
        """(all rows of the call, the call) of each call among these rows."""
        for row in self.distinct(rows):
            yield self.rows_of(row), self.call(row)


SwapRule = Callable[[RunCalls, Edit], Iterator[Swap]]
SWAPS: dict[str, SwapRule] = {}


def swap_rule(*names: str) -> Callable[[SwapRule], SwapRule]:
    """Register what the edits of these rules replace."""

    def register(function: SwapRule) -> SwapRule:
        for name in names:
            SWAPS[name] = function
        return function

    return register


def with_tensors(call: TimedCall, change: Callable[[Tensor], Tensor], **others: Any) -> TimedCall:
    """The call with each of its tensors changed, in lists, too."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    return replace(call, arguments=tuple(map(changed, call.arguments)), **others)


def phases(run: Run, rows: Ints) -> Iterator[tuple[Ints, bool]]:
    """(rows of the forward pass, False) and (rows of the backward pass, True), where there are any."""
    back = (run.phase[rows] == "backward") | (run.texts("dir")[rows] == "bprop")
    for backward in (False, True):
        mine = rows[back == backward]
        if len(mine):
            yield np.asarray(mine), backward
