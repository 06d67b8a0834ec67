"""Live arguments as the op models take them: aten's order, descriptions in the place of tensors."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from pyprof.prof.ops.model import Tensor

__all__ = [
    "PYTHON_API",
    "UNSEEN",
    "as_autocast",
    "described",
    "in_order",
    "of_jagged",
    "of_operator",
    "outputs_of",
    "resolved",
    "tensors",
]

SPELLING = {"input": "self", "axis": "dim", "keepdims": "keepdim"}  # NumPy's and torch's words for one thing
SHAPELESS = "a tensor without a shape"  # what stands for one: no model takes it
BIG = 1 << 14  # cumulative lengths longer than this are not read


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def resolved(name: str, args: Any, kwargs: Any) -> tuple[Any, ...] | None:
    """The arguments in the order of the aten schema that they fit; None where none does."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None
    kwargs = {SPELLING.get(key, key): value for key, value in kwargs.items()}
    try:
        with torch._C.DisableTorchFunction():
            overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except RuntimeError:  # stricter than the Python API, which takes a number for a list of as many
        overload = next((o for o in packet.overloads() if _fits(getattr(packet, o)._schema, args, kwargs)), None)
    return None if overload is None else in_order(getattr(packet, overload or "default")._schema, args, kwargs)


def _fits(schema: Any, args: Any, kwargs: Any) -> bool:
    """Do the arguments fit, by number, names, and whether they are tensors?"""
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


