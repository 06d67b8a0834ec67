"""The tables and columns of an nvprof database that PyProf reads; the reader and ``pyprof stats`` make their SQL of it.

Kernels, copies, calls and markers are CUPTI's activity records, under CUPTI's names.
"""

from __future__ import annotations

from pyprof.parse.formats.cupti import BY_START, COPY, LAUNCH, OPERATION, REQUIRED, TIMES
from pyprof.parse.formats.source import Source, named

PREFIX = "CUPTI_ACTIVITY_KIND_"

STRINGS = Source("StringTable", named("id=_id_, text=value"), required=("id", "text"))

# GPU operations; `name` is an id of STRINGS. nvprof writes the second table where it serialised kernels.
KERNELS = tuple(
    Source(f"{PREFIX}{kind}", (*OPERATION, *LAUNCH, *named("name")), REQUIRED, BY_START)
    for kind in ("CONCURRENT_KERNEL", "KERNEL")
)
MEMCPY = Source(f"{PREFIX}MEMCPY", (*OPERATION, *COPY), REQUIRED, BY_START)
MEMSET = Source(f"{PREFIX}MEMSET", (*OPERATION, *named("bytes")), REQUIRED, BY_START)

# API calls; `callback` is CUPTI's number of the function.
_CALL = (*TIMES, *named("corr=correlationId, pid=processId, tid=threadId, callback=cbid"))
RUNTIME, DRIVER = (Source(f"{PREFIX}{api}", _CALL) for api in ("RUNTIME", "DRIVER"))

# Where ranges begin and end; `object` is the thread (64 bits), `name` an id of STRINGS.
_MARKER = named("flags, time_ns=timestamp, id, object_kind=objectKind, object=objectId, name, row=_id_")
MARKERS = Source(f"{PREFIX}MARKER", _MARKER, order=("time_ns", "row"))

# GPUs; their facts have the names of ``gpu_info``.
_DEVICE = named(
    "id, name, smCount=numMultiprocessors, clockRate=coreClockRate, memoryBandwidth=globalMemoryBandwidth,"
    " computeMajor=computeCapabilityMajor, computeMinor=computeCapabilityMinor, totalMemory=globalMemorySize,"
    " l2CacheSize, threadsPerWarp=numThreadsPerWarp"
)
DEVICES = Source(f"{PREFIX}DEVICE", _DEVICE, required=("id", "name"), order=("id",))
DEVICE_UNITS = {"clockRate": 1000, "memoryBandwidth": 1000}  # CUpti_ActivityDevice: kHz, kB/s
