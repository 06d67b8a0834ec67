"""A module whose forward and backward pass are CUDA graphs, made at its first call (torch.cuda.make_graphed_callables).

The graphs hold for arguments of the same shapes, types and other values; a call with others runs as without a graph.
"""

from __future__ import annotations

from typing import Any

from pyprof.variants.outermost import Call

_VALUES = (bool, int, float, str, type(None))  # arguments that the graph may take for constants


class Graphed:
    """Called in place of ``module``."""

    def __init__(self, module: Any, call: Call) -> None:
        self._module, self._call = module, call
        self._graph: Any = None
        self._form: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils._pytree import tree_flatten

        leaves, spec = tree_flatten((args, kwargs))
        form = spec, self._module.training, torch.is_grad_enabled(), tuple(map(_form, leaves))
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        if self._graph is None:
            self._graph, self._form = self._captured(leaves, spec, tensors), form
        if form != self._form:
            return self._call(self._module, *args, **kwargs)
        return self._graph(*tensors)

    def _captured(self, leaves: list[Any], spec: Any, tensors: tuple[Any, ...]) -> Any:
        """The graphed module of the tensors alone. Buffers and random numbers stay as before the capture's own runs."""
        import torch

        module = _of_tensors(self._module, self._call, leaves, spec)
        device = next(self._module.parameters()).device
        with torch.no_grad():
            buffers = [(buffer, buffer.clone()) for buffer in self._module.buffers()]
        random = torch.cuda.get_rng_state(device)
        module.train(self._module.training)
        graphed = torch.cuda.make_graphed_callables(module, tensors)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        torch.cuda.set_rng_state(random, device)
        return graphed


def _form(leaf: Any) -> Any:
    """What must be the same in each call of a graph."""
    import torch

    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype, leaf.device, leaf.requires_grad
    if isinstance(leaf, _VALUES):
        return leaf
    raise TypeError(f"no CUDA graph can be made: an argument of the module is a {type(leaf).__name__}, not a tensor")


def _of_tensors(module: Any, call: Call, leaves: list[Any], spec: Any) -> Any:
    """``module`` as a module that takes only the tensors among its arguments, in their order."""
    import torch
    from torch.utils._pytree import tree_unflatten

    class OfTensors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> Any:
            rest = iter(tensors)
            filled = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            args, kwargs = tree_unflatten(filled, spec)
            return call(self.module, *args, **kwargs)

    return OfTensors()
