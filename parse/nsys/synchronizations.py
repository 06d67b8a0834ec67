"""The calls of the CUDA API in an nsys export, with the streams and events that synchronising calls are about.

nsys records a synchronisation and the record of an event as activities, which have the correlation ids of their calls.
The types of synchronisations are not read: their numbers differ between versions, and the call's name says the same.
"""

from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import HostCalls
from pyprof.parse.databases.database import Database, Source
from pyprof.parse.formats.cupti import Calls
from pyprof.parse.nsys.api_launches import ApiCalls, threads_of
from pyprof.parse.nsys.operations import process_numbers
from pyprof.parse.nsys.tables import EVENT_RECORDS, SYNCHRONIZATIONS
from pyprof.table.columns import NULL, Ints, lookup, numbered, value_at

_NONE = (1 << 32) - 1  # CUPTI's number of a stream or event that does not apply


class _Activities(NamedTuple):
    """Per call, what its activity says; ``NULL`` if it has none."""

    stream: Ints
    event: Ints
    time: Ints  # which record of the event, in exports that number these


def host_calls(db: Database, calls: ApiCalls, named: Calls, tids: dict[int, int]) -> HostCalls:
    """All calls. ``tids``: globalTid -> thread number, which may grow."""
    synced, recorded = _of_calls(db, SYNCHRONIZATIONS, calls), _of_calls(db, EVENT_RECORDS, calls)
    stream = np.where(recorded.stream == NULL, synced.stream, recorded.stream)
    thread, record = threads_of(calls.global_tid, tids), _records(calls, synced, recorded)
    return HostCalls(thread, named.start, named.end, named.name, named.corr, stream, record)


def _of_calls(db: Database, source: Source, calls: ApiCalls) -> _Activities:
    if not db.has_all(source):
        return _Activities(*(np.full(len(calls.corr), NULL, np.int64) for _ in _Activities._fields))
    data = db.read(source)
    row = lookup(process_numbers(data["process"], db), data["corr"], calls.pid, calls.corr)
    columns = (np.where(data[name] == _NONE, NULL, data[name]) for name in _Activities._fields)
    return _Activities(*(value_at(column, row) for column in columns))


def _records(calls: ApiCalls, synced: _Activities, recorded: _Activities) -> Ints:
    """The call that recorded the event that each call waits for: of that number, or the event's last one before it."""
    waits = np.flatnonzero((synced.event != NULL) & (recorded.event == NULL))
    records = np.flatnonzero(recorded.event != NULL)
    found = np.full(len(calls.corr), -1, np.int64)
    if not len(waits) or not len(records):
        return found
    both = np.concatenate([records, waits])
    event = np.where(recorded.event[both] == NULL, synced.event[both], recorded.event[both])
    _, name = numbered(calls.pid[both], event)
    of_record, of_wait = name[: len(records)], name[len(records) :]
    numbers = np.where(recorded.time[records] > 0, recorded.time[records], NULL)
    by_number = value_at(records, lookup(of_record, numbers, of_wait, synced.time[waits]), -1)
    found[waits] = np.where(by_number >= 0, by_number, _last_before(calls.start, records, of_record, waits, of_wait))
    return found


def _last_before(start: Ints, records: Ints, of_record: Ints, waits: Ints, of_wait: Ints) -> Ints:
    """Per wait, the last record of its event that was called before; -1: none. ``of_*``: the events' numbers."""
    _, time = np.unique(np.concatenate([start[records], start[waits]]), return_inverse=True)
    room = int(time.max()) + 1
    order = np.lexsort((start[records], of_record))
    keys = (of_record * room + time[: len(records)])[order]
    before = np.searchsorted(keys, of_wait * room + time[len(records) :], "right") - 1
    known = (before >= 0) & (of_record[order][before] == of_wait)
    return np.where(known, records[order][before], -1)
