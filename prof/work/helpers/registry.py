"""The work of kernels that their op's model does not describe: the rules and their inputs.

An op's model counts the algorithm, which the main kernels run. The helper kernels around it (``aux``) move additional
bytes: slices of a split product, casts, layouts, cleared buffers. In addition, some libraries' ops have no model
because their arguments lack the sizes, but the names and launches of their kernels show them. A rule applies to kernels
whose names match a pattern. Its inputs are the kernel, the preceding kernel of the same op, and the op's recorded
arguments. Work that it cannot derive stays unknown.

Bytes here are a lower bound wherever the docstring says "at least".
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.model import Tensor, Work

Grid = tuple[int, int, int]
NO_GRID: Grid = (0, 0, 0)
LARGEST = 2**63  # the table's columns hold less


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel's long name, its grid in blocks and its block in threads; zeros if unknown."""

    name: str
    grid: Grid = NO_GRID
    block: Grid = NO_GRID

    @property
    def threads(self) -> int:
        return math.prod(self.grid) * math.prod(self.block)


@dataclass(frozen=True, slots=True)
class HelperCall:
    """A kernel and its op: ``arguments`` in the op's schema order, ``outputs`` if they are known."""

    kernel: Launch
    before: Launch | None
    op: str
    arguments: tuple[Any, ...]
    outputs: tuple[Tensor, ...] = ()

    def tensor(self, position: int) -> Tensor | None:
        argument = self.arguments[position] if position < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None


Rule = Callable[[HelperCall], "Work | None"]
RULES: list[tuple[re.Pattern[str], Rule]] = []


def rule(pattern: str) -> Callable[[Rule], Rule]:
    """Register a rule for kernels whose names contain the pattern; the first registered one that matches is used."""

    def register(function: Rule) -> Rule:
        RULES.append((re.compile(pattern), function))
        return function

    return register


def rule_for(kernel: str) -> Rule | None:
    """The rule for a kernel, by its name."""
    return next((function for pattern, function in RULES if pattern.search(kernel)), None)


def helper_work(call: HelperCall) -> Work | None:
    """The kernel's FLOPs and bytes by its rule; None if there is no rule or the rule cannot derive them."""
    function = rule_for(call.kernel.name)
    if function is None:
        return None
    try:
        work = function(call)
    except (ModelError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, OverflowError):
        return None  # the arguments do not fit the rule; an unusual trace must not stop a report
    return work if work is not None and work.flop < LARGEST and work.nbytes < LARGEST else None  # NaN: a type unknown