def in_order(schema: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Arguments in schema order, defaults filled in; ``out`` arguments, the last of every schema, are left out."""
    values, lengths = [], set()
    for i, argument in enumerate(a for a in schema.arguments if not a.is_out):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        if argument.N and isinstance(value, (int, float)):  # one number for each of N
            value = (value,) * argument.N
        values.append(value)
        if argument.name.startswith(("cum_seq", "cu_seqlens")):
            lengths.add(i)
    descriptions = described(tuple(values))
    if not lengths:
        return descriptions
    return tuple(_with_contents(d, values[i]) if i in lengths else d for i, d in enumerate(descriptions))


def _with_contents(description: Any, tensor: Any) -> Any:
    """Cumulative lengths with their contents, which decide the count; fake and meta tensors have none."""
    if type(tensor) is not torch.Tensor or tensor.device.type == "meta" or tensor.numel() > BIG:
        return description
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        contents = tuple(int(n) for n in tensor.tolist())
    return Tensor(description.shape, description.dtype, description.strides, False, description.ident, contents)


def of_operator(name: str, args: Any) -> tuple[Any, ...] | None:
    """The arguments of a higher-order operator that has a model; None of any other."""
    if name not in HIGHER_ORDER:
        return None
    place, read = HIGHER_ORDER[name]
    mask = args[place]
    lists = tuple(t for t in mask[2:read] if t is not None)
    return described((*args[:3], _blocks(args[0], mask), tuple(mask[-3:-1]), lists))


# the place of the block mask among the arguments, and how far its lists are read
HIGHER_ORDER = {"flex_attention": (4, 6), "flex_attention_backward": (9, 10)}


def _blocks(query: torch.Tensor, mask: Any) -> Any:
    """(lists it stands in for, block of queries, block of keys) of each that a block mask lists; None: all there are;
    a word where the lists have no contents.

    The mask is (lengths of queries and keys, number and indices of the blocks that are masked inside, the same of
    those that are not, the same four for the backward, ..., sizes of a block of queries and keys, the function).
    """
    numbers = [t for t in mask[2:6:2] if t is not None]
    if sum(t.numel() for t in numbers) <= len(numbers) and mask[0] <= mask[-3] and mask[1] <= mask[-2]:
        return None  # one block, as where the caller gave no mask
    if any(type(t) is not torch.Tensor or t.device.type == "meta" for t in numbers):
        return "unknown"
    blocks = []
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        for number, indices in zip(mask[2:6:2], mask[3:6:2], strict=True):
            if number is None:
                continue
            times = query.shape[0] * query.shape[1] // (number.shape[0] * number.shape[1])
            lists = zip(number.flatten(0, 1).tolist(), indices.flatten(0, 1).tolist(), strict=True)
            blocks += [
                (times, i, j)
                for counts, rows in lists
                for i, (count, row) in enumerate(zip(counts, rows, strict=True))
                for j in row[:count]
            ]
    return tuple(blocks)


def of_jagged(function: Any, args: Any, kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    """(model, its arguments) of attention among jagged tensors, which each device runs in its own way; ("", ()) of any
    other call.
    """
    if function is not torch.nn.functional.scaled_dot_product_attention:
        return "", ()
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | kwargs
    several = [given[name] for name in names[:3]]
    if given.get("attn_mask") is not None or not all(t.is_nested and t.layout == torch.jagged for t in several):
        return "", ()
    with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        packed = [t._values.transpose(0, t._ragged_idx - 1) for t in several]  # [all sequences, heads, size]
        lengths = [t._offsets for t in several[:2]]
    tensors_ = [replace(d, needs_grad=t.requires_grad) for d, t in zip(described(packed), several, strict=True)]
    known = [_with_contents(d, t) for d, t in zip(described(lengths), lengths, strict=True)]
    return "jagged_attention", (*tensors_, *known, given.get("dropout_p", 0.0), given.get("is_causal", False))


def described(values: Any) -> tuple[Any, ...]:
    """Values as models take them; a tensor that comes more than once gets a number."""
    times: dict[int, int] = {}
    for tensor in tensors(values):
        times[id(tensor)] = times.get(id(tensor), 0) + 1
    repeated = {key: number for number, key in enumerate((k for k, n in times.items() if n > 1), 1)}
    return tuple(_value(value, repeated) for value in values)


def _value(value: Any, repeated: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value, repeated.get(id(value), 0)) or SHAPELESS
    if isinstance(value, (list, tuple)):
        return tuple(_value(item, repeated) for item in value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.SymInt):
        return int(value)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return str(value)


def _tensor(tensor: torch.Tensor, ident: int = 0) -> Tensor | None:
    """The description; None of what has no shape or strides to tell: nested tensors, parameters to be initialized."""
    with torch._C.DisableTorchFunction(), contextlib.suppress(RuntimeError, AttributeError):
        strides = tuple(int(n) for n in tensor.stride()) if tensor.layout == torch.strided else None
        shape, dtype = tuple(int(n) for n in tensor.shape), str(tensor.dtype).removeprefix("torch.")
        stored = _stored(tensor)
        return Tensor(shape, dtype, strides, tensor.requires_grad and torch.is_grad_enabled(), ident, None, *stored)
    return None


COMPRESSED = {torch.sparse_csr: "crow_indices col_indices", torch.sparse_csc: "ccol_indices row_indices",
              torch.sparse_bsr: "crow_indices col_indices", torch.sparse_bsc: "ccol_indices row_indices"}  # fmt: skip


def _stored(tensor: torch.Tensor) -> tuple[int | None, int]:
    """(elements that a sparse tensor stores, bytes of what says where they stand); (None, 0) of a dense one."""
    if tensor.layout != torch.sparse_coo and tensor.layout not in COMPRESSED:
        return None, 0
    with torch.utils._python_dispatch._disable_current_modes():  # asking is none of the program's calls
        if tensor.layout == torch.sparse_coo:
            indices, values = [tensor._indices()], tensor._values()
        else:
            indices, values = [getattr(tensor, name)() for name in COMPRESSED[tensor.layout].split()], tensor.values()
    return values.numel(), sum(t.numel() * t.element_size() for t in indices)


def outputs_of(result: Any) -> tuple[Tensor | None, ...] | None:
    """The outputs' descriptions; None where there are none."""
    items = result if isinstance(result, (list, tuple)) else (result,)
    flat = [t for item in items for t in (item if isinstance(item, (list, tuple)) else (item,))]
    descriptions = tuple(_tensor(t) if isinstance(t, torch.Tensor) else None for t in flat)
    return descriptions if any(d is not None for d in descriptions) else None


def wants_gradient(arguments: Any) -> bool:
    """Does any of the described tensors?"""
    return any(
        a.needs_grad if isinstance(a, Tensor) else wants_gradient(a)
        for a in arguments
        if isinstance(a, (Tensor, tuple))
    )


def as_autocast(arguments: Any, given: frozenset[str], dtype: str) -> Any:
    """Autocast's view of the arguments: tensors of the given types in the type that the op ran in."""
    if isinstance(arguments, Tensor):
        if arguments.dtype not in given:
            return arguments
        return Tensor(arguments.shape, dtype, None, arguments.needs_grad, arguments.ident)
    return tuple(as_autocast(a, given, dtype) for a in arguments) if isinstance(arguments, tuple) else arguments


# API functions written in Python that are an algorithm with a model -> the model, and its arguments from the
# function's own. The others are counted by the functions written in C that they call.
PYTHON_API: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[Any, ...]]]] = {
    "torch.nn.functional.multi_head_attention_forward": ("multi_head_attention_forward", lambda a: tuple(a.values())),
    # torch's own divides the sum of a "batchmean" in an op of its own
    "torch.nn.functional.kl_div": ("kl_div", lambda a: (a["input"], a["target"], a["reduction"], a["log_target"])),
    "torch.nn.functional.embedding_bag": (
        "embedding_bag",
        lambda a: (a["weight"], a["input"], a["offsets"], a["scale_grad_by_freq"], a["mode"], a["sparse"],
                   a["per_sample_weights"], a["include_last_offset"]),
    ),
    "torch.nn.utils.clip_grad.clip_grad_norm_": (
        "clip_grad_norm_",
        lambda a: (_gradients(a["parameters"]), a["max_norm"], a["norm_type"]),
    ),
}  # fmt: skip
# Python functions that no mode sees: wrapped while counting, where they are looked up as attributes
UNSEEN = ((torch.nn.utils, "clip_grad_norm_"), (torch.nn.utils.clip_grad, "clip_grad_norm_"))


def python_arguments(function: Any, args: Any, kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    """(model, its arguments) of a listed Python function; ("", ()) of any other."""
    model, arguments = PYTHON_API.get(f"{function.__module__}.{function.__name__}", ("", None))
    if arguments is None:
        return "", ()
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return model, described(arguments(bound.arguments))


def _gradients(parameters: Any) -> tuple[torch.Tensor, ...]:
    """The gradients that clipping works on."""
    several = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return tuple(p.grad for p in several if p.grad is not None)
