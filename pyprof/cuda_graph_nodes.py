"""The nodes of a CUDA graph while a stream captures it, asked of NVIDIA's driver (libcuda) through ctypes.

Names and signatures are those of the driver API (cuda.h of CUDA 12.3 to 13.0); each was tried with driver 580 on an
H200, where a call takes 0.9 us. The documentation of cuStreamGetCaptureInfo allows to read the graph while the capture
is in progress.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from typing import Any, NamedTuple

KINDS = ("kernel", "memcpy", "memset")  # the first values of CUgraphNodeType; other nodes run nothing on the GPU
_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_EDGE_DATA_BYTES = 8  # sizeof(CUgraphEdgeData)
_NEEDED = (
    "cuStreamGetCaptureInfo_v2",
    "cuGraphGetNodes",
    "cuGraphGetEdges_v2",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams_v2",
    "cuFuncGetName",
    "cuKernelGetName",
)


class Node(NamedTuple):
    handle: int
    kind: str  # one of KINDS, or empty


class _KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid_and_block", ctypes.c_uint * 6),
        ("shared_memory", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@functools.cache
def driver() -> Any:
    """libcuda, which PyTorch has loaded already; None without it, or before CUDA 12.3."""
    if sys.platform != "linux":
        return None
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return found if all(hasattr(found, name) for name in _NEEDED) else None


class CapturedGraph:
    """The graph that a stream captures. ``of_stream`` returns None where there is none, or no such driver."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._status, self._number = ctypes.c_int(), ctypes.c_uint64()
        self._graph, self._last, self._count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        parts = (self._status, self._number, self._graph, self._last, self._count)
        self._parts = tuple(map(ctypes.byref, parts))

    @classmethod
    def of_stream(cls, stream: int) -> CapturedGraph | None:
        cuda = driver()
        graph = None if cuda is None else cls(cuda)
        return graph if graph is not None and graph._ask(stream) and graph._graph.value else None

    def _ask(self, stream: int) -> bool:
        error = self._cuda.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *self._parts)
        return bool(error == 0 and self._status.value == _ACTIVE)

    def last_nodes(self, stream: int) -> tuple[int, ...]:
        """The nodes on which the next node of this stream will depend: usually the one that it captured last."""
        if not self._ask(stream) or not self._last.value:
            return ()
        count = self._count.value
        if count == 1:
            return (ctypes.c_void_p.from_address(self._last.value).value or 0,)
        return tuple(node or 0 for node in (ctypes.c_void_p * count).from_address(self._last.value))

    def nodes(self) -> list[Node]:
        """All nodes in the order in which they were captured; empty where the driver does not give them."""
        count = ctypes.c_size_t()
        if self._cuda.cuGraphGetNodes(self._graph, None, ctypes.byref(count)) != 0:
            return []
        nodes = (ctypes.c_void_p * count.value)()
        if self._cuda.cuGraphGetNodes(self._graph, nodes, ctypes.byref(count)) != 0:
            return []
        return [Node(node or 0, self._kind(node or 0)) for node in nodes]

    def _kind(self, node: int) -> str:
        kind = ctypes.c_int()
        known = self._cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        return KINDS[kind.value] if known and 0 <= kind.value < len(KINDS) else ""

    def kernel_name(self, node: int) -> str:
        """The name of a kernel node's function, as the compiler mangled it; empty where it is unknown."""
        params, name = _KernelParams(), ctypes.c_char_p()
        if self._cuda.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(params)) != 0:
            return ""
        call, handle = (
            (self._cuda.cuFuncGetName, params.function)
            if params.function
            else (self._cuda.cuKernelGetName, params.kernel)
        )
        if not handle or call(ctypes.byref(name), ctypes.c_void_p(handle)) != 0:
            return ""
        return (name.value or b"").decode(errors="replace")

    def has_one_order(self, nodes: list[Node]) -> bool:
        """Whether the nodes can only run in the order in which they were captured: each depends on the one before."""
        count = ctypes.c_size_t()
        if self._cuda.cuGraphGetEdges_v2(self._graph, None, None, None, ctypes.byref(count)) != 0:
            return False
        before, after = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
        details = ctypes.create_string_buffer(_EDGE_DATA_BYTES * max(count.value, 1))
        if self._cuda.cuGraphGetEdges_v2(self._graph, before, after, details, ctypes.byref(count)) != 0:
            return False
        edges = set(zip(before, after, strict=True))
        return all((first.handle, second.handle) in edges for first, second in itertools.pairwise(nodes))
