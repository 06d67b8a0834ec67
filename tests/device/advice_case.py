"""Programs that deserve a piece of advice, as they are and changed as advised: the registry and common parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn

Step = Callable[[], Any]
Make = Callable[[bool], Step]
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Case:
    """``make(False)`` is a step of the program that deserves ``rule``'s advice, ``make(True)`` one of the changed."""

    name: str
    rule: str
    part: str  # what is measured together, in a few minutes
    make: Make


CASES: dict[str, Case] = {}


def case(rule: str, part: str) -> Callable[[Make], Make]:
    """Register a program by its function's name."""

    def register(make: Make) -> Make:
        CASES[make.__name__] = Case(make.__name__, rule, part, make)
        return make

    return register


def some(size: int) -> int:
    """A size on a GPU; without one a small one, to try the programs out."""
    return size if ON_GPU else max(size // 64, 2)


def randn(*shape: int, dtype: torch.dtype = HALF, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype, requires_grad=grad)


def trained(module: nn.Module, *inputs: torch.Tensor, autocast: bool = False) -> Step:
    """Forward and backward of a module's mean."""

    def step() -> None:
        module.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=HALF, enabled=autocast):
            loss = module(*inputs).float().mean()
        loss.backward()

    return step


def inferred(module: nn.Module, *inputs: torch.Tensor, autocast: bool = False) -> Step:
    """Forward without gradients."""

    def step() -> None:
        with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF, enabled=autocast):
            module(*inputs)

    return step


def graphed(step: Step) -> Step:
    """The step as a CUDA graph."""
    if not ON_GPU:
        return step
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
