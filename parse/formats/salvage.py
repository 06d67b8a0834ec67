"""JSON with values of another type than the format's: the record stays, and the value counts as unknown."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

WRONG = "wrong"  # the field of a record that lists the keys of its wrong values


_fields = cache(fields)


class Salvage:
    """Converts decoded JSON to records as far as possible. Counts wrong values of records without a field ``WRONG``."""

    def __init__(self) -> None:
        self._others: Counter[str] = Counter()  # key -> number of wrong values

    @property
    def warnings(self) -> list[str]:
        """The warning about the counted values; none if there are none."""
        if not self._others:
            return []
        keys = ", ".join(self._others)
        return [f"{self._others.total():,} values are of another type than the format's and unknown ({keys})"]

    def record(self, value: Any, kind: Any, whole: Sequence[str] = ()) -> Any:
        """A record of type ``kind``. Raises msgspec.ValidationError if it is another form: a required key is missing,
        or a field of ``whole`` is no object or list at all.
        """
        wrong: list[str] = []
        found: dict[str, Any] = {}
        for field in _fields(kind):
            if field.encode_name in value:
                found[field.name] = self._value(value[field.encode_name], field.type, field.encode_name, wrong, whole)
            elif field.required:
                raise msgspec.ValidationError(f"Object missing required field `{field.encode_name}`")
        if any(field.name == WRONG for field in _fields(kind)):
            return kind(**{**found, WRONG: tuple(wrong)})
        self._others.update(wrong)
        return kind(**found)

    def _value(self, value: Any, kind: Any, key: str, wrong: list[str], whole: Sequence[str]) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            if _is_record(kind) and isinstance(value, dict):
                return self.record(value, kind, whole)
            if get_origin(kind) is list and isinstance(value, list):
                return [self._value(item, get_args(kind)[0], key, wrong, whole) for item in value]
            if key in whole:
                raise error
        wrong.append(key)
        return unknown(kind)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def unknown(kind: Any) -> Any:
    """A value of a type of which nothing is known: no number, an empty text or list, a record of such values."""
    if _is_record(kind):
        return kind(**{field.name: unknown(field.type) for field in _fields(kind) if field.name != WRONG})
    form = get_origin(kind) or kind
    return form() if form in (str, dict, list) else None
