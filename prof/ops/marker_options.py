"""Arguments that ranges and Kineto leave out, from the marker of the user's call.

These are the flags of attention, the indices of ``x[...]``, and the options of an op's own call. A marker that leaves
open which of its arguments is which (a positional one without a sure name, a cut list) fills nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.marker_calls import call_arguments
from pyprof.prof.ops.model import UNKNOWN, Tensor
from pyprof.prof.ops.signatures import signature_of
from pyprof.prof.ops.subscripts import SUBSCRIPTS, subscript

__all__ = ["with_flags", "with_options"]

# models' names of arguments -> the names that F.scaled_dot_product_attention has for them, and their defaults there
# (a mask type of 1 is causal: ATen/native/transformers/attention.cpp)
API_NAMES = {"causal": "is_causal", "mask_type": "is_causal", "dropout": "dropout_p"}
API_DEFAULTS = {"is_causal": False, "dropout_p": 0.0}
NUMPY = {"axis": "dim", "keepdims": "keepdim"}  # names that PyTorch takes as well


def with_flags(arguments: tuple[Any, ...], parameters: Sequence[str], marker: Marker) -> tuple[Any, ...]:
    """The arguments with attention's flags and the indices of ``x[...]``, where these are unknown.

    ``parameters`` are the model's own names of the arguments. A flag that the call did not give has its default.
    """
    by_name = {str(a["name"]): a.get("value", UNKNOWN) for a in marker.args}
    flags = _attention_flags(marker.op, by_name) if all(by_name) else {}
    filled = list(arguments)
    for position, (name, argument) in enumerate(zip(parameters, arguments, strict=False)):
        if argument is UNKNOWN and API_NAMES.get(name) in flags:
            flag = flags[API_NAMES[name]]
            filled[position] = int(flag) if name == "mask_type" and isinstance(flag, bool) else flag
        elif name == "positions" and not isinstance(argument, (tuple, Tensor)) and marker.op in SUBSCRIPTS:
            filled[position] = subscript(marker, arguments[0])
    return tuple(filled)


def _attention_flags(op: str, by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that attention runs with, by a call of scaled_dot_product_attention or of nn.MultiheadAttention's
    function, which asks for a causal kernel where there is nothing else to mask and no weights to return."""
    if op == "scaled_dot_product_attention":
        return {name: by_name.get(name, default) for name, default in API_DEFAULTS.items()}
    if op != "multi_head_attention_forward":
        return {}
    asks_for_causal = by_name.get("is_causal", False) is True and by_name.get("need_weights", True) is False
    flags: dict[str, Any] = {"is_causal": asks_for_causal and by_name.get("key_padding_mask") is None}
    if by_name.get("training", True) is False:
        flags["dropout_p"] = 0.0
    elif "dropout_p" in by_name:
        flags["dropout_p"] = by_name["dropout_p"]
    return flags


def with_options(op: str, arguments: tuple[Any, ...], marker: Marker) -> tuple[Any, ...]:
    """The arguments with the options that ranges leave out, from the op's own call on a tensor of the same shape."""
    options = signature_of(op).options
    if not options or len(arguments) != len(options) + 1:
        return arguments
    self = arguments[0]
    x, *given = call_arguments(marker) or (None,)
    if marker.op.strip("_") != op.strip("_") or not (isinstance(x, Tensor) and isinstance(self, Tensor)):
        return arguments
    names = [NUMPY.get(str(a["name"]), str(a["name"])) for a in marker.args[1:]]
    if x.shape != self.shape or not all(names):
        return arguments
    by_name = {**dict(options), **dict(zip(names, given, strict=True))}
    pairs = zip(arguments[1:], options, strict=True)
    return (self, *(by_name[name] if argument is UNKNOWN else argument for argument, (name, _) in pairs))
