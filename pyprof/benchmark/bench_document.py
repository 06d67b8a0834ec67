"""The JSON of ``pyprof bench``: measurements of a statement, and replayed calls of a capture. CSV has the same keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pyprof.benchmark.bench_result import Bench, Measured
from pyprof.command.json_schema import Record, doc, extended
from pyprof.text import csv_line

if TYPE_CHECKING:
    from pyprof.benchmark.replay_calls import ReplayedCall

METHODS = ["cuda graph", "cuda events", "cpu timer"]


class Measurement(Record):
    variables: Annotated[
        dict[str, Annotated[int | str, doc("its value")]], doc("the point of the sweep; empty without one")
    ]
    direction: Annotated[str, extended("what was timed", {"enum": ["forward", "backward"]})]
    median_s: Annotated[float, doc("of one call; calls take turns with copies of the inputs", "s")]
    low_s: Annotated[float, doc("the lower quartile of the trials", "s")]
    high_s: Annotated[float, doc("the upper quartile", "s")]
    best_s: Annotated[float, doc("the shortest trial", "s")]
    warm_s: Annotated[float | None, doc("the median if all calls have the same inputs; null if not asked for", "s")]
    flop: Annotated[int | None, doc("of the algorithm; null if an op has no model", "FLOP")]
    bytes: Annotated[float | None, doc("that the algorithm reads and writes; null likewise", "bytes")]
    flop_per_s: Annotated[float | None, doc("FLOPs / median", "FLOP/s")]
    byte_per_s: Annotated[float | None, doc("bytes / median", "bytes/s")]
    limit_s: Annotated[float | None, doc("the least time that the hardware allows; null if unknown", "s")]
    share: Annotated[float | None, doc("limit / median", "%")]
    bound: Annotated[str, doc("what limits it: compute or memory; empty if unknown")]
    method: Annotated[str, extended("how it was timed", {"enum": METHODS})]
    why: Annotated[str, doc("why there is no CUDA graph; empty on a CPU")]
    trials: Annotated[int, doc("of which this is the median")]
    calls: Annotated[int, doc("per graph, or per trial without a graph")]
    empty_node_s: Annotated[float | None, doc("subtracted: a graph's node beside its kernel; null: no graph", "s")]
    host_s: Annotated[float | None, doc("of the host, to launch one call; null with a graph", "s")]
    clock_mhz: Annotated[int | None, doc("of the multiprocessors during the calls", "MHz")]
    copies: Annotated[int, doc("of the inputs, which take turns")]
    copy_bytes: Annotated[int, doc("of one copy and its results", "bytes")]
    cold: Annotated[bool, doc("whether the copies exceed the last cache before memory")]
    uncounted: Annotated[list[Annotated[str, doc("an op")]], doc("ops without a model")]


class Measurements(Record):
    """A statement timed by itself, at each point of a sweep."""

    device: Annotated[str, doc("its name")]
    statement: Annotated[str, doc("what was timed")]
    setup: Annotated[str, doc("what was run before")]
    measurements: Annotated[list[Measurement], doc("in the order of the sweep")]


class Replayed(Record):
    op: Annotated[str, doc("the aten op, or the user's call")]
    direction: Annotated[str, doc("forward, backward, or empty")]
    arguments: Annotated[str, doc("dtypes, shapes and options")]
    calls: Annotated[int, doc("in the capture")]
    capture_s: Annotated[float, doc("of one call in the capture: the durations of its kernels", "s")]
    alone_s: Annotated[float | None, doc("the median alone, with inputs that are not in the cache", "s")]
    low_s: Annotated[float | None, doc("its lower quartile", "s")]
    high_s: Annotated[float | None, doc("its upper quartile", "s")]
    warm_s: Annotated[float | None, doc("the median with the same inputs for all calls", "s")]
    ratio: Annotated[float | None, doc("alone / capture")]
    product: Annotated[bool, doc("whether it is a matrix product")]
    method: Annotated[str, extended("how it was timed; empty if it was not", {"enum": [*METHODS, ""]})]
    kernels_in_capture: Annotated[list[Annotated[str, doc("a name")]], doc("the kernels that the capture shows")]
    kernels_alone: Annotated[list[Annotated[str, doc("a name")]], doc("the kernels that it launched alone")]
    same_kernels: Annotated[bool | None, doc("whether they are the same; null if unknown")]
    why: Annotated[str, doc("why it could not be made again; empty if it was")]


class Totals(Record):
    calls: Annotated[int, doc("distinct ones that were made again")]
    capture_s: Annotated[float, doc("in the capture, all times that they ran", "s")]
    alone_s: Annotated[float, doc("as often, alone", "s")]
    warm_s: Annotated[float, doc("as often, alone, with inputs in the cache where they fit", "s")]


class Replays(Record):
    """The heaviest calls of a capture, timed alone."""

    device: Annotated[str, doc("its name")]
    device_in_capture: Annotated[list[Annotated[str, doc("a name")]], doc("the GPUs of the capture")]
    shown_s: Annotated[float, doc("time in the capture of the calls below", "s")]
    total_s: Annotated[float, doc("time in the capture of all selected rows", "s")]
    all: Annotated[Totals, doc("of the calls that were made again")]
    products: Annotated[Totals, doc("of the matrix products among them")]
    rows: Annotated[list[Replayed], doc("in the order of their time in the capture")]


def measurements(found: Sequence[tuple[Mapping[str, Any], Bench]]) -> list[Measurement]:
    """One record per point of the sweep and direction."""
    return [
        _measurement(dict(point), bench, direction, measured)
        for point, bench in found
        for direction, measured in bench.directions().items()
    ]


def _measurement(point: dict[str, Any], bench: Bench, direction: str, measured: Measured) -> Measurement:
    timing = measured.timing
    return Measurement(
        variables=point, direction=direction, median_s=timing.seconds, low_s=timing.low_s, high_s=timing.high_s,
        best_s=timing.best_s, warm_s=measured.warm.seconds if measured.warm else None, flop=measured.flop,
        bytes=measured.nbytes, flop_per_s=measured.flop_per_s, byte_per_s=measured.byte_per_s,
        limit_s=measured.limit_s, share=measured.share, bound=measured.bound, method=timing.method, why=timing.why,
        trials=timing.trials, calls=timing.calls, empty_node_s=timing.empty_node_s, host_s=timing.host_s,
        clock_mhz=timing.clock_mhz, copies=bench.copies, copy_bytes=bench.copy_bytes, cold=bench.cold,
        uncounted=list(bench.uncounted),
    )  # fmt: skip


def replays(rows: Sequence[ReplayedCall], device: str, gpus: Sequence[str], total_s: float) -> Replays:
    again = [row for row in rows if row.timing is not None]
    return Replays(
        device=device,
        device_in_capture=list(gpus),
        shown_s=sum(row.call.ns for row in rows) * 1e-9,
        total_s=total_s,
        all=_totals(again),
        products=_totals([row for row in again if row.call.is_product]),
        rows=[_replayed(row) for row in rows],
    )


def _totals(rows: Sequence[ReplayedCall]) -> Totals:
    return Totals(
        calls=len(rows),
        capture_s=sum(row.call.ns for row in rows) * 1e-9,
        alone_s=sum(row.timing.seconds * row.call.calls for row in rows if row.timing),
        warm_s=sum(row.warm.seconds * row.call.calls for row in rows if row.warm),
    )


def _replayed(row: ReplayedCall) -> Replayed:
    from pyprof.benchmark.replay_calls import arguments_text  # imports torch, which pyprof schema does without

    timing = row.timing
    return Replayed(
        op=row.call.op, direction={"fprop": "forward", "bprop": "backward"}.get(row.call.direction, ""),
        arguments=arguments_text(row.call), calls=row.call.calls, capture_s=row.capture_s,
        alone_s=timing.seconds if timing else None, low_s=timing.low_s if timing else None,
        high_s=timing.high_s if timing else None, warm_s=row.warm.seconds if row.warm else None, ratio=row.ratio,
        product=row.call.is_product, method=timing.method if timing else "", why=row.why,
        kernels_in_capture=list(row.call.kernels), kernels_alone=list(row.kernels), same_kernels=row.same_kernels,
    )  # fmt: skip


# CSV


def csv_lines(records: Sequence[Any], names: Sequence[str]) -> Iterator[bytes]:
    """The records as CSV with a header. ``names``: the sweep's variables, which come first, one column each."""
    if not records:
        return
    keys = [key for key in records[0].__struct_fields__ if key != "variables"]
    yield csv_line([*names, *keys])
    for record in records:
        point = getattr(record, "variables", {})
        yield csv_line([*(point[name] for name in names), *(getattr(record, key) for key in keys)])
