"""What pyprof's own collector records beside a trace's events: the key ``pyprof`` of the file, an object of records."""

from typing import Any, TypeVar

import msgspec


class OwnRecord(msgspec.Struct):
    """A record under the key ``pyprof``. A reader knows one version of each."""

    version: int


Form = TypeVar("Form", bound=OwnRecord)


def own_record(
    own: bytes, key: str, form: type[Form], version: int, unreadable: str, record: str
) -> tuple[Form | None, list[str]]:
    """The record with this key, or None if the file has no such record or it cannot be read; and warnings.

    ``own``: the JSON text of the key ``pyprof``; empty: the file has none. ``unreadable``, ``record``: how the warnings
    begin, about a record of another form (before its error) and of another version (before its number).
    """
    if not own:
        return None, []
    field = msgspec.field(default=None, name=key)
    only = msgspec.defstruct("Own", [("record", form | None, field)])
    try:
        whole: Any = msgspec.json.decode(own, type=only)
    except (ValueError, RecursionError) as error:  # msgspec's errors and those of text are ValueErrors
        return None, [f"{unreadable} left out ({error})"]
    found: Form | None = whole.record
    if found is not None and found.version != version:
        return None, [f"{record} version {found.version}, not {version}: left out"]
    return found, []
