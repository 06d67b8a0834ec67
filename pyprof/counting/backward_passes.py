"""Backward passes in progress: how each began, which decides how its ops are counted.

A pass is batched if it runs inside ``vmap`` (``torch.func.jacrev``, ``autograd.grad(is_grads_batched=True)``): its
gradients have a dimension that the forward call lacks, so the ops that it dispatches are counted.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple

import torch

from pyprof.capture.patch import Patches
from pyprof.counting.fake_tensors import are_fake


class Pass(NamedTuple):
    """A backward pass. ``fake``: whether the program runs it on fake tensors."""

    batched: bool
    fake: bool


class _Own(threading.local):
    def __init__(self) -> None:
        self.passes: list[Pass] = []


class BackwardPasses:
    """The passes in progress on each thread. An engine's thread, which begins none, works for the latest one."""

    def __init__(self) -> None:
        self._own = _Own()
        self._all: list[Pass] = []

    def install(self, patches: Patches) -> None:
        """Watch PyTorch's function that starts every backward pass of Python code (since 2.3)."""
        for owner in (torch.autograd, torch.autograd.graph):
            if hasattr(owner, "_engine_run_backward"):
                patches.set(owner, "_engine_run_backward", self._watched(owner._engine_run_backward))

    def current(self) -> Pass:
        """The pass that runs on this thread."""
        own = self._own.passes or self._all
        return own[-1] if own else Pass(is_batched(), True)

    def _watched(self, run: Any) -> Any:
        @functools.wraps(run)
        def call(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            begun = Pass(is_batched(), are_fake(outputs))
            self._own.passes.append(begun)
            self._all.append(begun)
            try:
                return run(outputs, *args, **kwargs)
            finally:
                self._own.passes.pop()
                self._all.remove(begun)

        return call


def in_vmap() -> bool:
    """Whether a vmap is in progress. The arguments of API calls then lack the dimension that is mapped over."""
    stack = torch._C._functorch.get_interpreter_stack()
    return stack is not None and any(level.key() == torch._C._functorch.TransformType.Vmap for level in stack)


def is_batched() -> bool:
    """Whether several gradients are computed at once."""
    depth = int(torch._C._vmapmode_increment_nesting())  # torch has no function that only reads the depth
    torch._C._vmapmode_decrement_nesting()
    return depth > 1 or in_vmap()
