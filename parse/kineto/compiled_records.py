"""The records of compiled graphs that pyprof's collector writes under a trace's key ``pyprof``."""

from pyprof.compiled_record import VERSION
from pyprof.parse.formats.own_record import OwnRecord, own_record


class _Record(OwnRecord):
    graphs: dict[str, str]


def compiled_records(own: bytes) -> tuple[dict[str, str], list[str]]:
    """The records as JSON texts, by the number of the graph, and warnings."""
    what = "the records of compiled graphs"
    unreadable = f"{what} under the key pyprof cannot be read and are"
    record, warnings = own_record(own, "compiled", _Record, VERSION, unreadable, f"{what} have")
    return record.graphs if record else {}, warnings
