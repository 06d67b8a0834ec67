"""Tensors of random numbers with given strides and alignment. Zeros would make a GPU faster."""

from collections.abc import Sequence

import torch

from pyprof.errors import PyprofError

# Bytes. Kernels choose wider loads at multiples of 16; the memory of torch's GPU allocator begins at multiples of 512.
ALIGNMENT = 256


def random_tensor(
    *shape: int,
    dtype: torch.dtype,
    layout: str,
    align: int,
    device: torch.device,
    requires_grad: bool = False,
) -> torch.Tensor:
    """A tensor of random numbers: normal ones, or all values of a small integer type.

    Zeros would make a GPU faster. ``layout``: "row" (the last dimension is contiguous), "column" (the second-last one
    is), "channels_last" (the second one is, of four or five). ``align``: its first element lies that many bytes behind
    a multiple of ALIGNMENT bytes, or on one if ``align`` is ALIGNMENT.
    """
    strides = strides_of(shape, layout)
    size = torch.empty((), dtype=dtype).element_size()
    if align < size:
        raise PyprofError(f"align: {dtype} has {size} bytes per element, and cannot be aligned by {align}")
    skipped = align // size if align < ALIGNMENT else 0
    memory = random_numbers(skipped + span(shape, strides), dtype, device)
    found = torch.as_strided(memory, shape, strides, skipped)
    return found.requires_grad_() if requires_grad and (dtype.is_floating_point or dtype.is_complex) else found


def random_numbers(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A one-dimensional tensor of normal numbers, of integers from -128 (unsigned: 0) to 127, or of bools."""
    if dtype.is_floating_point or dtype.is_complex:
        wide = dtype if dtype.itemsize >= 4 or dtype.is_complex else torch.float32
        return torch.randn(count, dtype=wide, device=device).to(dtype)
    low = 0 if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool) else -128
    return torch.randint(low, 2 if dtype == torch.bool else 128, (count,), device=device).to(dtype)


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """
    >>> strides_of((2, 3, 4), "row"), strides_of((2, 3, 4), "column"), strides_of((2, 3, 4, 5), "channels_last")
    ((12, 4, 1), (12, 1, 3), (60, 1, 15, 3))
    """
    order = list(range(len(shape)))  # dimensions, the contiguous one last
    if layout == "column" and len(shape) > 1:
        order[-2:] = order[:-3:-1]
    elif layout == "channels_last" and len(shape) in (4, 5):
        order = [0, *order[2:], 1]
    strides, step = [0] * len(shape), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last in memory.

    >>> span((2, 3), (3, 1)), span((2, 3), (1, 8)), span((4, 5), (0, 1)), span((0, 3), (3, 1)), span((), ())
    (6, 18, 5, 0, 1)
    """
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
