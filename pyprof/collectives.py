"""torch.distributed's collectives. Those that do not ask for a torch function mode have their names replaced.

In 2.13 most tensor collectives ask; the object ones, barriers, sends and receives do not, nor does any in old releases.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyprof.extras import marked
from pyprof.patch import Patches

NAMES = frozenset(
    {
        *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
        *("all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv"),
        *("broadcast", "broadcast_object_list", "gather", "gather_object", "irecv", "isend", "monitored_barrier"),
        *("recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
    }
)


def install(patches: Patches) -> None:
    """Mark them in torch.distributed and in the module that defines them, where other collectives call them."""
    import torch

    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    for name in sorted(NAMES):
        original = getattr(distributed_c10d, name, None)
        if original is None or _asks(original):
            continue
        wrapper = marked(original, "torch.distributed", name)
        owners: tuple[Any, ...] = (torch.distributed, distributed_c10d)
        for owner in owners:
            if vars(owner).get(name) is original:
                patches.set(owner, name, wrapper)


def _asks(func: Callable[..., Any]) -> bool:
    """Whether the mode sees it, and so marks it."""
    code = getattr(inspect.unwrap(func), "__code__", None)
    return code is not None and "handle_torch_function" in code.co_names
