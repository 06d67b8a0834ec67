"""A function with new inputs for each call that an edit asks for: aten ops, attention, losses, optimizers, chains.

Sizes come from a capture, which anyone may have written: inputs are made within a limit of memory (``NewInputs``), ops
are looked up and checked as for ``pyprof bench --replay`` (``recreate``), and no text of the capture is run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pyprof.prof.ops.model import Tensor
from pyprof.prof.timings.timed_call import COMPILED, TF32, TimedCall
from pyprof.replay.aten_ops import aten_arguments, aten_overload
from pyprof.replay.new_inputs import Contents, NewInputs, NotRecreated
from pyprof.replay.recorded_calls import RecordedCall
from pyprof.replay.recreate import Recreated, recreate, tensors_in

BACKENDS = {
    "cudnn": [SDPBackend.CUDNN_ATTENTION],
    "cudnn flash": [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION],
    "efficient": [SDPBackend.EFFICIENT_ATTENTION],
}
MOST_CLASSES = 1 << 24


@dataclass(frozen=True)
class Timeable:
    """A call on new inputs, what surrounds it while it runs, and the bytes of its inputs and results."""

    made: Recreated
    around: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)
    rotates: bool = True  # whether copies of its inputs can take turns


def timeable(call: TimedCall, device: torch.device, most_bytes: int) -> Timeable:
    """The call with new inputs. Raises NotRecreated, whose message is the reason."""
    if call.op in MAKERS:
        return MAKERS[call.op](call, NewInputs(device, most_bytes))
    return Timeable(recreate(recorded(call), device, most_bytes), lambda: _products(call.mode == TF32))


def recorded(call: TimedCall) -> RecordedCall:
    return RecordedCall(call.op, call.direction, call.arguments, call.markers, 1, 0, (), call.flop, False)


@contextmanager
def _products(tf32: bool) -> Iterator[None]:
    """Products and convolutions of float32 in TF32, or not."""
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in flags]
    try:
        for each in flags:
            each.allow_tf32 = tf32
        yield
    finally:
        for each, was in zip(flags, before, strict=True):
            each.allow_tf32 = was


def _tensor(described: Any, inputs: NewInputs, backward: bool, contents: Contents | None = None) -> torch.Tensor:
    if not isinstance(described, Tensor):
        raise NotRecreated("the form of an argument is not known")
    made = inputs.tensor(described, contents or Contents())
    needs = backward and described.needs_grad and (made.dtype.is_floating_point or made.dtype.is_complex)
    return made.requires_grad_() if needs else made


def _attention(call: TimedCall, inputs: NewInputs) -> Timeable:
    q, k, v, mask, dropout, causal = call.arguments
    backward = call.direction == "bprop"
    tensors = [_tensor(each, inputs, backward) for each in (q, k, v)]
    options = {"attn_mask": None if mask is None else _tensor(mask, inputs, backward)}
    inputs.take(tensors[0].numel() * tensors[0].element_size())

    def function(q: Any, k: Any, v: Any, **options: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, **options)

    def around() -> AbstractContextManager[Any]:
        return sdpa_kernel(BACKENDS[call.mode]) if call.mode in BACKENDS else nullcontext()

    made = Recreated(function, tuple(tensors), options, backward, inputs.nbytes)
    return Timeable(made, lambda: _both(around(), _products(False)))


@contextmanager
def _both(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def _cross_entropy(call: TimedCall, inputs: NewInputs) -> Timeable:
    logits, cast = call.arguments
    backward = call.direction == "bprop"
    scores = _tensor(logits, inputs, backward)
    if scores.dim() != 2 or not 0 < scores.shape[1] < MOST_CLASSES:
        raise NotRecreated(f"logits of shape {list(scores.shape)[:8]}")
    target = _tensor(Tensor((scores.shape[0],), "int64"), inputs, False, Contents(below=scores.shape[1]))
    if backward:  # the gradient
        inputs.take(scores.numel() * scores.element_size())

    def function(scores: Any, target: Any) -> Any:
        return F.cross_entropy(scores.float() if cast else scores, target)

    return Timeable(Recreated(_compiled(function), (scores, target), {}, backward, inputs.nbytes))


def _group_norm(call: TimedCall, inputs: NewInputs) -> Timeable:
    x, weight, groups = call.arguments
    backward = call.direction == "bprop"
    given = _tensor(x, inputs, backward)
    scale = None if weight is None else _tensor(weight, inputs, backward)
    inputs.take(given.numel() * given.element_size())

    def function(x: Any, scale: Any) -> Any:
        return F.group_norm(x, groups, scale, scale)

    return Timeable(Recreated(_compiled(function), (given, scale), {}, backward, inputs.nbytes))


OPTIMIZERS: dict[str, Callable[[list[torch.Tensor]], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, fused=True),
    "sgd with momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, fused=True),
}


def _optimizer(call: TimedCall, inputs: NewInputs) -> Timeable:
    """A fused step: its parameters exceed the cache, or else its time in a program is short, too."""
    (described,) = call.arguments
    parameters = [_tensor(each, inputs, True) for each in described]
    for parameter in parameters:
        inputs.take(3 * parameter.numel() * parameter.element_size())
        parameter.grad = torch.ones_like(parameter)
    optimizer = OPTIMIZERS[call.op](parameters)
    optimizer.step()  # makes the states, and the kernel's arguments on the GPU
    for group in optimizer.param_groups:
        group["capturable"] = "capturable" in group
    return Timeable(Recreated(optimizer.step, (), {}, False, inputs.nbytes), rotates=False)


def _pinned(call: TimedCall, inputs: NewInputs) -> Timeable:
    (nbytes,) = call.arguments
    inputs.take(int(nbytes))
    there = torch.empty(int(nbytes), dtype=torch.uint8, device=inputs.device)
    here = torch.empty(int(nbytes), dtype=torch.uint8, pin_memory=inputs.device.type == "cuda")

    def function() -> Any:
        return there.copy_(here, non_blocking=True)

    return Timeable(Recreated(function, (), {}, False, inputs.nbytes), rotates=False)


# Chains


def _chain(call: TimedCall, inputs: NewInputs) -> Timeable:
    """The ops of a chain as one compiled function of what they do not get from each other.

    The capture does not say which op's result another op reads. An operand is taken to be the last result of its shape
    and type that no op has read yet, else the last tensor of this form that the chain was given, else a new one.
    """
    steps = [_Step(part, inputs.device) for part in call.parts]
    given: list[torch.Tensor] = []
    made: list[tuple[torch.Tensor, bool]] = []  # on the meta device: results, and whether an op has read them
    for step in steps:
        step.bind(made, given, inputs)

    def function(*tensors: torch.Tensor) -> Any:
        results: list[Any] = []
        for step in steps:
            results.append(step(results, tensors))
        return results[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = _compiled(function) if call.mode == COMPILED else function
    inputs.take(max(result.numel() * result.element_size() for result, _ in made))
    return Timeable(Recreated(run, tuple(given), {}, False, inputs.nbytes), _no_gradients)


@contextmanager
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class _Step:
    """One op of a chain; in-place ones as those that return their result."""

    def __init__(self, part: TimedCall, device: torch.device) -> None:
        name = part.op.removeprefix("aten::")
        self.cast = name in ("copy_", "_to_copy")
        self.part = part
        self.overload = None
        if not self.cast:
            plain = f"aten::{name.rstrip('_')}" if name.endswith("_") and not name.endswith("__") else part.op
            self.overload = aten_overload(plain, part.arguments)
        self.values: list[Any] = []
        self.from_result: dict[int, int] = {}  # argument -> step
        self.from_input: dict[int, int] = {}  # argument -> tensor of the chain

    def bind(self, made: list[tuple[torch.Tensor, bool]], given: list[torch.Tensor], inputs: NewInputs) -> None:
        """Find the operands among the chain's results and inputs, and run it on the meta device."""
        meta = NewInputs(torch.device("meta"), inputs.most_bytes)
        if self.cast:
            to, source = self.part.arguments[:2] if self.part.op.endswith("copy_") else (None, None)
            if not isinstance(source, Tensor) or not isinstance(to, Tensor):
                raise NotRecreated("a cast whose source is not recorded")
            self.values = [meta.tensor(source), getattr(torch, to.dtype)]
            described: dict[int, Tensor] = {0: source}
        else:
            schema = self.overload._schema.arguments  # type: ignore[union-attr]
            markers = self.part.markers
            self.values = aten_arguments(self.overload.__name__, schema, self.part.arguments, markers, meta)  # type: ignore[union-attr]
            described = {
                place: value for place, value in enumerate(self.part.arguments)
                if isinstance(value, Tensor) and self.values[place].device.type == "meta"
            }  # fmt: skip
        taken: set[int] = set()
        for place, tensor in described.items():
            self._find(place, tensor, made, given, inputs, taken)
        made.append((self._call(self.values), False))
        result = made[-1][0]
        if not isinstance(result, torch.Tensor):
            raise NotRecreated(f"{self.part.op[:40]} has several results")

    def _find(
        self,
        place: int,
        tensor: Tensor,
        made: list[tuple[torch.Tensor, bool]],
        given: list[torch.Tensor],
        inputs: NewInputs,
        taken: set[int],
    ) -> None:
        def alike(other: torch.Tensor) -> bool:
            return tuple(other.shape) == tensor.shape and str(other.dtype) == f"torch.{tensor.dtype}"

        results = [step for step, (result, read) in enumerate(made) if not read and alike(result)]
        known = [index for index, each in enumerate(given) if alike(each) and index not in taken]
        if results:
            self.from_result[place] = results[-1]
            made[results[-1]] = made[results[-1]][0], True
        elif known and len(tensor.shape) > 0:
            self.from_input[place] = known[-1]
            taken.add(known[-1])
        else:
            given.append(inputs.tensor(tensor))
            self.from_input[place] = len(given) - 1
            taken.add(len(given) - 1)

    def __call__(self, results: list[Any], tensors: tuple[torch.Tensor, ...]) -> Any:
        values = list(self.values)
        for place, step in self.from_result.items():
            values[place] = results[step]
        for place, index in self.from_input.items():
            values[place] = tensors[index]
        return self._call(values)

    def _call(self, values: list[Any]) -> Any:
        if self.cast:
            return values[0].to(values[1])
        found = self._run(values)
        return found[0] if isinstance(found, (tuple, list)) and found else found  # such as dropout's, without its mask

    def _run(self, values: list[Any]) -> Any:
        schema = self.overload._schema.arguments  # type: ignore[union-attr]
        pairs = list(zip(schema, values, strict=False))
        positional = tuple(value for argument, value in pairs if not argument.kwarg_only)
        named = {argument.name: value for argument, value in pairs if argument.kwarg_only}
        return self.overload(*positional, **named)  # type: ignore[misc]


MAKERS: dict[str, Callable[[TimedCall, NewInputs], Timeable]] = {
    "attention": _attention,
    "cross_entropy": _cross_entropy,
    "group_norm": _group_norm,
    **dict.fromkeys(OPTIMIZERS, _optimizer),
    "copy of pinned memory": _pinned,
    "chain": _chain,
}


