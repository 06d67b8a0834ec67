"""The arguments of a call in the form that op models take: in aten's order, with descriptions in place of tensors."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from pyprof.packed_weights import unpacked
from pyprof.prof.ops.model import Tensor

SPELLING = {"input": "self", "axis": "dim", "keepdims": "keepdim"}  # names in torch's Python API -> in aten's schemas
SHAPELESS = "a tensor without a shape"  # replaces such a tensor; no model accepts it
LENGTHS = ("cum_seq", "cu_seq", "seqused", "input_lengths", "target_lengths")  # how such arguments' names begin
MOST_LENGTHS = 1 << 14  # a tensor of lengths with more elements than this is not read
# The methods that give a compressed sparse tensor's indices.
COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Turn torch's modes off on this thread, since our own queries of tensors are not calls of the program."""
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


class Ordered(NamedTuple):
    """The arguments of an op model, and the values that they describe, from which gradients may be wanted."""

    descriptions: tuple[Any, ...]
    values: Sequence[Any]


def resolved(name: str, args: Any, kwargs: Any) -> Ordered | None:
    """The arguments in the order of the aten schema that they fit; None if they fit no schema."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    kwargs = {SPELLING.get(key, key): value for key, value in kwargs.items()}
    try:
        with torch._C.DisableTorchFunction():
            overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except RuntimeError:  # the schema is stricter than the Python API, which accepts a number in place of a list
        overload = next((o for o in packet.overloads() if _fits(getattr(packet, o)._schema, args, kwargs)), None)
    return None if overload is None else ordered(getattr(packet, overload or "default")._schema, args, kwargs)


def _fits(schema: Any, args: Any, kwargs: Any) -> bool:
    """Whether the arguments fit the schema in number, in names, and in which of them are tensors."""
    arguments = [a for a in schema.arguments if not a.is_out]
    names = {a.name for a in arguments}
    if len(args) > len(arguments) or not names.issuperset(kwargs):
        return False
    for i, argument in enumerate(arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument)
        if value is argument:
            if not argument.has_default_value():
                return False
        elif value is not None and ("Tensor" in str(argument.type)) != (next(tensors(value), None) is not None):
            return False
    return True


def ordered(schema: Any, args: Any, kwargs: Any) -> Ordered:
    """Arguments in the schema's order, with its defaults, and without ``out`` arguments (the last of every schema)."""
    values, lengths = [], set()
    for i, argument in enumerate(a for a in schema.arguments if not a.is_out):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        if argument.N and isinstance(value, (int, float)):  # one number stands for a list of N
            value = (value,) * argument.N
        values.append(value)
        if argument.name.startswith(LENGTHS):
            lengths.add(i)
    descriptions = described(values)
    if lengths:
        descriptions = tuple(with_contents(d, values[i]) if i in lengths else d for i, d in enumerate(descriptions))
    return Ordered(descriptions, values)


