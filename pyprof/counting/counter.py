"""FLOPs and bytes of a piece of PyTorch code, without a profiler: ``pyprof.count``.

    work = pyprof.count(net, x, backward=True)    # a call, and the gradients of everything that it used
    work.forward.flop, work.backward.flop, work.bytes, work.ops["linear"]

    with pyprof.count() as work:                  # or any code: a training step with its optimizer
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
    print(work)                                   # a table by op; ops that nobody has modelled are named

Works on CPU, CUDA, meta and fake tensors; the numbers are those of the algorithm, and do not depend on the
device.

How it counts. Forward, the outermost call with a model counts, and what it calls inside does not: ``matmul``
counts as matmul, without the copies that one backend makes to broadcast, and attention is the same on a CPU
(which runs other ops) as on a GPU. Two modes of torch see the calls:

* a ``TorchFunctionMode`` sees the API: functions written in C under the name of their aten op, and those
  written in Python that are listed in ``PYTHON_API``. Where one has a model, and the model can count the
  call, that is the count;
* a ``TorchDispatchMode`` sees everything that is dispatched below: what counts in all other cases, in
  particular the views, copies and casts that ``reshape``, ``contiguous`` or ``to`` may or may not make, and
  autocast's casts.

Backward, each autograd node belongs to the call that created it (by sequence number). If the call's op has a
model of its whole backward (``"matmul.backward"``), that counts, once; otherwise what the node dispatches.
What ``AccumulateGrad`` does (adding to gradients that exist, copying those that cannot be taken over) is in
direction "accumulate": in the total, in neither ``forward`` nor ``backward``. Forward calls repeated inside a
backward (checkpoints) are backward work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from pyprof.counting.arguments import tensors
from pyprof.counting.modes import ACCUMULATE, BACKWARD, FORWARD, Counter
from pyprof.errors import packages
from pyprof.prof.ops.model import FAMILY, MATRIX, Work
from pyprof.prof.ops.plugins import load_models

__all__ = ["Counts", "OpWork", "Row", "count"]


class OpWork(NamedTuple):
    """One op's share: the number of calls forward, and the work of each direction."""

    calls: int
    forward: Work
    backward: Work


class Row(NamedTuple):
    """What one op did in one direction. ``op``: what was called; ``model``: what it was counted as."""

    op: str
    model: str
    direction: str
    calls: int
    flops: int
    bytes: float


