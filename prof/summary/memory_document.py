"""The JSON that pyprof memory prints with --json (pyprof/command/envelope.py adds the header)."""

from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.memory.categories import RULES
from pyprof.prof.memory.memory_numbers import DeviceMemory
from pyprof.prof.summary.memory_sentences import further_sentences, main_device, memory_sentences


class MemoryDocument(Record):
    """The memory of a run: its peak, what is alive then, and what checkpointing would change."""

    sentences: Annotated[list[str], doc("what is printed, to be quoted")]
    devices: Annotated[list[DeviceMemory], doc("one per device and process, GPUs first")]
    rules: Annotated[dict[str, Annotated[str, doc("the rule")]], doc("when a block belongs to a category")]


def memory_document(devices: list[DeviceMemory]) -> MemoryDocument:
    return MemoryDocument(sentences=all_sentences(devices), devices=devices, rules=RULES)


def all_sentences(devices: list[DeviceMemory]) -> list[str]:
    """The summary's sentences, and those about the main device's layers."""
    main = main_device(devices)
    return [*memory_sentences(devices), *(further_sentences(main) if main is not None else ())]
