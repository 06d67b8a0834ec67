"""The work of one call: which op model counts it, with which arguments, and why some calls cannot be counted."""

import types
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyprof.prof.ops.families  # noqa: F401  (fills the registry of models)
from pyprof.counting.arguments import as_autocast, resolved
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


class OpCount(NamedTuple):
    """A dispatched op and its work. If the op could not be counted, the work is None and the reason is given."""

    op: str
    model: str  # empty: the op has no model
    work: Work | None
    reason: str


@dataclass
class ApiCall:
    """A call of torch's API. After it has run, it is the owner of the autograd nodes that it created."""

    op: str  # the outermost API call's name
    model: str = ""  # the model that counts the call; empty: the ops that it dispatches are counted
    args: tuple[Any, ...] = ()
    out: tuple[Tensor | None, ...] | None = None
    autocast: bool = False
    inner: list[OpCount] = field(default_factory=list)  # the ops that it dispatched
    passes: set[int] = field(default_factory=set)  # the backward passes in which its backward was counted


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


def model_of(func: Any, args: Any, kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    """The model that counts an API call, and its arguments; ("", ()) if the calls inside are to be counted."""
    if isinstance(func, types.FunctionType):
        model, arguments = python_arguments(func, args, kwargs)
        return (model, arguments) if model in MODELS else ("", ())
    name = api_name(func)
    model_name = find(name)
    if model_name is None or name in CASTS or name in MOVES or FAMILY[model_name] == "view":
        return "", ()
    fitting = resolved(name, args, kwargs)
    return (model_name, fitting) if fitting is not None else ("", ())


def api_work(call: ApiCall, in_optimizer: bool) -> Work | None:
    """The work of a call, counted by its model; None if the model cannot count it.

    Under autocast the arguments first get the dtype in which the op ran.
    """
    if call.autocast and call.out and call.out[0] is not None:
        dtype = call.out[0].dtype
        if dtype in LOW and FAMILY[call.model] in MATRIX:
            call.args = as_autocast(call.args, frozenset({"float32"}), dtype)
        elif dtype == "float32" and any(part.model == "_to_copy" for part in call.inner):
            call.args = as_autocast(call.args, LOW, dtype)  # for example a loss or a norm
    return count_op(call.model, call.args, call.out, in_optimizer, call.op.endswith("_")).work


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
