"""The changes that pyprof try can apply from outside, and when a script offers nothing that they could change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyprof.variants.run_record import Facts

OldestBf16 = (8, 0)  # compute capability with bf16 and TF32 tensor cores


class Change(NamedTuple):
    """A change by its name. ``rules``: those of pyprof plan whose edits say what it should bring."""

    name: str
    does: str
    why_not: Callable[[Facts], str]  # why it would change nothing in the script; empty: it may
    rules: tuple[str, ...] = ()


def _no_gpu(facts: Facts) -> str:
    return "" if facts.gpu else "the script uses no GPU"


def _old_gpu(facts: Facts) -> str:
    if facts.gpu and tuple(facts.capability) < OldestBf16:
        return f"{facts.gpu} has no tensor cores for it: they need compute capability 8.0"
    return ""


def _no_module(facts: Facts) -> str:
    return "" if facts.models else "the script calls no nn.Module with parameters"


def _tf32(facts: Facts) -> str:
    return _no_gpu(facts) or _old_gpu(facts) or ("the script sets it already" if facts.tf32 else "")


def _benchmark(facts: Facts) -> str:
    if facts.cudnn_benchmark:
        return "the script sets it already"
    return _no_gpu(facts) or _no_convolution(facts)


def _no_convolution(facts: Facts) -> str:
    return "" if facts.convolutions else "the modules that the script calls have no 2-d or 3-d convolutions"


def _amp(facts: Facts) -> str:
    if facts.autocast:
        return "the script uses autocast already"
    if facts.models and "float32" not in facts.dtypes:
        return f"its parameters are not in float32 but in {', '.join(facts.dtypes)}"
    return _no_module(facts) or _old_gpu(facts)


def _channels_last(facts: Facts) -> str:
    return _no_module(facts) or _no_convolution(facts)


def _compile(facts: Facts) -> str:
    return _no_module(facts) or ("the script compiles its module already" if facts.compiled else "")


def _cuda_graph(facts: Facts) -> str:
    return _no_gpu(facts) or _no_module(facts)


def _optimizer(facts: Facts) -> str:
    if facts.unfused:
        return ""
    return "the script makes no optimizer that has a fused form and does not use it"


def _zero_grad(facts: Facts) -> str:
    return "" if facts.zero_fills else "the script never calls zero_grad(set_to_none=False)"


def _workers(facts: Facts) -> str:
    if not facts.loaders:
        return "the script makes no DataLoader"
    return "" if facts.loaders_without_workers else "each DataLoader has workers already"


def _pin_memory(facts: Facts) -> str:
    if not facts.loaders:
        return "the script makes no DataLoader"
    return _no_gpu(facts) or ("" if facts.loaders_unpinned else "each DataLoader pins its memory already")


def _sdpa(facts: Facts) -> str:
    return _no_gpu(facts) or ("" if facts.attention else "the script never calls scaled_dot_product_attention")


COMPILED_RULES = ("compile", "fusion", "cross_entropy")
ALL = (
    Change("tf32", "TF32 for products and convolutions in fp32", _tf32, ("tf32",)),
    Change("cudnn_benchmark", "cuDNN chooses its algorithms by timing them", _benchmark),
    Change("amp", "autocast to bf16 from the outermost module's call to backward()", _amp, ("amp",)),
    Change("channels_last", "the outermost module and its inputs channels last", _channels_last, ("channels_last",)),
    Change("compile", "torch.compile at the outermost module's first call", _compile, COMPILED_RULES),
    Change(
        "cuda_graph", "the outermost module's forward and backward pass as CUDA graphs", _cuda_graph, ("cuda_graph",)
    ),
    Change("optimizer", "fused=True for optimizers of torch.optim", _optimizer, ("optimizer",)),
    Change("zero_grad", "zero_grad(set_to_none=True) always", _zero_grad, ("zero_grad",)),
    Change("workers", "worker processes for a DataLoader that has none", _workers, ("data_loader",)),
    Change("pin_memory", "DataLoader(pin_memory=True)", _pin_memory, ("pageable_copy",)),
    Change("sdpa_flash", "attention by FlashAttention where it can", _sdpa),
    Change("sdpa_cudnn", "attention by cuDNN where it can", _sdpa, ("attention_backend",)),
    Change("sdpa_efficient", "attention by the memory-efficient backend where it can", _sdpa),
    Change("sdpa_math", "attention by the math backend", _sdpa),
)
CHANGES = {change.name: change for change in ALL}
NOT_BY_DEFAULT = frozenset({"sdpa_math"})  # slower by design; for a comparison of numerics


def why_not(names: Sequence[str], facts: Facts) -> str:
    """Why some of these changes would change nothing in the script; empty if each may."""
    reasons = ((name, CHANGES[name].why_not(facts)) for name in names)
    return "; ".join(reason if len(names) == 1 else f"{name}: {reason}" for name, reason in reasons if reason)


def change_of_rule(rule: str) -> str | None:
    """The change that does from outside what a rule of pyprof plan advises; None if there is none."""
    return next((change.name for change in ALL if rule in change.rules), None)
