"""The allocations of an nsys export (``nsys profile --cuda-memory-usage=true``): calls such as cudaMalloc and cudaFree.

These are not PyTorch's blocks. Its caching allocator asks CUDA for large segments, which it keeps and divides; nsys
sees the segments alone. So this is what is reserved, not what is in use.
"""

import numpy as np

from pyprof.parse.attribute.capture import MemoryEvents
from pyprof.parse.databases.database import Database
from pyprof.parse.nsys.api_launches import ApiCalls, threads_of
from pyprof.parse.nsys.operations import process_numbers
from pyprof.parse.nsys.tables import MEMORY_USAGE
from pyprof.table.columns import NULL, Coded, lookup, value_at

# ENUM_CUDA_MEM_KIND, by number. Static memory is that of variables in loaded modules.
KINDS = ("pageable", "pinned", "cuda", "array", "managed", "static", "managed static", "unknown")
ALLOCATION, FREE = 0, 1  # ENUM_CUDA_DEV_MEM_EVENT_OPER


def memory_events(db: Database, calls: ApiCalls, tids: dict[int, int]) -> MemoryEvents | None:
    """The allocations and frees; None if there are none. ``tids``: globalTid -> thread number, which may grow.

    An event's thread is that of its CUDA call. Of variables in modules, which no call allocates, it is unknown.
    """
    if not db.has_all(MEMORY_USAGE):
        return None
    data = db.read(MEMORY_USAGE)
    kept = (data["time"] != NULL) & (data["bytes"] > 0) & np.isin(data["operation"], (ALLOCATION, FREE))
    data = {name: column[kept] for name, column in data.items()}
    if not len(data["time"]):
        return None
    pid = process_numbers(data["process"], db)
    call = np.where(data["corr"] > 0, lookup(calls.pid, calls.corr, pid, data["corr"]), -1)
    kind = np.where((data["kind"] < 0) | (data["kind"] >= len(KINDS)), len(KINDS) - 1, data["kind"])
    rows = len(pid)
    return MemoryEvents(
        thread=value_at(threads_of(calls.global_tid, tids), call, -1),
        time=data["time"],
        bytes=np.where(data["operation"] == FREE, -data["bytes"], data["bytes"]),
        address=data["address"],
        kind=Coded(kind.astype(np.int32), list(KINDS)),
        device=data["device"],
        level=Coded(np.zeros(rows, np.int32), ["driver"]),
        pid=pid,
    )
