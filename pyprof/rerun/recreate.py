"""Make a recorded call again: find its op in this torch, and give it new inputs of the recorded form.

Names and arguments come from a file that anyone may have written. So an op is taken only if pyprof has a model of it
(``pyprof.prof.ops``), which excludes everything that touches files or processes, and it is looked up as an attribute of
torch's own namespaces. Inputs and results must fit into the given memory, and the work must end.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from pyprof.marker import Marker
from pyprof.prof.ops.model import names
from pyprof.rerun.api_calls import api_arguments, api_function
from pyprof.rerun.aten_ops import aten_arguments, aten_overload
from pyprof.rerun.new_inputs import NewInputs, NotRecreated
from pyprof.rerun.random_tensors import span
from pyprof.rerun.recorded_calls import RecordedCall

MOST_FLOP = {"cuda": 10**16, "cpu": 10**12}  # some seconds of work
# Ops that do not run on the meta device and check their arguments themselves
OWN_CHECKS = names("cudnn_convolution mkldnn_convolution _cudnn_attention_forward _cudnn_attention_backward")
META = torch.device("meta")


@dataclass(frozen=True)
class Recreated:
    """A call that can be made. ``backward``: its time in question is that of its results' gradients."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    backward: bool = False
    nbytes: int = 0  # of inputs and results


def recreate(call: RecordedCall, device: torch.device, most_bytes: int) -> Recreated:
    """The call with new inputs. Raises NotRecreated, whose message is the reason, if that is not possible."""
    if call.why:
        raise NotRecreated(call.why)
    if call.flop is not None and call.flop > MOST_FLOP[device.type]:
        raise NotRecreated(f"it takes {call.flop:.3g} FLOPs")
    with refusals():
        return _api(call, device, most_bytes) if call.is_api else _aten(call, device, most_bytes)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn an error with which torch refuses a call into NotRecreated, with its first line as the reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about the form of a call that the program made
            yield
    except (RuntimeError, TypeError, ValueError, IndexError, OverflowError, NotImplementedError) as error:
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise NotRecreated(first_line[:160]) from error


def _aten(call: RecordedCall, device: torch.device, most_bytes: int) -> Recreated:
    overload = aten_overload(call.op, call.arguments)
    schema = overload._schema.arguments

    def on(inputs: NewInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = aten_arguments(call.op, schema, call.arguments, call.markers, inputs)
        pairs = list(zip(schema, values, strict=False))
        positional = tuple(value for argument, value in pairs if not argument.kwarg_only)
        return positional, {argument.name: value for argument, value in pairs if argument.kwarg_only}

    return _made(overload, on, device, most_bytes)


def _api(call: RecordedCall, device: torch.device, most_bytes: int) -> Recreated:
    marker = call.markers[-1]
    function, backward = api_function(marker), call.direction == "bprop"

    def on(inputs: NewInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, named = api_arguments(marker, inputs)
        if backward:
            for tensor in tensors_in((positional, named)):
                if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                    tensor.requires_grad_()
        return tuple(positional), named

    return _made(_autocast(function, marker, device), on, device, most_bytes, backward)


def _autocast(function: Callable[..., Any], marker: Marker, device: torch.device) -> Callable[..., Any]:
    """The function as the program called it: under autocast, where the marker says so."""
    if marker.autocast is None:
        return function
    dtype = getattr(torch, marker.autocast, None)
    if dtype not in (torch.float16, torch.bfloat16):
        raise NotRecreated(f"autocast to {marker.autocast[:40]}")

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device.type, dtype):
            return function(*args, **kwargs)

    return call


Maker = Callable[[NewInputs], tuple[tuple[Any, ...], dict[str, Any]]]


def _made(
    function: Callable[..., Any], on: Maker, device: torch.device, most_bytes: int, backward: bool = False
) -> Recreated:
    results = _result_bytes(function, on, most_bytes)
    inputs = NewInputs(device, most_bytes)
    args, kwargs = on(inputs)
    inputs.take(results)
    return Recreated(function, args, kwargs, backward, inputs.nbytes)


def _result_bytes(function: Callable[..., Any], on: Maker, most_bytes: int) -> int:
    """The bytes of the results, from torch's meta device, which computes only shapes.

    This also checks that the shapes fit each other. Some of torch's inner ops do not when they run, and would read and
    write anywhere. So an op that cannot run on the meta device is refused, except those in OWN_CHECKS. Their numbers
    must be so small that the result cannot be much larger than the inputs.
    """
    args, kwargs = on(NewInputs(META, most_bytes))
    if getattr(function, "__name__", "").partition(".")[0] in OWN_CHECKS:
        elements = sum(tensor.numel() for tensor in tensors_in((args, kwargs)))
        numbers = [math.prod(abs(n) for n in group) for group in _integers((args, kwargs))]
        if max(numbers, default=0) > max(elements, 1):
            raise NotRecreated("the size of its result cannot be known before it runs")
        return 0
    try:
        with torch.no_grad():
            result = function(*args, **kwargs)
    except NotImplementedError:
        raise NotRecreated("torch cannot check its shapes before it runs") from None
    own = {tensor.untyped_storage()._cdata for tensor in tensors_in((args, kwargs))}
    new = [t for t in tensors_in(result) if t.untyped_storage()._cdata not in own]
    return sum(span(t.shape, t.stride()) * t.element_size() for t in new)


def _integers(value: Any) -> Iterator[list[int]]:
    """The integers in nested arguments: each alone, and those of a list together."""
    if type(value) is int:
        yield [value]
    elif isinstance(value, (list, tuple, dict)):
        items = list(value.values() if isinstance(value, dict) else value)
        if items and all(type(item) is int for item in items):
            yield items
        else:
            for item in items:
                yield from _integers(item)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples, dictionaries and modules."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)
