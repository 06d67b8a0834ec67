"""What the tensors of modules and optimizers are, recorded at the end of a capture with ``memory=True``.

The profiler's memory events have addresses, and no names. So at the end the storages of all parameters, buffers,
gradients and optimizer states are listed with their addresses, once, outside the profiled time. The modules and
optimizers are found among the objects that Python's garbage collector tracks; nothing of the program's is changed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

VERSION = 1  # parse/kineto/memory.py reads it
PARAMETERS, BUFFERS, GRADIENTS, STATE = "parameters", "buffers", "gradients", "optimizer state"


class Storage(NamedTuple):
    """A tensor's storage. ``layer`` is the path of the module that holds it, from the root."""

    address: int
    bytes: int
    kind: str
    device: int
    category: str
    name: str
    layer: list[str]


def memory_record() -> dict[str, Any]:
    """The record for the trace's key pyprof."""
    found: dict[tuple[str, int, int], Storage] = {}
    for storage in _storages():
        found.setdefault((storage.kind, storage.device, storage.address), storage)
    blocks = _block_bytes()
    sized = (s._replace(bytes=blocks.get((s.device, s.address), s.bytes)) for s in found.values() if s.kind != "cpu")
    on_cpu = (s for s in found.values() if s.kind == "cpu")
    return {"version": VERSION, "storages": [storage._asdict() for storage in (*sized, *on_cpu)]}


def _storages() -> Iterator[Storage]:
    """The storages, parameters before what refers to them; one may come twice."""
    import torch

    modules, optimizers = [], []
    for thing in gc.get_objects():
        kind = type(thing)  # not isinstance: a proxy's __class__ may run the program's code
        if issubclass(kind, torch.nn.Module):
            modules.append(thing)
        elif issubclass(kind, torch.optim.Optimizer):
            optimizers.append(thing)
    names: dict[int, tuple[str, list[str]]] = {}
    for root in _roots(modules):
        yield from _of_module(root, names)
    for optimizer in optimizers:
        yield from _of_optimizer(optimizer, names)


def _roots(modules: list[Any]) -> list[Any]:
    """The modules that no other one contains; all of them where they contain each other."""
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner] or modules


def _of_module(root: Any, names: dict[int, tuple[str, list[str]]]) -> Iterator[Storage]:
    """The parameters, gradients and buffers of a module. ``names`` gets the name and layer of each parameter by id."""
    for path, module in root.named_modules():
        layer = [type(root).__name__, path] if path else [type(root).__name__]
        own = vars(module)
        for key, category in (("_parameters", PARAMETERS), ("_buffers", BUFFERS)):
            for name, tensor in own.get(key, {}).items():
                if tensor is None:
                    continue
                full = f"{path}.{name}" if path else name
                names.setdefault(id(tensor), (full, layer))
                yield from _of_tensor(tensor, category, full, layer)
                yield from _of_tensor(tensor.grad if tensor.is_leaf else None, GRADIENTS, full, layer)


def _of_optimizer(optimizer: Any, names: dict[int, tuple[str, list[str]]]) -> Iterator[Storage]:
    for group in optimizer.param_groups:
        for tensor in group.get("params", ()):
            name, layer = names.get(id(tensor), ("", []))
            yield from _of_tensor(tensor, PARAMETERS, name, layer)
            yield from _of_tensor(tensor.grad if tensor.is_leaf else None, GRADIENTS, name, layer)
            state = optimizer.state.get(tensor, {})
            for key, value in state.items() if isinstance(state, dict) else ():
                yield from _of_tensor(value, STATE, f"{name}.{key}" if name else str(key), layer)


def _of_tensor(tensor: Any, category: str, name: str, layer: list[str]) -> Iterator[Storage]:
    """The storage of a tensor, if it is one that has memory of its own (not a subclass's wrapper, not meta)."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta" or tensor.layout != torch.strided:
        return
    try:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):  # a wrapper subclass or a fake tensor has none
        return
    if address and size:
        yield Storage(address, size, tensor.device.type, tensor.device.index or 0, category, name, layer)


def _block_bytes() -> dict[tuple[int, int], int]:
    """The size of each block of the caching allocator by device and address: what was asked for, rounded up."""
    import torch

    if not torch.cuda.is_initialized():
        return {}
    found = {}
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            found[segment["device"], block.get("address", address)] = block["size"]
            address += block["size"]
    return found
