"""The records of compiled graphs that pyprof's collector writes under a trace's key ``pyprof``."""

import msgspec

from pyprof.compiled_record import VERSION


class _Record(msgspec.Struct):
    version: int
    graphs: dict[str, str]


class _Own(msgspec.Struct):
    """The part of the key ``pyprof`` that is read here."""

    compiled: _Record | None = None


def compiled_records(own: bytes) -> tuple[dict[str, str], list[str]]:
    """The records as JSON texts, by the number of the graph, and warnings."""
    if not own:
        return {}, []
    try:
        record = msgspec.json.decode(own, type=_Own).compiled
    except (ValueError, RecursionError) as error:
        return {}, [f"the records of compiled graphs under the key pyprof cannot be read and are left out ({error})"]
    if record is None:
        return {}, []
    if record.version != VERSION:
        return {}, [f"the records of compiled graphs have version {record.version}, not {VERSION}: left out"]
    return record.graphs, []
