"""What the tests of op models share: descriptions of tensors, and worked cases.

A row is (names of ops with blanks between, their arguments, ..., their work): a case each name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyprof.prof.ops.families  # noqa: F401  (fills the registry)
from pyprof.prof.ops.model import FAMILY, MODELS, Tensor


def t(*shape: int, dtype: str = "float32", ident: int = 0) -> Tensor:
    return Tensor(shape, dtype, ident=ident)


def i(*shape: int) -> Tensor:
    return Tensor(shape, "int64")


def cases(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [(name, *rest) for names, *rest in rows for name in names.split()]


def ops_of(families: Iterable[str]) -> set[str]:
    """The names with a model of these families, but for those of other libraries, which have tests of their own."""
    wanted = set(families)
    return {op for op, family in FAMILY.items() if family in wanted and not _elsewhere(op)}


def _elsewhere(op: str) -> bool:
    others = (".extensions", ".serving", ".sparse_features", ".embedding_tables")
    return MODELS[op].__module__.endswith(others) and not op.startswith("_C")
