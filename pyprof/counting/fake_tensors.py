"""Fake tensors, which have shapes and no data: the program's own are counted, those of PyTorch's bookkeeping are not.

A distributed tensor's first call runs the op on fake tensors of the global shape, to learn the result's shape. Nothing
of it runs on the data, so ops on fake tensors count only if the program's call or backward pass is itself on them.
"""

import sys
from typing import Any

import torch

from pyprof.counting.arguments import tensors

_mode: Any = getattr(torch._C, "_get_dispatch_mode", None)  # since 2.1
_keys: Any = getattr(torch._C, "_TorchDispatchModeKey", None)


def made_fake(args: Any, kwargs: Any) -> Any:
    """True if a mode is on that makes a call's new tensors fake; otherwise the arguments, for ``has_fake``."""
    return (_mode is not None and _keys is not None and _mode(_keys.FAKE) is not None) or (args, kwargs)


def are_fake(values: Any) -> bool:
    """Whether any tensor among the values is a fake one, or a mode is on that makes new tensors fake."""
    return made_fake(values, None) is True or has_fake(values)


def has_fake(values: Any) -> bool:
    """Whether any tensor among the values is a fake one."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and any(isinstance(tensor, module.FakeTensor) for tensor in tensors(values))
