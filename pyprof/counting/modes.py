"""The two torch modes behind ``pyprof.count``: who was called, what was dispatched, whose backward is running."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.capture.patch import Patches
from pyprof.counting.arguments import (
    PYTHON_API,
    UNSEEN,
    as_autocast,
    in_order,
    of_jagged,
    of_operator,
    outputs_of,
    python_arguments,
    resolved,
    tensors,
    wants_gradient,
)
from pyprof.counting.gradient_sums import GradientSums
from pyprof.errors import ModelError
from pyprof.prof.ops.model import FAMILY, MATRIX, MODELS, Tensor, Work, evaluate, find, total

__all__ = ["ACCUMULATE", "BACKWARD", "FORWARD", "Counter"]

FORWARD, BACKWARD, ACCUMULATE = "forward", "backward", "accumulate"

# Whether these copy is for the dispatcher to say: no model of the call can know
AS_DISPATCHED = frozenset({
    "to", "contiguous", "type_as", "cpu", "cuda", "float", "half", "double", "bfloat16", "long", "int", "bool", "type",
    "reshape", "flatten", "ravel", "_to_copy", "detach", "requires_grad_",
})  # fmt: skip
# What these run counts, under its own names
TRANSPARENT = frozenset({torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad})
# A number for the program's own Python: no part of the algorithm
HOST = frozenset({"item", "_local_scalar_dense", "tolist"})
LOW = frozenset({"float16", "bfloat16"})  # what autocast casts to, and back
ATTRIBUTES = frozenset({"__get__", "__set__"})

_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr
_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled


class Book(Protocol):
    """Where the counts go."""

    def add(self, op: str, model: str, direction: str, work: Work) -> None: ...

    def miss(self, op: str, reason: str) -> None: ...


@dataclass
class Call:
    """A call with a model in progress, and after it the owner of the autograd nodes that it created."""

    op: str  # the outermost API call's name
    model: str = ""  # what counts it; empty: what it dispatches
    args: tuple[Any, ...] = ()
    out: tuple[Tensor | None, ...] | None = None
    autocast: bool = False
    inner: list[tuple[str, str, Work | None, str]] = field(default_factory=list)  # (op, model, work, reason)
    passes: set[int] = field(default_factory=set)  # the backward passes that have counted it


class Counter:
    """Enter it to count; may be entered again, to count more into the same book."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.root = ""  # name of the outermost API call in progress
        self.stack: list[Any] = []  # functions written in Python in progress
        self.call: Call | None = None  # the call in progress that a model counts
        self.owners: dict[int, Call] = {}  # sequence number of an autograd node -> the call that made it
        self.nodes: dict[int, Call] = {}  # the same -> the dispatched op, where its whole backward has a model
        self.wrapped = -1  # the last node of an op on tensors that wrap others, and no node of the ops on those
        self.sums = GradientSums()
        self.modes: list[tuple[TorchFunctionMode, TorchDispatchMode]] = []
        self.patches = Patches()
        self.stances: list[Any] = []  # what keeps compiled code uncompiled
        self.marks: list[str] = []  # torch's own record_function marks in progress

    def __enter__(self) -> Counter:
        self.modes.append((_Functions(self), _Dispatched(self)))
        for owner, name in UNSEEN:
            self.patches.set(owner, name, self._seen(getattr(owner, name)))
        self.patches.set(torch, "compile", self._uncompiled(torch.compile))
        if "torch._dynamo" in sys.modules:
            self._force_eager()
        for mode in self.modes[-1]:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes.pop()):
            mode.__exit__(*error)
        self.patches.undo()
        while self.stances:
            self.stances.pop().__exit__(*error)

    def close(self) -> None:
        """Leave what was counted as it was: for when nothing more is counted."""
        self.sums.close()

    def _force_eager(self) -> None:
        """Run compiled code uncompiled: under a dispatch mode PyTorch does so, but raises for a ``fullgraph``."""
        if not self.stances and hasattr(torch.compiler, "set_stance"):  # 2.6
            self.stances.append(torch.compiler.set_stance("force_eager"))

    def _uncompiled(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.compile``, which loads the compiler when first called: asked for before, it would take seconds."""

        @functools.wraps(compile_)
        def call(*args: Any, **kwargs: Any) -> Any:
            compiled = compile_(*args, **kwargs)
            self._force_eager()
            return compiled

        return call

    def _seen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that reports its calls as the modes do."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.call is not None or not torch._C._len_torch_function_stack():
                return function(*args, **kwargs)
            kept = tuple(list(a) if isinstance(a, Iterator) else a for a in args)  # describing would use them up
            return self.api(function, kept, {k: list(a) if isinstance(a, Iterator) else a for k, a in kwargs.items()})

        return call

    # API calls

    def api(self, func: Any, args: Any, kwargs: Any, own: bool = False) -> Any:
        """Run an API call: counted as a whole if it has a model, else by what it calls.

        ``own``: a subclass of Tensor has a way of its own to run it; it counts by what that dispatches.
        """
        outermost = not self.root
        if outermost:
            self.root = _name(func)
        first = _sequence()
        parts = _vectorized() or _wrapping((args, kwargs))
        if own:
            model, arguments = of_jagged(func, args, kwargs)
        else:
            model, arguments = ("", ()) if parts else _as_model(func, args, kwargs)
        call = Call(self.root, model, arguments, None, _autocast())
        try:
            if not model and not own and _repeatable(func, self.stack):
                result = self.through(func, args, kwargs)
            else:
                result = self._whole(call, func, args, kwargs)
        finally:
            if outermost:
                self.root = ""
        if torch._C._current_autograd_node() is None:
            for number in range(first, _sequence()):
                self.owners.setdefault(number, call)
            self._watch(call, result)
        return result

    def through(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function written in Python so that the modes see what it calls, but not the function again."""
        self.stack.append(func)
        try:
            with self.modes[-1][0]:
                return _unchecked(func)(*args, **kwargs)
        finally:
            self.stack.pop()

    def _watch(self, call: Call, result: Any) -> None:
        """Be told when the call's own backward is done, also where it dispatches nothing."""
        if f"{call.model}.backward" in MODELS:
            nodes = [tensor.grad_fn for tensor in tensors(result) if tensor.grad_fn is not None]
            for node in nodes:
                if self.owners.get(node._sequence_nr()) is call:
                    self.sums.watch(node, id(call), lambda other: self.owners.get(other) is call)

    def _whole(self, call: Call, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a call with the function mode off, and count it."""
        direction = FORWARD if torch._C._current_autograd_node() is None else BACKWARD
        self.call = call
        result, complete = None, False
        try:
            result = func(*args, **kwargs)
            complete = True
        finally:
            self.call = None
            if not complete:
                call.model = ""  # what ran before the error: a checkpoint stops its recomputation by one
            self._finish(call, result, direction)
        return result

    def _finish(self, call: Call, result: Any, direction: str) -> None:
        """Book the call's own work, or else what it dispatched (autocast's casts in any case)."""
        call.out = outputs_of(result) if call.model else None
        work = _work_of(call, self.steps) if call.model else None
        if work is None:
            call.model = ""
        else:
            self.book.add(call.op, call.model, direction, work)
        for op, model, part, reason in call.inner:
            if work is None:
                self._note(call.op, op, model, direction, part, reason)
            elif call.autocast and model == "_to_copy":
                self._note(op, op, model, direction, part, reason)
        call.inner.clear()  # the call is kept for its backward

    def _note(self, owner: str, op: str, model: str, direction: str, work: Work | None, reason: str) -> None:
        """Book an op that was dispatched."""
        if work is None:
            self.book.miss(op, reason)
        else:
            self.book.add(owner, model, direction, work)

    # dispatched ops

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op; count it, unless a whole counts it."""
        if not isinstance(func, torch._ops.OpOverload):
            return self._higher_order(func, args, kwargs)
        if func.namespace == "profiler":  # marks of torch's own, as optimizers make them
            self._mark(func, args)
            return func(*args, **kwargs)
        node = torch._C._current_autograd_node()
        if self.call is None and node is not None and self._whole_backward(node, func, args):
            return func(*args, **kwargs)
        arguments = in_order(func._schema, args, kwargs)
        number = _sequence() - 1
        result = func(*args, **kwargs)
        name = _plain(func._schema.name)
        out = outputs_of(result)
        model, work, reason = _count(name, arguments, out, self.steps)
        if self.call is not None:
            self.call.inner.append((name, model, work, reason))
        else:
            owner, direction = self._owner(name, node)
            self._note(owner, name, model, direction, work, reason)
        if node is None and number != self.wrapped and f"{model}.backward" in MODELS and wants_gradient(arguments):
            # the node was made above this mode, just before: it has the last number given out
            self.nodes[number] = Call(name, model, arguments, out)
        return result

    def _higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that takes functions: nothing is known of what runs inside, but it may have a model."""
        node, name = torch._C._current_autograd_node(), str(func)
        arguments = of_operator(name, args)
        if arguments is None:
            model, work, reason = "", None, "a higher-order operator"
        else:
            model, work, reason = _count(name, arguments, None, self.steps)
        if self.call is not None:
            self.call.inner.append((name, model, work, reason))
        elif node is None or not self._whole_backward(node, func, args):
            owner, direction = self._owner(name, node)
            self._note(owner, name, model, direction, work, reason)
        return func(*args, **kwargs)

    def _mark(self, func: Any, args: Any) -> None:
        """Follow whether an optimizer's step is running: torch marks it."""
        if "enter" in func._schema.name:
            self.marks.append(str(args[0]))
        elif self.marks:
            self.marks.pop()

    @property
    def steps(self) -> bool:
        return any(mark.startswith("Optimizer.step") for mark in self.marks)

    def _owner(self, name: str, node: Any) -> tuple[str, str]:
        """(the API call that an op belongs to, its direction)"""
        if node is None:
            return self.root or name, FORWARD
        if node.name() == "torch::autograd::AccumulateGrad":
            return "AccumulateGrad", ACCUMULATE
        call = self.owners.get(node._sequence_nr())
        return (call.op if call else node.name()), BACKWARD

    def _whole_backward(self, node: Any, func: Any, args: Any) -> bool:
        """Is the node's work counted by a model of its op's whole backward? Counts it, when first met in a pass."""
        if _batched():
            return False
        number = node._sequence_nr()
        owner = self.owners.get(number)
        call = owner if owner is not None and owner.model else self.nodes.get(number)
        if call is None or f"{call.model}.backward" not in MODELS:
            return False
        if call.autocast and str(func) == "aten._to_copy.default":
            return False
        counts = self.sums.after(node, args)
        if counts is not None:
            return not counts
        self.sums.watch(node, id(call), lambda other: owner is not None and self.owners.get(other) is owner)
        task = torch._C._current_graph_task_id()
        if task not in call.passes:
            try:
                work = total(evaluate(f"{call.model}.backward", call.args, call.out))
            except ModelError:
                call.model = ""
                return False
            call.passes.add(task)
            self.book.add((owner or call).op, f"{call.model}.backward", BACKWARD, work)
        return True


class _Functions(TorchFunctionMode):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        counter = self.counter
        # an op of the dispatcher's, called as such (by subclasses of Tensor), is for the other mode
        dispatched = isinstance(func, torch._ops.OpOverload)
        if counter.call is not None or dispatched or getattr(func, "__name__", "") in ATTRIBUTES:
            return func(*args, **kwargs)
        own = _overridden(types)
        if func in TRANSPARENT:
            seen = not own and _repeatable(func, counter.stack)
            return counter.through(func, args, kwargs) if seen else func(*args, **kwargs)
        return counter.api(func, args, kwargs, own)


def _overridden(kinds: Any) -> bool:
    """Is there a subclass whose own __torch_function__ has to see the call?"""
    plain = torch._C._disabled_torch_function_impl
    return any(kind is not torch.Tensor and getattr(kind, "__torch_function__", plain) is not plain for kind in kinds)


class _Dispatched(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(_wraps(kind) for kind in types):
            self.counter.wrapped = _sequence() - 1
            return NotImplemented  # the subclass runs it, and what it calls comes here again
        return self.counter.dispatched(func, args, kwargs or {})


@functools.cache
def _wraps(kind: type) -> bool:
    """Does a subclass run ops on tensors that it wraps (nested, distributed)? Fake tensors are what they seem."""
    plain = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
    fake = ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")
    return kind.__module__ not in fake and getattr(kind, "__torch_dispatch__", plain) is not plain


def _wrapping(arguments: Any) -> bool:
    """Is there a tensor of such a subclass among the arguments?"""
    kinds: set[type] = {type(tensor) for tensor in tensors(arguments)}
    return any(map(_wraps, kinds))


def _vectorized() -> bool:
    """Is a vmap in progress? What the API is called with then lacks the dimension that is mapped over."""
    stack = torch._C._functorch.get_interpreter_stack()
    return stack is not None and any(level.key() == torch._C._functorch.TransformType.Vmap for level in stack)


def _batched() -> bool:
    """Are several gradients computed at once? ``autograd.grad(is_grads_batched=True)`` has a vmap of its own."""
    inside = int(torch._C._vmapmode_increment_nesting())  # there is no question that only asks
    torch._C._vmapmode_decrement_nesting()
    return inside > 1 or _vectorized()


def _plain(op: str) -> str:
    """``mm`` of ``aten::mm``; of what runs below aten, the op that means the same, if there is one.

    >>> _plain("aten::mm"), _plain("prims::mul"), _plain("prim::device"), _plain("mylib::mm")
    ('mm', 'mul', 'device', 'mylib::mm')
    """
    library, _, name = op.rpartition("::")
    return name if library == "aten" or (library in ("prim", "prims") and find(name)) else op


def _name(func: Any) -> str:
    """What was called: ``add`` for ``+`` (``__add__``), ``rsub`` for ``__rsub__``."""
    name = getattr(func, "__name__", str(func))
    return name.strip("_") if name.startswith("__") and name.endswith("__") else name


def _as_model(func: Any, args: Any, kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    """The model that counts an API call and its arguments, or ("", ()) where what it calls does."""
    if isinstance(func, types.FunctionType):
        model, arguments = python_arguments(func, args, kwargs)
        return (model, arguments) if model in MODELS else ("", ())
    name = _name(func)
    found = find(name)
    if found is None or name in AS_DISPATCHED or FAMILY[found] == "view":
        return "", ()
    fitting = resolved(name, args, kwargs)
    return (found, fitting) if fitting is not None else ("", ())


def _repeatable(func: Any, stack: list[Any]) -> bool:
    """Can a function be run with the mode on? Of torch's own, unless it is met again and again in itself."""
    if not isinstance(func, types.FunctionType) or f"{func.__module__}.{func.__name__}" in PYTHON_API:
        return False
    return func.__module__.startswith("torch.") and stack.count(func) < 2


def _no(*_: Any) -> bool:
    return False


@functools.cache
def _unchecked(func: types.FunctionType) -> types.FunctionType:
    """The same function without its question whether somebody overrides it (it would be us, again and again).

    torch's functions written in Python begin with ``if has_torch_function(...): return
    handle_torch_function(...)``. The copy looks these names up in a copy of the module's globals, made at the
    first call.
    """
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = func.__globals__ | dict.fromkeys(checks, _no)
    cells = tuple(types.CellType(_unchecked_cell(func, cell.cell_contents)) for cell in func.__closure__ or ())
    copy = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, cells or None)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _unchecked_cell(func: Any, value: Any) -> Any:
    """The same for a function that another one chooses (boolean_dispatch, behind max_pool2d), but not for itself."""
    if not isinstance(value, types.FunctionType) or value is func or not value.__module__.startswith("torch."):
        return value
    return _unchecked(value)


def _work_of(call: Call, stepping: bool) -> Work | None:
    if call.autocast and call.out and call.out[0] is not None:
        dtype = call.out[0].dtype
        if dtype in LOW and FAMILY[call.model] in MATRIX:
            call.args = as_autocast(call.args, frozenset({"float32"}), dtype)
        elif dtype == "float32" and any(model == "_to_copy" for _, model, _, _ in call.inner):
            call.args = as_autocast(call.args, LOW, dtype)  # a loss, a norm
    return _count(call.model, call.args, call.out, stepping)[1]


def _count(name: str, arguments: tuple[Any, ...], out: Any, stepping: bool) -> tuple[str, Work | None, str]:
    """(model, work, reason): work is None where there is no model, or not enough is known.

    What an optimizer does with numbers (step counters, bias corrections) is bookkeeping, on the host by
    default.
    """
    model = find(name)
    if model is None:
        return "", None, "no model"
    if name in HOST or ((stepping or name.startswith("_foreach_")) and _only_scalars(arguments)):
        return model, Work(), ""
    try:
        return model, total(evaluate(model, arguments, out)), ""
    except ModelError as error:
        return model, None, str(error)


def _only_scalars(arguments: Any) -> bool:
    """Are all tensors 0-dimensional?"""
    return all(
        not a.shape if isinstance(a, Tensor) else _only_scalars(a) for a in arguments if isinstance(a, (Tensor, tuple))
    )
