"""The work of one call: which op model counts it, with which arguments, and why some calls cannot be counted."""

import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

import pyprof.prof.ops.families  # noqa: F401  (fills the registry of models)
from pyprof.counting.arguments import Ordered, as_autocast, resolved, with_needs
from pyprof.counting.python_functions import python_arguments
from pyprof.counting.registered_formulas import registered_work
from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.model import FAMILY, MATRIX, MODELS, Tensor, Work, total

# These calls copy or not, depending on their arguments. No model can tell, so the dispatched ops are counted.
CASTS = frozenset({"to", "type_as", "type", "float", "half", "double", "bfloat16", "long", "int", "bool", "_to_copy"})
MOVES = frozenset({"cpu", "cuda", "contiguous", "reshape", "flatten", "ravel", "detach", "requires_grad_"})
# These calls return a number to the program's Python code. They are not part of the algorithm.
HOST = frozenset({"item", "_local_scalar_dense", "tolist"})
LOW = frozenset({"float16", "bfloat16"})  # the dtypes that autocast casts to and back from
NO_ARGUMENTS = Ordered((), ())


class OpCount(NamedTuple):
    """A dispatched op and its work. If the op could not be counted, the work is None and the reason is given."""

    op: str
    model: str  # empty: the op has no model
    work: Work | None
    reason: str


@dataclass(slots=True)
class ModelCall:
    """A model and the arguments of a call; shared by all calls with equal arguments."""

    model: str = ""  # empty: the ops that the call dispatches are counted
    args: tuple[Any, ...] = ()
    places: tuple[int, ...] = ()  # for each described tensor its place among the call's tensors; -1: not among them
    succeeded: bool = False  # whether the model has counted such a call
    works: dict[Any, Any] = field(default_factory=dict)  # result, casts -> (work or None, cast arguments, outputs)
    backward: dict[Any, Work | None] = field(default_factory=dict)  # result, needed gradients -> work of the backward

    @property
    def has_backward(self) -> bool:
        """Whether a model counts the whole backward."""
        return f"{self.model}.backward" in MODELS


def api_name(func: Any) -> str:
    """The name of the called function: ``add`` for ``+`` (``__add__``), ``rsub`` for ``__rsub__``."""
    name = getattr(func, "__name__", str(func))
    return name.strip("_") if name.startswith("__") and name.endswith("__") else name


def op_name(schema_name: str) -> str:
    """The op's short name: ``mm`` for ``aten::mm``. An op below aten gets the name of its aten equivalent, if any.

    >>> op_name("aten::mm"), op_name("prims::mul"), op_name("prim::device"), op_name("mylib::mm")
    ('mm', 'mul', 'device', 'mylib::mm')
    """
    library, _, name = schema_name.rpartition("::")
    return name if library == "aten" or (library in ("prim", "prims") and find(name)) else schema_name


def may_have_model(func: Any) -> bool:
    """Whether a model may count calls of this function as a whole, depending on their arguments."""
    if isinstance(func, types.FunctionType):
        return True
    name = api_name(func)
    model = find(name)
    return model is not None and name not in CASTS and name not in MOVES and FAMILY[model] != "view"


def model_of(func: Any, args: Any, kwargs: Any) -> tuple[str, Ordered]:
    """The model that counts an API call, and its arguments; ("", no arguments) if the calls inside are counted."""
    if isinstance(func, types.FunctionType):
        model, arguments = python_arguments(func, args, kwargs)
        return (model, arguments) if model in MODELS else ("", NO_ARGUMENTS)
    name = api_name(func)
    model_name = find(name) if may_have_model(func) else None
    fitting = resolved(name, args, kwargs) if model_name is not None else None
    return (model_name, fitting) if model_name and fitting is not None else ("", NO_ARGUMENTS)


def model_call(model: str, arguments: Ordered, tensors: list[torch.Tensor]) -> ModelCall:
    """The call of a model, with the places of its tensors among all tensors of the call."""
    place = {id(tensor): i for i, tensor in reversed(list(enumerate(tensors)))}
    places = tuple(place.get(id(value), -1) for value in described_tensors(arguments.values))
    return ModelCall(model, arguments.descriptions, places)


def described_tensors(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among the values and in their lists, in the order of their descriptions."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from described_tensors(value)


def api_work(model: str, args: tuple[Any, ...], out: Any, in_optimizer: bool, op: str) -> Work | None:
    """The work of a call of ``op``, counted by its model; None if the model cannot count it."""
    return count_op(model, args, out, in_optimizer, op.endswith("_")).work


def cast_arguments(call: ModelCall, out: Any, casts: bool) -> tuple[Any, ...]:
    """The arguments as autocast casts them for this op, as its result shows."""
    if out and out[0] is not None:
        dtype = out[0].dtype
        if dtype in LOW and FAMILY[call.model] in MATRIX:
            return tuple(as_autocast(call.args, frozenset({"float32"}), dtype))
        if dtype == "float32" and casts:
            return tuple(as_autocast(call.args, LOW, dtype))  # for example a loss or a norm
    return call.args


def backward_work(model: str, args: tuple[Any, ...], out: Any, needs: tuple[bool, ...]) -> Work | None:
    """The work of a whole backward that computes the gradients ``needs``; None if the model cannot count it."""
    try:
        return total(evaluate(f"{model}.backward", with_needs(args, iter(needs)), out))
    except ModelError:
        return None


def count_op(name: str, arguments: tuple[Any, ...], out: Any, in_optimizer: bool, in_place: bool = False) -> OpCount:
    """Count one op. An optimizer's arithmetic on single numbers (step counters, bias corrections) counts as zero work.

    It is bookkeeping, and runs on the host by default.
    """
    model = find(name)
    if model is None:
        return _by_registered_formula(name, arguments, out)
    if name in HOST or ((in_optimizer or name.startswith("_foreach_")) and _only_scalars(arguments)):
        return OpCount(name, model, Work(), "")
    try:
        return OpCount(name, model, total(evaluate(model, arguments, out, in_place=in_place or name.endswith("_"))), "")
    except ModelError as error:
        return OpCount(name, model, None, str(error))


def _by_registered_formula(name: str, arguments: tuple[Any, ...], out: Any) -> OpCount:
    """Count an op without a model by the formula that its library registered with PyTorch's counter, if any."""
    try:
        work = registered_work(name, arguments, out)
    except ModelError as error:
        return OpCount(name, "", None, str(error))
    return OpCount(name, "", None, "no model") if work is None else OpCount(name, name, total(work), "")


def _only_scalars(arguments: Any) -> bool:
    """Whether all tensors are 0-dimensional."""
    held = (a for a in arguments if isinstance(a, (Tensor, tuple)))
    return all(not a.shape if isinstance(a, Tensor) else _only_scalars(a) for a in held)
