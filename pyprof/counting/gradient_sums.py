"""The sums of gradients that autograd makes between its nodes: a tensor used twice gets two gradients, which are added.

PyTorch's engine adds them right after the node that made the later one, as if the node did. Where a model counts an
op's whole backward, in place of what its nodes dispatch, the sum with another op's gradient counts besides. The sum of
two gradients of one op (RMS norm run as its parts uses its input twice) does not: that is the model's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GradientSums"]

Target = tuple[str, int, int]  # what a gradient goes to: a node or a leaf, and the number of its input


def _task() -> int:
    """The backward pass in progress."""
    return int(torch._C._current_graph_task_id())


class GradientSums:
    """Watches the nodes of ops whose whole backward has a model."""

    def __init__(self) -> None:
        self.node = (-1, -1)  # (pass, node) whose own work is done
        self.first: set[int] = set()  # its gradients that are the first of its op for what they go to
        self.served: set[tuple[int, int, Target]] = set()  # (pass, op, what it has given a gradient to)
        self.hooks: dict[int, Any] = {}  # node -> what takes our hook off it

    def after(self, node: Any, arguments: Any) -> bool | None:
        """Of what is dispatched after a node's own work: does the sum count? None while that work is going on."""
        if self.node != (_task(), node._sequence_nr()):
            return None
        return any(isinstance(a, torch.Tensor) and a._cdata in self.first for a in arguments[1:])

    def watch(self, node: Any, op: int, inside: Callable[[int], bool]) -> None:
        """Learn when the node is done; ``op`` is the same for all nodes of an op, ``inside`` tells which they are."""
        number = node._sequence_nr()
        if number in self.hooks or not hasattr(node, "register_hook"):
            return
        inner = [after for after, _ in node.next_functions if after is not None and inside(after._sequence_nr())]
        targets = [_target(*edge) if edge[0] is not None else None for edge in node.next_functions]

        def done(gradients: Any, _: Any) -> None:
            self.node, self.first = (_task(), number), set()
            for after in inner:  # which may have nothing to do but to pass a gradient on
                self.watch(after, op, inside)
            for target, gradient in zip(targets, gradients, strict=False):
                if target is None or gradient is None or (target[0] == "node" and inside(target[1])):
                    continue
                if (key := (_task(), op, target)) not in self.served:
                    self.served.add(key)
                    self.first.add(gradient._cdata)

        self.hooks[number] = node.register_hook(done)

    def close(self) -> None:
        """Leave the nodes as they were."""
        for hook in self.hooks.values():
            hook.remove()
        self.hooks.clear()


def _target(node: Any, place: int) -> Target:
    leaf = getattr(node, "variable", None)
    return ("node", node._sequence_nr(), place) if leaf is None else ("leaf", id(leaf), place)
