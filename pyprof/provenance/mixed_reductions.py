"""Note the calls of inductor's kernels that reduce rows and columns in one pass (``MixOrderReduction``).

Inductor tells of no such kernel, nor of the sums over the kernel's partial results, which its code calls after it:
``buf6 = workspace_0[..].view(512, 2048).sum(dim=0)``. The kernel is defined within ``_codegen_mix_order_reduction``.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.virtualized import V

from pyprof.provenance.graph_calls import note_call, note_nodes

_MIXES = "_codegen_mix_order_reduction"
_MIXING = "_pyprof_mixing"  # of a scheduling, while it writes such a kernel
_OPS = {"min": "amin", "max": "amax"}  # a reduction's type -> the tensor's method that inductor's code calls


def replacements(
    is_on: Callable[[], bool], careful: Callable[[], AbstractContextManager[None]]
) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """A class, the name of its method, and what replaces it."""
    if hasattr(TritonScheduling, _MIXES):  # since 2.10
        yield TritonScheduling, _MIXES, _mixing(getattr(TritonScheduling, _MIXES))
        yield TritonScheduling, "define_kernel", _noting(TritonScheduling.define_kernel, is_on, careful)


def _mixing(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _codegen_mix_order_reduction(scheduling: Any, *args: Any, **kwargs: Any) -> None:
        setattr(scheduling, _MIXING, True)
        try:
            original(scheduling, *args, **kwargs)
        finally:
            vars(scheduling).pop(_MIXING, None)

    return _codegen_mix_order_reduction


def _noting(
    original: Callable[..., str], is_on: Callable[[], bool], careful: Callable[[], AbstractContextManager[None]]
) -> Callable[..., str]:
    @functools.wraps(original)
    def define_kernel(
        scheduling: Any, src_code: Any, node_schedule: Any, kernel: Any, *args: Any, **kwargs: Any
    ) -> str:
        name = original(scheduling, src_code, node_schedule, kernel, *args, **kwargs)
        if is_on() and vars(scheduling).pop(_MIXING, False):
            with careful():
                note_call(V.graph, node_schedule, name)
                for partial in kernel.saved_partial_accumulate:
                    nodes = list(V.graph.get_buffer(partial.buffer_name).origins)
                    kind = partial.reduction_type
                    note_nodes(V.graph, nodes, f"torch.ops.aten.{_OPS.get(kind, kind)}")
        return name

    return define_kernel
