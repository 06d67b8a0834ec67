"""The JSON document that pyprof diff prints with --json (pyprof/command/envelope.py adds the header).

Times are whole ns per step, fitted so that each list sums to the step: entries, phases, kinds and layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pyprof.command.json_schema import Record, doc, extended, nan_doc

if TYPE_CHECKING:
    from pyprof.prof.diff.compare import Change, Comparison
    from pyprof.prof.diff.gate import Check, Verdict
    from pyprof.prof.diff.kernels import Swap
    from pyprof.prof.diff.lines import Kernel, Side
    from pyprof.prof.diff.noise import Delta
    from pyprof.prof.diff.table_rows import Row

NS = "ns per step"
WAYS = "same, args (shapes changed), op, moved, layer, kind, graph, appeared, vanished: docs/how-to/diff.md"

Ratio = Annotated[float | None, doc("change / before; null where there was nothing before")]
TensorShare = Annotated[
    float | None, doc("share of its matrix products' time on tensor cores; null where none is known")
]


class StepLeftOut(Record):
    step: Annotated[int, doc("its number")]
    reason: Annotated[str, doc("why it is no sample")]


class CaptureSide(Record):
    name: Annotated[str, doc("the file")]
    steps: Annotated[list[int], doc("the steps that count; none: the capture marks none and is one")]
    left_out: Annotated[list[StepLeftOut], doc("the other steps")]
    devices: Annotated[int, doc("GPUs (or processes) over which times are means")]
    gpus: Annotated[list[str], doc("their names")]
    on_cpu: Annotated[bool, doc("the rows are CPU ops")]
    attributed_percent: Annotated[float, doc("share of the time that has an op", "%")]
    counted_percent: Annotated[float, doc("share of the time whose FLOPs are known", "%")]
    bytes_counted_percent: Annotated[float, doc("share of the time whose bytes are known", "%")]
    sm_mhz: Annotated[float, nan_doc("mean SM clock while the GPUs worked, where --nvml read it", "MHz")]


class Times(Record, kw_only=True):
    before_ns: Annotated[int, doc("in A, a mean over its steps", NS)]
    after_ns: Annotated[int, doc("in B", NS)]
    change_ns: Annotated[int, doc("after - before", NS)]
    ratio: Ratio
    noise_ns: Annotated[
        float | None, doc("half the 99% interval of the change that chance explains; null: one step each", NS)
    ]
    beyond_noise: Annotated[bool, doc("the change is greater than that, or that is not known")]


class Amount(Record, kw_only=True):
    before: Annotated[float | None, doc("in A, per step; null: not known")]
    after: Annotated[float | None, doc("in B, per step")]
    change: Annotated[float | None, doc("after - before")]
    ratio: Ratio


class Amounts(Record):
    operations: Annotated[Amount, doc("kernels, copies, memsets")]
    flop: Annotated[Amount, doc("FLOPs that are counted")]
    byte: Annotated[Amount, doc("bytes that are counted")]


class Entry(Times):  # its keys stand before those of Times; the defaults are those of overlap and idle time
    name: Annotated[str, doc("layer and op; overlap and idle, too")]
    layer: Annotated[str, doc("repeated layers as one: blocks.*:attention")] = ""
    op: Annotated[str, doc("what the user called, or the kind of work")] = ""
    phase: Annotated[str, doc("forward, backward, optimizer, data, other")] = ""
    matched: Annotated[tuple[str, ...], doc(f"how its rows were matched: {WAYS}")] = ()
    status: Annotated[str, doc("the least certain of these; overlap; idle")] = ""
    layers: Annotated[int, doc("layers that are one in `layer`")] = 0
    rows_before: Annotated[float | None, doc("GPU operations in A, per step")] = None
    rows_after: Annotated[float | None, doc("GPU operations in B, per step")] = None
    tc_lost: Annotated[int, doc("matrix products that ran on tensor cores in A only")] = 0
    tc_gained: Annotated[int, doc("matrix products that ran on tensor cores in B only")] = 0


class Part(Times):
    name: Annotated[str, doc("the part")]


class KernelOfOp(Record):
    kernel: Annotated[str, doc("its name")]
    tc: Annotated[str, doc("tensor cores: 1, 0, ? or -")]
    rows: Annotated[float, doc("per step")]
    ns: Annotated[int, doc("time", NS)]


class OpWithOtherKernels(Times):
    name: Annotated[str, doc("layer and op")]
    phase: Annotated[str, doc("forward, backward, ...")]
    aten: Annotated[str, doc("aten op")]
    places: Annotated[int, doc("layers and calls that changed alike")]
    before: Annotated[list[KernelOfOp], doc("that A runs and B does not")]
    after: Annotated[list[KernelOfOp], doc("that B runs and A does not")]
    shapes_before: Annotated[str, doc("JSON; empty where they are several")]
    shapes_after: Annotated[str, doc("JSON")]
    tensor_share_before: TensorShare
    tensor_share_after: TensorShare


class GateTestStart(Amount):  # its keys stand before those of Amount; times are ns
    test: Annotated[str, doc("as given")]
    unit: Annotated[str, extended("of its numbers", {"enum": ["time", "count", "flop", "byte"]})]
    failed: Annotated[bool, doc("it is true of the change")]


class GateTest(GateTestStart, kw_only=True):
    noise: Annotated[float | None, doc("as noise_ns")]
    counts: Annotated[bool, doc("the change is beyond noise, or --strict is given")]


class GateCondition(Record):
    condition: Annotated[str, doc("as given")]
    failed: Annotated[bool, doc("it is true")]
    tests: Annotated[list[GateTest], doc("all of its tests")]


class Difference(Record):
    """The difference of two captures, and why."""

    headline: Annotated[str, doc("the difference in a sentence")]
    sentences: Annotated[list[str], doc("where it comes from; first, if the clocks differed")]
    a: Annotated[CaptureSide, doc("the first capture")]
    b: Annotated[CaptureSide, doc("the second capture")]
    step: Annotated[Times, doc("the step's time")]
    gpu: Annotated[Times, doc("time with an operation running")]
    idle: Annotated[Times, doc("time without")]
    late: Annotated[Times, doc("idle time in which the CPU had not yet called for the next launch")]
    amounts: Annotated[Amounts, doc("of a step")]
    tc_lost: Annotated[int, doc("sum over the entries")]
    tc_gained: Annotated[int, doc("sum over the entries")]
    entries: Annotated[list[Entry], doc("sum to the step")]
    phases: Annotated[list[Part], doc("sum to the step: overlaps once, and idle time")]
    kinds: Annotated[list[Part], doc("sum to the step: kinds of work, less overlap, and idle time")]
    layers: Annotated[list[Part], doc("sum to the step, or empty where a side names no layers to compare")]
    kernels: Annotated[list[OpWithOtherKernels], doc("ops that other kernels do, the greatest change first")]
    gates: Annotated[list[GateCondition], doc("the conditions of --fail-if")]
    failed: Annotated[bool, doc("one of them is true: exit code 3")]


def difference(found: Comparison, verdicts: Sequence[Verdict]) -> Difference:
    from pyprof.prof.diff.sentences import clock_words, headline, sentences
    from pyprof.prof.diff.table_rows import every_entry

    *rows, total = every_entry(found, 1.0)
    a, b = found.a, found.b
    of_bytes = a.bytes_counted_rows, b.bytes_counted_rows
    amounts = _amount(found.rows), _known(found.flop, a.counted_rows, b.counted_rows), _known(found.nbytes, *of_bytes)
    return Difference(
        headline=headline(found),
        sentences=[*filter(None, [clock_words(found)]), *sentences(found)],
        a=side_of(found.a),
        b=side_of(found.b),
        step=Times(**_row(total)),
        gpu=times_of(found.busy),
        idle=times_of(found.idle),
        late=times_of(found.late),
        amounts=Amounts(*(Amount(**amount) for amount in amounts)),
        tc_lost=found.tc_lost,
        tc_gained=found.tc_gained,
        entries=[_entry(row) for row in rows],
        phases=_table(found, found.phases, False),
        kinds=_table(found, found.kinds, True),
        layers=_table(found, found.layers, True) if found.layers else [],
        kernels=[_swap(swap) for swap in found.swaps],
        gates=[GateCondition(one.text, one.fails, list(map(_test, one.checks))) for one in verdicts],
        failed=any(verdict.fails for verdict in verdicts),
    )


def side_of(side: Side) -> CaptureSide:
    steps = side.steps
    return CaptureSide(
        name=side.name,
        steps=[n for n in steps.numbers if n is not None],
        left_out=[StepLeftOut(n, why) for n, why in steps.left_out],
        devices=steps.devices,
        gpus=list(side.gpus),
        on_cpu=side.on_cpu,
        attributed_percent=100 * side.attributed,
        counted_percent=100 * side.counted,
        bytes_counted_percent=100 * side.bytes_counted,
        sm_mhz=side.sm_mhz,
    )


def times_of(value: Delta) -> Times:
    return Times(**_time(value))


def _time(value: Delta) -> dict[str, Any]:
    before, change = round(value.before), round(value.change)
    return {"before_ns": before, "after_ns": before + change, "change_ns": change, **_noise(value)}


def _row(row: Row) -> dict[str, Any]:
    return {"before_ns": row.before, "after_ns": row.after, "change_ns": row.change, **_noise(row.ns)}


def _noise(value: Delta) -> dict[str, Any]:
    return {"ratio": value.ratio, "noise_ns": value.band, "beyond_noise": value.counts}


def _amount(value: Delta) -> dict[str, Any]:
    return {"before": value.before, "after": value.after, "change": value.change, "ratio": value.ratio}


def _known(value: Delta, before: float, after: float) -> dict[str, Any]:
    """FLOPs or bytes of both sides; unknown for a side if none of its ops are counted. The shares that are known."""
    missing = [key for key, counted in (("before", before), ("after", after)) if not counted]
    unknown = [*missing, "change", "ratio"] if missing else []
    return {**_amount(value), **dict.fromkeys(unknown)}


def _entry(row: Row) -> Entry:
    entry = row.entry
    if entry is None:  # overlap and idle
        return Entry(row.name, status=row.name, **_row(row))
    shared = {key: getattr(entry, key) for key in ("layer", "op", "phase", "status", "layers", "tc_lost", "tc_gained")}
    before, after = entry.count
    return Entry(row.name, matched=entry.how, rows_before=before, rows_after=after, **shared, **_row(row))


def _table(found: Comparison, changes: Sequence[Change], work: bool) -> list[Part]:
    from pyprof.prof.diff.table_rows import table_rows

    return [Part(name=row.name, **_row(row)) for row in table_rows(found, changes, 1.0, None, work)[:-1]]


def _swap(swap: Swap) -> OpWithOtherKernels:
    before, after = (None if math.isnan(share) else share for share in swap.tc)
    return OpWithOtherKernels(
        name=swap.name,
        phase=swap.place.phase,
        aten=swap.place.aten,
        places=swap.matches,
        before=_kernels(swap.a),
        after=_kernels(swap.b),
        shapes_before=swap.shapes[0],
        shapes_after=swap.shapes[1],
        tensor_share_before=before,
        tensor_share_after=after,
        **_time(swap.ns),
    )


def _kernels(kernels: Iterable[Kernel]) -> list[KernelOfOp]:
    return [KernelOfOp(k.name, k.tc, k.count, round(k.ns)) for k in kernels]


def _test(check: Check) -> GateTest:
    amount, noise = _amount(check.value), check.value.band
    return GateTest(check.text, check.kind, check.fails, **amount, noise=noise, counts=check.counts)
