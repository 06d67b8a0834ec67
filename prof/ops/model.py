"""What an op model is: shapes in, work out. Read this first to add an op.

A model is a function of an op's arguments, in the order of PyTorch's schema (native_functions.yaml), that returns the
op's ``Work``: floating-point operations, bytes read and bytes written. Its docstring is the derivation, which
docs/reference/ops.md shows:

    @model("mm", family="gemm")
    def mm(a: Tensor, b: Tensor) -> Work:
        "C[M,N] = A[M,K] @ B[K,N]: 2*M*N*K"
        (m, k), n = a.shape, b.shape[1]
        return Work(2 * m * n * k, distinct(a, b), m * n * a.itemsize)

Put it into the file of its family, with a row of values worked out by hand in that family's test. ``operands`` has what
most models need: broadcasting, promotion of types, the result's description.

An argument is

* a ``Tensor`` (shape, dtype, strides), a tuple of them, or ``None`` for an optional one that is missing;
* a number, a bool, a string or a tuple of numbers, as itself;
* ``UNKNOWN`` where the capture does not have it. A model may test ``x is UNKNOWN`` and do without. To use it in
  arithmetic or as a condition raises ``UnknownArgument``, and the call stays uncounted.

Arguments behind those that a model takes are dropped, so it lists only what it needs. Bytes are exact integers, or NaN
where a dtype is not known: unknown is not zero, and NaN spreads through every sum by itself.

Four things that a model may also do:

* It may serve several ops that take the same arguments in another order. The names then list their orders, in the
  model's own words: ``model("conv2d (x, weight, bias, stride)", "cudnn_convolution (x, weight, _padding, stride)")``.
  A word with an underscore in front is skipped; what an order lacks has the model's default. Functions of many
  arguments may take them as one dataclass: ``model("conv2d (x, weight)", takes=Call)``.
* It may have a keyword ``out: tuple[Tensor | None, ...] | None = None``. It gets the descriptions of the op's outputs
  where the capture has them; an output that was not computed is None.
* It may return ``Parts``, where separate kernels do separate pieces of the work, such as the data and the weight
  gradient of a convolution.
* It may be named ``"div.backward"``: the whole backward of an op as its algorithm needs it, where autograd's formula
  runs several ops. It takes the forward op's arguments, and ``Tensor.needs_grad`` says which gradients are wanted.
  ``pyprof.count`` uses it in place of the ops that the backward node dispatches; in a trace these ops have kernels of
  their own, and are counted one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeVar

from pyprof.dtypes import ITEM_BYTES
from pyprof.errors import ModelError, UnknownArgument


class Unknown:
    """The type of ``UNKNOWN``: an argument that the capture does not have. To use its value raises UnknownArgument."""

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
    dtype: str = ""  # torch's name without "torch."; empty where it is not known
    strides: tuple[int, ...] | None = None  # in elements; None: contiguous
    needs_grad: bool = True  # only models of a whole backward read it
    ident: int = 0  # tensors of one call with the same number other than 0 share their memory, which counts once
    values: tuple[int, ...] | None = None  # contents that decide a count (cumulative lengths), where they are known
    nonzero: int | None = None  # elements that a sparse tensor stores; None: dense
    index_bytes: int = 0  # bytes of a sparse tensor's indices

    @property
    def numel(self) -> int:
        """Elements of the shape."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> float:
        """Bytes of an element; NaN where the dtype is not known."""
        return ITEM_BYTES.get(self.dtype, math.nan)

    @property
    def stored(self) -> int:
        """Elements that lie in memory: a dimension of stride 0 counts once, overlapping ones count their span."""
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
        """Bytes of the stored elements, and of a sparse tensor's indices; NaN where the dtype is not known."""
        if self.nonzero is not None:
            return self.nonzero * self.itemsize + self.index_bytes
        return self.stored * self.itemsize if self.stored else 0

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    def like(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        """A new contiguous tensor of another shape, in ``dtype``, or in this tensor's where none is given."""
        return Tensor(tuple(shape), self.dtype if dtype is None else dtype)


@dataclass(frozen=True, slots=True)
class Work:
    """What an op's algorithm needs: floating-point operations (a multiply-add is two), bytes read, bytes written.

    >>> Work(6, 48, 24) + Work(1)
    Work(flop=7, read=48, write=24)
    """

    flop: int = 0
    read: float = 0  # NaN: not known
    write: float = 0

    @property
    def nbytes(self) -> float:
        return self.read + self.write

    def __add__(self, other: Work) -> Work:
        return Work(self.flop + other.flop, self.read + other.read, self.write + other.write)


Parts = dict[str, Work]  # the name of a piece of an op's work -> its work: {"dgrad": ..., "wgrad": ..., "bias": ...}


def total(work: Work | Parts) -> Work:
    """The sum of the parts."""
    return work if isinstance(work, Work) else sum(work.values(), Work())


def distinct(*arguments: Any) -> float:
    """Bytes of the tensors among the arguments, and in lists among them, each piece of memory once.

    ``None`` and numbers have none. An optional tensor that is ``UNKNOWN`` counts as absent: that is what an empty size
    list of an NVTX range means in all but a few calls.
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
    """The arguments of an op in its schema's order, by its model's words; ``record``: the dataclass that takes them."""

    words: tuple[str, ...]
    record: type | None = None

    def bind(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments to call the model with."""
        named = {word: a for word, a in zip(self.words, args, strict=False) if not word.startswith("_")}
        return ((self.record(**named),), {}) if self.record else ((), named)


MODELS: dict[str, Callable[..., Work | Parts]] = {}  # aten name without "aten::" and overload -> model
FAMILY: dict[str, str] = {}  # the same names -> "gemm", "conv", "attention", "pointwise", ...
ORDER: dict[str, Order] = {}  # the names that were registered with an order of arguments
MATRIX = frozenset({"gemm", "conv", "attention", "rnn"})  # families of matrix products

F = TypeVar("F", bound=Callable[..., Any])


def model(*ops: str, family: str = "custom", takes: type | None = None) -> Callable[[F], F]:
    """Register a function as the model of ops, and return it unchanged, so that models can call each other.

    ``ops``: an op's name as the profiler records it (``"mm"``, ``"mylib::op"``), or several with blanks between them,
    and after these, where the ops have another order of arguments than the function, that order in parentheses.
    ``family``: "gemm", "conv", "attention" or "rnn" for matrix products, otherwise any word; ``takes``: the dataclass
    that holds the arguments, where the function takes one.

    Raises ModelError for a second model of a name, which names both functions, and for an order with a word that the
    function does not take.
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
    """Raise ModelError where an order names what its model does not take."""
    if isinstance(taker, type):
        taken: Collection[str] = [field.name for field in fields(taker)]
    else:  # inspect.signature, which sees through anything, takes 0.1 ms
        code = taker.__code__
        taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    strange = [word for word in words if not word.startswith("_") and word not in taken]
    if strange:
        raise ModelError(f"{name}: {taker.__qualname__} takes no {', '.join(strange)}")


def names(text: str) -> frozenset[str]:
    """The names in a text, with blanks between them: a long table of names in a few lines."""
    return frozenset(text.split())
