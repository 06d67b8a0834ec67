"""Markers: write a call of an op as text, and read it back. docs/explanation/design.md, Capture, says why.

The capture writes markers and the parser reads them, so this module imports no heavy packages.

Forms of one argument (a dict in `Marker.args`):

    tensor            {"name", "type": "tensor", "shape": [64, 1024], "dtype": "float32"} and, where they
                      differ from the usual ones: "stride", "device", "layout", "class"
    number, str,      {"name", "type": "int", "value": 3}; complex, dtype, device, slice as strings,
    bool, None          float inf and nan as "inf", "-inf", "nan"
    list of scalars   {"name", "type": "tuple", "value": [1, 2]}
    other list        {"name", "type": "list", "items": [{"type": "tensor", ...}, ...]}; items have no name
    anything else     {"name", "type": "MyClass"}

A list that was cut has its first items, and its true length as "len". "name" is "" if it is not known.
Sizes that are not numbers (the ragged one of a nested tensor, symbolic ones) are -1.
"""

import ast
import json
from dataclasses import dataclass, field, replace
from typing import Any

from pyprof.source_path import short_line

GRAPH_RANGE = "CUDAGraph#"  # with a number: the range around the begin of a graph's capture, and around its replays
TRITON = "triton"  # the module in the markers of launches of Triton kernels
FAKE_TENSORS = "FakeTensorMode"  # the range around what PyTorch runs on fake tensors, to learn shapes and types
PACKED = "packed"  # the type of a packed weight among a marker's arguments; its items are the weight and numbers
VERSION = 1
START = '{"v":1'  # the beginning of our marker texts
OLD_START = "{'"  # the beginning of PyProf's and DLProf's marker texts, which are str() of a dict
MAX_TEXT = 65_000  # characters; nsys keeps 65,535 bytes of an NVTX message and our text is ASCII
LONG_LIST = 64  # the most items kept per list argument


@dataclass(frozen=True, slots=True)
class Marker:
    """One call of an op by the user's program. `op` is empty for PyProf's texts of only a trace or a module."""

    mod: str
    op: str
    args: list[dict[str, Any]] = field(default_factory=list)
    autocast: str | None = None  # the autocast dtype; None if autocast was off
    trace: list[str] = field(default_factory=list)  # "file.py:123", outermost first
    func_stack: str = ""  # PyProf's "/Net::forward/conv2d"; empty unless the option was given


