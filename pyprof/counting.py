"""FLOPs and bytes of a piece of PyTorch code, without a profiler: ``pyprof.count``.

    work = pyprof.count(net, x, backward=True)    # a call, and the gradients of everything that it used
    work.forward.flop, work.backward.flop, work.bytes, work.ops["linear"]

    with pyprof.count() as work:                  # or any code: a training step with its optimizer
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
    print(work)                                   # a table by op; ops that nobody has modelled are named

Works on CPU, CUDA, meta and fake tensors; the numbers are those of the algorithm, and do not depend on the
device.

How it counts. Forward, the outermost call with a model counts, and what it calls inside does not: ``matmul``
counts as matmul, without the copies that one backend makes to broadcast, and attention is the same on a CPU
(which runs other ops) as on a GPU. Two modes of torch see the calls:

* a ``TorchFunctionMode`` sees the API: functions written in C under the name of their aten op, and those
  written in Python that are listed in ``PYTHON_API``. Where one has a model, and the model can count the
  call, that is the count;
* a ``TorchDispatchMode`` sees everything that is dispatched below: what counts in all other cases, in
  particular the views, copies and casts that ``reshape``, ``contiguous`` or ``to`` may or may not make, and
  autocast's casts.

Backward, each autograd node belongs to the call that created it (by sequence number). If the call's op has a
model of its whole backward (``"matmul.backward"``), that counts, once; otherwise what the node dispatches.
What ``AccumulateGrad`` does (adding to gradients that exist, copying those that cannot be taken over) is in
direction "accumulate": in the total, in neither ``forward`` nor ``backward``. Forward calls repeated inside a
backward (checkpoints) are backward work.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pyprof.prof.ops  # noqa: F401  (fills the registry)
from pyprof.errors import ModelError
from pyprof.patch import Patches
from pyprof.prof.model import FAMILY, MATRIX, MODELS, Tensor, Work, evaluate, find, total

__all__ = ["Counts", "OpWork", "Row", "count"]

FORWARD, BACKWARD, ACCUMULATE = "forward", "backward", "accumulate"

REDUCTION = {"none": 0, "mean": 1, "sum": 2}  # at::Reduction

# API functions written in Python whose algorithm has a model -> the model, and its arguments from the function's own
PYTHON_API: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[Any, ...]]]] = {
    "torch.functional.einsum": ("einsum", lambda a: (a["args"][0], _operands(a["args"][1:]))),
    "torch.functional.tensordot": ("tensordot", lambda a: (a["a"], a["b"], *_summed(a["a"], a["dims"]))),
    "torch.functional.cdist": ("cdist", lambda a: (a["x1"], a["x2"], a["p"])),
    "torch.functional.chain_matmul": ("chain_matmul", lambda a: (a["matrices"],)),
    "torch.nn.functional.multi_head_attention_forward": (
        "multi_head_attention_forward",
        lambda a: tuple(a.values()),
    ),
    "torch.nn.functional.kl_div": (
        "kl_div",
        lambda a: (a["input"], a["target"], REDUCTION.get(a["reduction"], 1), a["log_target"]),
    ),
    "torch.nn.functional.dropout": ("native_dropout", lambda a: (a["input"], a["p"], a["training"])),
    "torch.nn.functional.instance_norm": (
        "instance_norm",
        lambda a: (a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"], a["use_input_stats"]),
    ),
    "torch.nn.utils.clip_grad.clip_grad_norm_": (
        "clip_grad_norm_",
        lambda a: (_gradients(a["parameters"]), a["max_norm"], a["norm_type"]),
    ),
}
# operators written in Python that only prepare the arguments of one aten op
PYTHON_OPERATORS = frozenset({"pow", "rsub"})
# Python functions that no mode sees: wrapped while counting, where they are looked up as attributes
UNSEEN = ((torch.nn.utils, "clip_grad_norm_"), (torch.nn.utils.clip_grad, "clip_grad_norm_"))

# Whether these copy is for the dispatcher to say: their models cannot know
AS_DISPATCHED = frozenset({
    "to", "contiguous", "type_as", "cpu", "cuda", "float", "half", "double", "bfloat16", "long", "int", "bool", "type",
    "reshape", "flatten", "ravel", "_to_copy", "detach", "requires_grad_", "backward",
})  # fmt: skip
SPELLING = {"input": "self", "axis": "dim", "keepdims": "keepdim"}  # NumPy's and torch's words for one thing
BIG = 1 << 14  # cumulative lengths longer than this are not read


class OpWork(NamedTuple):
    """One op's share: the number of calls forward, and the work of each direction."""

    calls: int
    forward: Work
    backward: Work


