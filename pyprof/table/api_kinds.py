"""What a call of CUDA or HIP does, by its name."""

import re

# Kind -> the names of its calls without the prefix (cuda, cu, hip) and the version after them. The first that fits
# counts. Calls of no kind do their work on the CPU, such as cudaFuncGetAttributes.
_KINDS = {
    "graph": r"GraphLaunch",
    "launch": r"(?!Host)\w*Launch(?!Host|\w*HostFunc)",
    "copy": r"Memcpy",
    "set": r"Memset|MemsetD",
    "device sync": r"(?:Device|Ctx|Thread)Synchronize",
    "stream sync": r"StreamSynchronize",
    "event sync": r"EventSynchronize",
    "query": r"(?:Event|Stream)Query",
    "record": r"EventRecord",
    "wait": r"StreamWaitEvent",
    "begin capture": r"StreamBeginCapture",
    "end capture": r"StreamEndCapture",
    "free": r"(?:Mem)?Free(?!\w*Async)|HostUnregister|MemRelease|MemUnmap",
    "allocate": r"(?:Mem)?(?:Malloc|Alloc)(?!\w*Async)|HostAlloc|HostRegister|MemHostAlloc",
}
_NAME = re.compile("(?:cuda|cu|hip)(?:" + "|".join(f"({pattern})" for pattern in _KINDS.values()) + ")")
API_KINDS = tuple(_KINDS)
GIVING = ("launch", "copy", "set", "graph")  # that give the GPU work


def api_kind(name: str) -> str:
    """The kind of a call; empty for one that neither gives the GPU work nor waits for it.

    >>> api_kind("cudaLaunchKernelExC_v11060"), api_kind("cuLaunchKernel"), api_kind("hipExtModuleLaunchKernel")
    ('launch', 'launch', 'launch')
    >>> api_kind("cudaMemcpyAsync"), api_kind("cudaGraphLaunch"), api_kind("cudaFreeAsync"), api_kind("cuInit")
    ('copy', 'graph', '', '')
    """
    match = _NAME.match(name)
    return "" if match is None or match.lastindex is None else API_KINDS[match.lastindex - 1]
