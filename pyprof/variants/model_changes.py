"""What happens around each call of an outermost module: autocast, channels last, torch.compile, CUDA graphs."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyprof.variants.graphed import Graphed
from pyprof.variants.outermost import Call
from pyprof.variants.run_record import MODULE, Facts
from pyprof.variants.step_watch import StepWatch

_CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}


class _Region(threading.local):
    """The autocast that is entered on this thread; None outside."""

    entered: Any = None


class ModelChanges:
    """``around`` is for Outermost; ``leave_autocast`` for backward()."""

    def __init__(self, changes: list[str], watch: StepWatch, facts: Facts, done: list[str]) -> None:
        self._amp, self._last = "amp" in changes, "channels_last" in changes
        self._compile, self._graph = "compile" in changes, "cuda_graph" in changes
        self._watch, self._facts, self._done = watch, facts, done
        self._region = _Region()
        self._known: dict[int, tuple[weakref.ref[Any], Any]] = {}  # id -> module, what is called in its place
        self._first: weakref.ref[Any] | None = None  # the module whose calls are steps where nothing else is

    def around(self, module: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            known = self._known[id(module)] = weakref.ref(module), self._prepared(module, call)
        if self._last:
            args, kwargs = _channels_last_inputs(args, kwargs)
        if self._amp:
            self._enter_autocast(module)
        result = known[1](*args, **kwargs) if known[1] is not None else call(module, *args, **kwargs)
        if self._region.entered is not None and not _requires_grad(result):
            self.leave_autocast()  # no backward() will follow: inference
        if self._first is not None and self._first() is module:
            self._watch.ended(MODULE)
        return result

    def leave_autocast(self) -> None:
        """The region ends: the loss is known."""
        entered, self._region.entered = self._region.entered, None
        if entered is not None:
            entered.__exit__(None, None, None)

    def _enter_autocast(self, module: Any) -> None:
        import torch

        kind = next(module.parameters()).device.type
        if self._region.entered is None and not torch.is_autocast_enabled(kind):
            # make_graphed_callables refuses autocast's cache: the casts of the weights have to be part of the graph
            entered = torch.autocast(kind, dtype=torch.bfloat16, cache_enabled=not self._graph)
            entered.__enter__()
            self._region.entered = entered

    def _prepared(self, module: Any, call: Call) -> Any:
        """Note what the module is, change it as asked, and return what to call in its place; None: the module."""
        import torch

        if self._first is None or self._first() is None:
            self._first = weakref.ref(module)
        self._note(module)
        name = type(module).__name__
        if self._last:
            for rank, form in _CHANNELS_LAST.items():
                if any(parameter.dim() == rank for parameter in module.parameters()):
                    module.to(memory_format=getattr(torch, form))
                    self._done.append(f"{name}: {form}")
        if self._compile and not _is_compiled(module):
            mode = "reduce-overhead" if self._graph else None  # the compiler's own CUDA graphs
            self._done.append(f"torch.compile({name}{'' if mode is None else f', mode={mode!r}'})")
            return torch.compile(module, mode=mode)
        if self._graph:
            self._done.append(f"{name}: CUDA graphs of its forward and backward pass")
            return Graphed(module, call)
        return None

    def _note(self, module: Any) -> None:
        import torch

        facts = self._facts
        facts.models.append(type(module).__name__)
        found = {str(parameter.dtype).removeprefix("torch.") for parameter in module.parameters()}
        facts.dtypes = sorted({*facts.dtypes, *found})
        convolutions = (torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
        facts.convolutions += sum(isinstance(part, convolutions) for part in module.modules())
        facts.compiled = facts.compiled or _is_compiled(module)
        kind = next(module.parameters()).device.type
        facts.autocast = facts.autocast or torch.is_autocast_enabled(kind)


def _is_compiled(module: Any) -> bool:
    return any(type(part).__name__ == "OptimizedModule" or part._compiled_call_impl for part in module.modules())


def _requires_grad(result: Any) -> bool:
    """Whether a tensor in a module's result is part of an autograd graph."""
    import torch
    from torch.utils._pytree import tree_leaves

    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(result))


def _channels_last_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch
    from torch.utils._pytree import tree_map_only

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        form = _CHANNELS_LAST.get(tensor.dim())
        return tensor if form is None else tensor.contiguous(memory_format=getattr(torch, form))

    return tree_map_only(torch.Tensor, converted, (args, kwargs))  # type: ignore[no-any-return]
