"""The rows of the page's model: for each operation the number of its call, its times, lane and thread."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyprof.prof.timing.waiting import waiting
from pyprof.table.columns import NULL, Ints, Table, distinct, known
from pyprof.table.graph_replays import replay_numbers
from pyprof.table.varints import varints

LONG = 4096  # rows: longer columns are packed, which takes half of the bytes
FEW_RUNS = 8  # a column whose runs of equal values are so many times fewer than its rows is stored by run
RISING = ("start", "instance")  # stored as differences from one row to the next


def operation_columns(table: Table, owner: Ints, owners: Sequence[str], call: Ints) -> dict[str, Any]:
    """The rows in order of start time, with the lanes in which they ran and the threads that launched them."""
    start = table.ints("start")
    order = np.argsort(np.where(start == NULL, np.iinfo(np.int64).max, start), kind="stable")
    lane, lanes = _lanes(table, owner, owners)
    thread, threads = _threads(table)
    rows = {**_times(table), "call": call, "lane": lane, "thread": thread, "instance": _instances(table, order)}
    return {
        "lanes": lanes,
        "threads": threads,
        "rows": {key: _listed(values[order], key in RISING) for key, values in rows.items()},
    }


def _times(table: Table) -> dict[str, Ints]:
    start, api = table.ints("start"), table.ints("apiStart")
    both = (start != NULL) & (api != NULL)
    cause = waiting(table).cause.codes.astype(np.int64)
    return {
        "start": start,
        "dur": table.ints("kDuration"),
        "step": table.ints("step"),
        "wait": np.where(both, start - np.where(both, api, 0), NULL),  # from start of launch to start of operation
        "api_dur": table.ints("apiDuration"),
        "why": np.where(cause < 0, NULL, cause),  # the cause of the gap before it, an index into CAUSES
    }


def _lanes(table: Table, owner: Ints, owners: Sequence[str]) -> tuple[Ints, list[dict[str, Any]]]:
    """Each row's lane: a stream of a GPU, or a thread of CPU ops; and the lanes with owner and name."""
    on_cpu = table.coded("kind").among("cpu")
    stream = np.where(on_cpu, table.ints("tid"), table.ints("stream"))
    keys, lane = distinct(owner, on_cpu.astype(np.int64), stream)
    several = len(owners) > 1
    lanes = []
    for device, cpu, number in keys:
        name = _numbered("thread" if cpu else "stream", number)
        lanes.append({"owner": int(device), "name": f"{name}, {owners[device]}" if several else name})
    return lane, lanes


def _threads(table: Table) -> tuple[Ints, list[str]]:
    """The thread that launched each row, NULL where no launch is known; and the threads' names."""
    keys, thread = distinct(table.ints("rank"), table.ints("pid"), table.ints("tid"))
    processes = len({(rank, pid) for rank, pid, _ in keys})
    names = [_thread_name(key, processes) for key in keys]
    return np.where(table.ints("apiStart") != NULL, thread, NULL), names


def _thread_name(key: Sequence[int], processes: int) -> str:
    rank, pid, tid = key
    name = _numbered("thread", tid)
    if processes == 1:
        return name
    if rank != NULL:
        return f"{name}, rank {rank}"
    return name if pid == NULL else f"{name}, process {pid}"


def _numbered(word: str, number: int) -> str:
    return word if number == NULL else f"{word} {number}"


def _instances(table: Table, order: Ints) -> Ints:
    """The number of each row's call of an op, in order of its first row. A row without an op is a call of its own."""
    op = table.ints("opId")
    alone = np.where(op == NULL, np.arange(len(table)), -1)
    _, number = distinct(table.ints("pid"), op, replay_numbers(table), alone)
    _, first, inverse = np.unique(number[order], return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    instance = np.empty(len(table), np.int64)
    instance[order] = place[inverse.reshape(-1)]
    return instance


def _listed(values: Ints, rising: bool) -> list[int | None] | Mapping[str, Any]:
    """A column as a list, or as one value if all are equal; a long one packed.

    ``rising``: the list has the differences from one row to the next, those without a value last.
    """
    if len(values) and np.all(values == values[0]):
        return {"all": known(values[0]), "count": len(values)}
    if rising:
        timed = values[values != NULL]
        values = np.append(np.diff(timed, prepend=0), np.full(len(values) - len(timed), NULL))
    if len(values) < LONG:
        return [known(value) for value in values.tolist()]
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    if len(first) * FEW_RUNS > len(values):
        return {"packed": _packed(values), "count": len(values)}
    lengths = np.diff(first, append=len(values))
    return {"packed": _packed(values[first]), "count": len(first), "lengths": _packed(lengths), "rows": len(values)}


def _packed(values: Ints) -> str:
    """Numbers as varints in base64: 0 for NULL, or else 1 more than their zigzag form (0, -1, 1, -2, ...)."""
    zigzag = np.where(values == NULL, -1, (values << 1) ^ (values >> 63))
    digits, written = varints(zigzag + 1)
    return base64.b64encode(digits[written].tobytes()).decode()
