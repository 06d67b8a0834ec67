"""The JSON that prof.py --summary --json prints (pyprof/command/envelope.py adds the header)."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from pyprof.command.json_schema import Record, Schema, doc, extended, schema_of_class
from pyprof.prof.changes.records import Changes
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.sentences import assumptions, headline, sentences
from pyprof.prof.timing.usage import Usage

# Shares and rates of a device that the summary computes from its counts: (key, unit, meaning, value).
RATES: tuple[tuple[str, str, str, Callable[[Usage], float]], ...] = (
    ("utilisation_percent", "%", "time with a kernel, of the span", lambda device: device.utilisation),
    ("busy_percent", "%", "time with any operation, of the span", lambda device: device.busy),
    ("tflop_per_s", "TFLOP/s", "over the span, idle time included", lambda device: device.tflops),
    ("gb_per_s", "GB/s", "over the span, idle time included", lambda device: device.gbps),
    ("mfu_percent", "%", "FLOPs of matrix math at the peak of each one's unit, of the span", lambda device: device.mfu),
    (
        "mfu_half_percent",
        "%",
        "FLOPs of matrix math, of the best dense peak in half precision over the span",
        lambda device: device.mfu_half,
    ),
    ("mbu_percent", "%", "bytes needed / span / bandwidth", lambda device: device.mbu),
)


def _numbers_schema() -> Schema:
    schema = schema_of_class(Summary)
    device = schema["properties"]["devices"]["items"]
    for key, unit, meaning, _ in RATES:
        device["properties"][key] = {"type": ["number", "null"], "description": meaning, "unit": unit}
        device["required"].append(key)
    return schema


class SummaryDocument(Record):
    """With --summary: where the time went."""

    headline: Annotated[str, doc("what ran where, and how much of it has an op")]
    sentences: Annotated[list[str], doc("where the time went, to be quoted")]
    assumptions: Annotated[list[str], doc("what the numbers rest on, in sentences")]
    numbers: Annotated[dict[str, Any], extended("the numbers behind the sentences; times in ns", _numbers_schema())]
    changes: Annotated[Changes | None, doc("the list of changes, as of --advise and plan; null: not asked for")]


def summary_of(summary: Summary, changes: Changes | None = None) -> SummaryDocument:
    """The JSON document: the sentences, their numbers, and the changes."""
    numbers = asdict(summary)
    for keys, device in zip(numbers["devices"], summary.devices, strict=True):
        keys.update({key: rate(device) for key, _, _, rate in RATES})
    return SummaryDocument(
        headline=headline(summary),
        sentences=sentences(summary),
        assumptions=assumptions(summary),
        numbers=numbers,
        changes=changes,
    )
