"""The arguments of attention calls whose sizes no schema describes: flex_attention's block mask, and jagged tensors."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from pyprof.counting.arguments import Ordered, described, unseen, with_contents

# operator -> the position of the block mask among its arguments, and the number of the mask's lists that are read
FLEX_ATTENTION = {"flex_attention": (4, 6), "flex_attention_backward": (9, 10)}


def flex_attention_arguments(name: str, args: Any) -> tuple[Any, ...] | None:
    """The model's arguments for a higher-order operator in ``FLEX_ATTENTION``; None for any other operator."""
    if name not in FLEX_ATTENTION:
        return None
    place, end = FLEX_ATTENTION[name]
    mask = args[place]
    lists = tuple(t for t in mask[2:end] if t is not None)
    return described((*args[:3], _blocks(args[0], mask), tuple(mask[-3:-1]), lists))


def _blocks(query: torch.Tensor, mask: Any) -> Any:
    """For each block in the mask's lists: (batches and heads that share the list, block of queries, block of keys).

    None stands for all blocks, and "unknown" for lists without contents (fake and meta tensors).

    The mask is (lengths of queries and keys, number and indices of the partly masked blocks, number and indices of the
    unmasked blocks, the same four for the backward, ..., sizes of a block of queries and keys, the function).
    """
    numbers = [t for t in mask[2:6:2] if t is not None]
    if sum(t.numel() for t in numbers) <= len(numbers) and mask[0] <= mask[-3] and mask[1] <= mask[-2]:
        return None  # a single block: the caller gave no mask
    if any(type(t) is not torch.Tensor or t.device.type == "meta" for t in numbers):
        return "unknown"
    with unseen():
        lists = zip(mask[2:6:2], mask[3:6:2], strict=True)
        blocks = (_listed_blocks(query, number, indices) for number, indices in lists if number is not None)
        return tuple(chain.from_iterable(blocks))


def _listed_blocks(query: torch.Tensor, number: torch.Tensor, indices: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """The blocks in ``indices``. ``number`` [batch, heads, blocks of queries] says how many entries of a row count."""
    sharing = query.shape[0] * query.shape[1] // (number.shape[0] * number.shape[1])
    for counts, rows in zip(number.flatten(0, 1).tolist(), indices.flatten(0, 1).tolist(), strict=True):
        for i, (count, row) in enumerate(zip(counts, rows, strict=True)):
            yield from ((sharing, i, j) for j in row[:count])


def jagged_attention_arguments(function: Any, args: Any, kwargs: Any) -> tuple[str, Ordered]:
    """(model, its arguments) for attention on jagged tensors, which each device runs differently; otherwise "", ()."""
    if function is not torch.nn.functional.scaled_dot_product_attention:
        return "", Ordered((), ())
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | kwargs
    inputs = [given[name] for name in names[:3]]
    if given.get("attn_mask") is not None or not all(t.is_nested and t.layout == torch.jagged for t in inputs):
        return "", Ordered((), ())
    with unseen():
        packed = [t._values.transpose(0, t._ragged_idx - 1) for t in inputs]  # [all sequences, heads, size]
        offsets = [t._offsets for t in inputs[:2]]
    tensors = [replace(d, needs_grad=t.requires_grad) for d, t in zip(described(packed), inputs, strict=True)]
    lengths = [with_contents(d, t) for d, t in zip(described(offsets), offsets, strict=True)]
    options = given.get("dropout_p", 0.0), given.get("is_causal", False)
    return "jagged_attention", Ordered((*tensors, *lengths, *options), (*inputs, *offsets))
