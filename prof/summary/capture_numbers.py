"""What a capture tells as a whole: numbers only, for ``sentences``, ``write_terminal`` and JSON.

Times are ns. Sums over several GPUs are sums: their spans, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.kernels.precision import on_tensor_cores
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.summary.components import Series, components, series
from pyprof.prof.timing.collectives import Collective, collectives
from pyprof.prof.timing.stragglers import Waiting, stragglers
from pyprof.prof.timing.timeline import Timeline, exposed_ns, timeline
from pyprof.prof.timing.usage import Usage, usage
from pyprof.prof.timing.waiting import Waits, waits
from pyprof.prof.timing.warmup import WarmUp, warm_up
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import COPIES, NCCL, is_fused_attention, kinds
from pyprof.prof.work.unfused_attention import softmaxes_apart
from pyprof.table.attribution import AttributedTime, attributed_rows
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct

__all__ = ["Attention", "Leading", "Limits", "Matrix", "Part", "Summary", "loading", "summarise", "without_loading"]


PHASES = ("forward", "backward", "optimizer", "data", "other", "")
LOADING = 0.02  # copies before the first kernel that take more of the time than this are told apart from the rest


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows."""

    name: str
    rows: int
    ns: int
    idle_ns: int = 0  # before them


@dataclass(frozen=True, slots=True)
class Leading:
    """Copies between host and device, and those of them before the device's first kernel."""

    rows: int
    ns: int
    nbytes: int
    before_rows: int
    before_ns: int
    before_nbytes: int
    ways: tuple[str, ...]  # host to device, device to host
    apart: bool  # those before the first kernel are left out of all other figures


@dataclass(frozen=True, slots=True)
class Matrix:
    """Kernels that multiply matrices, convolutions and attention among them; not their helpers."""

    ns: int
    tensor_ns: int
    unknown_ns: int
    units: tuple[Part, ...]  # what did the arithmetic
    better: tuple[
        tuple[str, float], ...
    ]  # tensor units that the GPU has, by their peak over that of the unit most used


@dataclass(frozen=True, slots=True)
class Attention:
    fused_rows: int
    fused_ns: int
    fused_name: str  # of the kernel with most time
    apart_rows: int  # softmaxes that stand between two matrix products
    apart_ns: int  # of the kernels between these products


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows whose limit is known, against it."""

    rows: int
    ns: int
    sol_ns: float
    bounds: tuple[Part, ...]  # compute, memory, latency


@dataclass(frozen=True, slots=True)
class Summary:
    on_cpu: bool
    warm_up: WarmUp | None  # the first steps and what was before, left out of all figures
    kinds_of_rows: tuple[Part, ...]  # kernel, memcpy, memset, graph, cpu
    total_ns: int  # of all rows but warm-up and loading; overlaps count twice
    attributed_ns: int
    reasons: tuple[Part, ...]
    devices: tuple[Usage, ...]
    span_ns: int
    busy_ns: int
    idle_ns: int
    late_ns: int  # idle while the CPU had not called for the next launch
    waits: Waits
    steps: tuple[Part, ...]  # ns: from a step's first start to its last end
    phases: tuple[Part, ...]
    components: tuple[Part, ...]
    has_layers: bool
    has_sizes: bool  # the capture records shapes, or markers that tell them
    series: Series | None
    kinds: tuple[Part, ...]
    matrix: Matrix
    attention: Attention
    copies: Leading | None
    communication_ns: int
    exposed_ns: int  # communication while nothing else ran
    collectives: tuple[Collective, ...]
    waiting: Waiting  # of ranks for each other
    counted_ns: int
    flop: int
    nbytes: int
    limits: Limits
    uncounted: tuple[Part, ...]  # ops whose FLOPs no model counts
    notes: tuple[str, ...]


def summarise(table: Table, annotation: Annotation, peaks: Peaks | None = None) -> Summary:
    """The summary of a capture. Warm-up, and copies before the first kernel that take long, are told, and left out."""
    warm, before = warm_up(table)
    if warm is not None:
        kept = np.flatnonzero(~before)
        table, annotation = table.take(kept), annotation.take(kept)
    of_rows = _parts(table.coded("kind"), table.ints("kDuration"), empty="kernel")
    table, annotation, copies = without_loading(table, annotation)
    return _summary(table, annotation, roofline(table, annotation, peaks), of_rows, copies, warm)


def without_loading(table: Table, annotation: Annotation) -> tuple[Table, Annotation, Leading | None]:
    """The run without the copies before its first kernel, where they take long; and what copies there were at all."""
    copies, before = _copies(table, kinds(table, annotation))
    if copies is None or not copies.apart:
        return table, annotation, copies
    kept = np.flatnonzero(~before)
    return table.take(kept), annotation.take(kept), copies


def loading(table: Table, annotation: Annotation) -> Bools:
    """The copies before a device's first kernel, where they take long."""
    copies, before = _copies(table, kinds(table, annotation))
    return before if copies is not None and copies.apart else np.zeros(len(table), bool)


