"""The outermost modules that a script calls: ``nn.Module.__call__`` is replaced by a function that knows them.

Modules without parameters, such as losses, do not count, and neither do modules that checkpointing calls again in the
backward pass. State is kept here and not in the modules, so copying and saving a model works as without pyprof.

The function takes the host a microsecond or two for each module, which makes a step longer where the host is the limit.
So once the outermost modules are known (``settle``), only their classes keep it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from pyprof.capture.patch import Patches

Call = Callable[..., Any]  # nn.Module.__call__: of a module, with its arguments
Around = Callable[[Any, Call, tuple[Any, ...], dict[str, Any]], Any]


class Outermost:
    """Calls ``around(module, call, args, kwargs)`` for each call of an outermost module with parameters."""

    def __init__(self, patches: Patches, around: Around) -> None:
        import torch

        self._around = around
        self._inside = False  # of all threads: DataParallel's call modules while their caller is inside of one
        self._known: dict[int, tuple[weakref.ref[Any], bool]] = {}  # id -> module, whether it has parameters
        self._classes: dict[type, bool] = {}  # of the outermost modules that were called -> whether it is replaced
        self._patches, self._base, self._original = patches, torch.nn.Module, torch.nn.Module.__call__
        self._ours = self._replacement(self._original)
        patches.set(self._base, "__call__", self._ours)

    def settle(self, known: bool) -> None:
        """Watch the classes of the outermost modules that were called, or (not ``known``) any module.

        Where one of these classes has a ``__call__`` of its own, or another tool replaces that of all modules, any
        module is watched.
        """
        current = self._base.__call__
        if not known and current is self._original:
            self._patches.set(self._base, "__call__", self._ours)
        if not known or current is not self._ours or any(cls.__call__ is not self._ours for cls in self._classes):
            return
        for cls, replaced in self._classes.items():
            if not replaced:
                self._patches.set(cls, "__call__", self._ours)
                self._classes[cls] = True
        self._patches.set(self._base, "__call__", self._original)

    def _replacement(self, call: Call) -> Call:
        from torch._C import _current_graph_task_id
        from torch.compiler import is_dynamo_compiling

        def __call__(self_: Any, *args: Any, **kwargs: Any) -> Any:
            # dynamo takes the first condition for a constant and traces only the original call.
            if is_dynamo_compiling() or self._inside or _current_graph_task_id() != -1 or not self._has_weights(self_):
                return call(self_, *args, **kwargs)
            self._inside = True
            try:
                if id(self_) not in self._known:  # its weights are yet to be made
                    return call(self_, *args, **kwargs)
                self._classes.setdefault(type(self_), False)
                return self._around(self_, call, args, kwargs)
            finally:
                self._inside = False

        return __call__

    def _has_weights(self, module: Any) -> bool:
        """Whether a module has parameters. One with a LazyLinear is not yet known before its first call has ended."""
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            from torch.nn.parameter import is_lazy

            weights = list(module.parameters())
            if any(map(is_lazy, weights)):
                self._known.pop(id(module), None)
                return True
            known = self._known[id(module)] = weakref.ref(module), bool(weights)
        return known[1]
