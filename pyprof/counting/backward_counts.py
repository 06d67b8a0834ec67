"""The backward work of calls: which autograd nodes belong to which call, and what a model of the whole backward counts.

A call whose op has such a model is counted once per backward pass, for the gradients that the engine computes in this
pass. The ops that its nodes dispatch are then not counted, except for sums with the gradients of other calls.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from pyprof.counting.arguments import outputs_of
from pyprof.counting.autograd_nodes import (
    NO_MODEL,
    ApiCall,
    begins_at_result,
    current_task,
    is_accumulation,
    needs,
    next_sequence,
    own,
)
from pyprof.counting.backward_passes import BackwardPasses
from pyprof.counting.call_work import ModelCall, backward_work
from pyprof.counting.counts import BACKWARD, Counts
from pyprof.counting.gradient_sums import GradientSums
from pyprof.counting.known_calls import MOST_RESULTS, result_key

_MOST_NODES = 20_000  # nodes without a call of their own, of scripted code and second derivatives, that are kept


class BackwardCounts:
    """The owners of the program's autograd nodes, and their work in backward passes."""

    def __init__(self, sums: Counts) -> None:
        self._sums = sums
        self._key = object()  # where autograd nodes have their call in their metadata
        self._pending: dict[int, ApiCall | None] = {}  # sequence number -> the dispatched op; None: of several threads
        self._names: dict[int, str] = {}  # nodes made by a backward pass -> the op whose derivative they are part of
        self._gradient_sums = GradientSums(self._key)
        self.passes = BackwardPasses()

    def close(self) -> None:
        """Remove our hooks from the program's autograd nodes."""
        self._gradient_sums.close()

    def own(self, call: ApiCall, result: Any, first: int) -> None:
        """Note which autograd nodes belong to the call, and watch them if a model counts their whole work."""
        owned = own(call, result, first, self._key, self._pending)
        if call.known.has_backward:
            for node in owned:
                self._gradient_sums.watch(node, call)
        if self._pending:
            for number in range(first, next_sequence()):
                self._pending.pop(number, None)

    def wait(self, number: int, op: str, known: ModelCall, edges: Any, result: Any) -> None:
        """Keep a dispatched op for its backward, in case that no API call owns its node."""
        call = ApiCall(op, known)
        call.edges, call.out, call.variant = edges, outputs_of(result), result_key(result)
        _make_room(self._pending)
        self._pending[number] = None if number in self._pending else call

    def _owner_of(self, node: Any) -> ApiCall | None:
        owner: ApiCall | None = node.metadata.get(self._key)
        return owner or (self._pending.get(node._sequence_nr()) if self._pending else None)

    def name_of(self, node: Any) -> str:
        """The op that a backward node is the derivative of, or the node's own name."""
        owner = self._owner_of(node)
        return owner.op if owner else self._names.get(node._sequence_nr()) or str(node.name())

    def name_second(self, node: Any) -> None:
        """Note the op whose second derivative the latest node belongs to, which a recorded backward pass has made."""
        number = next_sequence() - 1
        if number not in self._names:
            _make_room(self._names)
            self._names[number] = self.name_of(node)

    def counts_whole(self, node: Any, func: Any, args: Any) -> bool:
        """Whether a model of the op's whole backward covers the node's ops. Adds the model's work, once per pass."""
        call = None if is_accumulation(node) else self._owner_of(node)
        if call is None or not call.known.has_backward or self.passes.current().batched:
            return False
        if call.casts is not None and str(func) == "aten._to_copy.default":
            return False
        is_sum = self._gradient_sums.after(node, call, args)
        if is_sum is not None:
            return not is_sum
        if not begins_at_result(call, node):
            return False
        self._gradient_sums.watch(node, call)
        return self._add_whole_backward(call, node)

    def _add_whole_backward(self, call: ApiCall, node: Any) -> bool:
        """Add the call's backward if this pass has not done so. False if the model cannot count it."""
        task = current_task()
        if task == call.task:
            return True
        needed, known = needs(call, node), call.known
        key = (call.variant, needed)
        if key not in known.backward:
            work = backward_work(known.model, call.args, call.out, needed)
            if call.variant is not None and len(known.backward) < MOST_RESULTS:
                known.backward[key] = work
        else:
            work = known.backward[key]
        if work is None:
            call.known = NO_MODEL
            return False
        call.task = task
        self._sums.add(call.op, f"{known.model}.backward", BACKWARD, work)
        return True


def _make_room(nodes: dict[int, Any]) -> None:
    """Forget the older half of the nodes if there are too many."""
    if len(nodes) >= _MOST_NODES:
        for old in list(islice(nodes, _MOST_NODES // 2)):
            del nodes[old]
