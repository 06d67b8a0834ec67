"""What pairs launches with kernels: correlation ids, or in traces without them the events' external ids."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.formats.kernel_names import demangle
from pyprof.parse.formats.shared_launches import shared_launches
from pyprof.parse.kineto.event_types import Args, Event
from pyprof.parse.kineto.events import Events, args, integers
from pyprof.table.columns import NULL, Bools, Coded, Ints, value_at


def external_ids(details: list[Args]) -> Ints:
    """The events' external ids."""
    today, old = integers([a.ext for a in details]), integers([a.old_ext for a in details])
    return np.where(today != NULL, today, old)


def settle_ids(events: Events) -> None:
    """Take the external ids of calls and GPU operations for correlation ids, where a trace pairs them by those alone.

    In PyTorch for ROCm up to 2.3, libkineto wrote roctracer's correlation id as "External id", and no "correlation".
    Ids that several calls have are numbers of ops, which contain several calls, and stay what they are.
    """
    both = [*args(events.calls), *args(events.gpu)]
    ids = external_ids(both)
    of_calls = ids[: len(events.calls)]
    known = of_calls[of_calls != NULL]
    if (integers([a.corr for a in both]) != NULL).any() or not len(known) or len(np.unique(known)) < len(known):
        return
    for details, number in zip(both, ids.tolist(), strict=True):
        if number != NULL:
            details.corr, details.ext, details.old_ext = number, NULL, NULL


def ambiguous(call: Ints, gpu: list[Event], kind: Coded, calls: list[Event]) -> Bools:
    """Which operations share a call of HIP that launched only one of them, and may be another's."""
    details = args(calls)
    launched = Coded.of(_text(a.kernel) or _text(a.old_kernel) for a in details)
    started = Coded.of(event.name for event in gpu)
    of_calls = _names(value_at(launched.codes, call, -1), launched.values)
    named = (of_calls == _names(started.codes, started.values)) & (of_calls != "")
    return shared_launches(call, kind.among("kernel"), Coded.of(event.name for event in calls), named)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _names(codes: NDArray[np.integer[Any]], values: list[str]) -> NDArray[np.object_]:
    """The demangled name of each row, without what HIP adds to it; empty for code -1."""
    texts: NDArray[np.object_] = np.empty(len(values) + 1, object)
    texts[:] = [*(demangle(value).removesuffix(" [clone .kd]") for value in values), ""]
    found: NDArray[np.object_] = texts[codes]
    return found
