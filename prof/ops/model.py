"""What an op model is: shapes in, work out.

A model is a pure function of an op's arguments in the order of PyTorch's schema for the aten op
(torch/_C or native_functions.yaml), e.g. ``addmm(self, mat1, mat2, beta, alpha)``:

* a tensor is a ``Tensor`` (shape, dtype, strides), a list of tensors a tuple of them, a missing optional one
  ``None``;
* a number, bool, string or list of numbers is itself;
* what the capture does not tell is ``UNKNOWN``: a model may compare ``x is UNKNOWN`` and do without; using it
  in arithmetic or as a condition raises ``UnknownArgument``, and the call stays uncounted.

A model returns ``Work``, or ``Parts`` where one op runs separate pieces of work in separate kernels (the data
and weight gradients of a convolution). Bytes are exact integers, or NaN where a dtype is not known: unknown
is not zero, and NaN spreads by itself through every sum.

Three conventions:

* where ops do the same work and differ in the order of their arguments, their names carry it, in the model's words:
  ``model("conv2d (x, weight, bias, stride)", "cudnn_convolution (x, weight, padding, stride)")``. The model's
  defaults stand for what an order lacks; a name with an underscore in front is passed over. Where several functions
  take the same many arguments they may take one record of them: ``model("conv2d (x, weight)", takes=Call)``;
* a model may declare a keyword ``out: tuple[Tensor | None, ...] | None = None``: the outputs' descriptions
  where the capture tells them (None for an output that was not computed). ``evaluate`` passes it to those
  that declare it;
* ``"name.backward"`` is the whole backward of an op as its algorithm needs it, where autograd's formula runs
  several ops (``"matmul.backward"``, ``"div.backward"``). It takes the *forward* op's arguments;
  ``Tensor.needs_grad`` says which gradients are wanted. ``pyprof.count`` uses it in place of what the
  backward node dispatches; a trace, which holds the dispatched ops with their kernels, does not.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any, NoReturn, TypeVar

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import ModelError, ShapeError, UnknownArgument

__all__ = [
    "FAMILY",
    "MATRIX",
    "MODELS",
    "ORDER",
    "UNKNOWN",
    "ModelError",
    "Parts",
    "ShapeError",
    "Tensor",
    "Unknown",
    "UnknownArgument",
    "Work",
    "distinct",
    "evaluate",
    "find",
    "model",
    "total",
]


def names(text: str) -> frozenset[str]:
    """The names in a text, with blanks between them: for long tables."""
    return frozenset(text.split())


class Unknown:
    """An argument that the capture does not tell. Any use of its value raises ``UnknownArgument``."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise UnknownArgument("the capture does not tell an argument that the count depends on")

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = __getitem__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's description: no data. ``dtype`` is torch's name without ``torch.``, empty where unknown."""

    shape: tuple[int, ...]
    dtype: str = ""
    strides: tuple[int, ...] | None = None  # in elements; None: contiguous
    needs_grad: bool = True  # read by the ".backward" models only
    ident: int = 0  # equal numbers other than 0 in one call: the same memory, to be counted once
    values: tuple[int, ...] | None = None  # contents that decide a count (cumulative lengths), where they are known
    nonzero: int | None = None  # of a sparse tensor: how many elements it stores; None: dense
    index_bytes: int = 0  # of a sparse tensor: what says where they stand

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> float:
        """Bytes of an element; NaN where the dtype is not known."""
        return ITEM_BYTES.get(self.dtype, math.nan)

    @property
    def stored(self) -> int:
        """Elements that lie in memory: a dimension of stride 0 counts once, overlaps their span."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        if 0 in self.shape:
            return 0
        distinct = math.prod(n for n, s in zip(self.shape, self.strides, strict=True) if s != 0)
        span = 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))
        return min(distinct, span)

    @property
    def nbytes(self) -> float:
        """Bytes of the distinct stored elements; NaN where the dtype is not known."""
        if self.nonzero is not None:
            return self.nonzero * self.itemsize + self.index_bytes
        return self.stored * self.itemsize if self.stored else 0

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    def like(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        """A new contiguous tensor of another shape, and another dtype where one is given."""
        return Tensor(tuple(shape), self.dtype if dtype is None else dtype)


@dataclass(frozen=True, slots=True)
class Work:
    """What the algorithm needs: floating-point operations (one FMA = 2), bytes read and written."""

    flop: int = 0
    read: float = 0
    write: float = 0

    @property
    def nbytes(self) -> float:
        return self.read + self.write

    def __add__(self, other: Work) -> Work:
        return Work(self.flop + other.flop, self.read + other.read, self.write + other.write)


Parts = dict[str, Work]  # piece of work -> its work: {"dgrad": ..., "wgrad": ..., "bias": ...}


@dataclass(frozen=True, slots=True)
class Order:
    """An op's arguments in its schema's order, by its model's names; ``record``: what the model takes them in."""

    words: tuple[str, ...]
    record: type | None = None

    def bind(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the model with."""
        named = {word: a for word, a in zip(self.words, args, strict=False) if not word.startswith("_")}
        return ((self.record(**named),), {}) if self.record else ((), named)


MODELS: dict[str, Callable[..., Work | Parts]] = {}  # aten name without "aten::" and overload -> model
FAMILY: dict[str, str] = {}  # the same names -> "gemm", "conv", "attention", "pointwise", ...
ORDER: dict[str, Order] = {}  # names registered with an order of arguments
# products, whose models take one sparse operand, and conversions
SPARSE = names(
    "mm _sparse_mm addmm _sparse_addmm matmul matmul.backward addmm.backward mv addmv linear _to_dense _to_sparse "
    "_to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc"
)
MATRIX = frozenset({"gemm", "conv", "attention", "rnn"})  # families whose ops hold a matrix product

ALIASES: list[tuple[re.Pattern[str], str]] = []  # other names of ops that have a model, and the name it is under
ASSUMED: dict[
    str, Callable[[tuple[Any, ...]], str]
] = {}  # model -> what it assumed of its arguments, empty for nothing

F = TypeVar("F", bound=Callable[..., Any])


def model(*names: str, family: str = "custom", takes: type | None = None) -> Callable[[F], F]:
    """Register a model under its ops' names; refuses a second registration, naming both functions.

    ``@pyprof.model("mylib::op")`` adds one for an op of your own, family "custom", or "gemm", "conv", "attention" or
    "rnn" if a matrix product is what it does. ``"mylib::a mylib::b (x, _scale, weight)"`` registers two, whose
    arguments come in that order, whatever the function's own is; ``takes``: the record of them that it takes.
    """

    def register(function: F) -> F:
        for text in names:
            ops, ordered, listed = text.partition("(")
            order = Order(tuple(listed.rstrip(")").replace(",", " ").split()), takes)
            for name in ops.replace("aten::", "").split():
                if name in MODELS:
                    raise ModelError(f"{name} has two models: {MODELS[name].__qualname__} and {function.__qualname__}")
                if ordered:
                    _check_taken(name, order.words, takes or function)
                    ORDER[name] = order
                MODELS[name] = function
                FAMILY[name] = family
        return function

    return register


def _check_taken(name: str, words: tuple[str, ...], taker: Callable[..., Any]) -> None:
    """Raise ModelError where an order names what its model does not take."""
    if isinstance(taker, type):
        taken: Collection[str] = [field.name for field in fields(taker)]
    else:  # inspect.signature, which sees through anything, takes 0.1 ms
        code = taker.__code__
        taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    strange = [word for word in words if not word.startswith("_") and word not in taken]
    if strange:
        raise ModelError(f"{name}: {taker.__qualname__} takes no {', '.join(strange)}")


def alias(pattern: str, name: str) -> None:
    """Let ops of a library whose names match count as ``name``, in which ``\\1`` is the match's first group."""
    ALIASES.append((re.compile(pattern), name))


def assumes(*names: str) -> Callable[[F], F]:
    """Register what says, of a call's arguments, which figures of the models of these names are inferred and how."""

    def register(function: F) -> F:
        ASSUMED.update(dict.fromkeys(names, function))
        return function

    return register


def assumption(name: str, arguments: tuple[Any, ...]) -> str:
    """What a model assumed; empty for nothing."""
    try:
        return ASSUMED[name](arguments) if name in ASSUMED else ""
    except (ModelError, TypeError, ValueError):
        return ""


def total(work: Work | Parts) -> Work:
    """The sum of the parts."""
    if isinstance(work, Work):
        return work
    return sum(work.values(), Work())


def find(op: str) -> str | None:
    """The registered name that counts an aten op, or None.

    ``op`` may carry ``aten::`` and an overload. An in-place op (``add_``) counts as its out-of-place form
    unless it has a model of its own: it reads and writes as many bytes.
    """
    name = op.removeprefix("aten::").partition(".")[0]
    if name in MODELS:
        return name
    if name.startswith("triton_"):
        return _compiled(name)
    if name.endswith("_") and not name.endswith("__") and name[:-1] in MODELS:
        return name[:-1]
    return _aliased(name) if "::" in name else None


@lru_cache(maxsize=4096)
def _aliased(name: str) -> str | None:
    """The registered name of a library's op that goes by several; ``fb::`` was FBGEMM's first namespace."""
    if name.startswith("fb::"):
        return find(f"fbgemm::{name[4:]}")
    for pattern, target in ALIASES:
        match = pattern.fullmatch(name)
        if match and match.expand(target) in MODELS:
            return match.expand(target)
    return None


def _compiled(name: str) -> str | None:
    """A kernel that torch.compile wrote: its kind, and what it is a template of.

    >>> _compiled("triton_tem_fused_mm_relu_1"), _compiled("triton_mine")
    ('triton_tem_fused', None)
    """
    kind = name[:16]
    for word in ("flex_attention_backward", "flex_attention", "convolution"):
        if kind == "triton_tem_fused" and word in name:
            return f"{kind}_{word}"
    return kind if kind in MODELS else None


def distinct(*arguments: Any) -> float:
    """Bytes of the tensors among the arguments (lists of tensors too), each piece of memory once.

    ``None`` and numbers are nothing; an optional tensor that is ``UNKNOWN`` counts as absent, because that is
    what an empty size list means in all but a few calls.
    """
    flat = [t for argument in arguments for t in (argument if isinstance(argument, (tuple, list)) else (argument,))]
    seen: set[int] = set()
    nbytes: float = 0
    for tensor in flat:
        if isinstance(tensor, Tensor) and (not tensor.ident or tensor.ident not in seen):
            seen.add(tensor.ident)
            nbytes += tensor.nbytes
    return nbytes


@cache
def _signature(function: Callable[..., Any]) -> tuple[int | None, bool]:
    """How many positional arguments a model takes (None: any number), and whether it wants ``out``."""
    parameters = inspect.signature(function).parameters.values()
    kinds = [parameter.kind for parameter in parameters]
    count = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    named = any(parameter.name == "out" for parameter in parameters)
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else count, named


@cache
def parameters(name: str) -> tuple[str, ...]:
    """A registered model's names of an op's arguments, in the op's order."""
    return ORDER[name].words if name in ORDER else tuple(inspect.signature(MODELS[name]).parameters)


def evaluate(name: str, args: tuple[Any, ...], out: tuple[Tensor | None, ...] | None = None) -> Work | Parts:
    """Call the model registered under ``name`` (see ``find``); trailing arguments that it does not know are
    dropped.

    A model that meets arguments it was not written for raises a ``ModelError``, whatever the model itself
    raised: a strange trace must not stop a report.
    """
    function = MODELS[name]
    if (
        name not in SPARSE
        and FAMILY[name] != "view"
        and any(isinstance(a, Tensor) and a.nonzero is not None for a in args)
    ):
        raise UnknownArgument(f"{name} of a sparse tensor has no model")
    count, wants_out = _signature(function)
    try:
        positional, named = ORDER[name].bind(args) if name in ORDER else (args if count is None else args[:count], {})
        work = function(*positional, **named, **({"out": out} if wants_out else {}))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{name}: arguments {args!r:.200} do not fit its model: {error}") from error
    if not isinstance(work, (Work, dict)):
        raise ModelError(f"{name}: its model returned {work!r:.200}, expected Work")
    return work
