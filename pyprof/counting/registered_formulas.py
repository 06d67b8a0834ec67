"""FLOPs of ops without a model of ours, by the formulas that libraries register with PyTorch's own counter.

``torch.utils.flop_counter.register_flop_formula`` is where NATTEN, flash-linear-attention and others say what their ops
compute. A formula takes the op's arguments, with shapes or tensors in place of tensors. It says nothing of bytes, which
stay unknown.
"""

import math
from typing import Any

import torch

from pyprof.counting.arguments import unseen
from pyprof.prof.ops.evaluation import checked
from pyprof.prof.ops.model import Parts, Tensor, Work


def registered_work(name: str, arguments: tuple[Any, ...], out: Any) -> Work | Parts | None:
    """The work of an op by its registered formula; None if it has none. Raises ModelError if the formula fails.

    ``arguments``: their descriptions, in the schema's order.
    """
    packet = _packet(name)
    formula = None if packet is None else _registry().get(packet)
    if packet is None or formula is None:
        return None

    def count() -> Work:
        schema = getattr(packet, packet.overloads()[0])._schema
        pairs = list(zip(schema.arguments, map(_like, arguments), strict=False))
        named = {each.name: value for each, value in pairs if each.kwarg_only}
        results = _like(tuple(out or ()))
        result = results[0] if len(results) == 1 else results
        return Work(int(formula(*(v for each, v in pairs if not each.kwarg_only), **named, out_val=result)), *UNKNOWN)

    with unseen():
        return checked(name, arguments, count)


UNKNOWN = math.nan, math.nan  # bytes read and written


def _registry() -> dict[Any, Any]:
    from torch.utils.flop_counter import flop_registry

    found: dict[Any, Any] = flop_registry
    return found


def _packet(name: str) -> Any:
    """The op of a name: ``mm`` is aten's."""
    library, _, op = name.rpartition("::")
    return getattr(getattr(torch.ops, library or "aten"), op, None)


def _like(value: Any) -> Any:
    """A tensor without memory in place of a description, in lists too."""
    if isinstance(value, Tensor):
        return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device="meta")
    return tuple(map(_like, value)) if isinstance(value, tuple) else value
