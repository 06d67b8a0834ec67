"""The exact mode, init(dispatch=True): a marker for each aten op that PyTorch dispatches, forward and backward.

The arguments are those that the kernels get: after autocast, inside C++ composites, and in backward. It costs the
program about 13 us per op on the CPU. Code under torch.compile runs uncompiled, as under any dispatch mode of PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

from pyprof.capture.sinks import pop, push
from pyprof.capture.targets import Target

if TYPE_CHECKING:
    from pyprof.capture.mode import MarkerMode


class DispatchMode(TorchDispatchMode):
    """Pushes `torch.ops.aten` markers, inside those of the marker mode."""

    def __init__(self, markers: MarkerMode) -> None:
        super().__init__()
        self._markers = markers
        self._targets: dict[Any, Target] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        sink = self._markers.sink
        if sink is None or func.namespace == "profiler":
            return func(*args, **kwargs or {})
        target = self._targets.get(func)
        if target is None:
            target = self._targets[func] = Target(func, f"torch.ops.{func.namespace}", func.__name__)
        token = push(sink, self._markers.entry_of(target, args, kwargs or {}))
        try:
            return func(*args, **kwargs or {})
        finally:
            pop(token)
