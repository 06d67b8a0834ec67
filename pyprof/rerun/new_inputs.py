"""New tensors with a recorded shape, dtype and strides, within a limit of memory."""

from dataclasses import dataclass
from typing import Any

import torch

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import PyprofError
from pyprof.prof.ops.model import Tensor
from pyprof.rerun.random_tensors import random_numbers, span, strides_of

# For tensors of which only the elements' size is known: kernels that move bytes, such as cat's, treat all types alike.
OPAQUE = {
    "opaque1": "uint8",
    "opaque2": "bfloat16",
    "opaque4": "float32",
    "opaque8": "float64",
    "opaque16": "complex128",
}
MOST_DIMENSIONS = 25  # of a tensor that CUDA kernels work on


class NotRecreated(PyprofError):
    """A recorded call cannot be made again; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a tensor's elements may be. Normal numbers, if nothing is set."""

    below: int | None = None  # indices from 0 up to this, exclusive
    is_probability: bool = False
    is_positive: bool = False
    is_seed: bool = False
    on_host: bool = False  # a number that the program passed, which the dispatcher shows as a tensor


NORMAL = Contents()
_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


class NewInputs:
    """Makes the tensors of one call, on a device or, to learn the results' sizes, on torch's meta device."""

    def __init__(self, device: torch.device, most_bytes: int) -> None:
        self.device, self.most_bytes = device, most_bytes
        self.nbytes = 0

    def tensor(self, described: Tensor, contents: Contents = NORMAL) -> torch.Tensor:
        """A tensor of random numbers as described. Raises NotRecreated if it is impossible or too large."""
        name = OPAQUE.get(described.dtype, described.dtype)
        dtype = getattr(torch, name, None) if name in ITEM_BYTES else None
        if not isinstance(dtype, torch.dtype):
            raise NotRecreated(f"the dtype {described.dtype[:40] or 'of a tensor'} is unknown")
        if described.nonzero is not None:
            raise NotRecreated("the places of a sparse tensor's elements are not recorded")
        shape, strides = described.shape, described.strides
        if strides is None:
            strides = strides_of(shape, "row")
        if min((*shape, *strides), default=0) < 0 or len(shape) > MOST_DIMENSIONS:
            raise NotRecreated(f"no tensor has shape {_short(shape)} and strides {_short(strides)}")
        count = span(shape, strides)
        self.take(count * dtype.itemsize)
        if self.device.type == "meta":
            return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)
        device = torch.device("cpu") if contents.on_host else self.device
        return torch.as_strided(_numbers(count, dtype, device, contents), shape, strides)

    def take(self, nbytes: int) -> None:
        """Reserve memory. Raises NotRecreated if there is not enough."""
        self.nbytes += nbytes
        if self.nbytes > self.most_bytes:
            have = f"{self.most_bytes / 2**30:.3g} GiB are available"
            raise NotRecreated(f"it needs {min(self.nbytes / 2**30, 1e9):.3g} GiB of memory, and {have}")


def _short(sizes: Any) -> str:
    return str(list(sizes))[:60]


def _numbers(count: int, dtype: torch.dtype, device: torch.device, contents: Contents) -> torch.Tensor:
    if contents.below is not None:
        return torch.randint(contents.below, (count,), device=device).to(dtype)
    if contents.is_seed:
        return torch.zeros(count, dtype=dtype, device=device)
    if dtype in _WHOLE:
        return torch.randint(1, 128, (count,), device=device).to(dtype)  # not 0, since an op may divide by it
    numbers = random_numbers(count, dtype, device)
    if contents.is_probability:
        return numbers.abs().clamp(0, 1)
    return numbers.abs() if contents.is_positive else numbers
