"""The tables and columns of an nsys export that PyProf reads, and nothing but them.

The reader, the summary and ``pyprof stats`` make their SQL of these descriptions, so a column that nsys renames is
changed here alone. Columns are detected, never versions: NVIDIA promises no compatibility of the SQLite export.
"""

from __future__ import annotations

from typing import TypeVar

from pyprof.parse.formats.cupti import BY_START, COPY, LAUNCH, OPERATION, REQUIRED, TIMES
from pyprof.parse.formats.gpu_info import FACTS
from pyprof.parse.formats.source import Source
from pyprof.table.columns import Ints

STRINGS = Source("StringIds", (("id", "id"), ("text", "value")), required=("id", "text"))

# GPU operations. `process` is a globalPid; names are ids of STRINGS.
_OPERATION = (*OPERATION, ("process", "globalPid"), ("graphNode", "graphNodeId"))
_NAMES = (("short_name", "shortName"), ("long_name", "demangledName"), ("mangled_name", "mangledName"))
KERNEL = Source("CUPTI_ACTIVITY_KIND_KERNEL", (*_OPERATION, *LAUNCH, *_NAMES), REQUIRED, BY_START)
MEMCPY = Source("CUPTI_ACTIVITY_KIND_MEMCPY", (*_OPERATION, *COPY), REQUIRED, BY_START)
MEMSET = Source("CUPTI_ACTIVITY_KIND_MEMSET", (*_OPERATION, ("bytes", "bytes")), REQUIRED, BY_START)
GRAPH = Source("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_OPERATION, ("graph", "graphId")), REQUIRED, BY_START)

# Calls on CPU threads. `thread` is a globalTid, `name` an id of STRINGS. Event classes 0 and 1 are runtime and driver
# calls; 67 is backtraces, which repeat the correlation ids of the calls; 27 is calls of the operating system.
_CALL = (*TIMES, ("thread", "globalTid"), ("name", "nameId"), ("event_class", "eventClass"))
API = Source(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    (*_CALL, ("corr", "correlationId")),
    required=("start_ns", "end_ns", "corr", "thread"),
    only=("event_class", (0, 1)),
)
OS_CALLS = Source("OSRT_API", _CALL, required=("start_ns", "end_ns", "thread", "name"), only=("event_class", (27,)))
GRAPH_NODES = Source(
    "CUDA_GRAPH_NODE_EVENTS",
    (("node", "graphNodeId"), ("original", "originalGraphNodeId"), ("start_ns", "start"), ("thread", "globalTid")),
)

# NVTX ranges and marks. `end_thread` is the thread that ended a range where it is another than `thread`. Texts stand in
# the row or, registered with NVTX, in STRINGS.
NVTX = Source(
    "NVTX_EVENTS",
    (
        *TIMES,
        ("event_type", "eventType"),
        ("thread", "globalTid"),
        ("end_thread", "endGlobalTid"),
        ("domain", "domainId"),
        ("text", "text"),
        ("text_id", "textId"),
        ("json", "jsonText"),
        ("json_id", "jsonTextId"),
        ("payload", "binaryData"),
    ),
    required=("start_ns", "end_ns", "thread", "event_type"),
)
PAYLOAD_ENTRIES = Source(
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    (
        ("domain", "domainId"),
        ("schema", "schemaId"),
        ("index", "idx"),
        ("type", "type"),
        ("name", "name"),
        ("offset", "offset"),
    ),
    required=("domain", "schema", "index", "type", "name", "offset"),
)
PAYLOAD_ENUMS = Source(
    "NVTX_PAYLOAD_ENUMS", (("domain", "domainId"), ("schema", "schemaId"), ("bytes", "size")), required=("bytes",)
)
PAYLOAD_ENUM_VALUES = Source(
    "NVTX_PAYLOAD_ENUM_ENTRIES",
    (("domain", "domainId"), ("schema", "schemaId"), ("name", "name"), ("value", "value")),
    required=("value",),
)

# The machine, its processes and the export itself. Facts of a GPU have the names of ``gpu_info``.
GPUS = Source(
    "TARGET_INFO_GPU",
    (("id", "id"), ("device", "cuDevice"), ("name", "name"), *((fact, fact) for fact in FACTS)),
    required=("name",),
    order=("device",),
)
CUDA_DEVICES = Source(
    "TARGET_INFO_CUDA_DEVICE",
    (("pid", "pid"), ("device", "cudaId"), ("gpu", "gpuId")),
    required=("gpu",),
    order=("pid", "device"),
)
MPI_RANKS = Source("MPI_RANKS", (("process", "globalPid"), ("rank", "rank")), required=("process", "rank"))
THREAD_NAMES = Source("ThreadNames", (("thread", "globalTid"), ("name", "nameId")), required=("thread", "name"))
PROPERTIES = Source("META_DATA_EXPORT", (("name", "name"), ("value", "value")), required=("value",))
DIAGNOSTICS = Source(
    "DIAGNOSTIC_EVENT",
    (("time", "timestamp"), ("severity", "severity"), ("text", "text")),
    required=("severity",),
    order=("time",),
)

_PROCESS_MASK = 0xFFFFFF
Number = TypeVar("Number", int, Ints)


def process_of(global_id: Number) -> Number:
    """The process number in a globalPid or globalTid: bits 24 to 47."""
    return (global_id >> 24) & _PROCESS_MASK


def process_sql(global_id: str) -> str:
    """The same in SQL."""
    return f"({global_id} >> 24) & {_PROCESS_MASK}"


def thread_of(global_id: Number) -> Number:
    """The thread number in a globalTid: the lowest 24 bits."""
    return global_id & 0xFFFFFF
