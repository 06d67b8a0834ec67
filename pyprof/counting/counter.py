"""The engine of ``pyprof.count``: it runs the calls that torch's modes see, and decides how each is counted.

In the forward pass, the outermost API call with a model is counted as a whole. For calls without a model, the ops that
they dispatch are counted. In the backward pass, the autograd nodes of a call are counted by the model of its whole
backward, if there is one. ``count.py`` describes the rules from the user's view.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pyprof.capture.patch import AtThreadEnd, Patches
from pyprof.capture.replaced_names import tracers
from pyprof.counting import worker_threads
from pyprof.counting.arguments import SHAPELESS, ordered, outputs_of, tensors, unseen
from pyprof.counting.attention_arguments import flex_attention_arguments, jagged_attention_arguments
from pyprof.counting.autograd_nodes import (
    NO_MODEL,
    ApiCall,
    current_node,
    edges_of,
    is_accumulation,
    next_sequence,
)
from pyprof.counting.backward_counts import BackwardCounts
from pyprof.counting.call_work import (
    ModelCall,
    OpCount,
    api_name,
    api_work,
    cast_arguments,
    count_op,
    model_call,
    op_name,
)
from pyprof.counting.counts import ACCUMULATE, BACKWARD, FORWARD, Counts
from pyprof.counting.fake_tensors import has_fake, made_fake
from pyprof.counting.known_calls import MOST_RESULTS, KnownCalls, result_key
from pyprof.counting.modes import (
    DispatchedOps,
    ForcedEager,
    FunctionCalls,
    in_forward_mode,
    in_transform,
    remove,
    unnoticed,
    without_dispatch_mode,
)
from pyprof.counting.nested_kernels import BY_ROWS, CONSISTING, COPIES, copied, has_nested, run_kernel, with_rows
from pyprof.counting.python_functions import UNSEEN, calls_can_be_seen, without_override_check
from pyprof.counting.values_only import TAKE_VALUES, as_without_us
from pyprof.counting.worker_threads import RunningThreads
from pyprof.counting.zero_tangents import ZeroTangents
from pyprof.prof.ops.model import Work

_autocast_is_on: Callable[[], bool] = torch._C._is_any_autocast_enabled
_KNOWN = KnownCalls()


class Thread(threading.local):
    """What one thread is doing."""

    def __init__(self) -> None:
        self.root = ""  # name of the outermost API call in progress
        self.running: list[Any] = []  # running functions written in Python, whose inner calls the mode sees
        self.call: ApiCall | None = None  # the call in progress whose dispatched ops are collected
        self.fake: Any = None  # whether the call in progress is on fake tensors, or its arguments; None: no call
        self.inside = 0  # how many ops of nested tensors are running, whose inner ops are collected
        self.wrapped = -1  # the last node of an op on wrapper tensors; the ops on the wrapped tensors have no nodes
        self.modes: list[tuple[FunctionCalls, DispatchedOps]] = []
        self.end: AtThreadEnd | None = None  # takes the modes off a thread that ran before the count began
        self.profiler_ranges: list[str] = []  # torch's own record_function ranges in progress


class Counter:
    """A context manager that counts. It may be entered again to add more to the same sums."""

    def __init__(self, sums: Counts) -> None:
        self.sums = sums
        self.active = False
        self.thread = Thread()
        self.entered: set[int] = set()  # the threads that are counted, or were
        self._running: RunningThreads | None = None
        self._backward = BackwardCounts(sums)
        self._patches = Patches()
        self._eager = ForcedEager()

    def __enter__(self) -> Counter:
        _KNOWN.refresh()
        self.active = True
        for owner, name in UNSEEN:
            self._patches.set(owner, name, self._reporting(getattr(owner, name)))
        for module in (torch.overrides, torch.autograd):
            self._patches.set(module, "has_torch_function", unnoticed(module.has_torch_function))
        for owner, name in tracers():
            self._patches.set(owner, name, self._outside(getattr(owner, name)))
        self._backward.passes.install(self._patches)
        self._eager.install(self._patches)
        worker_threads.install(self._patches, self)
        self.begin_thread()
        self._running = RunningThreads(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self.end_thread()
        if self._running is not None:
            self._running.end()
        self._patches.undo()
        self._eager.end()
        self.active = False

    def begin_thread(self, stays: bool = False) -> None:
        """Count what this thread does from here on. ``stays``: until the thread ends, or the count has ended."""
        modes = FunctionCalls(self), DispatchedOps(self)
        self.entered.add(threading.get_ident())
        self.thread.modes.append(modes)
        if stays:
            self.thread.end = AtThreadEnd(functools.partial(remove, *modes))
        for mode in modes:
            mode.__enter__()

    def end_thread(self) -> None:
        """End what ``begin_thread`` began."""
        if not self.thread.modes:
            return  # leave_thread was faster
        calls, ops = self.thread.modes.pop()
        ops.__exit__(None, None, None)
        calls.__exit__(None, None, None)

    def leave_thread(self) -> bool:
        """Remove what is left of the count on a thread that outlives it. True if nothing is left."""
        modes = self.thread.modes
        while modes and remove(*modes[-1]):
            modes.pop()
        if not modes:
            self.thread.end = None
        return not modes

    def close(self) -> None:
        """Remove our hooks from the program's autograd nodes. Nothing is counted afterwards."""
        self._backward.close()

    def _reporting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that no mode sees, so that its calls are reported as the function mode reports calls."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.thread.call is not None or not torch._C._len_torch_function_stack():
                return function(*args, **kwargs)
            kept = tuple(list(a) if isinstance(a, Iterator) else a for a in args)  # describing would exhaust iterators
            kept_kwargs = {k: list(a) if isinstance(a, Iterator) else a for k, a in kwargs.items()}
            return self.run_api(function, kept, kept_kwargs)

        return call

    def _outside(self, trace: Callable[..., Any]) -> Callable[..., Any]:
        """A function that traces for TorchScript, without our modes: under them it would make other graphs.

        It takes the result of an op that a dispatch mode runs for a constant (a convolution, in 2.13).
        """

        @functools.wraps(trace, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            modes = self.thread.modes[-1] if self.thread.modes else None
            if modes is None or not remove(*modes):
                return trace(*args, **kwargs)
            self.sums.miss("torch.jit.trace", "what runs while it is traced is not counted")
            try:
                return trace(*args, **kwargs)
            finally:
                for mode in modes:
                    mode.__enter__()

        return call

    # API calls

    def run_api(self, func: Any, args: Any, kwargs: Any, overridden: bool = False) -> Any:
        """Run an API call and count it: as a whole if it has a model, otherwise by the calls inside it.

        ``overridden``: a subclass of Tensor runs the call in its own way; the ops that it dispatches are counted.
        """
        thread = self.thread
        outermost = not thread.root
        if outermost:
            thread.root = api_name(func)
        first = next_sequence()
        call = ApiCall(thread.root, NO_MODEL)
        try:
            if not overridden and calls_can_be_seen(func, thread.running):
                result = self.run_python(func, args, kwargs)
            else:
                result = self._run_whole(call, func, args, kwargs, overridden)
        finally:
            if outermost:
                thread.root = ""
        if next_sequence() != first:
            self._backward.own(call, result, first)
        return result

    def run_operator(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op of the dispatcher that the program calls itself; the dispatch mode counts it."""
        thread = self.thread
        before, thread.fake = thread.fake, self._fakeness(current_node(), args, kwargs)
        try:
            return func(*args, **kwargs)
        finally:
            thread.fake = before

    def run_python(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function written in Python so that the modes see its inner calls, but do not see it a second time."""
        running = self.thread.running
        running.append(func)
        try:
            with self.thread.modes[-1][0] if self.thread.modes else FunctionCalls(self):
                return without_override_check(func)(*args, **kwargs)
        finally:
            running.pop()

    def _run_whole(self, call: ApiCall, func: Any, args: Any, kwargs: Any, overridden: bool) -> Any:
        """Run a call with the function mode off, and count it."""
        thread, node = self.thread, current_node()
        call.known, found = self._model_of(func, args, kwargs, overridden)
        if call.known.model and torch.is_grad_enabled():
            call.edges = edges_of(found)
        autocast = _autocast_is_on()
        call.collects = not call.known.succeeded or autocast or node is not None
        call.zeros = ZeroTangents() if in_forward_mode() else None
        before, thread.fake = thread.fake, self._fakeness(node, args, kwargs)
        thread.call, result = call, None
        try:
            result = func(*args, **kwargs) if call.collects else without_dispatch_mode(self, func, args, kwargs)
        except BaseException:
            call.known = NO_MODEL  # count what ran before the error: a checkpoint ends its recomputation by raising
            raise
        finally:
            thread.call, thread.fake = None, before
            self._add_whole(call, result, FORWARD if node is None else BACKWARD, autocast)
        return result

    def _model_of(self, func: Any, args: Any, kwargs: Any, overridden: bool) -> tuple[ModelCall, list[torch.Tensor]]:
        """The model that counts an API call as a whole, and the call's tensors."""
        if overridden:
            found = list(tensors((args, kwargs)))
            return model_call(*jagged_attention_arguments(func, args, kwargs), found), found
        if not _KNOWN.may_have_model(func) or in_transform():
            return NO_MODEL, []
        return _KNOWN.api_call(func, args, kwargs, self.in_optimizer)

    def _add_whole(self, call: ApiCall, result: Any, direction: str, autocast: bool) -> None:
        """Add the call's own work, or else its dispatched ops' work. Autocast's casts count in both cases."""
        work = self._work_of(call, result, autocast) if call.known.model else None
        if work is None:
            call.known = NO_MODEL
        else:
            call.known.succeeded = True
            self.sums.add(call.op, call.known.model, direction, work)
        for part in call.inner:
            if work is None:
                self._add_op(call.op, direction, part)
            elif autocast and part.model == "_to_copy":
                self._add_op(part.op, direction, part)
        call.inner.clear()  # saves memory, since the call is kept for its backward

    def _work_of(self, call: ApiCall, result: Any, autocast: bool) -> Work | None:
        """The work of a call by its model, from the results of equal calls if there was one."""
        known = call.known
        call.casts = any(part.model == "_to_copy" for part in call.inner) if autocast else None
        key = result_key(result)
        call.variant = None if key is None else (key, call.casts)
        found = known.works.get(call.variant) if key is not None else None
        if found is None:
            out = outputs_of(result)
            args = known.args if call.casts is None else cast_arguments(known, out, call.casts)
            found = api_work(known.model, args, out, self.in_optimizer, call.op), args, out
            if key is not None and len(known.works) < MOST_RESULTS:
                known.works[call.variant] = found
        work, call.args, call.out = found
        return work

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
        thread, node = self.thread, current_node()
        if thread.call is None and node is not None and torch.is_grad_enabled():
            self._backward.name_second(node)
        if thread.call is None and node is not None and self._backward.counts_whole(node, func, args):
            return func(*args, **kwargs)
        if thread.root in TAKE_VALUES:
            args, kwargs = as_without_us(func, args, kwargs)
        known, found = _KNOWN.op_call(func, args, kwargs, self.in_optimizer)
        number = next_sequence() - 1
        in_forward = known.known is not None and node is None and number != thread.wrapped
        edges = edges_of(found) if in_forward else []
        consists = (known.name in CONSISTING or thread.inside) and known.name not in COPIES
        if thread.call is not None and consists and has_nested(found):
            return self._run_nested(thread.call, func, args, kwargs, found)
        result = func(*args, **kwargs)
        if (type(result) is not torch.Tensor or not known.plain) and self._is_bookkeeping(node, args, kwargs, result):
            return result
        if known.name in COPIES and has_nested((found[0], result)):
            count = OpCount(known.name, known.name, copied(found[0], result), "")
        else:
            count = known.count(result, self.in_optimizer)
        zeros = thread.call.zeros if thread.call is not None else None
        if zeros is None or not zeros.has(func, args, result, count):
            self._collect_or_add(count, node)
        if in_forward and known.known is not None:
            # Autograd made the node just before it dispatched the op to this mode, so the node has the latest number.
            self._backward.wait(number, known.name, known.known, edges, result)
        return result

    def _run_nested(self, call: ApiCall, func: Any, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
        """Run an op of nested tensors, and collect the ops inside it, or the op itself if it works row by row."""
        name, before = op_name(func._schema.name), len(call.inner)
        if name in BY_ROWS:
            arguments = ordered(func._schema, args, kwargs)
            with unseen():
                rows = with_rows(arguments.descriptions, arguments.values)
            result = func(*args, **kwargs)
            call.inner.append(count_op(name, rows, None, False))
            return result
        self.thread.inside += 1
        try:
            with DispatchedOps(self):
                result = run_kernel(func, args, kwargs, found)
        finally:
            self.thread.inside -= 1
        if len(call.inner) == before:
            call.inner.append(OpCount(name, "", None, SHAPELESS))
        return result

    def _fakeness(self, node: Any, args: Any, kwargs: Any) -> Any:
        """Whether the program runs a call on fake tensors, or else the call's arguments, which show it.

        The outermost call decides, or the backward pass that it is part of.
        """
        if self.thread.fake is not None:
            return self.thread.fake
        return made_fake(args, kwargs) if node is None else self._backward.passes.current().fake

    def _is_bookkeeping(self, node: Any, args: Any, kwargs: Any, result: Any) -> bool:
        """Whether an op is on fake tensors although the program's call or backward pass is not."""
        if not has_fake((args, kwargs, result)):
            return False
        fake = self._fakeness(node, None, None)
        return not (fake if isinstance(fake, bool) else has_fake(fake) or self.thread.fake is None)

    def _run_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that takes functions. ``cond``, ``while_loop`` and ``scan`` call them in sight of our modes,
        so the branch and the trips that run count by their calls. Others may have a model, or are unknown."""
        node, name, before = current_node(), str(func), self._calls_seen()
        arguments = flex_attention_arguments(name, args)
        result = func(*args, **kwargs)
        if arguments is not None:
            count = count_op(name, arguments, None, self.in_optimizer)
        elif self._calls_seen() == before:
            count = OpCount(name, "", None, "a higher-order operator")
        else:
            return result
        if self.thread.call is not None or node is None or not self._backward.counts_whole(node, func, args):
            self._collect_or_add(count, node)
        return result

    def _calls_seen(self) -> int:
        return self.sums.calls + (len(self.thread.call.inner) if self.thread.call is not None else 0)

    def _collect_or_add(self, count: OpCount, node: Any) -> None:
        """Add the op's work. Within an API call, only collect the op; the call decides later what counts."""
        if self.thread.call is not None:
            self.thread.call.inner.append(count)
        elif node is None:
            self._add_op(self.thread.root or count.op, FORWARD, count)
        elif is_accumulation(node):
            self._add_op("AccumulateGrad", ACCUMULATE, count)
        else:
            self._add_op(self._backward.name_of(node), BACKWARD, count)

    def _follow_range(self, func: Any, args: Any) -> None:
        if "enter" in func._schema.name:
            self.thread.profiler_ranges.append(str(args[0]))
        elif self.thread.profiler_ranges:
            self.thread.profiler_ranges.pop()

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer's step is running; torch opens a range around it."""
        ranges = self.thread.profiler_ranges
        return bool(ranges) and any(name.startswith("Optimizer.step") for name in ranges)
