"""The nodes of a CUDA graph while a stream captures it, asked of NVIDIA's driver (libcuda) through ctypes.

Names and signatures are those of the driver API (cuda.h of CUDA 12.3 to 13.0); each was tried with driver 580 on an
H200. The documentation of cuStreamGetCaptureInfo allows to read the graph while the capture is in progress.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from typing import Any

_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_EDGE_DATA_BYTES = 8  # sizeof(CUgraphEdgeData)
_NEEDED = ("cuStreamGetCaptureInfo_v2", "cuGraphGetNodes", "cuGraphGetEdges_v2")


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

    def __init__(self, cuda: Any, graph: ctypes.c_void_p) -> None:
        self._cuda, self._graph = cuda, graph

    @classmethod
    def of_stream(cls, stream: int) -> CapturedGraph | None:
        cuda = driver()
        if cuda is None:
            return None
        status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        last, count = ctypes.c_void_p(), ctypes.c_size_t()
        parts = map(ctypes.byref, (status, number, graph, last, count))
        error = cuda.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *parts)
        return cls(cuda, graph) if error == 0 and status.value == _ACTIVE and graph.value else None

    def nodes(self) -> list[int]:
        """The handles of all nodes in the order in which they were captured; empty where the driver gives none."""
        count = ctypes.c_size_t()
        if self._cuda.cuGraphGetNodes(self._graph, None, ctypes.byref(count)) != 0:
            return []
        nodes = (ctypes.c_void_p * count.value)()
        if self._cuda.cuGraphGetNodes(self._graph, nodes, ctypes.byref(count)) != 0:
            return []
        return [node or 0 for node in nodes]

    def has_one_order(self) -> bool:
        """Whether the nodes can only run in the order in which they were captured: each depends on the one before.

        False for a graph without nodes, and where the driver does not say it.
        """
        nodes, count = self.nodes(), ctypes.c_size_t()
        if not nodes or self._cuda.cuGraphGetEdges_v2(self._graph, None, None, None, ctypes.byref(count)) != 0:
            return False
        before, after = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
        details = ctypes.create_string_buffer(_EDGE_DATA_BYTES * max(count.value, 1))
        if self._cuda.cuGraphGetEdges_v2(self._graph, before, after, details, ctypes.byref(count)) != 0:
            return False
        edges = set(zip(before, after, strict=True))
        return all(pair in edges for pair in itertools.pairwise(nodes))
