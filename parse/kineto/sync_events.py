"""The CUDA calls of a torch.profiler trace, with the streams and events that synchronising calls are about.

Only a trace with CUDA's synchronisations says these: torch.profiler._ExperimentalConfig(enable_cuda_sync_events=True).
Its events of the category cuda_sync have the stream that waits, or is waited for, and the correlation ids of the call
and of the cudaEventRecord that the event comes from (libkineto/src/CuptiActivity.cpp).
"""

import numpy as np

from pyprof.parse.attribute.capture import HostCalls
from pyprof.parse.formats.cupti import Calls
from pyprof.parse.kineto.event_types import Event
from pyprof.parse.kineto.events import args, integers
from pyprof.table.columns import NULL, Ints, lookup, value_at


def host_calls(syncs: list[Event], calls: Calls, thread: Ints) -> HostCalls:
    """All calls. ``syncs``: the trace's events of synchronisations, if it has any."""
    found = HostCalls(thread, calls.start, calls.end, calls.name, calls.corr)
    if syncs:
        details = args(syncs)
        corr, stream, record = (
            integers([getattr(a, name) for a in details]) for name in ("corr", "stream", "wait_record")
        )
        source = integers([a.wait_stream for a in details])
        row = _first(corr, calls.corr)
        found.stream = _known(value_at(stream, row))
        found.record = _first(calls.corr, np.where(_known(value_at(record, row)) > 0, value_at(record, row), NULL))
        recorded = found.record >= 0  # the call that recorded the event did so on the stream that is waited for
        np.put(found.stream, found.record[recorded], _known(value_at(source, row))[recorded])
    return found


def _first(ids: Ints, wanted: Ints) -> Ints:
    """The index of the first of ``ids`` that equals each wanted one; -1: none. A trace has one process."""
    return lookup(np.zeros_like(ids), ids, np.zeros_like(wanted), wanted)


def _known(values: Ints) -> Ints:
    """Streams and ids; Kineto writes -1 or 2**32 - 1 for one that does not apply."""
    return np.where((values < 0) | (values == (1 << 32) - 1), NULL, values)
