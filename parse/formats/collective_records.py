"""Records of collectives, in the same form for all profilers.

The column ``comm`` of the kernel table is a JSON list of records, one per collective of the launch (several where
``ncclGroupEnd`` launches a group)::

    [{"op": "all_gather", "ranks": 8, "in": 50272, "out": 402176, "group": "3"}]

``in`` and ``out`` are the bytes of this rank's input and output buffers. Keys with unknown values are left out.
"""

import json
import re
from typing import Any

from pyprof.dtypes import BYTES_OF_SCALAR_TYPE

# The names of each collective in all libraries and releases: allreduce, _allgather_base, ncclAllReduce,
# reduce_scatter_tensor_coalesced, alltoallv, "send 0->1". Order matters: the longer names come first.
_OPS = {
    "reduce_scatter": re.compile(r"reduce_?scatter"),
    "all_reduce": re.compile(r"all_?reduce"),
    "all_gather": re.compile(r"all_?gather"),
    "all_to_all": re.compile(r"all_?to_?all"),
    "broadcast": re.compile(r"broadcast|bcast"),
    "barrier": re.compile(r"barrier"),
    "reduce": re.compile(r"^_?(?:nccl)?reduce"),
    "gather": re.compile(r"^_?(?:nccl)?gather"),
    "scatter": re.compile(r"^_?(?:nccl)?scatter"),
    "send": re.compile(r"^(?:nccl)?i?send"),
    "recv": re.compile(r"^(?:nccl)?i?recv"),
}

MOST = 1 << 50  # bytes or elements: a PiB; more means a damaged file


def collective(name: str) -> str:
    """The collective that a library's name stands for; empty if the name is not a collective's.

    >>> collective("_reduce_scatter_base"), collective("ncclAlltoAll"), collective("ncclCommInitRank")
    ('reduce_scatter', 'all_to_all', '')
    """
    lower = name.lower()
    return next((op for op, pattern in _OPS.items() if pattern.search(lower)), "")


def of_message(op: str, size: int, ranks: int | None) -> tuple[int | None, int | None]:
    """(bytes in, bytes out) of a collective, from NCCL's message size; None if they depend on an unknown rank count.

    NCCL's size is the amount that a rank sends to each rank (all_gather, gather, all_to_all) or receives from each rank
    (reduce_scatter, scatter). For other collectives it is the whole buffer (nccl.h: sendcount, recvcount, count).
    """
    every = None if ranks is None else size * ranks
    bytes_of = {
        "all_gather": (size, every),
        "reduce_scatter": (every, size),
        "all_to_all": (every, every),
        "gather": (size, None),
        "scatter": (None, size),
        "send": (size, 0),
        "recv": (0, size),
    }
    return bytes_of.get(op, (size, size))


def of_elements(op: str, inward: int | None, outward: int | None, dtype: object) -> tuple[int | None, int | None]:
    """(bytes in, bytes out) from torch.distributed's element counts (ParamCommsUtils.hpp: In and Out msg nelems)."""
    item = BYTES_OF_SCALAR_TYPE.get(dtype) if isinstance(dtype, str) else None
    if item is None:
        return None, None
    if op in ("send", "recv"):  # torch.distributed counts the tensor as both in and out; it is only one of them
        elements = inward or outward
        return (None, None) if elements is None else of_message(op, elements * item, None)
    return None if inward is None else inward * item, None if outward is None else outward * item


def record(op: str, **values: Any) -> dict[str, Any]:
    """A record of a collective. Keys with value None are left out; ``inward``/``outward`` become `in`/`out`."""
    names = {"inward": "in", "outward": "out"}
    return {"op": op, **{names.get(key, key): value for key, value in values.items() if value is not None}}


def listed(records: list[dict[str, Any]]) -> str:
    """The text of the column ``comm``; empty if there is no record."""
    return json.dumps(records, ensure_ascii=False) if records else ""


def count(value: object) -> int | None:
    """A number of bytes, elements or ranks; None for anything else."""
    return value if type(value) is int and 0 <= value < MOST else None
