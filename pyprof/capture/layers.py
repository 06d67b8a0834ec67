"""The names of the nn.Modules that run, as `layer:` ranges.

From init() to deinit() `nn.Module.__call__` is replaced with a function that opens the range, calls the original and
closes the range, which costs less than a microsecond per module call. The user's model is only read, and not kept
alive.

The outermost module called is the root, and its range is `layer:ClassName`. The modules below are named from the root
(`layer:encoder.3.mlp`), as the keys of state_dict are. The name depends on the caller: a module that is used in two
places has both names. Wrappers (DDP, FSDP, compiled modules, checkpoint wrappers) add no part to the name.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyprof.capture.sinks import Entry

if TYPE_CHECKING:
    from pyprof.capture.mode import MarkerMode

_WRAPPER_PARTS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}  # compile, FSDP, checkpointing
_MODULE_WRAPPERS = {"DistributedDataParallel", "DataParallel"}  # these have the user's model as attribute `module`


class _Node:
    """A module as called from one other module. It refers to the module weakly, so that no model is kept alive."""

    __slots__ = ("children", "entry", "module", "path")

    def __init__(self, module: Any, path: str) -> None:
        self.module = weakref.ref(module)
        self.path = path  # "" for the root
        self.entry = Entry("layer:" + (path or _class_name(module)))
        self.children: dict[int, _Node] = {}


class _Stack(threading.local):
    """The nodes of the modules that run on this thread, outermost first."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []


def named(call: Callable[..., Any], mode: MarkerMode, enter: Callable[[], None]) -> Callable[..., Any]:
    """`call`, which is nn.Module.__call__, with a range around it while something records.

    ``enter`` puts the mode on a thread that is without it: one that Python's ``threading`` does not know.
    """
    import torch
    from torch.compiler import is_dynamo_compiling

    roots: dict[int, _Node] = {}  # the outermost modules called so far
    stack, nvtx_pop = _Stack(), mode.nvtx_pop
    plain = call is torch.nn.Module.__dict__.get("_wrapped_call_impl")  # if so, one Python call can be skipped

    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The first parameter must be called `self`: torch.profiler's Python tracer (with_stack=True) reads this local
        # variable of Module.__call__'s frames, and ends in a segmentation fault if there is none (2.13).
        if is_dynamo_compiling():  # dynamo treats this as a constant and traces only the original call
            return call(self, *args, **kwargs)
        if mode.waiting is not None:  # the calls of a scripted module are not seen
            mode.end_waiting()
        sink = mode.sink
        if sink is None:
            return call(self, *args, **kwargs)
        nodes = stack.nodes
        if mode.thread.end is None:
            enter()
        known = nodes[-1].children if nodes else roots
        node = known.get(id(self))
        if node is None or node.module() is not self:
            node = known[id(self)] = _node(self, nodes)
        entry = node.entry
        if entry.sink is not sink:
            sink.bind(entry)
        token = entry.push()
        nodes.append(node)
        try:
            if plain and self._compiled_call_impl is None:
                return self._call_impl(*args, **kwargs) if kwargs else self._call_impl(*args)
            return call(self, *args, **kwargs)
        finally:
            nodes.pop()
            if token is None:
                nvtx_pop()
            else:
                token.__exit__(None, None, None)

    return __call__


def _class_name(module: Any) -> str:
    """The module's class; of what torch.compile made of a module, the class of that module."""
    name = type(module).__name__
    return type(module._orig_mod).__name__ if name == "OptimizedModule" else name


def _node(module: Any, nodes: list[_Node]) -> _Node:
    """A node named relative to the nearest running module that contains `module`; a root if no running module does."""
    for caller in reversed(nodes):
        holder = caller.module()
        name = None if holder is None else _name_in(holder, module)
        if name is not None:
            return _Node(module, ".".join(part for part in (caller.path, name) if part))
    return _Node(module, "")


def _name_in(holder: Any, module: Any) -> str | None:
    """The shortest name of `module` below `holder`, or None if `holder` does not contain it. Handles cyclic models."""
    level, seen = [("", holder)], {id(holder)}
    while level:
        below = []
        for prefix, parent in level:
            for name, child in parent._modules.items():
                if child is module:
                    return _without_wrappers(holder, prefix + name)
                if child is not None and id(child) not in seen:
                    seen.add(id(child))
                    below.append((f"{prefix}{name}.", child))
        level = below
    return None


def _without_wrappers(holder: Any, name: str) -> str:
    kept = []
    for part in name.split("."):
        wrapper = part in _WRAPPER_PARTS or (part == "module" and type(holder).__name__ in _MODULE_WRAPPERS)
        if not wrapper:
            kept.append(part)
        holder = getattr(holder, part)
    return ".".join(kept)
