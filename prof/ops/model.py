"""Op models: functions from shapes to work. Read this first to add an op.

A model is a function of an op's arguments, in the order of PyTorch's schema (native_functions.yaml), that returns the
op's ``Work``: floating-point operations, bytes read and bytes written. Its docstring is the derivation, which
docs/reference/ops.md shows:

    @model("mm", family="gemm")
    def mm(a: Tensor, b: Tensor) -> Work:
        "C[M,N] = A[M,K] @ B[K,N]: 2*M*N*K"
        (m, k), n = a.shape, b.shape[1]
        return Work(2 * m * n * k, distinct(a, b), m * n * a.itemsize)

Put it into the file of its family, and add a row of values worked out by hand to that family's test. ``operands`` has
what most models need: broadcasting, type promotion, the description of the result.

An argument is

* a ``Tensor`` (shape, dtype, strides), a tuple of them, or ``None`` for an optional one that is missing;
* a number, a bool, a string or a tuple of numbers, passed as it is;
* ``UNKNOWN`` if the capture lacks it. A model may test ``x is UNKNOWN`` and do without the value. Using it in
  arithmetic or as a condition raises ``UnknownArgument``, and the call is not counted.

A model only lists the leading arguments that it needs; further ones are dropped. Bytes are exact integers, or NaN if a
dtype is unknown: unknown is not zero, and NaN propagates through sums.

A model may also use these five features:

* It may serve several ops whose arguments come in different orders. Each name is then followed by its order, using the
  model's parameter names: ``model("conv2d (x, weight, bias, stride)", "cudnn_convolution (x, weight, _padding,
  stride)")``. A name with a leading underscore is skipped; a parameter missing from an order gets the model's default.
  A function with many arguments may take them as one dataclass: ``model("conv2d (x, weight)", takes=Call)``.
* It may have a keyword ``out: tuple[Tensor | None, ...] | None = None``, which receives the descriptions of the op's
  outputs if the capture has them; an output that was not computed is None.
* It may have a keyword ``served``, which receives what an inference server's annotation says of the requests' lengths
  (``paged_attention.Batch``); None if it says nothing.
* It may return ``Parts`` if separate kernels do separate pieces of the work, such as the data and the weight gradient
  of a convolution; ``Possible`` if the capture does not say which of them ran.
* It may be named ``"div.backward"``: the whole backward of an op as its algorithm needs it, even if autograd's formula
  runs several ops. It takes the forward op's arguments, and ``Tensor.needs_grad`` tells which gradients are needed.
  ``pyprof.count`` uses it instead of the ops that the backward node dispatches. In a trace these ops have their own
  kernels and are counted one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeVar

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import ModelError, UnknownArgument


class Unknown:
    """The type of ``UNKNOWN``: an argument that the capture lacks. Using its value raises UnknownArgument."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise UnknownArgument("the capture does not have an argument that the count depends on")

    __bool__ = __int__ = __index__ = __float__ = __len__ = __iter__ = __getitem__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Tensor:
    """The description of a tensor, without its data.

    >>> Tensor((2, 3), "float16").nbytes
    12
    """

    shape: tuple[int, ...]
    dtype: str = ""  # torch's name without "torch."; empty if unknown
    strides: tuple[int, ...] | None = None  # in elements; None: contiguous
    needs_grad: bool = True  # only used by models of a whole backward
    ident: int = 0  # tensors of a call with the same nonzero number share memory, which counts once
    values: tuple[int, ...] | None = None  # the contents, if they affect a count (cumulative lengths) and are known
    nonzero: int | Unknown | None = None  # elements that a sparse tensor stores, if it is known; None: dense
    index_bytes: int = 0  # bytes of a sparse tensor's indices

    @property
    def numel(self) -> int:
        """The number of elements in the shape."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> float:
        """Bytes per element; NaN if the dtype is unknown."""
        return ITEM_BYTES.get(self.dtype, math.nan)

    @property
    def stored(self) -> int:
        """Elements stored in memory: a dimension of stride 0 counts once; if elements overlap, the span they cover."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        if 0 in self.shape:
            return 0
        dimensions = list(zip(self.shape, self.strides, strict=True))
        not_expanded = math.prod(n for n, stride in dimensions if stride != 0)
        span = 1 + sum((n - 1) * abs(stride) for n, stride in dimensions)
        return min(not_expanded, span)

    @property
    def nbytes(self) -> float:
        """Bytes of the stored elements and of a sparse tensor's indices; NaN if dtype or number are unknown."""
        if isinstance(self.nonzero, Unknown):
            return math.nan
        if self.nonzero is not None:
            return self.nonzero * self.itemsize + self.index_bytes
        return self.stored * self.itemsize if self.stored else 0

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    def like(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        """A new contiguous tensor with another shape, and ``dtype`` or, if that is None, this tensor's dtype."""
        return Tensor(tuple(shape), self.dtype if dtype is None else dtype)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of an op's algorithm: floating-point operations (a multiply-add is two), bytes read, bytes written.

    >>> Work(6, 48, 24) + Work(1)
    Work(flop=7, read=48, write=24)
    """

    flop: int = 0
    read: float = 0  # NaN: unknown
    write: float = 0

    @property
    def nbytes(self) -> float:
        return self.read + self.write

    def __add__(self, other: Work) -> Work:
        return Work(self.flop + other.flop, self.read + other.read, self.write + other.write)


Parts = dict[str, Work]  # name of a part of an op -> its work: {"dgrad": ..., "wgrad": ..., "bias": ...}


class Possible(Parts):
    """Parts of which some may not have run, because the capture lacks the output mask: the kernels show which did."""


def total(work: Work | Parts) -> Work:
    """The sum of the parts."""
    return work if isinstance(work, Work) else sum(work.values(), Work())


def distinct(*arguments: Any) -> float:
    """Bytes of the tensors among the arguments, including those in lists. Shared memory counts once.

    ``None`` and numbers count 0. An optional tensor that is ``UNKNOWN`` counts as absent, because that is what an empty
    size list in an NVTX range means in nearly all calls.
    """
    flat = [t for argument in arguments for t in (argument if isinstance(argument, (tuple, list)) else (argument,))]
    seen: set[int] = set()
    nbytes: float = 0
    for tensor in flat:
        if isinstance(tensor, Tensor) and (not tensor.ident or tensor.ident not in seen):
            seen.add(tensor.ident)
            nbytes += tensor.nbytes
    return nbytes


@dataclass(frozen=True, slots=True)
class Order:
    """An op's arguments in its schema's order, named by the model's parameters; ``record``: the dataclass for them."""

    words: tuple[str, ...]
    record: type | None = None

    def bind(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments to call the model with."""
        named = {word: a for word, a in zip(self.words, args, strict=False) if not word.startswith("_")}
        return ((self.record(**named),), {}) if self.record else ((), named)


MODELS: dict[str, Callable[..., Work | Parts]] = {}  # aten name without "aten::" and without overload -> model
FAMILY: dict[str, str] = {}  # the same names -> "gemm", "conv", "attention", "pointwise", ...
ORDER: dict[str, Order] = {}  # the names that were registered with an order of arguments
MATRIX = frozenset({"gemm", "conv", "attention", "rnn"})  # families of matrix products

F = TypeVar("F", bound=Callable[..., Any])


def model(*ops: str, family: str = "custom", takes: type | None = None) -> Callable[[F], F]:
    """Register a function as the model of ops, and return it unchanged, so that models can call each other.

    ``ops``: an op's name as the profiler records it (``"mm"``, ``"mylib::op"``), or several names separated by blanks.
    If these ops' order of arguments differs from the function's, the order follows in parentheses.
    ``family``: "gemm", "conv", "attention" or "rnn" for matrix products, otherwise any word; ``takes``: the dataclass
    that holds the arguments, if the function takes one.

    Raises ModelError if a name already has a model (the message names both functions), and if an order contains a name
    that is not a parameter of the function.
    """

    def register(function: F) -> F:
        for text in ops:
            listed_names, ordered, words = text.partition("(")
            order = Order(tuple(words.rstrip(")").replace(",", " ").split()), takes)
            for name in listed_names.replace("aten::", "").split():
                if name in MODELS:
                    raise ModelError(f"{name} has two models: {MODELS[name].__qualname__} and {function.__qualname__}")
                if ordered:
                    _check_taken(name, order.words, takes or function)
                    ORDER[name] = order
                MODELS[name] = function
                FAMILY[name] = family
        return function

    return register


@dataclass(frozen=True, slots=True)
class Family:
    """``model`` for ops of one family: ``op = Family("gemm")``, then ``@op("mm")``."""

    name: str

    def __call__(self, *ops: str, takes: type | None = None) -> Callable[[F], F]:
        return model(*ops, family=self.name, takes=takes)


def _check_taken(name: str, words: tuple[str, ...], taker: Callable[..., Any]) -> None:
    """Raise ModelError if an order contains a name that is not a parameter of its model."""
    if isinstance(taker, type):
        taken: Collection[str] = [field.name for field in fields(taker)]
    else:  # inspect.signature also sees through wrappers, but takes 0.1 ms
        code = taker.__code__
        taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    strange = [word for word in words if not word.startswith("_") and word not in taken]
    if strange:
        raise ModelError(f"{name}: {taker.__qualname__} takes no {', '.join(strange)}")


def names(text: str) -> frozenset[str]:
    """The names in a text separated by blanks, which keeps long tables of names short."""
    return frozenset(text.split())
