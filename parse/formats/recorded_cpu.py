"""What pyprof recorded of the CPU (pyprof/cpu_record.py)."""

from pyprof.cpu_record import VERSION
from pyprof.parse.formats.own_record import OwnRecord, own_record
from pyprof.table.cpu_facts import CpuFacts


class _Record(OwnRecord):
    facts: CpuFacts | None = None


def of_trace(own: bytes) -> tuple[CpuFacts | None, list[str]]:
    """The facts under a trace's key ``pyprof``, and warnings."""
    unreadable = "what was recorded of the CPU cannot be read and is"
    record, warnings = own_record(own, "cpu", _Record, VERSION, unreadable, "the record of the CPU has")
    return record.facts if record else None, warnings
