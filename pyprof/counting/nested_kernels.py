"""The fast path of nn.TransformerEncoder on padded batches: ops on nested tensors, whose kernels consist of other ops.

A nested tensor of this kind (layout strided) has no shape, so no model can count an op on it. The kernels of the ops in
``CONSISTING`` run products, norms and sums of ordinary tensors, with the padding left out; these are counted.
"""

from collections.abc import Iterable
from typing import Any

import torch

from pyprof.counting.arguments import SHAPELESS
from pyprof.prof.ops.model import Tensor, Work

CONSISTING = frozenset({"_transformer_encoder_layer_fwd", "_native_multi_head_attention"})
# Ops inside whose kernels do work of their own, row by row: all rows together are a tensor with a shape.
BY_ROWS = frozenset({"native_layer_norm", "_transform_bias_rescale_qkv"})
# Copies of rows between a nested tensor and a padded one, without the padding.
COPIES = frozenset({"_nested_tensor_from_mask", "_nested_from_padded", "to_padded_tensor"})
_keys_of: Any = torch._C._dispatch_keys
_after_python: Any = getattr(torch._C, "_dispatch_keyset_full_after", None)


def has_nested(found: Iterable[torch.Tensor]) -> bool:
    """Whether a nested tensor without a shape is among the tensors."""
    return _after_python is not None and any(t.is_nested and t.layout == torch.strided for t in found)


def run_kernel(func: Any, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
    """Run the op's kernel, past the modes, so that a mode that is on sees the ops inside it but not the op again."""
    keys = _keys_of(found[0])
    for tensor in found[1:]:
        keys = keys | _keys_of(tensor)
    return func.redispatch(keys & _after_python(torch._C.DispatchKey.Python), *args, **kwargs)


def copied(source: torch.Tensor, result: torch.Tensor) -> Work:
    """The rows of a copy are read; the result is written, whose padding is filled."""
    rows = source if source.is_nested else result
    return Work(0, rows.numel() * source.element_size(), result.numel() * result.element_size())


def with_rows(descriptions: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
    """The descriptions, in which nested tensors of rows have the shape of all their rows together."""
    pairs = zip(descriptions, values, strict=True)
    return tuple(_rows(v) or d if d is SHAPELESS else d for d, v in pairs)


def _rows(nested: torch.Tensor) -> Tensor | None:
    sizes = nested._nested_tensor_size().tolist()
    if not sizes or len({size[-1] for size in sizes}) > 1:
        return None
    width = sizes[0][-1]
    return Tensor((nested.numel() // width if width else 0, width), str(nested.dtype).removeprefix("torch."))
