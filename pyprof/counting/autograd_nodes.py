"""Which call each autograd node belongs to, and which gradients a backward pass computes for that call.

The call is stored in the node's own ``metadata``, so it lives as long as the node and is found from every thread. The
nodes of a call's arguments are kept too: the engine says of each whether the pass in progress executes it, which is
what PyTorch's backward formulas ask before they compute a gradient.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from pyprof.counting.arguments import SHAPELESS, tensors
from pyprof.counting.call_work import ModelCall, OpCount
from pyprof.counting.zero_tangents import ZeroTangents
from pyprof.prof.ops.model import Tensor

next_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr  # the number of the next autograd node
current_node: Callable[[], Any] = torch._C._current_autograd_node  # returns the running backward node, or None
current_task: Callable[[], int] = torch._C._current_graph_task_id  # the number of the backward pass in progress
_executes: Callable[[Any], bool] = getattr(torch._C, "_will_engine_execute_node", lambda node: True)
_transforms: Callable[[], Any] = torch._C._functorch.get_interpreter_stack
_released: deque[Any] = deque()  # the nodes that deleted calls referred to
_releasing = False

NO_MODEL = ModelCall()


class ApiCall:
    """A call of torch's API, or an op that the dispatcher runs without such a call. It owns the autograd nodes that it
    made."""

    __slots__ = ("__weakref__", "args", "casts", "collects", "edges", "hooks", "inner", "known", "op", "out", "roots",
                 "run", "served", "task", "variant", "zeros")  # fmt: skip

    def __init__(self, op: str, known: ModelCall) -> None:
        self.op = op  # the outermost API call's name
        self.known = known
        self.args: tuple[Any, ...] = known.args  # as autocast cast them
        self.out: Any = None
        self.variant: Any = None  # identifies the result among the results of calls with equal arguments
        self.casts: bool | None = None  # under autocast: whether it cast arguments
        self.collects = True  # whether the ops that it dispatches are collected
        self.inner: list[OpCount] = []  # these ops
        self.edges: list[tuple[Any, ...]] = []  # for each tensor of the call the nodes that get its gradient
        self.zeros: ZeroTangents | None = None  # in forward mode
        self.roots: set[int] = set()  # sequence numbers of the nodes that get the gradients of its results
        self.run = -1  # the backward pass in which such a node ended
        self.task = -1  # the backward pass in which its whole backward was counted
        self.served: tuple[int, set[Any]] = (-1, set())  # that pass, and where gradients were sent in it
        self.hooks: dict[Any, Any] = {}  # the hooks on its nodes, by sequence number

    def __del__(self) -> None:
        """Release the nodes without recursion, since each may be the last reference to a long graph of such calls."""
        global _releasing
        _released.append(self.edges)
        if not _releasing:
            _releasing = True
            try:
                while _released:
                    _released.popleft()
            finally:
                _releasing = False


def _levels(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor, and inside a function transform the tensors that it wraps."""
    yield tensor
    if _transforms() is not None:
        functorch = torch._C._functorch
        while functorch.is_functorch_wrapped_tensor(tensor):
            tensor = functorch.get_unwrapped(tensor)
            yield tensor


def edges_of(found: Iterable[torch.Tensor]) -> list[tuple[Any, ...]]:
    """For each tensor the nodes that get its gradient, and for leaves weak references to the tensor."""
    with torch._C.DisableTorchFunction():
        edges = [
            tuple(each.grad_fn or weakref.ref(each) for each in _levels(t) if each.requires_grad)
            if t.requires_grad or _transforms() is not None
            else ()
            for t in found
        ]
    return edges if any(edges) else []


def own(call: ApiCall, result: Any, first: int, key: object, pending: dict[int, Any]) -> list[Any]:
    """Make the call the owner of the nodes numbered from ``first`` that its result depends on; return these nodes.

    If no model counts the call, nodes of dispatched ops with a model (``pending``) belong to these.
    """
    owned, leaves = [], {}
    seen = {node for edge in call.edges for node in edge if not isinstance(node, weakref.ref)}
    with torch._C.DisableTorchFunction():
        todo = [each.grad_fn for tensor in tensors(result) for each in _levels(tensor)]
    call.roots = {node._sequence_nr() for node in todo if node is not None}
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if is_accumulation(node):
            leaves[id(node.variable)] = node
            continue
        number = node._sequence_nr()
        if number < first:
            continue
        metadata = node.metadata
        if key not in metadata:
            metadata[key] = owner = call if call.known.model else pending.pop(number, call)
            owner.op = call.op
            owned.append(node)
        todo += [after for after, _ in node.next_functions]
    if call.known.model:
        call.edges = [tuple(_resolved(node, leaves) for node in edge) for edge in call.edges]
    return owned


def is_accumulation(node: Any) -> bool:
    """Whether the node is the end of a graph, which adds to a leaf's gradient."""
    return type(node).__name__ == "AccumulateGrad"


def _resolved(node: Any, leaves: dict[int, Any]) -> Any:
    return leaves.get(id(node()), node) if isinstance(node, weakref.ref) else node


def begins_at_result(call: ApiCall, node: Any) -> bool:
    """Whether the pass in progress came to this node of the call from the call's results.

    A second derivative also enters a call's graph in its middle, through tensors that the first derivative used. Then
    only a part of the call's backward runs.
    """
    return not call.roots or node._sequence_nr() in call.roots or call.run == current_task()


def needs(call: ApiCall, node: Any) -> tuple[bool, ...]:
    """For each described tensor of the call: whether the pass in progress, which runs ``node``, gets its gradient."""
    needed = [any(_gets_gradient(edge, node) for edge in edges) for edges in call.edges]
    given = (isinstance(d, Tensor) and d.needs_grad for d in _flat(call.args))
    places = zip(call.known.places, given, strict=True)
    return tuple(needed[place] if 0 <= place < len(needed) else n for place, n in places)


def _flat(arguments: Any) -> Iterator[Any]:
    """The descriptions of tensors, those in lists too."""
    for a in arguments:
        if isinstance(a, tuple):
            yield from _flat(a)
        elif isinstance(a, Tensor) or a is SHAPELESS:
            yield a


def _gets_gradient(edge: Any, node: Any) -> bool:
    if isinstance(edge, weakref.ref):
        leaf = edge()
        ends = [after for after, _ in node.next_functions if after is not None and is_accumulation(after)]
        edge = next((end for end in ends if end.variable is leaf), None)
    if edge is None:
        return False
    try:
        return bool(_executes(edge))
    except RuntimeError:  # a leaf whose gradient autograd.grad returns
        return True
