"""The GPU operations of an nsys export: kernels, copies, memsets and opaque launches of CUDA graphs."""

from typing import NamedTuple

import numpy as np

from pyprof.gc_pause import given_back
from pyprof.parse.databases.database import Database
from pyprof.parse.formats.cupti import MEMORY, gpu_operations, name_memory, name_operations, table_columns
from pyprof.parse.formats.gpu_info import database_infos
from pyprof.parse.formats.kernel_names import demangle, kept, short_name
from pyprof.parse.nsys.tables import (
    API,
    CUDA_DEVICES,
    GPUS,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMORY_KINDS,
    MEMSET,
    STRINGS,
    process_of,
)
from pyprof.table.columns import NULL, Coded, Data, Ints, distinct, folded

SOURCES, KINDS = (KERNEL, MEMCPY, MEMSET, GRAPH), ("kernel", "memcpy", "memset", "graph")
_OUTLINE = ("start_ns", "end_ns", "process", "corr", "device", "stream", "graphNode", "graph")  # what a summary needs


class Operations(NamedTuple):
    """GPU operations in order of start."""

    rows: int
    pid: Ints
    corr: Ints
    start: Ints
    graph_node: Ints
    graph: Ints  # the number of an opaque graph; NULL for all other rows
    kind: Ints  # index into KINDS
    columns: dict[str, Data]  # of the kernel table
    warnings: list[str]
    untimed: int  # the rows without possible times


@given_back()
def read_operations(db: Database) -> Operations:
    """All GPU operations. Raises SchemaError if a table lacks a required column."""
    data, warnings, untimed = gpu_operations(db, SOURCES)
    short, long = _kernel_names(db, data)
    name_operations([short, long], data, KINDS)
    name_memory(long, data, _memory_kinds(db))
    operations = _operations(db, data, warnings, untimed)
    operations.columns.update({"kShortName": short, "kLongName": long})
    return operations


def _memory_kinds(db: Database) -> dict[int, str]:
    """The kinds of memory by number. nsys counts them from 0; "Unknown" is none."""
    labels = {number: label for number, label in db.records(MEMORY_KINDS) if label in MEMORY.values()}
    return labels or {number - 1: label for number, label in MEMORY.items()}


def outline_operations(db: Database) -> Operations:
    """All GPU operations, but only with the columns that a summary shows."""
    return _operations(db, *gpu_operations(db, SOURCES, _OUTLINE))


def _operations(db: Database, data: dict[str, Ints], warnings: list[str], untimed: int) -> Operations:
    pid = folded(process_numbers(data["process"], db))
    columns = table_columns(data, KINDS)
    columns["gpu"], columns["gpuInfo"] = _gpus(db, pid, data["device"])
    corr, start, node, graph, kind = (data[key] for key in ("corr", "start_ns", "graphNode", "graph", "kind"))
    return Operations(len(pid), pid, corr, start, node, graph, kind, columns, warnings, untimed)


def process_numbers(global_pid: Ints, db: Database) -> Ints:
    """The process number of each globalPid; where it is missing, that of the only process that called the API."""
    if np.all(global_pid != NULL):
        return process_of(global_pid)
    threads = db.read(API, "thread")["thread"]  # exports cut by hand lack globalPid
    pids = np.unique(process_of(threads[threads != NULL]))
    return np.where(global_pid == NULL, pids[0] if len(pids) == 1 else NULL, process_of(global_pid))


def _kernel_names(db: Database, data: dict[str, Ints]) -> tuple[Coded, Coded]:
    """Short and long names from the file. A missing name is made from the other name or the mangled name."""
    ids = [data[key] for key in ("short_name", "long_name", "mangled_name")]
    strings = db.texts(STRINGS, np.concatenate(ids))
    used, codes = distinct(*ids)
    names = [tuple(kept(strings.get(id_, "")) for id_ in row) for row in used]
    longs = [long or demangle(mangled) or short for short, long, mangled in names]
    shorts = [short or short_name(long) for (short, _, _), long in zip(names, longs, strict=True)]
    return Coded(codes.astype(np.int32), shorts), Coded(codes.astype(np.int32), longs)


def _gpus(db: Database, pid: Ints, device: Ints) -> tuple[Coded, Coded]:
    """The GPU's name and facts (``gpu_info``) of each row.

    They come from TARGET_INFO_CUDA_DEVICE if the table exists, or else from TARGET_INFO_GPU.cuDevice.
    TARGET_INFO_GPU.id is never used: on a 4-GPU host ids 0, 1, 2, 3 were CUDA devices 1, 0, 3, 2.
    """
    infos = database_infos(db, GPUS)
    by_id, by_device, by_process = (dict[object, tuple[str, str]]() for _ in range(3))
    checked = db.has(GPUS.table, GPUS.column("computeMajor"))
    for id_, number, gpu_name, major in db.records(GPUS, "id", "device", "name", "computeMajor"):
        by_id[id_] = (str(gpu_name), infos.get(id_, ""))
        if not checked or (isinstance(major, int) and major > 0):  # a display adapter's compute capability is 0
            by_device[number] = by_id[id_]
    by_process |= {(pid, number): by_id[gpu] for pid, number, gpu in db.records(CUDA_DEVICES) if gpu in by_id}
    used, codes = distinct(pid, device)
    gpus = [by_process.get(pair) or by_device.get(pair[1], ("", "")) for pair in used]
    name, info = ([gpu[part] for gpu in gpus] for part in range(2))
    code = folded(codes.astype(np.int32))
    return Coded(code, name), Coded(code, info)