class Row(NamedTuple):
    """What one op did in one direction. ``op``: what was called; ``model``: what it was counted as."""

    op: str
    model: str
    direction: str
    calls: int
    flops: int
    bytes: float


@dataclass
class Counts:
    """The counts of a block or call. Sums hold what could be counted; ``uncounted`` names what could not."""

    result: Any = None  # what the counted function returned
    uncounted: dict[str, int] = field(default_factory=dict)  # aten op -> calls: no model, or not enough known
    reasons: dict[str, str] = field(default_factory=dict)  # aten op -> why
    _rows: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict)  # -> [calls, work]

    def _add(self, op: str, model: str, direction: str, work: Work) -> None:
        row = self._rows.setdefault((op, model, direction), [0, Work()])
        row[0] += 1
        row[1] += work

    def _sum(self, *directions: str) -> Work:
        rows = (work for (_, _, direction), (_, work) in self._rows.items() if direction in directions)
        return sum(rows, Work())

    @property
    def forward(self) -> Work:
        """The forward pass, and everything outside of a backward pass (optimizers)."""
        return self._sum(FORWARD)

    @property
    def backward(self) -> Work:
        """The backward pass, without the accumulation into ``.grad``."""
        return self._sum(BACKWARD)

    @property
    def accumulate(self) -> Work:
        """What adds or copies gradients into ``.grad``."""
        return self._sum(ACCUMULATE)

    @property
    def counted(self) -> Work:
        """All that could be counted."""
        return self._sum(FORWARD, BACKWARD, ACCUMULATE)

    @property
    def flops(self) -> int:
        """Floating-point operations, one multiply-add = 2; a lower bound while ``uncounted`` is not empty."""
        return self.counted.flop

    @property
    def bytes(self) -> float:
        """Bytes read and written; NaN while ``uncounted`` is not empty (``counted.nbytes`` has the others' sum)."""
        return math.nan if self.uncounted else self.counted.nbytes

    @property
    def unknown(self) -> dict[str, int]:
        """The same as ``uncounted``."""
        return self.uncounted

    @property
    def ops(self) -> dict[str, OpWork]:
        """By what was called (``linear``, ``softmax``, ``add``), in the order of first calls."""
        ops: dict[str, OpWork] = {}
        for (op, _, direction), (calls, work) in self._rows.items():
            was = ops.get(op, OpWork(0, Work(), Work()))
            if direction == FORWARD:
                ops[op] = OpWork(was.calls + calls, was.forward + work, was.backward)
            elif direction == BACKWARD:
                ops[op] = OpWork(was.calls, was.forward, was.backward + work)
        return ops

    @property
    def rows(self) -> list[Row]:
        """One row an op, model and direction, most FLOPs first."""
        rows = [Row(*key, calls, work.flop, work.nbytes) for key, (calls, work) in self._rows.items()]
        return sorted(rows, key=lambda row: (-row.flops, -row.bytes, row))

    def table(self) -> Any:
        """``rows`` as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=Row._fields)

    def __str__(self) -> str:
        lines = [f"{'op':<32} {'direction':<10} {'calls':>7} {'FLOPs':>20} {'bytes':>18}"]
        lines += [
            f"{r.op:<32} {r.direction:<10} {r.calls:>7,} {r.flops:>20,} {r.bytes:>18,.0f}"
            for r in self.rows
            if r.flops or r.bytes
        ]
        whole = self.counted
        lines.append(f"{'total':<32} {'':<10} {'':>7} {whole.flop:>20,} {whole.nbytes:>18,.0f}")
        lines += [
            f"not counted: {op}, {calls} calls: {self.reasons.get(op, '')}" for op, calls in self.uncounted.items()
        ]
        return "\n".join(lines)


def count(function: Callable[..., Any] | None = None, /, *args: Any, backward: bool = False, **kwargs: Any) -> Any:
    """Count a call, or, without a function, the block of a ``with`` statement.

    ``backward=True`` also counts the gradients of the call's results (for a gradient of ones in each, whose
    making is not counted) with respect to all leaves that they depend on. Their ``.grad`` is left alone, so
    the work of accumulating into it is not counted here. ``Counts.result`` has what the function returned.
    """
    counter = _Counter()
    if function is None:
        return counter
    with counter as counts:
        counts.result = function(*args, **kwargs)
    if backward:
        _differentiate(counter)
    return counts


def _differentiate(counter: _Counter) -> None:
    outputs = [t for t in _tensors(counter.counts.result) if t.requires_grad]
    leaves = _leaves(outputs)
    if not outputs or not leaves:
        return
    seeds = [torch.ones_like(t, memory_format=torch.contiguous_format) for t in outputs]
    with counter:
        torch.autograd.grad(outputs, leaves, seeds, allow_unused=True, retain_graph=True)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples, dictionaries and dataclass-like results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _leaves(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves of the outputs' graph."""
    leaves: dict[int, torch.Tensor] = {id(t): t for t in outputs if t.is_leaf}
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        if (variable := getattr(node, "variable", None)) is not None:
            leaves[id(variable)] = variable
        following = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= following
        todo += following
    return list(leaves.values())


