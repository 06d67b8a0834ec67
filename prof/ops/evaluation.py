"""Find the model for an op by the name that a profiler recorded, and evaluate it for a call.

``families`` imports all models; ``alias`` adds further op names; ``assumes`` adds the assumptions behind a count.
"""

import inspect
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from numbers import Real
from typing import Any

from pyprof.errors import ModelError, UnknownArgument
from pyprof.marker import Marker
from pyprof.prof.ops.marker_arguments import in_order
from pyprof.prof.ops.model import FAMILY, MODELS, ORDER, F, Order, Parts, Tensor, Work, names, total

EXTRAS = ("out", "served")  # what a model may take beside the op's arguments
KERNELS: set[str] = set()  # Triton kernels of the program that have a formula (formulas.py)
ALIASES: list[tuple[re.Pattern[str], str]] = []  # (pattern of alternative op names, name of the model)
ASSUMPTIONS: dict[str, Callable[[tuple[Any, ...]], str]] = {}  # a model's name -> its assumptions about a call
# Conversions, and products, whose models accept one sparse operand.
SPARSE = names(
    "mm _sparse_mm addmm _sparse_addmm matmul matmul.backward addmm.backward mv addmv linear _to_dense _to_sparse "
    "_to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc _coalesce sparse_mask "
    "sparse_sampled_addmm _sparse_mm_reduce_impl"
)
# Ops that run a product with a sparse operand as an inner op.
SPARSE_PRODUCTS = frozenset({"aten::_sparse_mm", "aten::_sparse_addmm", "aten::_sparse_sparse_matmul"})


def alias(pattern: str, name: str) -> None:
    """Count a library's ops whose names match as the op ``name``, in which ``\\1`` is the match's first group."""
    ALIASES.append((re.compile(pattern), name))


def assumes(*names: str) -> Callable[[F], F]:
    """Register a function of a call's arguments that returns, in words, which figures of these models are inferred."""

    def register(function: F) -> F:
        ASSUMPTIONS.update(dict.fromkeys(names, function))
        return function

    return register


def assumption(name: str, arguments: tuple[Any, ...]) -> str:
    """What the model ``name`` assumes about a call, in words; empty if it assumes nothing."""
    try:
        return ASSUMPTIONS[name](arguments) if name in ASSUMPTIONS else ""
    except (ModelError, TypeError, ValueError):
        return ""


def find(op: str) -> str | None:
    """The name of the model that counts an op; None where there is no model.

    ``op`` may carry ``aten::`` and an overload. An in-place op (``add_``) without its own
    model counts as its out-of-place form, because it reads and writes as many bytes.

    >>> find("aten::exp_"), find("aten::add_.Tensor"), find("mylib::unheard_of")
    ('exp', 'add_', None)
    """
    name = op.removeprefix("aten::").partition(".")[0]
    if name in MODELS:
        return name
    if name.startswith("triton_"):
        return _compiled(name)
    if name.endswith("_") and not name.endswith("__") and name[:-1] in MODELS:
        return name[:-1]
    if ":" in name:
        return _aliased(name)
    kernel, _, number = name.rpartition("_")  # a Triton kernel of the program, as compiled code calls it
    return kernel if number.isdigit() and kernel in KERNELS else None


@lru_cache(maxsize=4096)
def _aliased(name: str) -> str | None:
    """The model's name for an op of a library; ``fb::`` was FBGEMM's first namespace."""
    if name.startswith("fb::"):
        return find(f"fbgemm::{name[4:]}")
    for pattern, target in ALIASES:
        match = pattern.fullmatch(name)
        if match and match.expand(target) in MODELS:
            return match.expand(target)
    return None


def _compiled(name: str) -> str | None:
    """The model's name for a kernel that torch.compile generated, from its kind and, for a template, the op.

    >>> _compiled("triton_tem_fused_mm_relu_1"), _compiled("triton_mine")
    ('triton_tem_fused', None)
    """
    kind = name[:16]
    for word in ("flex_attention_backward", "flex_attention", "convolution"):
        if kind == "triton_tem_fused" and word in name:
            return f"{kind}_{word}"
    return kind if kind in MODELS else None


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@cache
def _signature(function: Callable[..., Any]) -> tuple[int | None, frozenset[str]]:
    """How many positional arguments a model takes (None: any number), and which of ``EXTRAS``."""
    parameters = inspect.signature(function).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    count = sum(kind in _POSITIONAL for kind in kinds)
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else count, frozenset(EXTRAS).intersection(parameters)


def takes_batch(name: str) -> bool:
    """Whether the model ``name`` counts by the batch of an inference server."""
    return "served" in _signature(MODELS[name])[1]


