"""A call whose time an edit asks for: its op, its arguments' forms, and how it runs; and the text that names it.

The text is the call's name in a timings file. It is made from the capture alone, so that a machine without a GPU finds
what another one has measured. Calls of the same form have the same text, and are timed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.model import Tensor

# How a call runs. PLAIN and TF32 set both flags of PyTorch for products of float32; PLAIN turns them off.
PLAIN, TF32, COMPILED = "", "tf32", "compiled"
LONGEST = 400  # characters of a name; what is longer ends with a digest


@dataclass(frozen=True)
class TimedCall:
    """One call, or a chain of ops that is compiled as one function (``parts``)."""

    op: str  # "aten::mm", "attention", ...
    arguments: tuple[Any, ...]  # as the models of ops take them: Tensor, numbers, tuples
    direction: str = ""  # "bprop": the gradients of its results
    mode: str = PLAIN  # or, for attention, the only backends allowed: "cudnn", "cudnn flash" or "efficient"
    markers: tuple[Marker, ...] = ()  # of the user's calls around an aten op, for options that the dispatcher omits
    flop: int | None = None
    parts: tuple[TimedCall, ...] = ()

    @cached_property
    def text(self) -> str:
        """The name in a timings file: ``aten::mm(bfloat16[4096,768], bfloat16[768,50264 strides 1,768])``."""
        inner = "; ".join(part.text for part in self.parts) if self.parts else ", ".join(_items(self.arguments))
        how = " ".join(filter(None, (self.direction, self.mode)))
        whole = f"{self.op}({inner})" + (f" {how}" if how else "")
        if len(whole) <= LONGEST:
            return whole
        digest = hashlib.sha256(whole.encode()).hexdigest()
        return f"{whole[: LONGEST - 80]}… sha256 {digest}"


def _items(values: Sequence[Any]) -> Iterator[str]:
    """The texts of arguments, runs of equal ones with their number."""
    for text, run in groupby(map(_text, values)):
        count = len(list(run))
        yield text if count == 1 else f"{count} × {text}"


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        usual = value.strides is None or value.strides == contiguous(value.shape)
        strides = "" if usual else f" strides {','.join(map(str, value.strides or ()))}"
        frozen = "" if value.needs_grad else " no gradient"
        return f"{value.dtype}[{','.join(map(str, value.shape))}{strides}{frozen}]"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_items(value))}]"
    if isinstance(value, float):  # an optimizer's step counts, and its factors change with it
        return f"{value:.2g}"
    return repr(value)[:80]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """
    >>> contiguous((2, 3, 4)), contiguous(())
    ((12, 4, 1), ())
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """
    >>> channels_last((2, 3, 4, 5)), channels_last((7,))
    ((60, 1, 15, 3), (1,))
    """
    if len(shape) < 4:
        return contiguous(shape)
    moved = contiguous((shape[0], *shape[2:], shape[1]))
    return (moved[0], moved[-1], *moved[1:-1])
