"""The tables and columns of an nsys export that pyprof reads.

The reader, the summary and ``pyprof stats`` build their SQL from these descriptions, so if nsys renames a column, only
this file changes. Code checks which columns exist, never the version: NVIDIA promises no compatibility of the export.
"""

from typing import TypeVar

from pyprof.parse.databases.database import Source, named
from pyprof.parse.formats.cupti import BY_START, COPY, LAUNCH, OPERATION, REQUIRED, TIMES
from pyprof.parse.formats.gpu_info import FACTS
from pyprof.table.columns import Ints

STRINGS = Source("StringIds", named("id, text=value"), required=("id", "text"))

# GPU operations. `process` is a globalPid; names are ids of STRINGS.
_OPERATION = (*OPERATION, *named("process=globalPid, graphNode=graphNodeId"))
_NAMES = named("short_name=shortName, long_name=demangledName, mangled_name=mangledName")
KERNEL = Source("CUPTI_ACTIVITY_KIND_KERNEL", (*_OPERATION, *LAUNCH, *_NAMES), REQUIRED, BY_START)
MEMCPY = Source("CUPTI_ACTIVITY_KIND_MEMCPY", (*_OPERATION, *COPY), REQUIRED, BY_START)
# The kinds of memory that the numbers in a copy mean. Exports before 2022 lack the table, and have the same numbers.
MEMORY_KINDS = Source("ENUM_CUDA_MEM_KIND", named("id, label"), required=("id", "label"), order=("id",))
MEMSET = Source("CUPTI_ACTIVITY_KIND_MEMSET", (*_OPERATION, *named("bytes")), REQUIRED, BY_START)
GRAPH = Source("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_OPERATION, *named("graph=graphId")), REQUIRED, BY_START)

# Calls on CPU threads. `thread` is a globalTid, `name` an id of STRINGS. Event classes 0 and 1 are runtime and driver
# calls; 67 is backtraces, which repeat the correlation ids of the calls; 27 is calls of the operating system.
_CALL = (*TIMES, *named("thread=globalTid, name=nameId, event_class=eventClass"))
_CALLED = ("start_ns", "end_ns", "thread")
_API = (*_CALL, *named("corr=correlationId, error=returnValue"))
API = Source("CUPTI_ACTIVITY_KIND_RUNTIME", _API, required=(*_CALLED, "corr"), only=("event_class", (0, 1)))
OS_CALLS = Source("OSRT_API", _CALL, required=(*_CALLED, "name"), only=("event_class", (27,)))
_NODE = named("node=graphNodeId, original=originalGraphNodeId, start_ns=start, thread=globalTid")
GRAPH_NODES = Source("CUDA_GRAPH_NODE_EVENTS", _NODE)
_CREATED = ("graph", "start_ns", "thread")
GRAPHS = Source("CUDA_GRAPH_EVENTS", named("graph=graphId, start_ns=start, thread=globalTid"), _CREATED)

# Which stream and event a synchronising call was about; the call has the correlation id. An event is recorded many
# times, and from 2024 on each time has a number of its own (eventSyncId).
_EVENT = named("process=globalPid, corr=correlationId, stream=streamId, event=eventId, time=eventSyncId")
SYNCHRONIZATIONS = Source("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _EVENT, ("corr",))
EVENT_RECORDS = Source("CUPTI_ACTIVITY_KIND_CUDA_EVENT", _EVENT, ("corr",))

# Memory of CUDA, where nsys recorded it (--cuda-memory-usage=true).
_USAGE = named("time=start, process=globalPid, device=deviceId, address, bytes, kind=memKind, corr=correlationId")
MEMORY_USAGE = Source(
    "CUDA_GPU_MEMORY_USAGE_EVENTS", (*_USAGE, *named("operation=memoryOperationType")), ("time", "bytes", "operation")
)

# NVTX ranges and marks. `end_thread` is the thread that ended a range if it is not `thread`. A text is in the row or,
# if it was registered with NVTX, in STRINGS.
_NVTX = named("event_type=eventType, thread=globalTid, end_thread=endGlobalTid, domain=domainId, text, text_id=textId")
_PAYLOAD = named("json=jsonText, json_id=jsonTextId, payload=binaryData")
_RANGE = ("start_ns", "end_ns", "thread", "event_type")
_RANGE_NUMBERS = (*_RANGE, "end_thread", "domain", "text_id")
NVTX = Source("NVTX_EVENTS", (*TIMES, *_NVTX, *_PAYLOAD), required=_RANGE, numbers=_RANGE_NUMBERS)
_ENTRY = named("domain=domainId, schema=schemaId, index=idx, type, name, offset")
_ENTRY_NUMBERS = ("domain", "schema", "index", "type", "offset")
PAYLOAD_ENTRIES = Source(
    "NVTX_PAYLOAD_SCHEMA_ENTRIES", _ENTRY, required=tuple(name for name, _ in _ENTRY), numbers=_ENTRY_NUMBERS
)
_SCHEMA, _IDS = named("domain=domainId, schema=schemaId"), ("domain", "schema")
PAYLOAD_ENUMS = Source("NVTX_PAYLOAD_ENUMS", (*_SCHEMA, *named("bytes=size")), ("bytes",), numbers=(*_IDS, "bytes"))
PAYLOAD_ENUM_VALUES = Source(
    "NVTX_PAYLOAD_ENUM_ENTRIES", (*_SCHEMA, *named("name, value")), ("value",), numbers=(*_IDS, "value")
)

# The machine, its processes and the export itself. Facts of a GPU have the names of ``gpu_info``.
_GPU = (*named("id, device=cuDevice, name"), *((fact, fact) for fact in FACTS))
GPUS = Source("TARGET_INFO_GPU", _GPU, required=("name",), order=("device",), numbers=("id", "device", "computeMajor"))
_DEVICE = named("pid, device=cudaId, gpu=gpuId")
CUDA_DEVICES = Source(
    "TARGET_INFO_CUDA_DEVICE", _DEVICE, required=("gpu",), order=("pid", "device"), numbers=("pid", "device", "gpu")
)
_RANK, _NAMED = ("process", "rank"), ("thread", "name")
MPI_RANKS = Source("MPI_RANKS", named("process=globalPid, rank"), required=_RANK, numbers=_RANK)
THREAD_NAMES = Source("ThreadNames", named("thread=globalTid, name=nameId"), required=_NAMED, numbers=_NAMED)
PROPERTIES = Source("META_DATA_EXPORT", named("name, value"), required=("value",))
DIAGNOSTICS = Source(
    "DIAGNOSTIC_EVENT", named("time=timestamp, severity, text"), ("severity",), order=("time",), numbers=("severity",)
)

EVERY = tuple(value for value in tuple(globals().values()) if isinstance(value, Source))
CAPTURE = tuple(source for source in EVERY if source is not OS_CALLS)  # what the kernel table is made of

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
