"""Turn a capture's allocations and frees into the memory table.

An event belongs to the ranges that contain it on its thread, as a launch does (``correlate``). So an allocation in the
backward pass has the layer and the line of its forward op. A free belongs to the last allocation at its address.
"""

from typing import Any

import numpy as np

from pyprof.gc_pause import uncollected
from pyprof.parse.attribute.capture import Capture, MemoryEvents, RecordedStorage
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.steps import steps
from pyprof.parse.tables.correlate import Attributed, at_times, attribute
from pyprof.table.columns import NULL, Coded, Data, Ints, MemoryTable, numbered, value_at

BEFORE = "before"  # the level of blocks that the capture has no allocation of


@uncollected()
def memory_table(capture: Capture, tree: RangeTree) -> MemoryTable:
    """The memory table of a capture that has memory events: one row per event, in order of time; none is dropped."""
    assert capture.memory is not None
    events = in_order(capture.memory)
    launches = at_times(capture, events.thread, events.time)
    rows = attribute(launches, tree)
    of_thread, tid = capture.pids_and_tids(events.thread)
    pid = of_thread if events.pid is None else events.pid
    peer = peers(events, pid)
    columns: dict[str, Data] = {
        "time": events.time,
        "bytes": events.bytes,
        "address": events.address,
        "kind": events.kind,
        "device": events.device,
        "level": events.level,
        "peer": peer,
        "freed": np.where(events.bytes > 0, value_at(events.time, peer), NULL),
        **{key: rows.columns[key] for key in ("op", "layer", "trace", "dir", "phase", "aten")},
        "seq": _sequence_numbers(tree, rows),
        "step": steps(launches, tree).number,
        "pid": pid,
        "tid": tid,
        "rank": rank_of(capture, len(events)),
    }
    for key in ("allocated", "reserved", "trace", "name", "category"):
        given = getattr(events, key)
        if given is not None:
            columns[key] = given
    for key, unknown in (("phase", "other"), ("dir", "")):
        columns[key] = _filled(rows.columns[key], getattr(events, key), unknown)
    return with_storages(MemoryTable(len(events), columns), capture.storages)


def _filled(found: Data, given: Coded | None, unknown: str) -> Data:
    """A column, with the given text where nothing is found."""
    if given is None or not isinstance(found, Coded):
        return found
    pairs = zip(found.texts(), given.texts(), strict=True)
    return Coded.of(instead or text if text in ("", unknown) else text for text, instead in pairs)


def in_order(events: MemoryEvents) -> MemoryEvents:
    """The events in order of time. Events of one time keep the file's order."""
    order = np.argsort(events.time, kind="stable")
    given: dict[str, Any] = {name: getattr(events, name) for name in MemoryEvents.__dataclass_fields__}
    taken: dict[str, Any] = {
        name: c.take(order) if isinstance(c, Coded) else c[order] for name, c in given.items() if c is not None
    }
    return MemoryEvents(**taken)


def peers(events: MemoryEvents, pid: Ints) -> Ints:
    """For each allocation the row of its free, and for each free that of its allocation; ``NULL`` where there is none.

    At one address of a device, a free ends the block of the allocation directly before it. An event without an address
    has no peer.
    """
    level = np.where(events.level.among("driver"), 1, 0)  # the allocator's first block has its segment's address
    _, block = numbered(pid, events.kind.codes, events.device, level, events.address)
    order = np.argsort(block, kind="stable")
    gets = events.bytes[order] > 0
    ends = (block[order][1:] == block[order][:-1]) & gets[:-1] & ~gets[1:] & (events.address[order][1:] != NULL)
    allocations, frees = order[:-1][ends], order[1:][ends]
    peer = np.full(len(events), NULL, np.int64)
    peer[allocations], peer[frees] = frees, allocations
    return peer


def _sequence_numbers(tree: RangeTree, rows: Attributed) -> Ints:
    """The number of the backward node around each event, or else of the innermost op that has one."""
    of_node = tree.numbers_of_nodes(np.where(rows.recomputed, -1, rows.node))
    op = rows.contexts.enclosing("op", rows.inner)
    return np.where(of_node == NULL, value_at(tree.seq, op, NULL), of_node)


def rank_of(capture: Capture, rows: int) -> Ints:
    """The rank that all of the capture's rows have; ``NULL`` if they have none, or several."""
    known = np.unique(capture.ints("rank"))
    return np.full(rows, int(known[0]) if len(known) == 1 else NULL, np.int64)


def with_storages(table: MemoryTable, storages: list[RecordedStorage]) -> MemoryTable:
    """The table with what the collector recorded of the tensors that are alive at the end of the capture.

    The block at a storage's address that is not freed gets its category, name and layer. Where there is none, the block
    is older than the capture, and becomes a row of the level ``before`` at the time of the first event.
    """
    if not storages or not len(table):
        return table
    known = {_place(storage.kind, storage.device, storage.address): storage for storage in storages[::-1]}
    alive = np.flatnonzero(
        (table.ints("bytes") > 0) & (table.ints("peer") == NULL) & ~table.coded("level").among("driver")
    )
    kinds = table.coded("kind").take(alive).texts()
    places = map(_place, kinds, table.ints("device")[alive].tolist(), table.ints("address")[alive].tolist())
    rows = {place: row for place, row in zip(places, alive.tolist(), strict=True) if place in known}
    older = [storage for place, storage in known.items() if place not in rows]
    found = [(row, known[place]) for place, row in rows.items()]
    for key in ("category", "name", "layer"):
        column = table.coded(key).texts()
        for row, storage in found:
            column[row] = column[row] or getattr(storage, key)
        table = table.with_column(key, Coded.of(column))
    peer = table.ints("peer")
    moved = table.with_column("peer", np.where(peer == NULL, NULL, peer + len(older)))
    return MemoryTable.concat([_older(older, table), moved]) if older else table


def _place(kind: str, device: int, address: int) -> tuple[str, int, int]:
    return kind, device, address


def _older(storages: list[RecordedStorage], table: MemoryTable) -> MemoryTable:
    """Rows of blocks that were allocated before the capture."""
    rows = len(storages)
    columns: dict[str, Data] = {
        "time": np.full(rows, table.ints("time")[0]),
        "bytes": np.array([storage.nbytes for storage in storages], np.int64),
        "address": np.array([storage.address for storage in storages], np.int64),
        "device": np.array([storage.device for storage in storages], np.int64),
        "pid": np.full(rows, table.ints("pid")[0]),
        "rank": np.full(rows, table.ints("rank")[0]),
        "level": Coded.of([BEFORE] * rows),
    }
    for key in ("kind", "category", "name", "layer"):
        columns[key] = Coded.of([getattr(storage, key) for storage in storages])
    return MemoryTable(rows, columns)