def _summary(
    table: Table,
    annotation: Annotation,
    found: Roofline,
    of_rows: tuple[Part, ...],
    copies: Leading | None,
    warm: WarmUp | None,
) -> Summary:
    duration = table.ints("kDuration")
    rows = np.arange(len(table))
    on_cpu = [part.name for part in of_rows] == ["cpu"]
    what = kinds(table, annotation)
    time = timeline(table)
    has_op, attributed = attributed_rows(table.coded("op")), AttributedTime.of(table)
    counted = annotation.flops != NULL
    communication, late = what.among(NCCL), stragglers(table, annotation)
    return Summary(
        on_cpu=on_cpu,
        warm_up=warm,
        kinds_of_rows=of_rows,
        total_ns=attributed.total_ns,
        attributed_ns=attributed.attributed_ns,
        reasons=_parts(table.coded("reason"), duration, rows[~has_op], empty="the capture does not tell why"),
        devices=tuple(usage(table, annotation, found)),
        span_ns=int(time.own_ns.sum()) + int(time.idle_ns.sum()),
        busy_ns=int(time.own_ns.sum()),
        idle_ns=int(time.idle_ns.sum()),
        late_ns=int(time.late_ns.sum()),
        waits=waits(table),
        steps=_steps(table),
        phases=_phases(table, what, time),
        components=_parts(components(table, annotation, what), duration),
        has_layers=bool((table.coded("layer").codes >= 0).any()),
        has_sizes=any(bool((table.coded(key).codes >= 0).any()) for key in ("sizes", "marker")),
        series=series(table.coded("layer"), duration),
        kinds=_parts(what, duration),
        matrix=_matrix(table, annotation, found),
        attention=_attention(table, annotation, what),
        copies=copies,
        communication_ns=int(duration[communication].sum()),
        exposed_ns=exposed_ns(table, communication) if communication.any() else 0,
        collectives=collectives(table, annotation, late.wait),
        waiting=late.waiting,
        counted_ns=int(duration[counted].sum()),
        flop=int(annotation.flops[counted].sum()),
        nbytes=int(annotation.bytes[annotation.bytes != NULL].sum()),
        limits=_limits(found, duration),
        uncounted=_uncounted(table, np.flatnonzero(has_op & ~counted)),
        notes=tuple(found.notes()),
    )


def _parts(column: Coded, weight: Ints, rows: Ints | None = None, empty: str = "") -> tuple[Part, ...]:
    """Rows and time by the column's texts, the longest first."""
    codes = column.codes if rows is None else column.codes[rows]
    weight = weight if rows is None else weight[rows]
    size = len(column.values)
    counts = np.bincount(codes + 1, minlength=size + 1).tolist()  # code -1 first
    totals = np.zeros(size + 1, np.int64)
    np.add.at(totals, codes + 1, weight)
    sums: dict[str, list[int]] = {}
    for value, count, ns in zip(["", *column.values], counts, totals.tolist(), strict=True):
        if count:
            part = sums.setdefault(value or empty, [0, 0])
            part[0] += count
            part[1] += ns
    parts = [Part(name, count, ns) for name, (count, ns) in sums.items()]
    return tuple(sorted(parts, key=lambda part: -part.ns))


def _copies(table: Table, what: Coded) -> tuple[Leading | None, Bools]:
    """The copies between host and device, and which stand before their device's first kernel."""
    moved = what.among(COPIES)
    start, duration = table.ints("start"), table.ints("kDuration")
    if not moved.any():
        return None, moved
    size = np.where(table.ints("bytes") == NULL, 0, table.ints("bytes"))
    kernel = ~moved & ~table.coded("kind").among("memset") & (start != NULL)
    before = np.zeros(len(table), bool)
    keys, group = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    for number in range(len(keys)):
        mine = group == number
        if (mine & kernel).any():
            before |= mine & moved & (start != NULL) & (start < start[mine & kernel].min())
    names = table.coded("kShortName")
    ways = [
        way
        for way, words in (
            ("host-to-device", ("Host-to-Device", "HtoD")),
            ("device-to-host", ("Device-to-Host", "DtoH")),
        )
        if (np.array([*(any(w in v for w in words) for v in names.values), False])[names.codes] & moved).any()
    ]
    rows, ns, nbytes, *first = (int(v) for m in (moved, before) for v in (m.sum(), duration[m].sum(), size[m].sum()))
    apart = first[1] > LOADING * max(_span(table, ~before), 1) and not bool(before.all())
    return Leading(rows, ns, nbytes, first[0], first[1], first[2], tuple(ways), apart), before


