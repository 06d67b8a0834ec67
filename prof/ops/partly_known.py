"""What is known of a call although its model lacks one of its arguments."""

from __future__ import annotations

from typing import Any

from pyprof.errors import ModelError
from pyprof.prof.ops.compiled import fused_bytes, is_compiled
from pyprof.prof.ops.evaluation import evaluate, parameters
from pyprof.prof.ops.model import UNKNOWN, Parts, Work
from pyprof.prof.ops.no_arithmetic import never_computes

__all__ = ["known_parts"]

Amounts = tuple[int | None, float | None]

# What fused attention's models call their causal flag or mask type. NVTX does not record it; bytes do not depend on it.
MASK = frozenset({"causal", "mask_type"})


def known_parts(name: str, arguments: tuple[Any, ...]) -> dict[str, Amounts]:
    """(FLOPs, bytes) of each piece of the work, None where unknown; no piece where nothing is known.

    A compiled kernel's bytes are known without its FLOPs, attention's bytes without its mask, and of an op that only
    moves or compares that it has no FLOPs.
    """
    if is_compiled(name) and arguments:
        return {"": (None, fused_bytes(arguments[0], arguments[1:]))}
    parts = _with_any_mask(name, arguments)
    return {"": (0, None)} if not parts and never_computes(name) else parts


def _with_any_mask(name: str, arguments: tuple[Any, ...]) -> dict[str, Amounts]:
    """What is the same with and without a causal mask, where the capture does not record which it was."""
    pairs = enumerate(zip(parameters(name), arguments, strict=False))
    position = next((i for i, (word, argument) in pairs if word in MASK and argument is UNKNOWN), None)
    if position is None:
        return {}
    before, after = arguments[:position], arguments[position + 1 :]
    try:
        plain, causal = (_parts(evaluate(name, (*before, flag, *after))) for flag in (False, True))
    except ModelError:
        return {}
    return {part: _common(work, causal[part]) for part, work in plain.items()}


def _parts(work: Work | Parts) -> Parts:
    return {"": work} if isinstance(work, Work) else work


def _common(one: Work, other: Work) -> Amounts:
    flop = one.flop if one.flop == other.flop else None
    return flop, one.nbytes if one.nbytes == other.nbytes else None
