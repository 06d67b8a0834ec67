"""Markers for the torch.distributed collectives that a torch function mode does not see.

In PyTorch 2.13 the mode sees most tensor collectives, but not object collectives, barriers, sends and receives. In old
releases it sees no collective. From init() to deinit() the unseen functions are replaced with functions that open a
marker and call the original.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyprof.capture.annotate import marked
from pyprof.capture.patch import Patches

if TYPE_CHECKING:
    from pyprof.capture.mode import MarkerMode

NAMES = frozenset(
    "all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_reduce all_reduce_coalesced "
    "all_to_all all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list gather gather_object irecv "
    "isend monitored_barrier recv reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list send".split()
)
# If the mode's reference count does not change for this long, gloo's threads have released it; and the longest wait.
_SETTLED_S, _SETTLED_MOST_S = 0.02, 0.5
_last_rank: int | None = None  # this process's, in the last job of several ranks that it has left


def install(patches: Patches, mode: MarkerMode) -> None:
    """Replace the functions in torch.distributed, and also in their own module, where other collectives call them."""
    import torch

    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    destroy = _after_workers(distributed_c10d.destroy_process_group, mode)
    for owner in (torch.distributed, distributed_c10d):
        patches.set(owner, "destroy_process_group", destroy)
    for name in sorted(NAMES):
        original = getattr(distributed_c10d, name, None)
        if original is None or _is_seen_by_modes(original):
            continue
        wrapper = marked(original, "torch.distributed", name)
        for owner in (torch.distributed, distributed_c10d):
            if vars(owner).get(name) is original:
                patches.set(owner, name, wrapper)


def _after_workers(destroy: Callable[..., Any], mode: MarkerMode) -> Callable[..., Any]:
    """destroy_process_group after gloo's threads have released our mode, usually 20 ms; mode.fast_handler says why."""

    @functools.wraps(destroy)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        global _last_rank
        _last_rank = job_rank({})
        last = time.monotonic() + _SETTLED_MOST_S
        holders, since = sys.getrefcount(mode), time.monotonic()
        while since + _SETTLED_S > time.monotonic() and time.monotonic() < last:
            time.sleep(0.002)  # gives the threads the interpreter lock
            if sys.getrefcount(mode) != holders:
                holders, since = sys.getrefcount(mode), time.monotonic()
        return destroy(*args, **kwargs)

    return destroy_process_group


def job_rank(environ: Mapping[str, str]) -> int | None:
    """This process's rank, if its job has several: by torch.distributed, or by torchrun's RANK and WORLD_SIZE."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()) if distributed.get_world_size() > 1 else None
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and world.isdecimal() and int(world) > 1:
        return int(rank)
    return _last_rank


def _is_seen_by_modes(func: Callable[..., Any]) -> bool:
    code = getattr(inspect.unwrap(func), "__code__", None)
    return code is not None and "handle_torch_function" in code.co_names
