"""Ops that do no floating-point arithmetic whatever their arguments: 0 FLOPs, even where the capture has no shapes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import FAMILY, Tensor, names, total

# Families that move, order or choose. Not all of "indexing" and "embedding": their backwards add.
FAMILIES = frozenset({"copy", "view", "collective", "sort", "layout"})
GATHERS = names(
    "embedding index_select gather take index masked_select nonzero masked_fill max_pool2d max_pool3d "
    "max_pool2d_with_indices max_pool3d_with_indices"
)


@lru_cache(maxsize=4096)
def never_computes(name: str) -> bool:
    """Whether an op, by its registered name, only compares, selects, moves or fills.

    >>> never_computes("cat"), never_computes("threshold_backward"), never_computes("add")
    (True, True, False)
    """
    family = FAMILY[name]
    return family in FAMILIES or name in GATHERS or (family == "pointwise" and _zero(name))


def _zero(name: str) -> bool:
    """An element-wise op that its own model counts 0 for, of real and of complex numbers."""
    real, complex_ = ([(Tensor((64,), dtype),) * count for count in (1, 2, 3)] for dtype in ("float32", "complex64"))
    return first_trial(name, real) == first_trial(name, complex_) == 0


def first_trial(name: str, calls: Iterable[tuple[Any, ...]]) -> int | None:
    """FLOPs of the first of the calls whose arguments the model takes; None where it takes none of them."""
    return next((flop for flop in (trial(name, call) for call in calls) if flop is not None), None)


def trial(name: str, arguments: tuple[Any, ...]) -> int | None:
    """FLOPs of the op ``name`` on made-up arguments; None where its model takes others."""
    try:
        return total(evaluate(name, arguments)).flop
    except ModelError:
        return None
