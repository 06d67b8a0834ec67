"""What pyprof's own collector records beside a trace's events: the key ``pyprof`` of the file, an object of records."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pyprof import compiled_record, cpu_record, thread_record
from pyprof.table.cpu_facts import CpuFacts
from pyprof.table.losses import Loss


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


class _Cpu(OwnRecord):
    facts: CpuFacts | None = None


class _Compiled(OwnRecord):
    graphs: dict[str, str]


class _Threads(OwnRecord):
    missing: Annotated[int, Meta(ge=1, lt=1 << 20)] = 1
    memory: bool = False


def cpu_facts(own: bytes) -> tuple[CpuFacts | None, list[str]]:
    """What pyprof recorded of the CPU (pyprof/cpu_record.py), and warnings."""
    unreadable = "what was recorded of the CPU cannot be read and is"
    record, warnings = own_record(own, "cpu", _Cpu, cpu_record.VERSION, unreadable, "the record of the CPU has")
    return record.facts if record else None, warnings


def compiled_records(own: bytes) -> tuple[dict[str, str], list[str]]:
    """The records of compiled graphs as JSON texts, by the number of the graph, and warnings."""
    what = "the records of compiled graphs"
    unreadable = f"{what} under the key pyprof cannot be read and are"
    record, warnings = own_record(own, "compiled", _Compiled, compiled_record.VERSION, unreadable, f"{what} have")
    return record.graphs if record else {}, warnings


def missing_threads(own: bytes) -> tuple[list[Loss], list[str]]:
    """The threads whose ops the trace lacks (pyprof/thread_record.py), as a loss, and warnings."""
    what = "the record of threads"
    unreadable = f"{what} under the key pyprof cannot be read and is"
    record, warnings = own_record(own, "threads", _Threads, thread_record.VERSION, unreadable, f"{what} has")
    return [Loss(*thread_record.missing_threads(record.missing, record.memory))] if record else [], warnings
