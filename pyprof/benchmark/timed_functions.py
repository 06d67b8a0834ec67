"""A function with new inputs for each call that an edit asks for: aten ops, attention, losses, optimizers, chains.

Sizes come from a capture, which anyone may have written: inputs are made within a limit of memory (``NewInputs``), ops
are looked up and checked as for ``pyprof bench --replay`` (``recreate``), and no text of the capture is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pyprof.benchmark.timed_chain import Chain
from pyprof.prof.changes.measured.timed_call import COMPILED, TF32, TimedCall
from pyprof.prof.ops.model import Tensor
from pyprof.rerun.new_inputs import Contents, NewInputs, NotRecreated
from pyprof.rerun.recorded_calls import RecordedCall
from pyprof.rerun.recreate import MOST_FLOP, Recreated, recreate

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
    whole: bool = False  # its backward is timed together with its forward, whose time is then subtracted


def timeable(call: TimedCall, device: torch.device, most_bytes: int) -> Timeable:
    """The call with new inputs. Raises NotRecreated, whose message is the reason."""
    if call.flop is not None and call.flop > MOST_FLOP[device.type]:
        raise NotRecreated(f"it takes {call.flop:.3g} FLOPs")
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
    # The memory-efficient kernel's forward keeps its random state on the host, unless it is part of the graph, too.
    graphed = inputs.device.type == "cuda"
    return Timeable(made, lambda: _both(around(), _products(False)), whole=graphed and backward and dropout > 0)


@contextmanager
def _both(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


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


def _chain(call: TimedCall, inputs: NewInputs) -> Timeable:
    chain = Chain(call.parts, inputs)
    inputs.take(chain.largest)

    def function(*tensors: torch.Tensor) -> Any:  # no module, of which each copy of the call would have its own
        return chain.module(*tensors)

    run = _compiled(function) if call.mode == COMPILED else function
    return Timeable(Recreated(run, tuple(chain.given), {}, False, inputs.nbytes), torch.no_grad)


MAKERS: dict[str, Callable[[TimedCall, NewInputs], Timeable]] = {
    "attention": _attention,
    "cross_entropy": _cross_entropy,
    **dict.fromkeys(OPTIMIZERS, _optimizer),
    "copy of pinned memory": _pinned,
    "chain": _chain,
}
