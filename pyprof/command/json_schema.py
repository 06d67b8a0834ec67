"""JSON Schemas (draft 2020-12) in few words: each helper returns a schema, and each key says what it means.

Units stand in keys' names (``time_ns``) or, where a column's name has none, in ``"unit"``, which validators pass over.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["DIALECT", "Schema", "flag", "integer", "listing", "mapping", "maybe", "number", "of_type", "record", "text"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def text(meaning: str, among: Collection[str] = ()) -> Schema:
    return {"type": "string", "description": meaning, **({"enum": list(among)} if among else {})}


def integer(meaning: str, unit: str = "") -> Schema:
    """Exact, and maybe greater than 2**53: FLOPs, bytes and numbers of ops are."""
    return {"type": "integer", "description": meaning, **({"unit": unit} if unit else {})}


def number(meaning: str, unit: str = "") -> Schema:
    return {"type": "number", "description": meaning, **({"unit": unit} if unit else {})}


def flag(meaning: str) -> Schema:
    return {"type": "boolean", "description": meaning}


def maybe(schema: Schema) -> Schema:
    """The schema, or null: not known."""
    if isinstance(schema.get("type"), list):  # it may be null already
        return schema
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    found = {**schema, "type": [schema["type"], "null"]}
    return {**found, "enum": [*schema["enum"], None]} if "enum" in schema else found


def listing(items: Schema, meaning: str) -> Schema:
    return {"type": "array", "description": meaning, "items": items}


def mapping(values: Schema, meaning: str) -> Schema:
    """An object whose keys are data: names of ops, of reports."""
    return {"type": "object", "description": meaning, "additionalProperties": values}


def record(keys: Mapping[str, Schema], meaning: str, optional: Collection[str] = ()) -> Schema:
    """An object of exactly these keys, all there but the optional ones."""
    return {
        "type": "object",
        "description": meaning,
        "properties": dict(keys),
        "required": [key for key in keys if key not in optional],
        "additionalProperties": False,
    }


def of_type(kind: type, meanings: Mapping[type, Mapping[str, str]]) -> Schema:
    """The schema of a dataclass as ``envelope.plain`` writes it; ``meanings``: of each dataclass within, its fields'.

    A float may be null, as a NaN becomes.
    """
    hints, told = get_type_hints(kind), meanings.get(kind, {})
    missing = [field.name for field in fields(kind) if field.name not in told]
    if missing:
        raise KeyError(f"{kind.__name__}: a schema needs the meaning of {', '.join(missing)}")
    keys = {field.name: _of_hint(hints[field.name], told[field.name], meanings) for field in fields(kind)}
    return record(keys, (kind.__doc__ or "").partition("\n")[0])


def _of_hint(hint: Any, meaning: str, meanings: Mapping[type, Mapping[str, str]]) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return maybe(_of_hint(inner, meaning, meanings))
    if origin is Literal:
        return text(meaning, args)
    if origin in (tuple, list):
        if origin is tuple and args[-1] is not Ellipsis:
            items = [_of_hint(arg, "", meanings) for arg in args]
            return {"type": "array", "description": meaning, "prefixItems": items, "items": False}
        return listing(_of_hint(args[0], "", meanings), meaning)
    if origin is dict:
        return mapping(_of_hint(args[1], "", meanings), meaning)
    if is_dataclass(hint):
        return {**of_type(hint, meanings), **({"description": meaning} if meaning else {})}  # type: ignore[arg-type]
    plain = {str: text, bool: flag, int: integer}
    return maybe(number(meaning)) if hint is float else plain[hint](meaning)
