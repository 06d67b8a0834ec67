"""What was found about distinct calls, kept for all counts of the process: a repeated call is looked up by its key.

Describing a call's arguments and evaluating its model takes about 100 us; looking the call up takes a few.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from pyprof.counting.arguments import has_contents, ordered, outputs_of, tensors, wants_gradient
from pyprof.counting.autograd_nodes import NO_MODEL
from pyprof.counting.call_keys import FACTORS, NoKey, key_of
from pyprof.counting.call_work import (
    ModelCall,
    OpCount,
    api_name,
    count_op,
    may_have_model,
    model_call,
    model_of,
    op_name,
)
from pyprof.counting.modes import are_wrapped
from pyprof.prof.ops.evaluation import ALIASES, find
from pyprof.prof.ops.model import FAMILY, MODELS

MOST = 8192  # distinct calls that are kept
MOST_RESULTS = 64  # different results that are kept per distinct call


@dataclass(slots=True)
class OpCall:
    """A dispatched op with its arguments, and its counts by result."""

    name: str
    args: tuple[Any, ...]
    known: ModelCall | None  # the op's whole backward, if a model counts it and a gradient may be wanted
    plain: bool = False  # whether all tensors are plain ones
    counts: dict[Any, OpCount] = field(default_factory=dict)

    def count(self, result: Any, in_optimizer: bool) -> OpCount:
        """The op's count, given its result."""
        key = result_key(result)
        found = self.counts.get(key) if key is not None else None
        if found is None:
            found = count_op(self.name, self.args, outputs_of(result), in_optimizer)
            if key is not None and len(self.counts) < MOST_RESULTS:
                self.counts[key] = found
        return found


class KnownCalls:
    """The distinct calls, of API functions and of dispatched ops. Emptied if models are added or removed."""

    def __init__(self) -> None:
        self._models: Any = None
        self._functions: dict[Any, bool] = {}
        self._factors: dict[Any, bool] = {}
        self._calls: dict[Any, ModelCall] = {}
        self._ops: dict[Any, OpCall] = {}

    def refresh(self) -> None:
        """Forget everything if the registry of models has changed."""
        models = (len(MODELS), len(ALIASES), id(next(reversed(MODELS.values()))))
        if models != self._models:
            self._models = models
            for table in (self._functions, self._factors, self._calls, self._ops):
                table.clear()

    def may_have_model(self, func: Any) -> bool:
        """Whether a model may count calls of this function as a whole."""
        found = self._functions.get(func)
        if found is None:
            found = may_have_model(func)
            _store(self._functions, func, found)
        return found

    def _takes_factors(self, func: Any) -> bool:
        """Whether a function's floating-point arguments are factors of an element-wise op."""
        found = self._factors.get(func)
        if found is None:
            schema = getattr(func, "_schema", None)
            model = find(api_name(func) if schema is None else op_name(schema.name))
            found = FAMILY.get(model or "") in FACTORS
            _store(self._factors, func, found)
        return found

    def api_call(self, func: Any, args: Any, kwargs: Any, in_optimizer: bool) -> tuple[ModelCall, list[torch.Tensor]]:
        """The model that counts an API call, and the call's tensors."""
        try:
            key, found = key_of(args, kwargs, self._takes_factors(func))
        except NoKey:
            found = list(tensors((args, kwargs)))
            return NO_MODEL if are_wrapped(found) else model_call(*model_of(func, args, kwargs), found), found
        whole = (func, key, torch.is_grad_enabled(), in_optimizer)
        known = self._calls.get(whole)
        if known is None:
            known = model_call(*model_of(func, args, kwargs), found)
            if not has_contents(known.args) and -1 not in known.places:
                _store(self._calls, whole, known)
        return known, found

    def op_call(self, func: Any, args: Any, kwargs: Any, in_optimizer: bool) -> tuple[OpCall, list[torch.Tensor]]:
        """A dispatched op, and the call's tensors."""
        try:
            key, found = key_of(args, kwargs, self._takes_factors(func))
        except NoKey:
            found = list(tensors((args, kwargs)))
            return _op_call(func, args, kwargs, found), found
        whole = (func, key, torch.is_grad_enabled(), in_optimizer)
        known = self._ops.get(whole)
        if known is None:
            known = _op_call(func, args, kwargs, found)
            known.plain = True
            if not has_contents(known.args):
                _store(self._ops, whole, known)
        return known, found


def _op_call(func: Any, args: Any, kwargs: Any, found: list[torch.Tensor]) -> OpCall:
    arguments = ordered(func._schema, args, kwargs)
    name = op_name(func._schema.name)
    model = find(name)
    wanted = f"{model}.backward" in MODELS and wants_gradient(arguments.descriptions)
    return OpCall(name, arguments.descriptions, model_call(model, arguments, found) if model and wanted else None)


def result_key(result: Any) -> Any:
    """The key of a call's result; None if it has none."""
    try:
        return key_of((result,), {})[0]
    except NoKey:
        return None


def _store(table: dict[Any, Any], key: Any, value: Any) -> None:
    if len(table) >= MOST:
        table.clear()
    table[key] = value