def format_marker(marker: Marker, room: int = MAX_TEXT) -> str:
    """The marker as one line of ASCII, at most `room` characters, for `parse_marker`. Cut values are marked as cut."""
    text = _dumps(_payload(marker))
    if len(text) <= room:
        return text
    args = _fitting(marker.args, room // 2)
    short = Marker(marker.mod[:200], marker.op[:200], args, marker.autocast, marker.trace[-50:])
    for candidate in (replace(marker, args=args), short, replace(short, trace=[])):
        text = _dumps(_payload(candidate))
        if len(text) <= room:
            break
    return text


def parse_marker(text: str) -> Marker | None:
    """The marker in a range's text, in our form or PyProf's; None for any other text, including damaged markers."""
    if text.startswith(START):
        return _parse_ours(text)
    if text.startswith(OLD_START):
        return _parse_old(text)
    return None


def _dumps(payload: object) -> str:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _payload(marker: Marker) -> dict[str, Any]:
    payload: dict[str, Any] = {"v": VERSION, "mod": marker.mod, "op": marker.op, "args": marker.args}
    if marker.autocast is not None:
        payload["autocast"] = marker.autocast
    if marker.trace:
        payload["trace"] = marker.trace
    if marker.func_stack:
        payload["funcStack"] = marker.func_stack
    return payload


def _fitting(args: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The first arguments that fit into `room` characters; very large arguments are kept without their values.

    "len" replaces the items of a list, "cut" replaces any other value, and a final "..." replaces dropped arguments.
    """
    kept: list[dict[str, Any]] = []
    for arg in args:
        size = len(_dumps(arg))
        if size > room // 8:
            arg = _cut(arg)
            size = len(_dumps(arg))
        if size > room:
            return [*kept, {"name": "", "type": "...", "len": len(args)}]
        kept.append(arg)
        room -= size + 1
    return kept


def _cut(arg: dict[str, Any]) -> dict[str, Any]:
    short: dict[str, Any] = {"name": str(arg.get("name", ""))[:100], "type": str(arg["type"])[:100]}
    items = arg.get("items", arg.get("value"))
    if isinstance(items, list):
        return {**short, "len": arg.get("len", len(items))}
    return {**short, "cut": True}


def _parse_ours(text: str) -> Marker | None:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict) or payload.get("v") != VERSION or not _encodable(text, payload):
        return None
    if not (isinstance(payload.get("mod"), str) and isinstance(payload.get("op"), str)):
        return None
    return _checked(payload, "trace")


def _parse_old(text: str) -> Marker | None:
    """PyProf wrote up to three dicts per call: mod op args, mod strRepr, and traceMarker funcStack."""
    if "'mod'" not in text and "'traceMarker'" not in text:  # no marker, so skip the slow parser
        return None
    try:
        payload = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if not isinstance(payload, dict) or not _encodable(text, payload):
        return None
    marker = _checked(payload, "traceMarker")
    if marker is not None:  # PyProf wrote whole paths
        marker = replace(marker, trace=[short_line(line) for line in marker.trace])
    return marker if marker and (marker.mod or marker.trace or marker.func_stack) else None


def _checked(payload: dict[str, Any], trace_key: str) -> Marker | None:
    names = [payload.get(key, "") for key in ("mod", "op", "funcStack")]
    args = _clean_args(payload.get("args", []))
    trace = payload.get(trace_key, [])
    if args is None or not isinstance(trace, (list, tuple)):
        return None
    if not all(isinstance(text, str) for text in (*names, *trace)):
        return None
    autocast, named = payload.get("autocast"), [{"name": "", **arg} for arg in args]
    return Marker(names[0], names[1], named, autocast if isinstance(autocast, str) else None, list(trace), names[2])


def _encodable(text: str, payload: object) -> bool:
    """False if the text escapes half of a surrogate pair, which cannot be written as UTF-8 later."""
    if "\\u" not in text and "\\U" not in text and text.isascii():
        return True
    try:
        json.dumps(payload, ensure_ascii=False, default=str).encode()
    except (UnicodeEncodeError, TypeError, RecursionError):
        return False
    return True


def _clean_args(value: object) -> list[dict[str, Any]] | None:
    """The arguments if they have the forms of the module's docstring, else None. Tuples of old texts become lists."""
    if not isinstance(value, (list, tuple)):
        return None
    args = [_clean_arg(arg) for arg in value]
    return None if None in args else [arg for arg in args if arg is not None]


def _clean_arg(arg: object) -> dict[str, Any] | None:
    if not isinstance(arg, dict):
        return None
    clean: dict[str, Any] = dict(arg)
    if not (isinstance(clean.get("type"), str) and isinstance(clean.get("name", ""), str)):
        return None
    for key in ("shape", "stride"):
        sizes = clean.get(key, ())
        if not isinstance(sizes, (list, tuple)) or not all(type(size) is int for size in sizes):
            return None
        if key in clean:
            clean[key] = list(sizes)
    whole_tensor = "shape" in clean and isinstance(clean.get("dtype"), str)
    if clean["type"] == "tensor" and not (whole_tensor or clean.get("cut")):
        return None
    if "items" in clean:
        clean["items"] = _clean_args(clean["items"])
    if isinstance(clean.get("value"), tuple):
        clean["value"] = list(clean["value"])
    return None if clean.get("items", ()) is None else clean
