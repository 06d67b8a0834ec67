"""The JSON of ``prof.py --json``: each document's own keys and their schemas (the header is in envelope.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyprof.command.json_schema import Schema, integer, listing, maybe, number, of_type, record, text
from pyprof.prof.table.columns import COLUMNS, Column
from pyprof.prof.table.group import AGGREGATES
from pyprof.table.attribution import AttributedTime
from pyprof.table.json_lists import first_text

if TYPE_CHECKING:
    from pyprof.prof.advice import Advice
    from pyprof.prof.explain import Line
    from pyprof.prof.summary.capture_numbers import Summary
    from pyprof.prof.table.query import Query
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Ints, Table

__all__ = ["SCHEMAS", "Totals", "explained", "rows_of", "summary_of", "totals"]

TYPES = {"text": "string", "int": "integer", "float": "number"}


@dataclass(frozen=True, slots=True)
class Totals:
    """All rows of the table, whichever are printed."""

    rows: int
    time_ns: int
    attributed_ns: int
    uncounted: dict[str, int]  # op -> ns of its rows without FLOPs, the longest first
    on: str

    def percent(self, ns: int) -> float | None:
        """None of no time."""
        return 100 * ns / self.time_ns if self.time_ns else None


def totals(table: Table, annotation: Annotation) -> Totals:
    missed: dict[str, int] = {}
    for name, ns in annotation.uncounted.items():
        missed[name_of(name)] = missed.get(name_of(name), 0) + ns
    missed = dict(sorted(missed.items(), key=lambda item: -item[1]))
    time = AttributedTime.of(table)
    return Totals(len(table), time.total_ns, time.attributed_ns, missed, time.processor)


def name_of(op: str) -> str:
    """An op's name; of a list of ops (JSON) the outermost."""
    return first_text(op) if op.startswith('["') else op


# kernels and groups


def rows_of(query: Query, table: Table, found: Totals, rows: Ints, notes: Sequence[str]) -> dict[str, Any]:
    """The keys beside the printed rows. ``rows``: those that --where chose."""
    selected = int(table.ints("kDuration")[rows].sum())
    return {
        **({"group_by": [column.name for column in query.group]} if query.group else {}),
        "columns": [_described(column) for column in query.columns],
        "totals": {
            "rows": found.rows,
            "time_ns": found.time_ns,
            "on": found.on,
            "attributed_ns": found.attributed_ns,
            "attributed_percent": found.percent(found.attributed_ns),
            "uncounted_ns": sum(found.uncounted.values()),
            "uncounted_percent": found.percent(sum(found.uncounted.values())),
        },
        "selected": {"rows": len(rows), "time_ns": selected, "percent": found.percent(selected)},
        "uncounted": [{"op": op, "time_ns": ns, "percent": found.percent(ns)} for op, ns in found.uncounted.items()],
        "assumptions": list(notes),
    }


def _described(column: Column) -> dict[str, str | None]:
    return {
        "name": column.name,
        "type": TYPES[column.kind],
        "unit": column.unit or None,
        "meaning": column.meaning,
    }


def _kernels() -> Schema:
    return record({**_beside(), "rows": _rows(COLUMNS, "a GPU operation each, keys as -c names them")}, "rows")


def _groups() -> Schema:
    keys = {"group_by": listing(text("a column"), "the columns that the rows of a group agree in")}
    columns = {column.name: column for column in (*COLUMNS, *AGGREGATES)}  # flops and bytes are the group's
    return record({**keys, **_beside(), "rows": _rows(tuple(columns.values()), "a group each")}, "groups")