def in_order(schema: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The descriptions of arguments in the schema's order."""
    return ordered(schema, args, kwargs).descriptions


def with_contents(description: Any, tensor: Any) -> Any:
    """A tensor of lengths with its values, since the count depends on them; fake tensors have no values."""
    if type(tensor) is not torch.Tensor or tensor.device.type == "meta" or tensor.numel() > MOST_LENGTHS:
        return description
    with unseen():
        contents = tuple(int(n) for n in tensor.tolist())
    return Tensor(description.shape, description.dtype, description.strides, False, description.ident, contents)


def described(values: Any) -> tuple[Any, ...]:
    """The values in the form that models take. Tensors that show the same memory get a number, so that it is read once.

    These are a tensor that is passed twice, and views such as its transpose, but not parts that overlap. Tensors in
    lists all get numbers, since models take equal items of two lists for the same tensor if the capture cannot tell.
    """
    found = list(tensors(values))
    if len(found) < 2:
        return tuple(_value(value, {}) for value in values)
    memory = {id(tensor): memory_of(tensor) for tensor in found}
    shown = Counter(memory[id(tensor)] for tensor in found)
    numbers = {key: number for number, key in enumerate(shown, 1)}
    listed = {id(tensor) for value in values if not isinstance(value, torch.Tensor) for tensor in tensors(value)}
    number_of = {i: numbers[key] for i, key in memory.items() if shown[key] > 1 or i in listed}
    return tuple(_value(value, number_of) for value in values)


def memory_of(tensor: torch.Tensor) -> Any:
    """The memory that a tensor shows, whatever the order of its dimensions; the tensor itself if it has no strides."""
    if tensor.layout != torch.strided:
        return id(tensor)
    runs: list[tuple[int, int]] = []  # (stride, length), where one continues the run before it, joined
    with torch._C.DisableTorchFunction(), contextlib.suppress(RuntimeError, AttributeError):
        for stride, length in sorted(zip(map(int, tensor.stride()), map(int, tensor.shape), strict=True)):
            if runs and stride == runs[-1][0] * runs[-1][1]:
                runs[-1] = (runs[-1][0], runs[-1][1] * length)
            elif stride and length != 1:
                runs.append((stride, length))
        return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tensor.dtype, tuple(runs)
    return id(tensor)


def _value(value: Any, number_of: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value, number_of.get(id(value), 0)) or SHAPELESS
    if isinstance(value, (list, tuple)):
        return tuple(_value(item, number_of) for item in value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.SymInt):
        return int(value)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return _packed(value) if isinstance(value, torch.ScriptObject) else str(value)


def _packed(value: torch.ScriptObject) -> Any:
    """Packed weights as ``prof/ops/packed_weights.py`` takes them; of another object its text."""
    with unseen():
        found = unpacked(value)
    return str(value) if found is None else ("packed", Tensor(*found[:2]), *found[2:])


def _tensor(tensor: torch.Tensor, ident: int = 0) -> Tensor | None:
    """The tensor's description; None if it has no shape or strides (nested tensors, uninitialized parameters)."""
    with torch._C.DisableTorchFunction(), contextlib.suppress(RuntimeError, AttributeError):
        strides = tuple(int(n) for n in tensor.stride()) if tensor.layout == torch.strided else None
        shape, dtype = tuple(int(n) for n in tensor.shape), str(tensor.dtype).removeprefix("torch.")
        stored = _stored(tensor)
        return Tensor(shape, dtype, strides, tensor.requires_grad and torch.is_grad_enabled(), ident, None, *stored)
    return None


def _stored(tensor: torch.Tensor) -> tuple[int | None, int]:
    """(elements that a sparse tensor stores, bytes of its indices); (None, 0) for a dense tensor."""
    if tensor.layout != torch.sparse_coo and tensor.layout not in COMPRESSED:
        return None, 0
    with torch.utils._python_dispatch._disable_current_modes():  # our queries are not calls of the program
        if tensor.layout == torch.sparse_coo:
            indices, values = [tensor._indices()], tensor._values()
        else:
            indices, values = [getattr(tensor, name)() for name in COMPRESSED[tensor.layout]], tensor.values()
    return values.numel(), sum(t.numel() * t.element_size() for t in indices)


def outputs_of(result: Any) -> tuple[Tensor | None, ...] | None:
    """The descriptions of the result's tensors, in lists too; None if there are none."""
    items = result if isinstance(result, (list, tuple)) else (result,)
    flat = [t for item in items for t in (item if isinstance(item, (list, tuple)) else (item,))]
    descriptions = tuple(_tensor(t) if isinstance(t, torch.Tensor) else None for t in flat)
    return descriptions if any(d is not None for d in descriptions) else None


def wants_gradient(arguments: Any) -> bool:
    """Whether any described tensor requires a gradient."""
    return any(a.needs_grad if isinstance(a, Tensor) else isinstance(a, tuple) and wants_gradient(a) for a in arguments)


def has_contents(arguments: Any) -> bool:
    """Whether any description holds a tensor's values."""
    if isinstance(arguments, Tensor):
        return arguments.values is not None or arguments.nonzero is not None
    return isinstance(arguments, tuple) and any(map(has_contents, arguments))


def with_needs(arguments: Any, needs: Iterator[bool]) -> Any:
    """The descriptions with ``needs_grad`` taken from ``needs``, which has one item per tensor, in order."""
    if isinstance(arguments, tuple):
        return tuple(with_needs(a, needs) for a in arguments)
    if arguments is SHAPELESS:
        next(needs)
    return replace(arguments, needs_grad=next(needs)) if isinstance(arguments, Tensor) else arguments


def as_autocast(arguments: Any, given: frozenset[str], dtype: str) -> Any:
    """The arguments as autocast casts them: tensors of a dtype in ``given`` become contiguous tensors of ``dtype``."""
    if isinstance(arguments, Tensor):
        if arguments.dtype not in given:
            return arguments
        return Tensor(arguments.shape, dtype, None, arguments.needs_grad, arguments.ident)
    return tuple(as_autocast(a, given, dtype) for a in arguments) if isinstance(arguments, tuple) else arguments
