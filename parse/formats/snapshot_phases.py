"""The phase of a snapshot's events whose stacks have Python's frames alone, as with stacks="python" or on Windows.

A thread of Python begins with a module, with a thread's bootstrap or with runpy. Autograd's threads run no Python, so
their stacks are empty, or begin with what they call: a Function's ``apply``, a hook, the recomputation of a checkpoint.
Where a history has stacks of events of a kind, an event of that kind without a frame is one of autograd's threads.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pyprof.table.columns import Coded, Ints

_BEGINNINGS = frozenset(("<module>", "_bootstrap", "_run_module_as_main"))
_CHECKPOINT = "torch/utils/checkpoint.py"
_OPTIMIZERS = ("torch/optim/", "apex/optimizers/", "bitsandbytes/optim/")
EMPTY, THREAD, CALLED, RECOMPUTED, OPTIMIZER, NATIVE = "empty", "thread", "called", "recomputed", "optimizer", "native"
_FORWARD, _BACKWARD = ("forward", "fprop"), ("backward", "bprop")
_PHASES = {
    THREAD: _FORWARD,
    CALLED: _BACKWARD,
    RECOMPUTED: ("backward", "fprop"),
    OPTIMIZER: ("optimizer", ""),
}


class Phases(NamedTuple):
    """The phase and direction of each event; empty where stacks do not tell them."""

    phase: Coded
    direction: Coded


def stack_kind(frames: Sequence[dict[str, Any]]) -> str:
    """What kind of thread a stack, innermost frame first, belongs to, and what it does."""
    if not frames:
        return EMPTY
    files = [_path(frame) for frame in frames]
    if not all(file.endswith(".py") or file.startswith("<") for file in files):
        return NATIVE
    if any(name == "step" and any(place in file for place in _OPTIMIZERS) for name, file in _named(frames, files)):
        return OPTIMIZER
    if frames[-1].get("name") in _BEGINNINGS:
        return THREAD
    return RECOMPUTED if any(file.endswith(_CHECKPOINT) for file in files) else CALLED


def _path(frame: dict[str, Any]) -> str:
    file = frame.get("filename")
    return file.replace("\\", "/") if isinstance(file, str) else ""


def _named(frames: Sequence[dict[str, Any]], files: Sequence[str]) -> list[tuple[object, str]]:
    return [(frame.get("name"), file) for frame, file in zip(frames, files, strict=True)]


def phases_of(kinds: Sequence[str], context: Ints, nbytes: Ints) -> Phases | None:
    """The phases of events with these contexts; ``kinds``: of each context. None if stacks do not tell any.

    ``nbytes``: negative for frees, of which a history may have no stacks at all.
    """
    kind = np.array([*kinds, ""], object)[context]
    if NATIVE in kinds or THREAD not in kinds:
        return None
    empty, free = kind == EMPTY, nbytes < 0
    for some in (free, ~free):
        if (empty & some).any() and (kind[some] == THREAD).any():
            kind[empty & some] = CALLED
    pairs = [_PHASES.get(each, ("", "")) for each in kind.tolist()]
    return Phases(Coded.of(phase for phase, _ in pairs), Coded.of(direction for _, direction in pairs))
