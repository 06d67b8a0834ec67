"""What the JSON columns of a kernel table hold, checked where it comes in: it is anybody's, and models rely on it."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from pyprof.errors import SchemaError
from pyprof.parse.formats.possible_times import LATEST_NS
from pyprof.parse.formats.shape_text import Size, Sizes, Strides
from pyprof.table.columns import NULL, Table
from pyprof.table.gather import short

__all__ = ["FORMS", "check_forms"]

Dtypes: TypeAlias = list[str | list[str]]


class Called(msgspec.Struct, forbid_unknown_fields=True):
    """A call of an op."""

    aten: str
    sizes: Sizes = []
    dtypes: Dtypes = []
    strides: Strides = []
    args: list[Any] = []


# column -> type, and what an error calls it. An argument is a tensor's shape, or for a list of tensors their shapes.
FORMS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("layer", "trace", "reprMarkers", "marker", "mod", "op", "nodes"), (list[str], "a list of texts")),
    "sizes": (Sizes, "a list of shapes"),
    "dtypes": (Dtypes, "a list of dtypes"),
    "strides": (Strides, "a list of strides"),
    "args": (list[Any], "a list of values"),
    "forward": (Called, "an op's name and arguments"),
    "outs": (list[list[Size]], "a list of shapes"),
    "grads": (list[list[Size]], "a list of shapes"),
    "gpuInfo": (dict[str, Any], "facts by name"),
}


# column -> the least and most ns that can be: ends and sums of them must fit 64 bits
TIMES = {"kDuration": (0, 2 * LATEST_NS), "start": (-LATEST_NS, LATEST_NS)}


def check_forms(table: Table, file: str) -> None:
    """Raise SchemaError where a column's value is of another form than ``FORMS`` has. Empty texts are unknown.

    Times must be ones that can be: a reader sees to that, another's table may have any.
    """
    for key, (least, most) in TIMES.items():
        times = table.ints(key)
        wrong = times[(times != NULL) & ((times < least) | (times > most))]
        if len(wrong):
            raise SchemaError(file, f"column {key}: expected ns from {least} to {most}, found {wrong[0]}")
    if (whole := sum(table.ints("kDuration").tolist())) > 2 * LATEST_NS:
        raise SchemaError(file, f"column kDuration: expected at most {2 * LATEST_NS} ns in all, found {whole}")
    for key, (form, words) in FORMS.items():
        text = ""
        decode = msgspec.json.Decoder(form).decode
        try:
            for text in filter(None, table.coded(key).values):
                decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SchemaError(file, f"column {key}: expected {words}, found {short(text)} ({error})") from None
