"""Time one call by itself, next to the work that it does and the hardware's limit: ``pyprof.bench``.

    found = pyprof.bench(F.linear, x, w, backward=True)
    found.seconds, found.flop_per_s, found.share, found.backward.seconds
    print(found)

Calls take turns with copies of the tensors and modules among the arguments, so that they do not find them in the cache
(``rotation``). ``call_timer`` says how the time is measured, ``pyprof.count`` how the work is counted. The arguments
themselves are not changed. Tensors that the function takes from elsewhere are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from pyprof.benchmark.bench_result import Bench, Measured, Timing
from pyprof.benchmark.call_timer import Call, time_calls
from pyprof.benchmark.device_facts import cache_bytes, facts, free_bytes
from pyprof.benchmark.hardware_limit import device_of, limit, precision_of, work_of
from pyprof.benchmark.rotation import copied, copies_needed, is_cold, storage_bytes
from pyprof.benchmark.timer import FULL, QUICK, Effort
from pyprof.counting.count import count, leaves_of
from pyprof.counting.counts import BACKWARD, FORWARD
from pyprof.errors import PyprofError
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.rerun.recreate import tensors_in


@dataclass(frozen=True)
class Subject:
    """A function and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What is copied and holds tensors."""
        return (self.function, self.args, self.kwargs)

    def copy(self) -> Subject:
        """The same call with tensors of its own."""
        return Subject(*copied(self.inputs))


def bench(
    function: Callable[..., Any],
    /,
    *args: Any,
    backward: bool = False,
    warm: bool = False,
    quick: bool = False,
    peaks: str | Peaks | None = None,
    name: str = "",
    **kwargs: Any,
) -> Bench:
    """Time ``function(*args, **kwargs)``, and with ``backward`` also the gradients of its results.

    ``warm``: also time calls that all have the same inputs. ``quick``: fewer trials. ``peaks``: a file of
    ``pyprof peaks``, in place of the GPU's data sheet. ``name``: what the result calls it.

    The backward pass computes the gradients with respect to all leaves that require one, for a random gradient of each
    result, and does not accumulate them. Exceptions of the function pass through; PyprofError if ``backward`` is asked
    for and no result depends on a tensor that requires a gradient.
    """
    subject = Subject(function, args, kwargs)
    return measure(subject, name or _name(function), backward, warm, QUICK if quick else FULL, peaks)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def measure(
    subject: Subject, name: str, backward: bool, warm: bool, effort: Effort, peaks: str | Peaks | None = None
) -> Bench:
    """What ``bench`` does."""
    first = subject.copy()
    counts = count(first, backward=backward)
    outputs = list(tensors_in(counts.result))
    device = device_in([*tensors_in(first.inputs), *outputs])
    if backward and not any(t.requires_grad for t in outputs):
        raise PyprofError(f"{name}: no gradient to measure: no result depends on a tensor with requires_grad=True")
    cache, nbytes = cache_bytes(device), storage_bytes((first.inputs, outputs))
    known = device_of(device, peaks)
    precision = precision_of((*tensors_in(first.inputs), *outputs), work_of(counts, FORWARD).has_convolutions)
    del outputs, first
    counts.result = None
    kept = counts.forward.write if backward else 0.0  # a forward pass keeps no more for its backward than it writes
    copies = copies_needed(nbytes, cache, free_bytes(device), kept) if storage_bytes(subject.inputs) else 1
    found: dict[str, Measured] = {}
    for direction in (FORWARD, *([BACKWARD] if backward else [])):
        timed = {
            n: _timed(subject, direction, n, device, effort, is_cold(n, nbytes, cache))
            for n in {copies, 1 if warm else copies}
        }
        work = work_of(counts, direction)
        limit_s, bound = (None, "") if counts.uncounted else limit(work, known, precision)
        flop = None if counts.uncounted else work.products + work.others
        moved = None if counts.uncounted or math.isnan(work.nbytes) else work.nbytes
        found[direction] = Measured(timed[copies], timed[1] if warm else None, flop, moved, limit_s, bound)
    cold = is_cold(copies, nbytes, cache)
    facts_of = facts(device)
    return Bench(
        name, facts_of["device"], found[FORWARD], found.get(BACKWARD), copies, nbytes, cold, tuple(counts.uncounted)
    )


def device_in(tensors: list[torch.Tensor]) -> torch.device:
    """The GPU of these tensors, or the CPU if none of them is on a GPU."""
    return next((t.device for t in tensors if t.device.type == "cuda"), torch.device("cpu"))


def measured_times(
    subject: Subject, backward: bool, nbytes: int, device: torch.device, effort: Effort
) -> tuple[Timing, Timing]:
    """The times of a call or of its backward: on inputs that are not in the cache, and on those that are.

    ``nbytes``: of its inputs and results.
    """
    direction = BACKWARD if backward else FORWARD
    cache = cache_bytes(device)
    copies = copies_needed(nbytes, cache, free_bytes(device))
    turning = _timed(subject, direction, copies, device, effort, is_cold(copies, nbytes, cache))
    return turning, turning if copies == 1 else _timed(subject, direction, 1, device, effort, cold=False)


def _timed(subject: Subject, direction: str, copies: int, device: torch.device, effort: Effort, cold: bool) -> Timing:
    def prepare() -> list[Call]:
        subjects = [subject.copy() for _ in range(copies)]
        return list(subjects) if direction == FORWARD else [backward_of(each) for each in subjects]

    return time_calls(prepare, device, effort, cold)


def backward_of(subject: Subject) -> Call:
    """A call that computes the gradients of the subject's results, which have been computed before."""
    results = [t for t in tensors_in(subject()) if t.requires_grad]
    leaves = leaves_of(results)
    seeds = [torch.randn_like(t) for t in results]
    return lambda: torch.autograd.grad(results, leaves, seeds, retain_graph=True, allow_unused=True)
