"""Programs with several faults each, and the changes that mend them: what each module of plan_programs/ is made of.

A module registers one program under its own name. ``make(on)`` builds the program with the changes named in ``on`` and
returns its step, which returns the loss (or None). A program is as its users write it; a change is what they would
write instead.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
from advice_case import DEVICE, HALF, ON_GPU, Step

__all__ = ["DEVICE", "HALF", "ON_GPU", "PROGRAMS", "Changes", "Program", "Step", "autocast", "optimizer", "program"]

Changes = frozenset[str]
Make = Callable[[Changes], Step]
tiny = not ON_GPU


@dataclass(frozen=True, slots=True)
class Program:
    """``needs``: of a change that makes sense only after others, which. ``last``: changes tried after all others."""

    name: str
    limit: str  # what its author expects to be the limit of the unchanged program: gpu, host, data or both
    changes: tuple[str, ...]
    last: tuple[str, ...]
    needs: Mapping[str, tuple[str, ...]]
    make: Make


PROGRAMS: dict[str, Program] = {}


def program(limit: str, changes: str, last: str = "", needs: Mapping[str, str] | None = None) -> Callable[[Make], Make]:
    """Register a program by the name of its function."""

    def register(make: Make) -> Make:
        wanted = {change: tuple(others.split()) for change, others in (needs or {}).items()}
        PROGRAMS[make.__name__] = Program(
            make.__name__, limit, tuple(changes.split()), tuple(last.split()), wanted, make
        )
        return make

    return register


def sized(full: int, small: int) -> int:
    """A size on a GPU; elsewhere a small one, to try the programs out."""
    return small if tiny else full


def precision(on: Changes) -> None:
    """Whether fp32 products may be rounded to TF32."""
    torch.set_float32_matmul_precision("high" if "tf32" in on else "highest")


def autocast(on: Changes) -> torch.autocast:
    return torch.autocast(DEVICE, HALF, enabled="amp" in on)


def optimizer(kind: Callable[..., Any], parameters: Iterable[nn.Parameter], on: Changes, **options: Any) -> Any:
    """An optimizer that is fused if ``fused`` is among the changes, else as ``options`` say."""
    if "fused" in on:
        options = {key: value for key, value in options.items() if key != "foreach"} | {"fused": True}
    return kind(list(parameters), **options)
