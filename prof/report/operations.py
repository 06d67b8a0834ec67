"""The rows of the page's model: for each operation the number of its call, its times, lane and thread."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyprof.prof.timing.waiting import waiting
from pyprof.table.columns import NULL, Ints, Table, distinct, known
from pyprof.table.graph_replays import replay_numbers

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


def _listed(values: Ints, rising: bool) -> list[int | None] | Mapping[str, int | None]:
    """A column as a list, as a list of differences if it is ``rising``, or as one value if all are equal."""
    if len(values) and np.all(values == values[0]):
        return {"all": known(values[0]), "count": len(values)}
    if not rising:
        return [known(value) for value in values.tolist()]
    timed = values[values != NULL]
    return [*np.diff(timed, prepend=0).tolist(), *[None] * (len(values) - len(timed))]
