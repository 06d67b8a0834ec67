"""Check the cells of a kernel table on input: it may come from any source, and op models rely on the format."""

from typing import Annotated, Any, TypeAlias

import msgspec

from pyprof.errors import SchemaError
from pyprof.parse.formats.possible_times import LATEST_NS
from pyprof.parse.formats.shape_text import Size, Sizes, Strides
from pyprof.table.columns import NULL, Table
from pyprof.table.gather import short

Dtypes: TypeAlias = list[str | list[str]]


class OpCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call of an op."""

    aten: str
    sizes: Sizes = []
    dtypes: Dtypes = []
    strides: Strides = []
    args: list[Any] = []


class CapturedCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call that an opaque CUDA graph captured; a number of calls that a capture cannot have would be no count."""

    calls: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    launches: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    mod: list[str] = []
    op: list[str] = []
    layer: list[str] = []
    dir: str = ""
    phase: str = ""
    aten: str = ""
    sizes: Sizes = []
    dtypes: Dtypes = []
    strides: Strides = []
    args: list[Any] = []
    outs: list[list[Size]] = []
    marker: list[str] = []
    nodes: list[str] = []
    comm: Any = None
    forward: OpCall | None = None


# JSON column -> its type, and the type's name in errors. An argument is a tensor's shape, or those of several.
FORMS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("layer", "trace", "reprMarkers", "marker", "mod", "op", "nodes"), (list[str], "a list of texts")),
    "sizes": (Sizes, "a list of shapes"),
    "dtypes": (Dtypes, "a list of dtypes"),
    "strides": (Strides, "a list of strides"),
    "args": (list[Any], "a list of values"),
    "forward": (OpCall, "an op's name and arguments"),
    "outs": (list[list[Size]], "a list of shapes"),
    "grads": (list[list[Size]], "a list of shapes"),
    "gpuInfo": (dict[str, Any], "facts by name"),
    "graphOps": (list[CapturedCall], "calls with op, layer and arguments"),
    "views": (list[tuple[list[Size], str]], "a list of shapes and dtypes"),
    "incomplete": (list[tuple[str, str]], "a list of pairs of texts"),
}

# Time column -> its smallest and largest allowed value in ns: end times and sums must fit into 64 bits.
TIMES = {
    "kDuration": (0, 2 * LATEST_NS),
    **dict.fromkeys(("start", "markStart", "markEnd", "stepStart", "stepEnd"), (-LATEST_NS, LATEST_NS)),
}


def check_cells(table: Table, file: str) -> None:
    """Raise SchemaError if a time is impossible or a JSON cell does not have the form that ``FORMS`` requires.

    Empty texts mean unknown. pyprof's own readers repair impossible times, but a table from elsewhere may have them.
    """
    _check_times(table, file)
    for key, (form, name) in FORMS.items():
        text = ""
        decode = msgspec.json.Decoder(form).decode
        try:
            for text in filter(None, table.coded(key).values):
                decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SchemaError(file, f"column {key}: expected {name}, found {short(text)} ({error})") from None


def _check_times(table: Table, file: str) -> None:
    for key, (least, most) in TIMES.items():
        times = table.ints(key)
        impossible = times[(times != NULL) & ((times < least) | (times > most))]
        if len(impossible):
            raise SchemaError(file, f"column {key}: expected ns from {least} to {most}, found {impossible[0]}")
    total = sum(table.ints("kDuration").tolist())
    if total > 2 * LATEST_NS:
        raise SchemaError(file, f"column kDuration: expected at most {2 * LATEST_NS} ns in all, found {total}")