@dataclass
class _Call:
    """An API call in progress, and after it the owner of the autograd nodes that it created."""

    op: str
    model: str = ""  # what counts it; empty: what it dispatches
    args: tuple[Any, ...] = ()
    autocast: bool = False
    inner: list[tuple[str, str, Work | None, str]] = field(default_factory=list)  # (op, model, work, reason)
    passes: set[int] = field(default_factory=set)  # backward passes that have counted it


class _Counter:
    """The two modes, and what they share."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.call: _Call | None = None
        self.owners: dict[int, _Call] = {}  # sequence number of an autograd node -> the API call
        self.nodes: dict[int, _Call] = {}  # the same -> the dispatched op, where it has a model of its backward
        self.modes: list[tuple[_Functions, _Dispatched]] = []
        self.patches = Patches()

    def __enter__(self) -> Counts:
        modes = (_Functions(self), _Dispatched(self))
        self.modes.append(modes)
        for owner, name in UNSEEN:
            self.patches.set(owner, name, self._seen(getattr(owner, name)))
        for mode in modes:
            mode.__enter__()
        return self.counts

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes.pop()):
            mode.__exit__(*error)
        self.patches.undo()

    def _seen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that reports its calls as the modes do."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            busy = self.call is not None or not torch._C._len_torch_function_stack()
            return function(*args, **kwargs) if busy else self.api(function, args, kwargs)

        return call

    # forward

    def api(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an API call, count it as a whole, or else by what it dispatched."""
        name = _name(func)
        model, arguments = _as_model(func, name, args, kwargs)
        call = self.call = _Call(name, model, arguments, torch.is_autocast_enabled())
        first = _sequence()
        try:
            result = func(*args, **kwargs)
        finally:
            self.call = None
        inside = torch._C._current_autograd_node() is not None
        self._finish(call, result, BACKWARD if inside else FORWARD)
        if not inside:
            for number in range(first, _sequence()):
                self.owners[number] = call
        return result

    def _finish(self, call: _Call, result: Any, direction: str) -> None:
        work = self._evaluate(call, result) if call.model else None
        if work is None:
            call.model = ""
        else:
            self.counts._add(call.op, call.model, direction, work)
        for op, model, part, reason in call.inner:
            if work is None or (call.autocast and model == "_to_copy"):
                self._note(call.op if work is None else op, op, model, direction, part, reason)

    def _evaluate(self, call: _Call, result: Any) -> Work | None:
        out = _outputs(result)
        if call.autocast and FAMILY[call.model] in MATRIX and out and out[0] is not None:
            call.args = _cast(call.args, out[0].dtype)
        try:
            return total(evaluate(call.model, call.args, out))
        except ModelError:
            return None

    def _note(self, owner: str, op: str, model: str, direction: str, work: Work | None, reason: str) -> None:
        """Book an op that was dispatched."""
        if work is not None:
            self.counts._add(owner, model, direction, work)
        else:
            self.counts.uncounted[op] = self.counts.uncounted.get(op, 0) + 1
            self.counts.reasons[op] = reason

    # dispatched ops

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator: count what it is made of
            return func(*args, **kwargs)
        node = torch._C._current_autograd_node()
        if self.call is None and node is not None and self._whole_backward(node, func):
            return func(*args, **kwargs)
        arguments = _in_order(func._schema, args, kwargs)
        first = _sequence()
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        model, work, reason = _count(name, arguments, result)
        if self.call is not None:
            self.call.inner.append((name, model, work, reason))
        else:
            owner, direction = self._owner(name, node)
            self._note(owner, name, model, direction, work, reason)
        differentiable = f"{model}.backward" in MODELS and any(t.needs_grad for t in _described(arguments))
        if node is None and differentiable:
            # the node was made above this mode, just before: it has the last number given out
            self.nodes[first - 1] = _Call(name, model, arguments)
        return result

    def _owner(self, name: str, node: Any) -> tuple[str, str]:
        """(the API call that an op belongs to, its direction)"""
        if node is None:
            return name, FORWARD
        if node.name() == "torch::autograd::AccumulateGrad":
            return "AccumulateGrad", ACCUMULATE
        call = self.owners.get(node._sequence_nr())
        return (call.op if call else node.name()), BACKWARD

    def _whole_backward(self, node: Any, func: Any) -> bool:
        """Is the node's work counted by a model of its op's whole backward? Counts it, when first met in a pass."""
        number = node._sequence_nr()
        owner = self.owners.get(number)
        call = owner if owner is not None and owner.model else self.nodes.get(number)
        if call is None or f"{call.model}.backward" not in MODELS:
            return False
        if call.autocast and func._schema.name == "aten::_to_copy":
            return False
        task = torch._C._current_graph_task_id()
        if task not in call.passes:
            call.passes.add(task)
            try:
                work = total(evaluate(f"{call.model}.backward", call.args))
            except ModelError:
                call.model = ""
                return False
            self.counts._add((owner or call).op, f"{call.model}.backward", BACKWARD, work)
        return True


