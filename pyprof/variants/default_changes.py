"""Changes of defaults: those of optimizers and DataLoader when they are made, and flags of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyprof.capture.patch import Patches
from pyprof.variants.run_record import Facts, Settings
from pyprof.variants.step_watch import StepWatch

_SDPA = {  # change -> backend, as torch.nn.attention.SDPBackend names it
    "sdpa_flash": "FLASH_ATTENTION",
    "sdpa_cudnn": "CUDNN_ATTENTION",
    "sdpa_efficient": "EFFICIENT_ATTENTION",
    "sdpa_math": "MATH",
}


def set_flags(changes: list[str]) -> list[Any]:
    """Set what PyTorch has a flag for. The result has to be kept while the script runs."""
    import torch

    if "tf32" in changes:
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    if "cudnn_benchmark" in changes:
        torch.backends.cudnn.benchmark = True
    return [_preferring(backend) for change, backend in _SDPA.items() if change in changes]


def _preferring(name: str) -> Any:
    """The backend first, and those that can stand in for it where it cannot compute a call."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    first = getattr(SDPBackend, name)
    others = [getattr(SDPBackend, other) for other in _SDPA.values() if other != name]
    entered = sdpa_kernel([first, *([] if name == "MATH" else others)], set_priority=True)
    entered.__enter__()
    return entered


def note_flags(facts: Facts) -> None:
    """Note the flags as the script has left them."""
    import torch

    try:
        facts.tf32 = torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # the script sets torch.backends.cuda.matmul.fp32_precision, and both cannot be used (2.9)
        facts.tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
    facts.cudnn_benchmark = torch.backends.cudnn.benchmark
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        facts.gpu = torch.cuda.get_device_name()
        facts.capability = list(torch.cuda.get_device_capability())


def watch_attention(patches: Patches, facts: Facts) -> None:
    """Note whether scaled_dot_product_attention is called; the first call puts PyTorch's own function back."""
    import torch
    from torch.compiler import is_dynamo_compiling

    home = torch.nn.functional
    original = home.scaled_dot_product_attention

    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
        if not is_dynamo_compiling():
            facts.attention = True
            home.scaled_dot_product_attention = original
        return original(*args, **kwargs)

    patches.set(home, "scaled_dot_product_attention", scaled_dot_product_attention)


def change_optimizers(patches: Patches, settings: Settings, watch: StepWatch, facts: Facts, done: list[str]) -> None:
    """Replace the constructors of torch.optim's optimizers, and zero_grad."""
    import torch

    base = torch.optim.Optimizer
    fused, none = "optimizer" in settings.changes, "zero_grad" in settings.changes
    for owner in {value for value in vars(torch.optim).values() if isinstance(value, type) and issubclass(value, base)}:
        if "__init__" in vars(owner) and "fused" in inspect.signature(vars(owner)["__init__"]).parameters:
            patches.set(owner, "__init__", _fusing(vars(owner)["__init__"], fused, facts, done))
    init = base.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        watch.trains = True
        init(self, *args, **kwargs)

    patches.set(base, "__init__", __init__)
    patches.set(base, "zero_grad", _dropping(base.zero_grad, none, facts))


def _fusing(init: Callable[..., None], fused: bool, facts: Facts, done: list[str]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("fused") and not kwargs.get("differentiable"):
            facts.unfused += 1
            if fused:
                kwargs["fused"] = True
                kwargs.pop("foreach", None)  # both are refused
                done.append(f"{type(self).__name__}(fused=True)")
        init(self, *args, **kwargs)

    return __init__


def _dropping(zero_grad: Callable[..., None], none: bool, facts: Facts) -> Callable[..., None]:
    default = bool(inspect.signature(zero_grad).parameters["set_to_none"].default)

    def replacement(self: Any, set_to_none: bool = default) -> None:
        facts.zero_fills += not set_to_none
        zero_grad(self, set_to_none=set_to_none or none)

    return replacement


def change_loaders(patches: Patches, settings: Settings, facts: Facts, done: list[str]) -> None:
    """Replace DataLoader's constructor."""
    from torch.utils.data import DataLoader, IterableDataset

    init: Callable[..., None] = DataLoader.__init__
    signature = inspect.signature(init)
    workers, pin = "workers" in settings.changes, "pin_memory" in settings.changes

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        given = bound.arguments
        facts.loaders += 1
        if not given.get("num_workers"):
            facts.loaders_without_workers += 1
            if workers:
                # Each worker has its own copy of an IterableDataset: two would yield the data twice.
                given["num_workers"] = 1 if isinstance(given["dataset"], IterableDataset) else settings.workers
                given["persistent_workers"] = True
                done.append(f"DataLoader(num_workers={given['num_workers']}, persistent_workers=True)")
        if not given.get("pin_memory"):
            facts.loaders_unpinned += 1
            if pin:
                given["pin_memory"] = True
                done.append("DataLoader(pin_memory=True)")
        init(*bound.args, **bound.kwargs)

    patches.set(DataLoader, "__init__", __init__)
