"""Copies of a call's inputs, so that repeated calls do not find them in the last cache before memory.

In a program, a call rarely finds all of its inputs in the cache. A benchmark that repeats a call on the same inputs
always does, where they fit. So the calls take turns with copies that together exceed the cache.
"""

import copy
import math
from typing import Any

import torch

from pyprof.rerun.random_tensors import ALIGNMENT, span
from pyprof.rerun.recreate import tensors_in

# An H200's cache consists of two halves, and neither replaces the line that was used longest ago. So the copies are
# given more than the cache's size.
BEYOND = 3
MOST_COPIES = 2048  # each is a node of a CUDA graph, which takes some microseconds to record
_BY_ROWS, _BY_COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _BY_ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _BY_COLUMNS),
}
NESTED_PARTS = {torch.strided: ("values",), torch.jagged: ("values", "offsets")}


def copies_needed(nbytes: int, cache_bytes: int, free_bytes: int, kept_bytes: float = 0.0) -> int:
    """How many sets of ``nbytes`` (inputs and results of a call) exceed the cache and fit into half of the free memory.

    ``kept_bytes``: what else each set keeps in memory, such as what a forward pass saves for its backward.

    >>> copies_needed(30, 100, 10_000), copies_needed(400, 100, 10_000), copies_needed(30, 100, 200)
    (10, 1, 3)
    >>> copies_needed(30, 100, 10_000, 970.0)
    5
    """
    if nbytes <= 0:
        return 1
    wanted = math.ceil(BEYOND * cache_bytes / nbytes)
    whole = nbytes + (int(kept_bytes) if math.isfinite(kept_bytes) else 0)
    return max(1, min(wanted, free_bytes // 2 // whole, MOST_COPIES))


def is_cold(copies: int, nbytes: int, cache_bytes: int) -> bool:
    """Whether that many sets of ``nbytes`` exceed the cache."""
    return copies * nbytes >= BEYOND * cache_bytes


def storage_bytes(value: Any) -> int:
    """The bytes of memory that the tensors in ``value`` occupy; shared memory counts once."""
    spans: dict[tuple[Any, int], int] = {}
    for tensor in tensors_in(value):
        for part in _parts(tensor):
            key = part.device, part.data_ptr()
            spans[key] = max(spans.get(key, 0), span(part.shape, part.stride()) * part.element_size())
    return sum(spans.values())


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensor, or those that a sparse or nested one consists of."""
    names = NESTED_PARTS if tensor.is_nested else PARTS
    return [getattr(tensor, name)() for name in names[tensor.layout]] if tensor.layout in names else [tensor]


def copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """The value with copies of its tensors and modules in new memory; an object that occurs twice is copied once."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    found = value
    if isinstance(value, torch.Tensor):
        found = _copied_tensor(value)
    elif isinstance(value, torch.nn.Module):
        found = copy.deepcopy(value)
    elif isinstance(value, dict):
        found = {key: copied(item, memo) for key, item in value.items()}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        found = type(value)(*(copied(item, memo) for item in value))
    elif isinstance(value, (list, tuple)):
        found = type(value)(copied(item, memo) for item in value)
    memo[id(value)] = found
    return found


def _copied_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same shape, strides, alignment and need of a gradient. It is a leaf."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_nested:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    data = tensor.detach()
    size = data.element_size()
    skipped = data.data_ptr() % ALIGNMENT // size if data.data_ptr() % size == 0 else 0
    count = span(data.shape, data.stride())
    memory = torch.empty(skipped + count, dtype=data.dtype, device=data.device)
    memory[skipped:] = torch.as_strided(data, (count,), (1,), data.storage_offset())
    found = torch.as_strided(memory, data.shape, data.stride(), skipped)
    return found.requires_grad_() if tensor.requires_grad else found
