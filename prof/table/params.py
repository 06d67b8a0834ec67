"""The op's arguments as one short text: ``T=[(64,1024),(4096,1024)],bfloat16,stride=2``.

It comes from the outermost marker that has arguments, as in PyProf, or if there are no markers, from the aten op's
sizes and dtypes. PyProf had a different form for each model; this one is the same for all ops, without blanks for awk.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyprof.marker import parse_marker
from pyprof.table.columns import Coded, Table, distinct_texts

TENSORS = 6  # the most tensors that are shown; the rest are counted
LONGEST = 32  # characters of one value


def params(table: Table) -> Coded:
    """The text of every row: the user's call, or the aten op if the capture has no marker."""
    return _texts(table, _params)


def aten_params(table: Table) -> Coded:
    """The text of every row: the aten op that did the work, or the user's call if no aten op is recorded."""
    return _texts(table, lambda marker, *recorded: _params("", *recorded) or _params(marker, *recorded))


def _texts(table: Table, make: Callable[[str, str, str, str], str]) -> Coded:
    """The texts, each made once per distinct combination of marker, sizes, dtypes and values."""
    rows, number = distinct_texts(*(table.coded(key) for key in ("marker", "sizes", "dtypes", "args")))
    return Coded.of(make(*row) for row in rows).take(number)


def _params(marker: str, sizes: str, dtypes: str, args: str) -> str:
    for text in json.loads(marker) if marker else ():
        parsed = parse_marker(text) if isinstance(text, str) else None
        if parsed and parsed.args:
            return of_marker(parsed.args)
    return of_aten(*(json.loads(text) if text else [] for text in (sizes, dtypes, args)))


def of_marker(args: list[dict[str, Any]]) -> str:
    """The text of a marker's arguments.

    >>> tensor = {"name": "input", "type": "tensor", "shape": [2, 3], "dtype": "float32"}
    >>> of_marker([tensor, {"name": "p", "type": "float", "value": 0.5}, {"name": "", "type": "NoneType"}])
    'T=[(2,3)],float32,p=0.5'
    """
    tensors = list(_tensors(args))
    given = [arg for arg in args if arg.get("value") is not None]
    values = [(f"{arg['name']}=" if arg.get("name") else "") + _value(arg["value"]) for arg in given]
    shapes = [arg["shape"] for arg in tensors if "shape" in arg]
    return _joined(shapes, [arg.get("dtype", "") for arg in tensors], values)


def of_aten(sizes: Any, dtypes: Any, args: Any) -> str:
    """The text of an aten op's recorded inputs.

    >>> of_aten([[768], [4096, 3072], []], ["float32", "float32", ""], ["", "", "1"])
    'T=[(768),(4096,3072)],float32,1'
    """
    values = [_value(arg) for arg in args if arg not in ("", None)] if isinstance(args, list) else []
    return _joined(list(_shapes(sizes)), list(_strings(dtypes)), values)


def _tensors(args: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for arg in args:
        if arg.get("type") == "tensor":
            yield arg
        yield from _tensors(arg.get("items") or ())


def _shapes(sizes: Any) -> Iterator[list[int]]:
    """The shapes in ``sizes``. ``[]`` is left out: it can be a 0-d tensor, but also a scalar or None."""
    if not isinstance(sizes, list) or not sizes:
        return
    if all(isinstance(size, int) for size in sizes):
        yield sizes
    for item in sizes:
        yield from _shapes(item)


def _strings(dtypes: Any) -> Iterator[str]:
    if isinstance(dtypes, str):
        yield dtypes
    for item in dtypes if isinstance(dtypes, list) else ():
        yield from _strings(item)


def _joined(shapes: list[list[int]], dtypes: list[str], values: list[str]) -> str:
    kinds = "/".join(dict.fromkeys(dtype for dtype in dtypes if dtype))
    shown = [f"({','.join(map(str, shape))})" for shape in shapes[:TENSORS]]
    if len(shapes) > TENSORS:
        shown.append(f"+{len(shapes) - TENSORS}")
    tensors = [f"T=[{','.join(shown)}]"] if shown else []
    return "".join(",".join([*tensors, *([kinds] if kinds else []), *values]).split())


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    text = f"({text[1:-1]})" if isinstance(value, list) else text
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}.."
