"""The sums of gradients that autograd makes between its nodes: a tensor used twice gets two gradients, which are added.

PyTorch's engine dispatches the sum right after the node that made the later gradient, as if it were that node's op. If
a model counts an op's whole backward, in place of the ops that its nodes dispatch, the sum with another op's gradient
is counted in addition. The sum of two gradients of the same op is not, since the model includes it. (An example: RMS
norm, run as its parts, uses its input twice.)
"""

import threading
import weakref
from typing import Any

import torch

from pyprof.counting.autograd_nodes import ApiCall, current_node, current_task

Target = tuple[str, int, int]  # where a gradient goes: "node" or "leaf", its number, and the number of the input


class _LastNode(threading.local):
    """What this thread's engine has just finished."""

    def __init__(self) -> None:
        self.node = (-1, -1, -1)  # (pass, sequence number, call) of the node that ended last
        self.first: set[int] = set()  # gradients of that node that are its op's first ones for their target


class GradientSums:
    """Watches the nodes of ops whose whole backward has a model. ``key``: where nodes have their calls in metadata."""

    def __init__(self, key: object) -> None:
        self._key = key
        self._last = _LastNode()
        self._watched: weakref.WeakSet[ApiCall] = weakref.WeakSet()
        self._closed = False

    def after(self, node: Any, call: ApiCall, arguments: Any) -> bool | None:
        """Whether an op dispatched after the node's own work is a sum to count. None while the node still works."""
        if self._last.node != (current_task(), node._sequence_nr(), id(call)):
            return None
        return any(isinstance(a, torch.Tensor) and a._cdata in self._last.first for a in arguments[1:])

    def watch(self, node: Any, call: ApiCall) -> None:
        """Register a hook for the node's end, unless it has one."""
        number = node._sequence_nr()
        if number not in call.hooks and hasattr(node, "register_hook"):
            call.hooks[number] = node.register_hook(self._done)
            node.metadata.setdefault(self._key, call)
            self._watched.add(call)

    def _done(self, gradients: Any, _: Any) -> None:
        node, last, task = current_node(), self._last, current_task()
        call = None if node is None else node.metadata.get(self._key)
        if call is None or self._closed:
            return
        if call.served[0] != task:
            call.served = (task, set())
        if node._sequence_nr() in call.roots:
            call.run = task
        last.node, last.first = (task, node._sequence_nr(), id(call)), set()
        for (after, place), gradient in zip(node.next_functions, gradients, strict=False):
            if after is None:
                continue
            inside = after.metadata.get(self._key) is call
            if inside:  # a node of the same op may dispatch nothing and only pass a gradient on
                self.watch(after, call)
            elif gradient is not None and (target := _target(after, place)) not in call.served[1]:
                call.served[1].add(target)
                last.first.add(gradient._cdata)

    def close(self) -> None:
        """Remove the hooks."""
        self._closed = True
        for call in list(self._watched):
            for hook in call.hooks.values():
                hook.remove()
            call.hooks.clear()


def _target(node: Any, place: int) -> Target:
    leaf = getattr(node, "variable", None)
    return ("node", node._sequence_nr(), place) if leaf is None else ("leaf", id(leaf), place)