def _span(table: Table, rows: Bools) -> int:
    start, duration = table.ints("start"), table.ints("kDuration")
    known = rows & (start != NULL)
    return int((start + duration)[known].max() - start[known].min()) if known.any() else 0


def _steps(table: Table) -> tuple[Part, ...]:
    step, start, duration = table.ints("step"), table.ints("start"), table.ints("kDuration")
    rows = np.flatnonzero((step != NULL) & (start != NULL))
    if not len(rows):
        return ()
    rows = rows[np.argsort(step[rows], kind="stable")]
    first = np.flatnonzero(np.diff(step[rows], prepend=step[rows[0]] - 1))
    low = np.minimum.reduceat(start[rows], first)
    high = np.maximum.reduceat((start + duration)[rows], first)
    sizes = np.diff(np.append(first, len(rows)))
    found = zip(step[rows[first]].tolist(), sizes.tolist(), (high - low).tolist(), strict=True)
    return tuple(Part(str(number), count, ns) for number, count, ns in found)


def _phases(table: Table, what: Coded, time: Timeline) -> tuple[Part, ...]:
    """In the order of a step; copies between host and device at no known phase are data."""
    phase = table.coded("phase")
    code = np.array([*(PHASES.index(v) if v in PHASES else 4 for v in phase.values), 5])[phase.codes]
    code[code == 5] = 4
    count = np.bincount(code, minlength=5)
    sums = [np.bincount(code, weights=values, minlength=5) for values in (time.own_ns, time.idle_ns)]
    return tuple(
        Part(name, int(count[i]), int(sums[0][i]), int(sums[1][i])) for i, name in enumerate(PHASES[:5]) if count[i]
    )


def _matrix(table: Table, annotation: Annotation, found: Roofline) -> Matrix:
    duration = table.ints("kDuration")
    main = ~annotation.role.among("aux") & table.coded("kind").among("kernel", "cpu", "")
    family = np.array([*(value in MATRIX for value in annotation.family.values), False])[annotation.family.codes]
    told = annotation.tc.among("1", "0", "?")
    rows = np.flatnonzero(main & (told | family))
    units = _parts(found.unit, duration, rows, empty="unknown")
    return Matrix(
        ns=int(duration[rows].sum()),
        tensor_ns=int(duration[rows][annotation.tc.among("1")[rows]].sum()),
        unknown_ns=int(duration[rows][annotation.tc.among("?")[rows]].sum()),
        units=units,
        better=_better(found, units),
    )


def _better(found: Roofline, units: tuple[Part, ...]) -> tuple[tuple[str, float], ...]:
    if not units or not found.devices or on_tensor_cores(units[0].name):
        return ()
    device = found.devices[0]
    base = device.peak(units[0].name)
    ratios = [(unit, device.peak(unit) / base) for unit in ("tc_tf32", "tc_bf16", "tc_fp16")]
    return tuple((unit, ratio) for unit, ratio in ratios if ratio > 1)  # not NaN


def _attention(table: Table, annotation: Annotation, what: Coded) -> Attention:
    names = table.coded("kLongName") if table.coded("kLongName").values else table.coded("kShortName")
    duration = table.ints("kDuration")
    fused = np.array([*map(is_fused_attention, names.values), False])[names.codes] & ~annotation.role.among("aux")
    kernels = _parts(table.coded("kShortName"), duration, np.flatnonzero(fused))
    count, between = softmaxes_apart(table, what)
    ns = int(duration[between].sum())
    return Attention(int(fused.sum()), int(duration[fused].sum()), kernels[0].name if kernels else "", count, ns)


def _uncounted(table: Table, rows: Ints) -> tuple[Part, ...]:
    """The ops among these rows, by their aten names where they have one."""
    aten, op = table.coded("aten"), table.coded("op")
    names = Coded.concat([aten, op])
    picked = np.where(aten.codes[rows] >= 0, rows, len(table) + rows)
    return _parts(names, np.tile(table.ints("kDuration"), 2), picked)


def _limits(found: Roofline, duration: Ints) -> Limits:
    known = np.flatnonzero(~np.isnan(found.sol_ns) & (found.sol_ns > 0) & (duration > 0))
    return Limits(
        rows=len(known),
        ns=int(duration[known].sum()),
        sol_ns=float(np.minimum(found.sol_ns[known], duration[known]).sum()),
        bounds=_parts(found.bound, duration, known, empty="neither"),
    )
