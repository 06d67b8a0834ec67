"""What an edit replaces: groups of kernels, the calls that they belong to, and the calls that take their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.measured.timed_call import PLAIN, TF32, TimedCall
from pyprof.prof.ops.model import Tensor
from pyprof.prof.work.calls import op_calls
from pyprof.rerun.recorded_calls import owners
from pyprof.table.columns import Ints


@dataclass(frozen=True, slots=True)
class Swap:
    """Rows of a run whose time, together, changes as that of ``before`` to ``after`` does.

    Without ``before``, the time afterwards is that of ``after`` itself.
    """

    rows: list[int]
    after: tuple[TimedCall, ...]
    before: tuple[TimedCall, ...] = ()


class RunCalls:
    """The calls of a run, as they could be made again."""

    def __init__(self, run: Run) -> None:
        self.run, self._calls = run, op_calls(run.table)
        # Per row, the number of its call; of an op that another op runs, that of the outer one.
        self._owner: list[int] = owners(run.table, self._calls.number).tolist()
        self._members: dict[int, list[int]] = {}
        for row, owner in enumerate(self._owner):
            self._members.setdefault(owner, []).append(row)

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
        tf32 = run.precision[row] == "tf32" and run.family[row] in ("gemm", "conv")
        arguments = counted.arguments[: len(run.listed("sizes", row))]
        return TimedCall(f"aten::{run.aten[row]}", arguments, mode=TF32 if tf32 else PLAIN, flop=counted.flop)

    def calls(self, rows: list[int]) -> tuple[TimedCall, ...]:
        """The calls of these rows, one for each time that they ran."""
        return tuple(self.call(row) for row in self.distinct(rows))

    def by_step(self, rows: Ints) -> Iterator[list[int]]:
        """These rows, step by step."""
        steps = self.run.table.ints("step")[rows]
        return (rows[steps == step].tolist() for step in np.unique(steps).tolist())


SwapRule = Callable[[RunCalls, Edit], Iterator[Swap]]
CallChange = Callable[[RunCalls, Edit, int, TimedCall], TimedCall | None]
SWAPS: dict[str, SwapRule] = {}


def swap_rule(*names: str) -> Callable[[SwapRule], SwapRule]:
    """Register what the edits of these rules replace."""

    def register(function: SwapRule) -> SwapRule:
        SWAPS.update(dict.fromkeys(names, function))
        return function

    return register


def call_change(name: str) -> Callable[[CallChange], CallChange]:
    """Register a function that makes of each call of the edit's rows the call that takes its place; None: it stays."""

    def register(function: CallChange) -> CallChange:
        def swaps(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
            for row in calls.distinct(edit.retyped if len(edit.retyped) else edit.rows):
                call = calls.call(row)
                after = function(calls, edit, row, call)
                if after is not None:
                    yield Swap(calls.rows_of(row), (after,), (call,))

        SWAPS[name] = swaps
        return function

    return register


def with_tensors(call: TimedCall, change: Callable[[Tensor], Tensor], **others: Any) -> TimedCall:
    """The call with each of its tensors changed, in lists, too."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    return replace(call, arguments=tuple(map(changed, call.arguments)), **others)
