"""Where each measured kernel comes from, by the ranges around its launch: pass, op, layer and sequence number.

The rules are those of the kernel table (``parse/attribute``): a kernel in a backward node has the layer and op of the
forward op with the node's sequence number. A report of ncu has the ranges of the measured launches only. So where that
forward op launched no measured kernel, the kernel has the layer of the last numbered op before it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from pyprof.parse.attribute.facts import facts
from pyprof.parse.attribute.scope import Kind, Scope, classify, split
from pyprof.parse.ncu.report import Launch

FORWARD, BACKWARD, OPTIMIZER, OTHER, UNKNOWN = "forward", "backward", "optimizer", "other", ""


@dataclass(frozen=True, slots=True)
class Origin:
    """``ops``: the user's calls, outermost first. ``numbers``: the sequence numbers of the ops around the launch, or
    that of the backward node. ``aten``: the innermost op. ``call``: equal for the launches of one outermost op."""

    passed: str = UNKNOWN  # FORWARD .. OTHER, UNKNOWN without ranges
    ops: tuple[str, ...] = ()
    layer: str = ""
    numbers: tuple[int, ...] = ()
    aten: str = ""
    call: str = ""

    @property
    def op(self) -> str:
        return self.ops[-1] if self.ops else ""


class _Ranges(NamedTuple):
    """The ranges around one launch."""

    path: tuple[Scope, ...]
    numbers: tuple[int, ...]  # of the ops outside of backward nodes
    node: int | None  # of the innermost backward node
    call: str  # the text of the outermost op
    engine: str  # the text of autograd's own range around a node

    @property
    def kinds(self) -> set[Kind]:
        return {scope.kind for scope in self.path}

    @property
    def backward(self) -> bool:
        return bool(self.kinds & {Kind.NODE, Kind.ENGINE})


def origins(launches: Sequence[Launch]) -> list[Origin]:
    """The origin of each launch, process by process: sequence numbers are those of a process."""
    found = [Origin()] * len(launches)
    for process in dict.fromkeys(launch.process_id for launch in launches):
        rows = [row for row, launch in enumerate(launches) if launch.process_id == process]
        for row, origin in zip(rows, _of_process([launches[row] for row in rows]), strict=True):
            found[row] = origin
    return found


def _of_process(launches: Sequence[Launch]) -> list[Origin]:
    ranges = [_ranges(launch) for launch in launches]
    # Around a node, autograd sums gradients to the shape of its inputs, or adds them up.
    node_of = {each.engine: each.node for each in ranges if each.node is not None}
    ranges = [each._replace(node=node_of.get(each.engine)) if each.node is None else each for each in ranges]
    forward = {number: each for each in ranges if not each.backward for number in reversed(each.numbers)}
    numbers = sorted(forward)
    found: list[Origin] = []
    for each, updating in zip(ranges, _updating(ranges), strict=True):
        at = bisect_right(numbers, each.node) if each.node is not None else 0
        before = forward[numbers[at - 1]] if at else None
        exact = before if at and numbers[at - 1] == each.node else None
        found.append(_origin(each, exact, before, updating, found[-1] if found else Origin()))
    return found


def _origin(each: _Ranges, exact: _Ranges | None, before: _Ranges | None, updating: bool, last: Origin) -> Origin:
    """``exact``: the forward op of the node; ``before``: the last one up to it; ``last``: the launch before this."""
    if not each.path:
        return Origin()
    recorded = facts(each.path, exact.path if exact else (), False, "", updating, False)
    layers = json.loads(recorded.layer or "[]")
    layer, numbers = str(layers[-1]) if layers else "", each.numbers
    if each.node is not None:
        layer, numbers = layer or _layer(before), (each.node,)
    elif each.backward and last.passed == BACKWARD:  # of a node without a number, or that launched nothing itself
        layer, numbers = last.layer, last.numbers
    passed = recorded.phase if recorded.phase in (FORWARD, BACKWARD, OPTIMIZER) else OTHER
    ops = tuple(map(str, json.loads(recorded.op or "[]")))
    return Origin(passed, ops, layer, numbers, recorded.aten, each.call)


def _layer(ranges: _Ranges | None) -> str:
    names = [scope.name for scope in ranges.path if scope.kind == Kind.LAYER] if ranges else []
    return names[-1] if names else ""


def _ranges(launch: Launch) -> _Ranges:
    """The ranges that the launching thread pushed."""
    path, numbers, node, call, engine = [], [], None, "", ""
    for range_ in launch.ranges:
        if not range_.nested:
            continue
        scope, number = _scope(range_.text)
        path.append(scope)
        if scope.kind == Kind.NODE:
            node = number if number is not None else node
        elif scope.kind == Kind.ENGINE:
            engine = range_.text
        elif scope.kind == Kind.OP:
            call = call or range_.text
            numbers += [number] if number is not None and number >= 0 else []
    return _Ranges(tuple(path), tuple(dict.fromkeys(numbers)), node, call, engine)


@lru_cache(maxsize=65536)
def _scope(text: str) -> tuple[Scope, int | None]:
    name, number, op_id, sizes = split(text)
    return classify(name, number is not None or op_id is not None, sizes), number


def _updating(ranges: Sequence[_Ranges]) -> list[bool]:
    """Whether each launch is between the backward pass and the optimizer's step, and in no layer: clipping, scaling."""
    words = [_word(each) for each in ranges]
    runs = [(word, len(list(run))) for word, run in groupby(words)]
    found: list[bool] = []
    for at, (word, length) in enumerate(runs):
        between = word == "plain" and 0 < at < len(runs) - 1 and runs[at - 1][0] == BACKWARD
        found += [between and runs[at + 1][0] == OPTIMIZER] * length
    return found


def _word(each: _Ranges) -> str:
    if each.backward:
        return BACKWARD
    if Kind.OPTIMIZER in each.kinds:
        return OPTIMIZER
    return FORWARD if each.kinds & {Kind.LAYER, Kind.MODULE} else "plain"
