"""How often each measured kernel runs in the whole model, where only some of its equal layers were profiled.

The layers of a stack differ by a number in their names: `blocks.0.mlp`, `blocks.1.mlp`. With `--layers 12`, a kernel of
such a layer counts 12 times, or 6 times if two of them were profiled. All other kernels count once, those
of the optimizer too: they updated the parameters of the profiled layers.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pyprof.errors import UsageError
from pyprof.prof.ncu.report_origins import BACKWARD, FORWARD

_NUMBERED = re.compile(r"((?:[^.]*[^.\d][^.]*\.)*)(\d+)(?:\.|$)")  # the first part of a layer's name that is a number


class Layers(NamedTuple):
    """``--layers 12`` or ``--layers blocks=12``."""

    total: int
    stack: str | None = None  # None: the only one; empty: layers directly in the model, as of an nn.Sequential


def parse_layers(text: str) -> Layers:
    """Raises ValueError.

    >>> parse_layers("12"), parse_layers("model.blocks=12")
    (Layers(total=12, stack=None), Layers(total=12, stack='model.blocks'))
    """
    stack, equals, count = text.rpartition("=")
    if not count.isascii() or not count.isdigit() or not 0 < len(count) < 7 or int(count) < 1:
        raise ValueError(f"expected a number of layers, as in 12 or blocks=12, found {text!r}")
    return Layers(int(count), stack if equals else None)


def stack_and_number(layer: str) -> tuple[str, int] | None:
    """
    >>> stack_and_number("model.blocks.3.mlp.0"), stack_and_number("head"), stack_and_number("0")
    (('model.blocks', 3), None, ('', 0))
    """
    match = _NUMBERED.match(layer)
    return (match[1].removesuffix("."), int(match[2])) if match else None


def counts(asked: Layers | None, layers: Sequence[str], phases: Sequence[str]) -> list[int]:
    """How often each kernel runs. ``layers``: their layers' names, empty where they are not known.

    Raises UsageError if ``asked`` is not clear for this report.
    """
    if asked is None:
        return [1] * len(layers)
    places = [stack_and_number(layer) for layer in layers]
    stacks: dict[str, set[int]] = {}
    for place in places:
        if place is not None:
            stacks.setdefault(place[0], set()).add(place[1])
    if not stacks and not any(layers):  # without ranges: both passes, without encoder and classifier
        return [asked.total if phase in (FORWARD, BACKWARD) else 1 for phase in phases]
    stack = _chosen(asked, stacks)
    each, rest = divmod(asked.total, len(stacks[stack]))
    if rest:
        profiled = f"{len(stacks[stack])} layers of {stack or 'the model'} were profiled"
        raise UsageError(f"--layers {asked.total}: {profiled}, and {asked.total} is not a multiple of that")
    return [each if place is not None and place[0] == stack else 1 for place in places]


def _chosen(asked: Layers, stacks: dict[str, set[int]]) -> str:
    if not stacks:
        raise UsageError(f"--layers {asked.total}: no layer of the report has a number in its name, as in blocks.0")
    chosen = next(iter(stacks)) if asked.stack is None and len(stacks) == 1 else asked.stack
    if chosen in stacks:
        return chosen
    named = ", ".join(f"{stack}={asked.total} ({len(numbers)} profiled)" for stack, numbers in stacks.items())
    raise UsageError(f"--layers: expected one of the stacks of layers: {named}")
