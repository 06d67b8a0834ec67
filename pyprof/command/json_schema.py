"""JSON Schemas (draft 2020-12) of the documents that ``--json`` prints, made from the classes of their values.

A document is a ``Record``. Each of its fields states its meaning and, if the key's name does not include it, its unit.
msgspec makes the schema. This module replaces each reference in it with its target, so that a key is described in
place, and writes a type that may be null as ``["integer", "null"]``. Dataclasses whose values a document holds are
annotated in the same way.

    class Device(Record):
        "A GPU."
        busy_ns: Annotated[int, doc("time with at least one operation", "ns")]
        mfu: Annotated[float, nan_doc("FLOPs / peak", "%")]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


class Record(msgspec.Struct):
    """A JSON object with exactly these keys, in the order of the fields.

    In a subclass, fields that are not ``kw_only`` come before ``kw_only`` fields, including inherited fields.
    """


def doc(meaning: str, unit: str = "") -> Meta:
    """Metadata with a key's meaning and the unit of its number. Validators ignore the unit."""
    return Meta(description=meaning, extra_json_schema={"unit": unit} if unit else None)


def nan_doc(meaning: str, unit: str = "") -> Meta:
    """``doc`` for a float that may be NaN, which means unknown and is written as null."""
    return extended(meaning, {"nullable": True, **({"unit": unit} if unit else {})})


def extended(meaning: str, schema: Schema) -> Meta:
    """``doc`` with additions to the schema, for an object whose keys are data such as column or report names."""
    return Meta(description=meaning, extra_json_schema=schema)


class FileWritten(Record):
    """A file that was written."""

    name: Annotated[str, doc("of the file")]
    bytes: Annotated[int, doc("its size")]

    @classmethod
    def of(cls, name: str | Path) -> FileWritten:
        """A file that has just been written."""
        return cls(name=str(name), bytes=Path(name).stat().st_size)


def schema_of_class(kind: type) -> Schema:
    """The schema of a record or a dataclass as ``envelope.plain`` writes it, with the docstring's first line."""
    (reference,), components = msgspec.json.schema_components([kind])
    return _resolved(reference, components)


def _resolved(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    """The schema with references replaced. Objects allow no other keys, and keys with a default are required."""
    if "$ref" in schema:
        target = components[schema["$ref"].rpartition("/")[2]]
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if "description" in target:
            target = {**target, "description": target["description"].partition("\n")[0]}
        return {**_resolved(target, components), **rest}
    if {"type": "null"} in schema.get("anyOf", ()):
        return _nullable(schema, components)
    found = {key: value for key, value in schema.items() if key not in ("title", "default")}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _resolved(found[key], components)
    if found.pop("nullable", False):
        found["type"] = [found["type"], "null"]
    if "prefixItems" in found:
        found["prefixItems"] = [_resolved(item, components) for item in found["prefixItems"]]
    if "enum" in found:
        return _enumerated(found)
    if "properties" in found:
        return _object(found, components)
    return found


def _nullable(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    """The schema of a type that may be null, with the two types as a list."""
    (option,) = (option for option in schema["anyOf"] if option != {"type": "null"})
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "title", "default")}
    found = {**_resolved(option, components), **rest}
    found["type"] = [found["type"], "null"] if isinstance(found["type"], str) else found["type"]
    return {**found, "enum": [*found["enum"], None]} if "enum" in found else found


def _enumerated(schema: Schema) -> Schema:
    """The schema of an enumeration: a constant if it has one value, strings if it has several."""
    if len(schema["enum"]) > 1:
        return {"type": "string", **schema}
    rest = {key: value for key, value in schema.items() if key != "enum"}
    return {"const": schema["enum"][0], **rest}


def _object(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    properties = schema["properties"]
    always = [key for key, value in properties.items() if key in schema.get("required", ()) or "default" in value]
    return {
        **schema,
        "properties": {key: _resolved(value, components) for key, value in properties.items()},
        "required": always,
        "additionalProperties": False,
    }
