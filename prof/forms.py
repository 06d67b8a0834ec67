"""What the JSON columns of a kernel table hold, checked where it comes in: it is anybody's, and models rely on it."""

from __future__ import annotations

from typing import Any

import msgspec

from pyprof.errors import SchemaError
from pyprof.gather import short
from pyprof.parse.shapes import Size, Sizes, Strides
from pyprof.table import Table

__all__ = ["FORMS", "check_forms"]

# column -> type, and what an error calls it. An argument is a tensor's shape, or for a list of tensors their shapes.
FORMS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("layer", "trace", "reprMarkers", "marker", "mod", "op", "nodes"), (list[str], "a list of texts")),
    "sizes": (Sizes, "a list of shapes"),
    "dtypes": (list[str | list[str]], "a list of dtypes"),
    "strides": (Strides, "a list of strides"),
    "args": (list[Any], "a list of values"),
    "outs": (list[list[Size]], "a list of shapes"),
    "grads": (list[list[Size]], "a list of shapes"),
    "gpuInfo": (dict[str, Any], "facts by name"),
}


def check_forms(table: Table, file: str) -> None:
    """Raise SchemaError where a column's value is of another form than ``FORMS`` has. Empty texts are unknown."""
    for key, (form, words) in FORMS.items():
        text = ""
        decode = msgspec.json.Decoder(form).decode
        try:
            for text in filter(None, table.coded(key).values):
                decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SchemaError(file, f"column {key}: expected {words}, found {short(text)} ({error})") from None
