"""The nodes of a CUDA graph while a stream captures it, asked of NVIDIA's driver (libcuda) through ctypes.

Names and signatures are those of the driver API (cuda.h of CUDA 12.3 to 13.0); each was tried with driver 580 on an
H200. The documentation of cuStreamGetCaptureInfo allows to read the graph while the capture is in progress.
"""

import ctypes
import functools
import sys
from typing import Any

_ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
_EDGE_DATA_BYTES = 8  # sizeof(CUgraphEdgeData)


def nodes_in_one_order(stream: int) -> bool:
    """Whether the nodes that ``stream`` has captured so far can only run in the order in which they were captured.

    That is so if each node depends on the one before it. False also where there is no such driver, and where no
    capture is in progress.
    """
    driver = _driver()
    graph = None if driver is None else _graph(driver, stream)
    if graph is None:
        return False
    nodes, edges = _nodes(driver, graph), _edges(driver, graph)
    return bool(nodes) and edges is not None and edges.issuperset(zip(nodes, nodes[1:], strict=False))


@functools.cache
def _driver() -> Any:
    """libcuda, which PyTorch has loaded already; None without it, or before CUDA 12.3."""
    if sys.platform != "linux":
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    names = ("cuStreamGetCaptureInfo_v2", "cuGraphGetNodes", "cuGraphGetEdges_v2")
    return driver if all(hasattr(driver, name) for name in names) else None


def _graph(driver: Any, stream: int) -> ctypes.c_void_p | None:
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    parts = ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph)
    error = driver.cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *parts, None, None)
    return graph if error == 0 and status.value == _ACTIVE and graph.value else None


def _nodes(driver: Any, graph: ctypes.c_void_p) -> list[int]:
    """The nodes in the order in which they were captured; empty where the driver does not give them."""
    count = ctypes.c_size_t()
    if driver.cuGraphGetNodes(graph, None, ctypes.byref(count)) != 0:
        return []
    nodes = (ctypes.c_void_p * count.value)()
    return [node or 0 for node in nodes] if driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)) == 0 else []


def _edges(driver: Any, graph: ctypes.c_void_p) -> set[tuple[int, int]] | None:
    """Pairs of a node and one that depends on it. None where the driver does not give them."""
    count = ctypes.c_size_t()
    if driver.cuGraphGetEdges_v2(graph, None, None, None, ctypes.byref(count)) != 0:
        return None
    before, after = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
    details = ctypes.create_string_buffer(_EDGE_DATA_BYTES * max(count.value, 1))
    if driver.cuGraphGetEdges_v2(graph, before, after, details, ctypes.byref(count)) != 0:
        return None
    return {(first or 0, second or 0) for first, second in zip(before, after, strict=True)}