@cache
def parameters(name: str) -> tuple[str, ...]:
    """The names of the model's parameters, in the order of the op's arguments."""
    return ORDER[name].words if name in ORDER else tuple(inspect.signature(MODELS[name]).parameters)


def evaluate(
    name: str,
    args: tuple[Any, ...],
    out: tuple[Tensor | None, ...] | None = None,
    served: object = None,
    in_place: bool = False,
) -> Work | Parts:
    """The work of a call of the model registered as ``name`` (see ``find``).

    ``args``: the op's arguments in its schema's order; arguments beyond those of the model are dropped.
    ``out``: the descriptions of the outputs, if the capture has them. ``served``: a server's batch that the call is
    part of (``paged_attention.Batch``), if it is known. ``in_place``: whether the op is the in-place form of the model.

    Raises UnknownArgument if the count depends on something that the capture lacks. Any other exception of a model
    becomes a ModelError (arguments that the model was not written for), so that an unusual trace cannot stop a report.
    """
    function = MODELS[name]
    takes_sparse = name in SPARSE or FAMILY[name] == "view"
    if not takes_sparse and any(isinstance(a, Tensor) and a.nonzero is not None for a in args):
        return _of_stored_values(name, args, in_place)
    count, extras = _signature(function)
    given = {name: value for name, value in (("out", out), ("served", served)) if name in extras}

    def call() -> Any:
        positional, named = ORDER[name].bind(args) if name in ORDER else (args[:count], {})
        return function(*positional, **named, **given)

    return checked(name, args, call)


def _of_stored_values(name: str, args: tuple[Any, ...], in_place: bool) -> Work:
    """The work of an element-wise op of one sparse tensor: that of its stored values, which keep their indices.

    A result of its own gets a copy of the indices; an op in place leaves them as they are.
    """
    tensor, *others = (a for a in args if isinstance(a, Tensor) and a.shape)
    if others or FAMILY[name] != "pointwise":
        raise UnknownArgument(f"{name} of a sparse tensor has no model")
    if not isinstance(tensor.nonzero, int):
        raise UnknownArgument("a sparse operand: the capture does not record how many elements it stores")
    values = Tensor((tensor.nonzero,), tensor.dtype)
    work = evaluate(name, tuple(values if a is tensor else a for a in args))
    return total(work) + (Work() if in_place else Work(0, tensor.index_bytes, tensor.index_bytes))


def checked(name: str, args: tuple[Any, ...], count: Callable[[], Any]) -> Work | Parts:
    """The work that ``count`` returns. Any of its exceptions becomes a ModelError, and so does what is no work."""
    try:
        work = count()
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{name}: arguments {args!r:.200} do not fit its model: {error}") from error
    parts = [work] if isinstance(work, Work) else work.values() if isinstance(work, dict) else [None]
    if not all(isinstance(w, Work) and all(isinstance(n, Real) for n in (w.flop, w.read, w.write)) for w in parts):
        raise ModelError(f"{name}: its model returned {work!r:.200}, expected Work")
    found: Work | Parts = work
    return found


def evaluate_call(name: str, marker: Marker) -> Work | Parts:
    """The work of a user's call by its marker, with the model registered as ``name``. Raises as ``evaluate``."""
    order = ORDER.get(name, Order(()))
    signature = inspect.signature(order.record or MODELS[name]).parameters
    words = order.words or tuple(word for word in signature if signature[word].kind in _POSITIONAL)
    defaults = {word: each.default for word, each in signature.items() if each.default is not inspect.Parameter.empty}
    return evaluate(name, in_order(marker, words, defaults))


def first_trial(name: str, calls: Iterable[tuple[Any, ...]]) -> int | None:
    """FLOPs of the first of these made-up calls whose arguments the model accepts; None if it accepts none."""
    for arguments in calls:
        with suppress(ModelError):
            return total(evaluate(name, arguments)).flop
    return None


# The functions behind Python's operators: ``a @ b`` is recorded as ``__matmul__``.
_TORCH_NAMES = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}


def function_of(name: str) -> str:
    """The name of the function behind an operator's method; other names are returned unchanged.

    >>> function_of("__iadd__"), function_of("__rtruediv__"), function_of("__matmul__"), function_of("linear")
    ('add_', 'div', 'matmul', 'linear')
    """
    if not (name.startswith("__") and name.endswith("__")) or find(name):
        return name
    plain = name.strip("_")
    in_place = ""
    if find(plain) is None and plain[:1] in ("i", "r"):  # __iadd__, __radd__
        in_place = "_" if plain[0] == "i" else ""
        plain = plain[1:]
    return _TORCH_NAMES.get(plain, plain) + in_place