def _beside() -> dict[str, Schema]:
    column = {
        "name": text("the key in `rows`"),
        "type": text("of its values, which may be null too: unknown, or nothing", tuple(TYPES.values())),
        "unit": maybe(text("of its numbers; null: none")),
        "meaning": text("what it tells"),
    }
    amount = {"rows": integer("how many"), "time_ns": integer("sum of their durations", "ns")}
    total = {
        **amount,
        "on": text("what the rows ran on", ("GPU", "CPU")),
        "attributed_ns": integer("time of the rows that have an op", "ns"),
        "attributed_percent": maybe(number("its share of the time", "%")),
        "uncounted_ns": integer("time of the rows whose FLOPs no model counts", "ns"),
        "uncounted_percent": maybe(number("its share of the time", "%")),
    }
    missed = {"op": text("its name; of rows without an op the kernel's"), "time_ns": integer("of its rows", "ns"),
              "percent": maybe(number("of the time of all rows", "%"))}  # fmt: skip
    return {
        "columns": listing(record(column, "a column"), "the keys of `rows`, in order"),
        "totals": record(total, "the whole table, whichever rows are printed"),
        "selected": record({**amount, "percent": maybe(number("of the time of all rows", "%"))},
                           "the rows that --where chose, before --group and --top"),
        "uncounted": listing(record(missed, "an op"), "ops whose FLOPs no model counts, the longest first"),
        "assumptions": listing(text("a sentence"), "whose peaks the limits rest on"),
    }  # fmt: skip


def _rows(columns: Sequence[Column], meaning: str) -> Schema:
    """Any of the columns, as -c chooses."""
    keys = {column.name: _cell(column) for column in columns}
    return listing(record(keys, "keys as `columns` lists them", optional=keys), meaning)


def _cell(column: Column) -> Schema:
    unit = {"unit": column.unit} if column.unit else {}
    return maybe({"type": TYPES[column.kind], "description": column.meaning, **unit})


# advise and explain


def explained(row: int, lines: Sequence[Line]) -> dict[str, Any]:
    """``row``: its idx, from 1."""
    return {"row": row, "lines": [{"what": what, "text": told} for what, told in lines]}


def _explain() -> Schema:
    line = {"what": text("kernel, op, layer, formula, role, tensor cores, ..."), "text": text("where it comes from")}
    lines = listing(record(line, "a line"), "in the order of the work: recorded, attributed, counted, shared")
    return record({"row": integer("its idx"), "lines": lines}, "where the numbers of a row come from")


def _advice() -> Schema:
    return record(
        {
            "step_ms": number("what a step takes; the whole capture where it marks no steps", "ms"),
            "busy_ms": number("how much of it the GPU works", "ms"),
            "host_ms": number("what the host needs for it without a profiler, estimated", "ms"),
            "steps": integer("how many the capture marks; 0: none, and a step is the whole capture"),
            "together_ms": number("what all pieces save a step at most, together", "ms"),
            "advice": listing(_piece(), "the greatest saving first"),
        },
        "advice",
    )


def _piece() -> Schema:
    from pyprof.prof.advice import Advice

    meanings = {
        "rule": "its name (docs/explanation/advice.md)",
        "saved_ms": "what the change saves a step, by itself, ms",
        "step_ms": "what a step takes now, ms",
        "kernels": "how many a step it concerns",
        "time_ms": "what these take a step now, ms",
        "op": "of the kernel with the greatest saving: what the user called",
        "layer": "its layer",
        "trace": "its line of code",
        "why": "the reason, in numbers",
        "change": "what to write instead",
        "confidence": "how sure the saving is",
        "shares": "rules of pieces before this one that concern some of the same kernels: savings do not add up",
    }
    return of_type(Advice, {Advice: meanings})


# summary


def summary_of(found: Summary, pieces: Sequence[Advice] = ()) -> dict[str, Any]:
    """The sentences, all numbers behind them, and what to change."""
    from pyprof.prof.summary.sentences import assumptions, headline, sentences

    numbers = asdict(found)
    for told, device in zip(numbers["devices"], found.devices, strict=True):
        told.update({key: get(device) for key, (_, get) in RATES.items()})
    return {
        "headline": headline(found),
        "sentences": sentences(found),
        "assumptions": assumptions(found),
        "numbers": numbers,
        "advice": [asdict(piece) for piece in pieces],
    }


