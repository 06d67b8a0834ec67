"""The results of ``pyprof.count``: work by op, model and direction, and the ops that could not be counted."""

import math
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyprof.errors import packages
from pyprof.prof.ops.model import FAMILY, MATRIX, Work

_ADDING = threading.RLock()  # several threads add; a signal's handler may interrupt an addition
FORWARD, BACKWARD, ACCUMULATE = "forward", "backward", "accumulate"


class OpWork(NamedTuple):
    """One op's number of forward calls, and its work in each direction."""

    calls: int
    forward: Work
    backward: Work


class Row(NamedTuple):
    """The work of one op in one direction. ``op``: the called function; ``model``: the op model that counted it."""

    op: str
    model: str
    direction: str
    calls: int
    flops: int
    bytes: float


@dataclass
class Counts:
    """The counts of a block or call. The sums contain only counted ops; ``uncounted`` lists the other ops."""

    result: Any = None  # the return value of the counted function
    # aten op -> calls without a model or needed arguments; "thread NAME" for a thread that worked and was not counted
    uncounted: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # aten op or thread -> why it could not be counted
    _sums: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)  # -> [calls, FLOPs, read, written]

    def add(self, op: str, model: str, direction: str, work: Work) -> None:
        """Add the work of one call."""
        with _ADDING:
            row = self._sums.get((op, model, direction))
            if row is None:
                row = self._sums[op, model, direction] = [0, 0, 0, 0]
            row[0] += 1
            row[1] += work.flop
            row[2] += work.read
            row[3] += work.write

    def miss(self, op: str, reason: str) -> None:
        """Add a call that could not be counted."""
        with _ADDING:
            self.uncounted[op] = self.uncounted.get(op, 0) + 1
            self.reasons[op] = reason

    @property
    def _rows(self) -> dict[tuple[str, str, str], tuple[int, Work]]:
        """(op, model, direction) -> calls, work."""
        with _ADDING:
            return {key: (row[0], Work(*row[1:])) for key, row in self._sums.items()}

    @property
    def calls(self) -> int:
        """The number of calls seen so far, counted or not."""
        with _ADDING:
            counted: int = sum(row[0] for row in self._sums.values())
            return counted + sum(self.uncounted.values())

    def _sum(self, *directions: str) -> Work:
        rows = (work for (_, _, direction), (_, work) in self._rows.items() if direction in directions)
        return sum(rows, Work())

    @property
    def forward(self) -> Work:
        """The work of the forward pass, and of everything else outside of a backward pass (optimizers)."""
        return self._sum(FORWARD)

    @property
    def backward(self) -> Work:
        """The work of the backward pass, without the accumulation into ``.grad``."""
        return self._sum(BACKWARD)

    @property
    def accumulate(self) -> Work:
        """The work of adding or copying gradients into ``.grad``."""
        return self._sum(ACCUMULATE)

    @property
    def counted(self) -> Work:
        """The work of all ops that could be counted."""
        return self._sum(FORWARD, BACKWARD, ACCUMULATE)

    @property
    def products(self) -> Work:
        """The work of the forward's matrix products: their FLOPs are twice a model's published multiply-adds."""
        rows = ((model, work) for (_, model, direction), (_, work) in self._rows.items() if direction == FORWARD)
        return sum((work for model, work in rows if FAMILY.get(model) in MATRIX), Work())

    @property
    def flops(self) -> int:
        """Floating-point operations, one multiply-add = 2; a lower bound while ``uncounted`` is not empty."""
        return self.counted.flop

    @property
    def bytes(self) -> float:
        """Bytes read and written; NaN while ``uncounted`` is not empty (``counted.nbytes``: the sum of counted ops)."""
        return math.nan if self.uncounted else self.counted.nbytes

    @property
    def unknown(self) -> dict[str, int]:
        """Another name for ``uncounted``."""
        return self.uncounted

    @property
    def ops(self) -> dict[str, OpWork]:
        """The work by called function (``linear``, ``softmax``, ``add``), in the order of first calls."""
        ops: dict[str, OpWork] = {}
        for (op, _, direction), (calls, work) in self._rows.items():
            was = ops.get(op, OpWork(0, Work(), Work()))
            if direction == FORWARD:
                ops[op] = OpWork(was.calls + calls, was.forward + work, was.backward)
            elif direction == BACKWARD:
                ops[op] = OpWork(was.calls, was.forward, was.backward + work)
        return ops

    @property
    def rows(self) -> list[Row]:
        """One row per op, model and direction, most FLOPs first."""
        rows = [Row(*key, calls, work.flop, work.nbytes) for key, (calls, work) in self._rows.items()]
        return sorted(rows, key=lambda row: (-row.flops, -row.bytes, row))

    def table(self) -> Any:
        """``rows`` as a pandas DataFrame."""
        with packages():
            import pandas as pd

        return pd.DataFrame(self.rows, columns=Row._fields)

    def __str__(self) -> str:
        lines = [f"{'op':<32} {'direction':<10} {'calls':>7} {'FLOPs':>20} {'bytes':>18}"]
        shown = [r for r in self.rows if r.flops or r.bytes]
        lines += [f"{r.op:<32} {r.direction:<10} {r.calls:>7,} {r.flops:>20,} {r.bytes:>18,.0f}" for r in shown]
        whole = self.counted
        lines.append(f"{'total':<32} {'':<10} {'':>7} {whole.flop:>20,} {whole.nbytes:>18,.0f}")
        missed = self.uncounted.items()
        lines += [f"not counted: {op}, {calls} calls: {self.reasons.get(op, '')}" for op, calls in missed]
        return "\n".join(lines)
