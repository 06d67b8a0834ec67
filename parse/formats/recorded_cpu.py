"""What pyprof recorded of the CPU (pyprof/cpu_record.py)."""

import msgspec

from pyprof.cpu_record import VERSION
from pyprof.table.cpu_facts import CpuFacts


class _Record(msgspec.Struct):
    version: int
    facts: CpuFacts | None = None


class _Own(msgspec.Struct):
    """The part of a trace's key ``pyprof`` that is read here."""

    cpu: _Record | None = None


def of_trace(text: bytes) -> tuple[CpuFacts | None, list[str]]:
    """The facts under a trace's key ``pyprof``, and warnings."""
    try:
        own = msgspec.json.decode(text, type=_Own) if text else _Own()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return None, [f"what was recorded of the CPU cannot be read and is left out ({error})"]
    if own.cpu is None:
        return None, []
    if own.cpu.version != VERSION:
        return None, [f"the record of the CPU has version {own.cpu.version}, not {VERSION}: left out"]
    return own.cpu.facts, []
