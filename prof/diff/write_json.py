"""The difference as JSON: the keys of ``pyprof diff --json``, and their schema.

Times are whole ns a step, fitted so that each list sums to the step: entries, phases, kinds and layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyprof.command.json_schema import Schema, flag, integer, listing, maybe, number, record, text

if TYPE_CHECKING:
    from pyprof.prof.diff.compare import Change, Comparison
    from pyprof.prof.diff.gate import Verdict
    from pyprof.prof.diff.kernels import Swap
    from pyprof.prof.diff.lines import Kernel, Side
    from pyprof.prof.diff.noise import Delta
    from pyprof.prof.diff.rows import Row

__all__ = ["SCHEMAS", "own_keys"]


def own_keys(found: Comparison, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """All but the envelope's header."""
    from pyprof.prof.diff.rows import every_entry
    from pyprof.prof.diff.sentences import headline, sentences

    rows = every_entry(found, 1.0)
    total = rows[-1]
    return {
        "headline": headline(found),
        "sentences": sentences(found),
        "a": _side(found.a),
        "b": _side(found.b),
        "step": _row(total),
        "gpu": _time(found.busy),
        "idle": _time(found.idle),
        "late": _time(found.late),
        "amounts": {
            "operations": _amount(found.rows),
            "flop": _known(found, found.flop),
            "byte": _known(found, found.nbytes),
        },
        "tc_lost": found.tc_lost,
        "tc_gained": found.tc_gained,
        "entries": [_entry(row) for row in rows[:-1]],
        "phases": _table(found, found.phases, False),
        "kinds": _table(found, found.kinds, True),
        "layers": _table(found, found.layers, True) if found.layers else [],
        "kernels": [_swap(swap) for swap in found.swaps],
        "gates": [_gate(verdict) for verdict in verdicts],
        "failed": any(verdict.fails for verdict in verdicts),
    }


def _side(side: Side) -> dict[str, Any]:
    steps = side.steps
    return {
        "name": side.name,
        "steps": [n for n in steps.numbers if n is not None],
        "left_out": [{"step": n, "reason": why} for n, why in steps.left_out],
        "devices": steps.devices,
        "gpus": side.gpus,
        "on_cpu": side.on_cpu,
        "attributed_percent": 100 * side.attributed,
        "counted_percent": 100 * side.counted,
    }


def _told(value: Delta) -> dict[str, Any]:
    return {"ratio": value.ratio, "noise_ns": value.band, "beyond_noise": value.counts}


def _time(value: Delta) -> dict[str, Any]:
    before, change = round(value.before), round(value.change)
    return {"before_ns": before, "after_ns": before + change, "change_ns": change, **_told(value)}


def _row(row: Row) -> dict[str, Any]:
    return {"before_ns": row.before, "after_ns": row.after, "change_ns": row.change, **_told(row.ns)}


def _amount(value: Delta) -> dict[str, Any]:
    return {"before": value.before, "after": value.after, "change": value.change, "ratio": value.ratio}


def _known(found: Comparison, value: Delta) -> dict[str, Any]:
    """FLOPs or bytes; of a side none of whose ops are counted they are not known."""
    told = _amount(value)
    missing = [key for key, side in (("before", found.a), ("after", found.b)) if not side.counted_rows]
    return {**told, **dict.fromkeys([*missing, *(["change", "ratio"] if missing else [])])}


def _entry(row: Row) -> dict[str, Any]:
    entry = row.entry
    if entry is None:  # overlap and idle
        where: dict[str, Any] = {"layer": "", "op": "", "phase": "", "matched": [], "status": row.name, "layers": 0,
                                 "rows_before": None, "rows_after": None, "tc_lost": 0, "tc_gained": 0}  # fmt: skip
    else:
        where = {"layer": entry.layer, "op": entry.op, "phase": entry.phase, "matched": entry.how,
                 "status": entry.status, "layers": entry.layers, "rows_before": entry.count[0],
                 "rows_after": entry.count[1], "tc_lost": entry.tc_lost, "tc_gained": entry.tc_gained}  # fmt: skip
    return {"name": row.name, **where, **_row(row)}


def _table(found: Comparison, changes: Sequence[Change], work: bool) -> list[dict[str, Any]]:
    from pyprof.prof.diff.rows import table_rows

    return [{"name": row.name, **_row(row)} for row in table_rows(found, changes, 1.0, None, work)[:-1]]


def _swap(swap: Swap) -> dict[str, Any]:
    before, after = swap.tc
    return {
        "name": swap.name,
        "phase": swap.place.phase,
        "aten": swap.place.aten,
        "places": swap.matches,
        "before": _kernels(swap.a),
        "after": _kernels(swap.b),
        "shapes_before": swap.shapes[0],
        "shapes_after": swap.shapes[1],
        "tensor_share_before": None if math.isnan(before) else before,
        "tensor_share_after": None if math.isnan(after) else after,
        **_time(swap.ns),
    }


def _kernels(kernels: Iterable[Kernel]) -> list[dict[str, Any]]:
    return [{"kernel": k.name, "tc": k.tc, "rows": k.count, "ns": round(k.ns)} for k in kernels]


def _gate(verdict: Verdict) -> dict[str, Any]:
    tests = [
        {"test": one.text, "unit": one.kind, "failed": one.fails, **_amount(one.value), "noise": one.value.band,
         "counts": one.counts}
        for one in verdict.checks
    ]  # fmt: skip
    return {"condition": verdict.text, "failed": verdict.fails, "tests": tests}


