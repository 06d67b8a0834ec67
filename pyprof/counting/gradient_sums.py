"""The sums of gradients that autograd makes between its nodes: a tensor used twice gets two gradients, which are added.

PyTorch's engine dispatches the sum right after the node that made the later gradient, as if it were that node's op. If
a model counts an op's whole backward, in place of the ops that its nodes dispatch, the sum with another op's gradient
is counted in addition. The sum of two gradients of the same op is not, since the model includes it. (An example: RMS
norm, run as its parts, uses its input twice.)
"""

from collections.abc import Callable
from typing import Any

import torch

Target = tuple[str, int, int]  # where a gradient goes: "node" or "leaf", its number, and the number of the input


def _task() -> int:
    """The number of the backward pass in progress."""
    return int(torch._C._current_graph_task_id())


class GradientSums:
    """Watches the nodes of ops whose whole backward has a model."""

    def __init__(self) -> None:
        self.node = (-1, -1)  # (pass, node) of the node that ended last
        self.first: set[int] = set()  # gradients of that node that are its op's first ones for their target
        self.served: set[tuple[int, int, Target]] = set()  # (pass, op, target to which the op has sent a gradient)
        self.hooks: dict[int, Any] = {}  # node -> the handle that removes our hook from it

    def after(self, node: Any, arguments: Any) -> bool | None:
        """Whether an op dispatched after the node's own work is a sum to count. None while the node still works."""
        if self.node != (_task(), node._sequence_nr()):
            return None
        return any(isinstance(a, torch.Tensor) and a._cdata in self.first for a in arguments[1:])

    def watch(self, node: Any, op: int, inside: Callable[[int], bool]) -> None:
        """Register hooks for the node's end. ``op``: its op's number; ``inside(n)``: whether n is that op's node."""
        number = node._sequence_nr()
        if number in self.hooks or not hasattr(node, "register_hook"):
            return
        inner = [after for after, _ in node.next_functions if after is not None and inside(after._sequence_nr())]
        targets = [_target(*edge) if edge[0] is not None else None for edge in node.next_functions]

        def done(gradients: Any, _: Any) -> None:
            self.node, self.first = (_task(), number), set()
            for after in inner:  # a node of the same op may dispatch nothing and only pass a gradient on
                self.watch(after, op, inside)
            for target, gradient in zip(targets, gradients, strict=False):
                if target is None or gradient is None or (target[0] == "node" and inside(target[1])):
                    continue
                if (key := (_task(), op, target)) not in self.served:
                    self.served.add(key)
                    self.first.add(gradient._cdata)

        self.hooks[number] = node.register_hook(done)

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self.hooks.values():
            hook.remove()
        self.hooks.clear()


def _target(node: Any, place: int) -> Target:
    leaf = getattr(node, "variable", None)
    return ("node", node._sequence_nr(), place) if leaf is None else ("leaf", id(leaf), place)