class _Functions(TorchFunctionMode):
    def __init__(self, counter: _Counter) -> None:
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.backward:  # calls made inside of it (checkpoints) are API calls too
            with self:
                return torch.autograd.backward(*_backward_arguments(*args, **kwargs))
        if self.counter.call is not None or func in _TRANSPARENT or getattr(func, "__name__", "") in _ATTRIBUTES:
            return func(*args, **kwargs)
        return self.counter.api(func, args, kwargs)


_TRANSPARENT = frozenset({torch.autograd.grad, torch.autograd.backward})  # what they run counts, not they
_ATTRIBUTES = frozenset({"__get__", "__set__"})


def _backward_arguments(
    tensor: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
) -> tuple[Any, ...]:
    """Tensor.backward's arguments as torch.autograd.backward takes them."""
    return tensor, gradient, retain_graph, create_graph, None, inputs


class _Dispatched(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.counter.dispatched(func, args, kwargs or {})


_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr


def _name(func: Any) -> str:
    """What was called: ``add`` for ``+`` (``__add__``), ``rsub`` for ``__rsub__``."""
    name = getattr(func, "__name__", str(func))
    return name.strip("_") if name.startswith("__") and name.endswith("__") else name


def _as_model(func: Any, name: str, args: Any, kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    """The model that counts an API call and its arguments, or ("", ()) where what it dispatches does."""
    if inspect.isfunction(func) and not (func.__module__ == "torch._tensor" and name in PYTHON_OPERATORS):
        model, arguments = PYTHON_API.get(f"{func.__module__}.{func.__name__}", ("", None))
        if arguments is None or model not in MODELS:
            return "", ()
        bound = inspect.signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        return model, _describe(arguments(bound.arguments))
    found = find(name)
    if found is None or name in AS_DISPATCHED or FAMILY[found] == "view":
        return "", ()
    resolved = _resolved(name, args, kwargs)
    return (found, resolved) if resolved is not None else ("", ())


def _operands(args: Any) -> tuple[Any, ...]:
    """einsum's operands, given one by one or as a list."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else tuple(args)


def _summed(a: torch.Tensor, dims: Any) -> tuple[list[int], list[int]]:
    """tensordot's dimensions: the last n of a with the first n of b, or two lists."""
    if isinstance(dims, int):
        return list(range(a.dim() - dims, a.dim())), list(range(dims))
    first, second = (d.tolist() if isinstance(d, torch.Tensor) else d for d in dims)
    return list(first), list(second)


def _gradients(parameters: Any) -> tuple[torch.Tensor, ...]:
    """The gradients that clipping works on."""
    several = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return tuple(p.grad for p in several if p.grad is not None)


def _resolved(name: str, args: Any, kwargs: Any) -> tuple[Any, ...] | None:
    """The arguments in the order of the aten schema that they fit; None where none does."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    kwargs = {SPELLING.get(key, key): value for key, value in kwargs.items()}
    try:
        with torch._C.DisableTorchFunction():
            overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except RuntimeError:
        return None
    return _in_order(getattr(packet, overload or "default")._schema, args, kwargs)


def _in_order(schema: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Arguments in schema order, defaults filled in; ``out`` arguments come last in every schema and are left out."""
    values, lengths = [], []
    for i, argument in enumerate(schema.arguments):
        if argument.is_out:
            continue
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        values.append(value)
        if argument.name.startswith(("cum_seq", "cu_seqlens")):
            lengths.append(i)
    described = _describe(tuple(values))
    if not lengths:
        return described
    return tuple(_with_values(d, values[i]) if i in lengths else d for i, d in enumerate(described))


def _with_values(description: Any, tensor: Any) -> Any:
    """Cumulative lengths with their contents, which decide the count; fake and meta tensors have none."""
    readable = isinstance(tensor, torch.Tensor) and tensor.device.type != "meta" and tensor.numel() <= BIG
    if not readable or type(tensor) is not torch.Tensor:
        return description
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        values = tuple(int(n) for n in tensor.tolist())
    return Tensor(
        description.shape, description.dtype, description.strides, description.needs_grad, description.ident, values
    )


def _describe(values: Any) -> tuple[Any, ...]:
    """Values as models take them; a tensor that appears more than once gets a number."""
    times: dict[int, int] = {}
    for tensor in _tensors(values):
        times[id(tensor)] = times.get(id(tensor), 0) + 1
    repeated = {key: number for number, key in enumerate((k for k, n in times.items() if n > 1), 1)}
    return tuple(_value(value, repeated) for value in values)


def _value(value: Any, repeated: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value, repeated.get(id(value), 0))
    if isinstance(value, (list, tuple)):
        return tuple(_value(item, repeated) for item in value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.SymInt):
        return int(value)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return str(value)


def _tensor(tensor: torch.Tensor, ident: int = 0) -> Tensor:
    with torch._C.DisableTorchFunction():
        strides = tuple(int(n) for n in tensor.stride()) if tensor.layout == torch.strided else None
        shape, dtype = tuple(int(n) for n in tensor.shape), str(tensor.dtype).removeprefix("torch.")
        return Tensor(shape, dtype, strides, tensor.requires_grad and torch.is_grad_enabled(), ident)


def _outputs(result: Any) -> tuple[Tensor | None, ...] | None:
    """The outputs' descriptions; None where there are none."""
    items = result if isinstance(result, (list, tuple)) else (result,)
    flat = [t for item in items for t in (item if isinstance(item, (list, tuple)) else (item,))]
    described = tuple(_tensor(t) if isinstance(t, torch.Tensor) else None for t in flat)
    return described if any(d is not None for d in described) else None


def _described(arguments: Any) -> Iterator[Tensor]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, tuple):
            yield from _described(argument)


def _cast(arguments: Any, dtype: str) -> Any:
    """Autocast's view of the arguments: float32 tensors in the type that the product ran in."""
    if isinstance(arguments, Tensor):
        return arguments.like(arguments.shape, dtype) if arguments.dtype == "float32" else arguments
    return tuple(_cast(a, dtype) for a in arguments) if isinstance(arguments, tuple) else arguments


def _count(name: str, arguments: tuple[Any, ...], result: Any) -> tuple[str, Work | None, str]:
    """(model, work, reason): work is None where there is no model, or not enough is known."""
    model = find(name)
    if model is None:
        return "", None, "no model"
    try:
        return model, total(evaluate(model, arguments, _outputs(result))), ""
    except ModelError as error:
        return model, None, str(error)
