"""A case of the suite: inputs, and one op over them.

``R(*shape)`` is a random input that wants a gradient, ``N`` one that does not, ``I(high, *shape)`` integers; they take
the case's dtype where they name none. ``forward`` and ``backward`` put cases into ``CASES``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
          "fp64": torch.float64, "c64": torch.complex64, "c128": torch.complex128}  # fmt: skip

Run = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """``build(device)`` makes the inputs and returns what runs the op once. ``check``: "f" its FLOPs are compared, "b"
    its bytes; its kernels always are. ``tf32``: whether fp32 products may be rounded."""

    name: str
    build: Callable[[str], Run]
    check: str = ""
    tf32: bool = False


CASES: list[Case] = []


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    grad: bool = False
    high: int = 0
    dtype: torch.dtype | None = None
    memory: torch.memory_format = torch.contiguous_format

    def make(self, device: str, dtype: torch.dtype) -> torch.Tensor:
        if self.high:
            return torch.randint(0, self.high, self.shape, device=device, dtype=self.dtype or torch.int64)
        tensor = torch.randn(self.shape, device=device, dtype=self.dtype or dtype).contiguous(memory_format=self.memory)
        return tensor.requires_grad_(self.grad)


def R(*shape: int, **options: Any) -> Spec:
    return Spec(shape, grad=True, **options)


def N(*shape: int, **options: Any) -> Spec:
    return Spec(shape, **options)


def I(high: int, *shape: int, **options: Any) -> Spec:  # noqa: E743 -- the worked cases' name
    return Spec(shape, high=high, **options)


def forward(name: str, op: Callable[..., Any], *specs: Spec, dtype: str = "fp32", check: str = "") -> None:
    """A case that runs ``op`` over the inputs."""

    def build(device: str) -> Run:
        inputs = [spec.make(device, DTYPES[dtype]) for spec in specs]
        return lambda: op(*inputs)

    CASES.append(Case(f"{name} {dtype}", build, check, dtype == "tf32"))


def backward(name: str, op: Callable[..., Any], *specs: Spec, dtype: str = "fp32", check: str = "") -> None:
    """A case that runs the gradients of ``op`` for all its ``R`` inputs."""

    def build(device: str) -> Run:
        inputs = [spec.make(device, DTYPES[dtype]) for spec in specs]
        out = op(*inputs)
        out = out if isinstance(out, torch.Tensor) else out[0]
        seed = torch.randn_like(out)
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        return lambda: torch.autograd.grad(out, wanted, seed, retain_graph=True)

    CASES.append(Case(f"{name} backward {dtype}", build, check, dtype == "tf32"))


def both(name: str, op: Callable[..., Any], *specs: Spec, dtypes: Sequence[str] = ("fp32",), check: str = "") -> None:
    """Forward and backward, for several dtypes."""
    for dtype in dtypes:
        forward(name, op, *specs, dtype=dtype, check=check)
        backward(name, op, *specs, dtype=dtype, check=check)


def custom(name: str, build: Callable[[str], Run], check: str = "", tf32: bool = False) -> None:
    """A case that makes its own inputs."""
    CASES.append(Case(name, build, check, tf32))