@dataclass
class Counts:
    """The counts of a block or call. Sums hold what could be counted; ``uncounted`` names what could not."""

    result: Any = None  # what the counted function returned
    uncounted: dict[str, int] = field(default_factory=dict)  # aten op -> calls: no model, or not enough known
    reasons: dict[str, str] = field(default_factory=dict)  # aten op -> why
    _rows: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)  # -> [calls, work]

    def add(self, op: str, model: str, direction: str, work: Work) -> None:
        """Book a call."""
        row = self._rows.setdefault((op, model, direction), [0, Work()])
        row[0] += 1
        row[1] += work

    def miss(self, op: str, reason: str) -> None:
        """Book a call that could not be counted."""
        self.uncounted[op] = self.uncounted.get(op, 0) + 1
        self.reasons[op] = reason

    def _sum(self, *directions: str) -> Work:
        rows = (work for (_, _, direction), (_, work) in self._rows.items() if direction in directions)
        return sum(rows, Work())

    @property
    def forward(self) -> Work:
        """The forward pass, and everything outside of a backward pass (optimizers)."""
        return self._sum(FORWARD)

    @property
    def backward(self) -> Work:
        """The backward pass, without the accumulation into ``.grad``."""
        return self._sum(BACKWARD)

    @property
    def accumulate(self) -> Work:
        """What adds or copies gradients into ``.grad``."""
        return self._sum(ACCUMULATE)

    @property
    def counted(self) -> Work:
        """All that could be counted."""
        return self._sum(FORWARD, BACKWARD, ACCUMULATE)

    @property
    def products(self) -> Work:
        """The forward's matrix products alone: what published counts of models hold (twice their multiply-adds)."""
        return sum(
            (
                work
                for (_, model, direction), (_, work) in self._rows.items()
                if direction == FORWARD and FAMILY.get(model) in MATRIX
            ),
            Work(),
        )

    @property
    def flops(self) -> int:
        """Floating-point operations, one multiply-add = 2; a lower bound while ``uncounted`` is not empty."""
        return self.counted.flop

    @property
    def bytes(self) -> float:
        """Bytes read and written; NaN while ``uncounted`` is not empty (``counted.nbytes`` has the others' sum)."""
        return math.nan if self.uncounted else self.counted.nbytes

    @property
    def unknown(self) -> dict[str, int]:
        """The same as ``uncounted``."""
        return self.uncounted

    @property
    def ops(self) -> dict[str, OpWork]:
        """By what was called (``linear``, ``softmax``, ``add``), in the order of first calls."""
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
        """One row an op, model and direction, most FLOPs first."""
        rows = [Row(*key, calls, work.flop, work.nbytes) for key, (calls, work) in self._rows.items()]
        return sorted(rows, key=lambda row: (-row.flops, -row.bytes, row))

    def table(self) -> Any:
        """``rows`` as a pandas DataFrame."""
        with packages():
            import pandas as pd

        return pd.DataFrame(self.rows, columns=Row._fields)

    def __str__(self) -> str:
        lines = [f"{'op':<32} {'direction':<10} {'calls':>7} {'FLOPs':>20} {'bytes':>18}"]
        lines += [
            f"{r.op:<32} {r.direction:<10} {r.calls:>7,} {r.flops:>20,} {r.bytes:>18,.0f}"
            for r in self.rows
            if r.flops or r.bytes
        ]
        whole = self.counted
        lines.append(f"{'total':<32} {'':<10} {'':>7} {whole.flop:>20,} {whole.nbytes:>18,.0f}")
        lines += [
            f"not counted: {op}, {calls} calls: {self.reasons.get(op, '')}" for op, calls in self.uncounted.items()
        ]
        return "\n".join(lines)


class _Block:
    """``with pyprof.count() as work``"""

    def __init__(self) -> None:
        self.counts = Counts()
        load_models()
        self.counter = Counter(self.counts)

    def __enter__(self) -> Counts:
        self.counter.__enter__()
        return self.counts

    def __exit__(self, *error: Any) -> None:
        self.counter.__exit__(*error)
        self.counter.close()


def count(function: Callable[..., Any] | None = None, /, *args: Any, backward: bool = False, **kwargs: Any) -> Any:
    """Count a call, or, without a function, the block of a ``with`` statement.

    ``backward=True`` also counts the gradients of the call's results (for a gradient of ones in each, whose
    making is not counted) with respect to all leaves that they depend on. Their ``.grad`` is left alone, so
    the work of accumulating into it is not counted here. ``Counts.result`` has what the function returned.
    """
    block = _Block()
    if function is None:
        return block
    try:
        with block.counter:
            block.counts.result = function(*args, **kwargs)
        if backward:
            _differentiate(block)
    finally:
        block.counter.close()
    return block.counts


def _differentiate(block: _Block) -> None:
    outputs = [t for t in tensors(block.counts.result) if t.requires_grad]
    leaves = _leaves(outputs)
    if not outputs or not leaves:
        return
    seeds = [torch.ones_like(t, memory_format=torch.contiguous_format) for t in outputs]
    with block.counter:
        torch.autograd.grad(outputs, leaves, seeds, allow_unused=True, retain_graph=True)


def _leaves(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves of the outputs' graph."""
    leaves: dict[int, torch.Tensor] = {id(t): t for t in outputs if t.is_leaf}
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        if (variable := getattr(node, "variable", None)) is not None:
            leaves[id(variable)] = variable
        following = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= following
        todo += following
    return list(leaves.values())