RATES: dict[str, tuple[Schema, Callable[[Any], float]]] = {
    "utilisation_percent": (number("time with a kernel, of the span", "%"), lambda d: d.utilisation),
    "busy_percent": (number("time with any operation, of the span", "%"), lambda d: d.busy),
    "tflop_per_s": (number("over the span, idle time included", "TFLOP/s"), lambda d: d.tflops),
    "gb_per_s": (number("over the span, idle time included", "GB/s"), lambda d: d.gbps),
    "mfu_percent": (number("FLOPs of matrix math / span / peak of the unit", "%"), lambda d: d.mfu),
}


def _summary() -> Schema:
    return record(
        {
            "headline": text("what ran where, and how much of it has an op"),
            "sentences": listing(text("a sentence"), "where the time went, to be quoted"),
            "assumptions": listing(text("a sentence"), "what the numbers rest on"),
            "numbers": _numbers(),
            "advice": listing(_piece(), "all of --advise, the greatest saving first"),
        },
        "where the time went",
    )


def _numbers() -> Schema:
    from pyprof.prof.summary.capture_numbers import Attention, Leading, Limits, Matrix, Part, Summary
    from pyprof.prof.summary.components import Series
    from pyprof.prof.timing.collectives import Collective
    from pyprof.prof.timing.stragglers import Last, Waiting
    from pyprof.prof.timing.usage import Usage
    from pyprof.prof.timing.waiting import SyncPoint, Waits
    from pyprof.prof.timing.warmup import WarmUp

    part = {"name": "its name", "rows": "how many", "ns": "their time", "idle_ns": "idle time before them"}
    copies = {
        "rows": "copies between host and device",
        "ns": "their time",
        "nbytes": "what they moved",
        "before_rows": "those before the device's first kernel: the loading of a model",
        "before_ns": "time of these",
        "before_nbytes": "what these moved",
        "ways": "host-to-device, device-to-host",
        "apart": "whether those before the first kernel are left out of all other figures",
    }
    matrix = {
        "ns": "time of the kernels that multiply matrices, convolutions and attention among them",
        "tensor_ns": "on tensor cores",
        "unknown_ns": "of which nobody can tell",
        "units": "by what did the arithmetic",
        "better": "tensor units that the GPU has, and their peak over that of the unit most used",
    }
    attention = {
        "fused_rows": "fused attention kernels",
        "fused_ns": "their time",
        "fused_name": "of the one with most time",
        "apart_rows": "softmaxes that stand between two matrix products",
        "apart_ns": "time of the kernels between these products",
    }
    limits = {
        "rows": "whose limit is known",
        "ns": "their time",
        "sol_ns": "what FLOPs / peak or bytes / bandwidth would take",
        "bounds": "by what limits them",
    }
    usage = {
        "rank": "in the distributed job",
        "pid": "process",
        "ordinal": "the device, as its process numbers it",
        "name": "the device's",
        "operations": "kernels, copies, memsets",
        "span_ns": "from its first operation to its last",
        "busy_ns": "with at least one operation",
        "kernel_ns": "with at least one kernel",
        "sm_efficiency": "%, mean over the span of the SMs that have a block",
        "occupancy": "%, mean of the kernels' estimated achieved occupancy, by their durations",
        "flop": "of the rows that are counted",
        "matrix_flop": "of matrix math among them",
        "nbytes": "of the rows that are counted",
        "uncounted_ns": "time of the rows that are not",
        "unit": "that did most FLOPs of matrix math",
        "peak_flop_per_s": "of that unit, dense",
    }
    whole = {
        "on_cpu": "whether the rows are CPU ops",
        "warm_up": "the first steps, where they take long, and what was before: left out of all figures",
        "kinds_of_rows": "kernel, memcpy, memset, graph or cpu",
        "total_ns": "of all rows but warm-up and loading; overlaps count twice",
        "attributed_ns": "time of the rows that have an op",
        "reasons": "of the rows that have none: why",
        "devices": "one each",
        "span_ns": "from the first operation to the last, of all devices",
        "busy_ns": "with at least one operation",
        "idle_ns": "with none",
        "late_ns": "idle before the CPU called for the next launch",
        "waits": "why the GPU waits",
        "steps": "ns: from a step's first operation to that of the next step; the last one's to its end",
        "phases": "forward, backward, optimizer, data, other; overlaps counted once",
        "components": "parts of the model",
        "has_layers": "whether the capture names layers",
        "has_sizes": "whether it tells shapes",
        "series": "the layers that the model repeats",
        "kinds": "kinds of work",
        "matrix": "matrix math",
        "attention": "fused or not",
        "copies": "between host and device",
        "communication_ns": "time of collectives",
        "exposed_ns": "communication while nothing else ran",
        "collectives": "by kind and number of ranks, where they are on record",
        "waiting": "of ranks for each other in collectives, where all ranks of a group are in the table",
        "counted_ns": "time of the rows whose FLOPs are counted",
        "flop": "of these",
        "nbytes": "of the rows whose bytes are counted",
        "limits": "against the hardware's",
        "uncounted": "ops whose FLOPs no model counts",
        "notes": "whose peaks these are",
        "bytes_counted_ns": "time of the rows whose bytes are counted",
    }
    series = {"name": "the layers' common name", "numbers": "ascending", "ns": "the time of each"}
    waits = {
        "causes": "of idle time: cause, gaps, ns; the longest first",
        "queued_ns": "median time of a launch in the queue; 0 where no launch is known",
        "launches": "that the median is of",
        "syncs": "places in the program where the CPU waits for the GPU",
        "pageable_rows": "copies from or to pageable memory",
        "pageable_ns": "their time",
        "pageable_bytes": "what they moved",
    }
    sync = {
        "op": "what the user called",
        "trace": "the innermost line of the user's code",
        "rows": "how many",
        "waited_ns": "the CPU, from its call until the copy was done",
        "idle_ns": "the GPU, after it",
    }
    collective = {
        "op": "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter, send or recv",
        "ranks": "how many take part; null where it is not known",
        "rows": "kernels",
        "ns": "their time",
        "wire": "bytes that this rank must send, of the rows whose message is on record",
        "moving_ns": "time of these, without the waiting for other ranks where that is known",
        "waits_known": "whether it is, of some",
    }
    warm = {
        "steps": "leading steps that are left out",
        "longest_ns": "of these; 0 without any",
        "median_ns": "of the steps that remain",
        "rows": "before the first of them",
        "ns": "from the first of these rows to the first step that remains",
    }
    waiting = {
        "collectives": "calls that all ranks make, matched",
        "ns": "time of all ranks' kernels in them",
        "wait_ns": "of that, until the last rank had come",
        "by": "what the ranks below are: rank, or process where the table has no ranks",
        "last": "ranks by how long others waited for them",
    }
    last = {"rank": "its number", "times": "how often it was the last", "ns": "the longest wait for it, each time"}
    meanings = {Summary: whole, Waits: waits, SyncPoint: sync, Part: part, Leading: copies, Matrix: matrix,
                Attention: attention, Limits: limits, Usage: usage, Series: series,
                Collective: collective, Waiting: waiting, Last: last, WarmUp: warm}  # fmt: skip
    found = of_type(Summary, meanings)
    device = found["properties"]["devices"]["items"]
    device["properties"].update({key: maybe(schema) for key, (schema, _) in RATES.items()})
    device["required"] += RATES
    return {**found, "description": "the numbers behind the sentences; times in ns"}


SCHEMAS = {"kernels": _kernels, "groups": _groups, "advice": _advice, "explain": _explain, "summary": _summary}