# The schema

NS = "ns a step"
RATIO = maybe(number("change / before; null where there was nothing before"))
TIMES: dict[str, Schema] = {
    "before_ns": integer("in A, a mean over its steps", NS),
    "after_ns": integer("in B", NS),
    "change_ns": integer("after - before", NS),
    "ratio": RATIO,
    "noise_ns": maybe(number("half the 99% interval of the change that chance explains; null: one step each", NS)),
    "beyond_noise": flag("the change is greater than that, or that is not known"),
}
AMOUNT: dict[str, Schema] = {
    "before": maybe(number("in A, a step; null: not known")),
    "after": maybe(number("in B, a step")),
    "change": maybe(number("after - before")),
    "ratio": RATIO,
}
WAYS = "same, args (shapes changed), op, moved, layer, kind, graph, appeared, vanished: docs/how-to/diff.md"


def _diff() -> Schema:
    left_out = record({"step": integer("its number"), "reason": text("why it is no sample")}, "a step left out")
    side = record(
        {
            "name": text("the file"),
            "steps": listing(integer("a number"), "the steps that count; none: the capture marks none and is one"),
            "left_out": listing(left_out, "the others"),
            "devices": integer("GPUs (or processes) over which times are means"),
            "gpus": listing(text("a name"), "their names"),
            "on_cpu": flag("the rows are CPU ops"),
            "attributed_percent": number("share of the time that has an op", "%"),
            "counted_percent": number("share of the time whose FLOPs are known", "%"),
        },
        "one of the captures",
    )
    entry = record(
        {
            "name": text("layer and op; overlap and idle, too"),
            "layer": text("repeated layers as one: blocks.*:attention"),
            "op": text("what the user called, or the kind of work"),
            "phase": text("forward, backward, optimizer, data, other"),
            "matched": listing(text("a way"), f"how its rows were matched: {WAYS}"),
            "status": text("the least certain of these; overlap; idle"),
            "layers": integer("layers that are one in `layer`"),
            "rows_before": maybe(number("GPU operations in A, a step")),
            "rows_after": maybe(number("GPU operations in B, a step")),
            "tc_lost": integer("matrix products that ran on tensor cores in A only"),
            "tc_gained": integer("matrix products that ran on tensor cores in B only"),
            **TIMES,
        },
        "a part of the difference",
    )
    part = record({"name": text("the part"), **TIMES}, "a part of the step")
    return record(
        {
            "headline": text("the difference in a sentence"),
            "sentences": listing(text("a sentence"), "where it comes from"),
            "a": side,
            "b": side,
            "step": record(TIMES, "the step's time"),
            "gpu": record(TIMES, "time with an operation running"),
            "idle": record(TIMES, "time without"),
            "late": record(TIMES, "idle time in which the CPU had not yet called for the next launch"),
            "amounts": record(
                {
                    name: record(AMOUNT, what)
                    for name, what in (
                        ("operations", "kernels, copies, memsets"),
                        ("flop", "FLOPs that are counted"),
                        ("byte", "bytes that are counted"),
                    )
                },
                "of a step",
            ),
            "tc_lost": integer("sum over the entries"),
            "tc_gained": integer("sum over the entries"),
            "entries": listing(entry, "sum to the step"),
            "phases": listing(part, "sum to the step: overlaps once, and idle time"),
            "kinds": listing(part, "sum to the step: kinds of work, less overlap, and idle time"),
            "layers": listing(part, "sum to the step, or empty where a side names no layers to compare"),
            "kernels": listing(_swap_schema(), "ops that other kernels do, the greatest change first"),
            "gates": listing(_gate_schema(), "the conditions of --fail-if"),
            "failed": flag("one of them is true: exit code 3"),
        },
        "the difference of two captures",
    )


def _swap_schema() -> Schema:
    kernel = record(
        {"kernel": text("its name"), "tc": text("tensor cores: 1, 0, ? or -"), "rows": number("a step"),
         "ns": integer("time", NS)}, "a kernel"
    )  # fmt: skip
    share = "share of its matrix products' time on tensor cores; null where none is known"
    return record(
        {
            "name": text("layer and op"),
            "phase": text("forward, backward, ..."),
            "aten": text("aten op"),
            "places": integer("layers and calls that changed alike"),
            "before": listing(kernel, "that A runs and B does not"),
            "after": listing(kernel, "that B runs and A does not"),
            "shapes_before": text("JSON; empty where they are several"),
            "shapes_after": text("JSON"),
            "tensor_share_before": maybe(number(share)),
            "tensor_share_after": maybe(number(share)),
            **TIMES,
        },
        "an op with other kernels",
    )


def _gate_schema() -> Schema:
    test = record(
        {"test": text("as given"), "unit": text("of its numbers", ("time", "count", "flop", "byte")),
         "failed": flag("it is true of the change"), **AMOUNT,
         "noise": maybe(number("as noise_ns")), "counts": flag("the change is beyond noise, or noise is let pass")},
        "a test and its numbers; times are ns",
    )  # fmt: skip
    return record(
        {"condition": text("as given"), "failed": flag("it is true"), "tests": listing(test, "all of its tests")},
        "a condition",
    )


SCHEMAS = {"diff": _diff}
