"""The engine of ``pyprof.count``: it runs the calls that torch's modes see, and decides how each is counted.

In the forward pass, the outermost API call with a model is counted as a whole. For calls without a model, the ops that
they dispatch are counted. In the backward pass, the autograd nodes of a call are counted by the model of its whole
backward, if there is one. ``count.py`` describes the rules from the user's view.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pyprof.capture.patch import Patches
from pyprof.counting.arguments import in_order, outputs_of, tensors, wants_gradient
from pyprof.counting.attention_arguments import flex_attention_arguments, jagged_attention_arguments
from pyprof.counting.call_work import ApiCall, OpCount, api_name, api_work, count_op, model_of, op_name
from pyprof.counting.counts import ACCUMULATE, BACKWARD, FORWARD, Counts
from pyprof.counting.gradient_sums import GradientSums
from pyprof.counting.modes import DispatchedOps, ForcedEager, FunctionCalls, are_wrapped, is_batched, next_sequence
from pyprof.counting.python_functions import UNSEEN, calls_can_be_seen, without_override_check
from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import MODELS, total

_autocast_is_on: Callable[[], bool] = torch._C._is_any_autocast_enabled
_current_node: Callable[[], Any] = torch._C._current_autograd_node  # returns the running backward node, or None


class Counter:
    """A context manager that counts. It may be entered again to add more to the same sums."""

    def __init__(self, sums: Counts) -> None:
        self.sums = sums
        self.root = ""  # name of the outermost API call in progress
        self.running: list[Any] = []  # running functions written in Python, whose inner calls the mode sees
        self.call: ApiCall | None = None  # the call in progress whose dispatched ops are collected
        self.wrapped = -1  # the last node of an op on wrapper tensors; the ops on the wrapped tensors have no nodes
        self._owners: dict[int, ApiCall] = {}  # sequence number of an autograd node -> the call that created it
        self._nodes: dict[int, ApiCall] = {}  # sequence number -> the dispatched op, if its whole backward has a model
        self._gradient_sums = GradientSums()
        self._modes: list[tuple[FunctionCalls, DispatchedOps]] = []
        self._patches = Patches()
        self._eager = ForcedEager()
        self._profiler_ranges: list[str] = []  # torch's own record_function ranges in progress

    def __enter__(self) -> Counter:
        self._modes.append((FunctionCalls(self), DispatchedOps(self)))
        for owner, name in UNSEEN:
            self._patches.set(owner, name, self._reporting(getattr(owner, name)))
        self._eager.install(self._patches)
        for mode in self._modes[-1]:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        calls, ops = self._modes.pop()
        ops.__exit__(*error)
        calls.__exit__(*error)
        self._patches.undo()
        self._eager.end()

    def close(self) -> None:
        """Remove our hooks from the program's autograd nodes. Nothing is counted afterwards."""
        self._gradient_sums.close()

    def _reporting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that no mode sees, so that its calls are reported as the function mode reports calls."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.call is not None or not torch._C._len_torch_function_stack():
                return function(*args, **kwargs)
            kept = tuple(list(a) if isinstance(a, Iterator) else a for a in args)  # describing would exhaust iterators
            kept_kwargs = {k: list(a) if isinstance(a, Iterator) else a for k, a in kwargs.items()}
            return self.run_api(function, kept, kept_kwargs)

        return call

    # API calls

    def run_api(self, func: Any, args: Any, kwargs: Any, overridden: bool = False) -> Any:
        """Run an API call and count it: as a whole if it has a model, otherwise by the calls inside it.

        ``overridden``: a subclass of Tensor runs the call in its own way; the ops that it dispatches are counted.
        """
        outermost = not self.root
        if outermost:
            self.root = api_name(func)
        first = next_sequence()
        model, arguments = _model_of(func, args, kwargs, overridden)
        call = ApiCall(self.root, model, arguments, None, _autocast_is_on())
        try:
            if not model and not overridden and calls_can_be_seen(func, self.running):
                result = self.run_python(func, args, kwargs)
            else:
                result = self._run_whole(call, func, args, kwargs)
        finally:
            if outermost:
                self.root = ""
        if _current_node() is None:
            for number in range(first, next_sequence()):
                self._owners.setdefault(number, call)
            self._watch(call, result)
        return result

    def run_python(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function written in Python so that the modes see its inner calls, but do not see it a second time."""
        self.running.append(func)
        try:
            with self._modes[-1][0]:
                return without_override_check(func)(*args, **kwargs)
        finally:
            self.running.pop()

    def _watch(self, call: ApiCall, result: Any) -> None:
        """Register hooks that report when the call's own backward is done, even if it dispatches nothing."""
        if f"{call.model}.backward" in MODELS:
            nodes = [tensor.grad_fn for tensor in tensors(result) if tensor.grad_fn is not None]
            for node in nodes:
                if self._owners.get(node._sequence_nr()) is call:
                    self._gradient_sums.watch(node, id(call), lambda other: self._owners.get(other) is call)

    def _run_whole(self, call: ApiCall, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a call with the function mode off, and count it."""
        direction = FORWARD if _current_node() is None else BACKWARD
        self.call, result = call, None
        try:
            result = func(*args, **kwargs)
        except BaseException:
            call.model = ""  # count what ran before the error: a checkpoint ends its recomputation by raising
            raise
        finally:
            self.call = None
            self._add_whole(call, result, direction)
        return result

    def _add_whole(self, call: ApiCall, result: Any, direction: str) -> None:
        """Add the call's own work, or else its dispatched ops' work. Autocast's casts count in both cases."""
        call.out = outputs_of(result) if call.model else None
        work = api_work(call, self.in_optimizer) if call.model else None
        if work is None:
            call.model = ""
        else:
            self.sums.add(call.op, call.model, direction, work)
        for part in call.inner:
            if work is None:
                self._add_op(call.op, direction, part)
            elif call.autocast and part.model == "_to_copy":
                self._add_op(part.op, direction, part)
        call.inner.clear()  # saves memory, since the call is kept for its backward

    def _add_op(self, owner: str, direction: str, count: OpCount) -> None:
        """Add a dispatched op to its owner's work."""
        if count.work is None:
            self.sums.miss(count.op, count.reason)
        else:
            self.sums.add(owner, count.model, direction, count.work)

    # Dispatched ops

    def run_dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op and count it, unless it is part of a call or backward that counts as a whole."""
        if not isinstance(func, torch._ops.OpOverload):
            return self._run_higher_order(func, args, kwargs)
        if func.namespace == "profiler":  # torch's own ranges, which for example optimizers open and close
            self._follow_range(func, args)
            return func(*args, **kwargs)
        node = _current_node()
        if self.call is None and node is not None and self._counts_as_whole_backward(node, func, args):
            return func(*args, **kwargs)
        arguments = in_order(func._schema, args, kwargs)
        number = next_sequence() - 1
        result = func(*args, **kwargs)
        name = op_name(func._schema.name)
        out = outputs_of(result)
        count = count_op(name, arguments, out, self.in_optimizer)
        self._collect_or_add(count, node)
        in_forward = node is None and number != self.wrapped
        if in_forward and f"{count.model}.backward" in MODELS and wants_gradient(arguments):
            # Autograd made the node just before it dispatched the op to this mode, so the node has the latest number.
            self._nodes[number] = ApiCall(name, count.model, arguments, out)
        return result

    def _run_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that takes functions. The calls inside it are not visible, but it may have a model."""
        node, name = _current_node(), str(func)
        arguments = flex_attention_arguments(name, args)
        if arguments is None:
            count = OpCount(name, "", None, "a higher-order operator")
        else:
            count = count_op(name, arguments, None, self.in_optimizer)
        if self.call is not None or node is None or not self._counts_as_whole_backward(node, func, args):
            self._collect_or_add(count, node)
        return func(*args, **kwargs)

    def _collect_or_add(self, count: OpCount, node: Any) -> None:
        """Add the op's work. Within an API call, only collect the op; the call decides later what counts."""
        if self.call is not None:
            self.call.inner.append(count)
        elif node is None:
            self._add_op(self.root or count.op, FORWARD, count)
        elif node.name() == "torch::autograd::AccumulateGrad":
            self._add_op("AccumulateGrad", ACCUMULATE, count)
        else:
            owner = self._owners.get(node._sequence_nr())
            self._add_op(owner.op if owner else node.name(), BACKWARD, count)

    def _follow_range(self, func: Any, args: Any) -> None:
        if "enter" in func._schema.name:
            self._profiler_ranges.append(str(args[0]))
        elif self._profiler_ranges:
            self._profiler_ranges.pop()

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer's step is running; torch opens a range around it."""
        return any(name.startswith("Optimizer.step") for name in self._profiler_ranges)

    def _counts_as_whole_backward(self, node: Any, func: Any, args: Any) -> bool:
        """Whether a model of the op's whole backward covers the node's ops. Adds the model's work, once per pass."""
        if is_batched():
            return False
        number = node._sequence_nr()
        owner = self._owners.get(number)
        call = owner if owner is not None and owner.model else self._nodes.get(number)
        if call is None or f"{call.model}.backward" not in MODELS:
            return False
        if call.autocast and str(func) == "aten._to_copy.default":
            return False
        is_sum = self._gradient_sums.after(node, args)
        if is_sum is not None:
            return not is_sum
        self._gradient_sums.watch(node, id(call), lambda other: owner is not None and self._owners.get(other) is owner)
        return self._add_whole_backward(call, owner or call)

    def _add_whole_backward(self, call: ApiCall, owner: ApiCall) -> bool:
        """Add the call's backward if this pass has not done so. False if the model cannot count it."""
        task = torch._C._current_graph_task_id()
        if task not in call.passes:
            try:
                work = total(evaluate(f"{call.model}.backward", call.args, call.out))
            except ModelError:
                call.model = ""
                return False
            call.passes.add(task)
            self.sums.add(owner.op, f"{call.model}.backward", BACKWARD, work)
        return True


def _model_of(func: Any, args: Any, kwargs: Any, overridden: bool) -> tuple[str, tuple[Any, ...]]:
    """The model that counts an API call as a whole, and its arguments; ("", ()) if the calls inside are counted."""
    if overridden:
        return jagged_attention_arguments(func, args, kwargs)
    return ("", ()) if are_wrapped((args, kwargs)) else model_of(func, args, kwargs)
