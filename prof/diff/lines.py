"""One capture as lines that can be matched with the lines of another capture.

A line represents all rows with the same phase, layer, op, direction, aten op, shapes and dtype. It has their time in
each step and their kernels.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyprof.prof.diff.compared_steps import Steps, Wanted, find_steps
from pyprof.prof.limits.roofline import dtype_of_rows
from pyprof.prof.load import LoadedFile
from pyprof.prof.ranks import pace_of_table
from pyprof.prof.ranks.pace_records import Pace
from pyprof.prof.timing.clocks import clocks
from pyprof.prof.timing.loading import Leading, without_loading
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.prof.work.kinds import kinds
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.attribution import AttributedTime, runs_on_cpu
from pyprof.table.columns import NULL, Coded, Floats, Ints, Table, distinct, distinct_texts
from pyprof.table.kernel_names import narrow_name
from pyprof.table.losses import losses
from pyprof.table.schema import first_text

VARYING = "varying"  # shapes that differ from step to step
GENERATED = re.compile(r"^(triton_\w+?)_\d+$")  # torch.compile numbers its kernels anew in each run
FUSED = re.compile(r"^triton_|^CompiledF")
COMPILED = re.compile(r"^CompiledF")  # a whole compiled graph, not an op
CASTS = re.compile(r"\((?:int|unsigned int|long|unsigned long|bool|char|short)\)(?=-?\d)")
ANONYMOUS = re.compile(r"<unnamed>|\(anonymous namespace\)|\(anonymous class\)")
# nsys: [CUDA memcpy Host-to-Device]; Kineto: Memcpy HtoD (Pageable -> Device)
COPY = re.compile(r"^(?:\[CUDA )?([Mm]em(?:cpy|set)) ?\(?([A-Za-z-]*)")
WAYS = {"Host-to-Device": "HtoD", "Device-to-Host": "DtoH", "Device-to-Device": "DtoD", "Peer-to-Peer": "PtoP"}
WAYS["Device"] = ""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    phase: str
    layer: tuple[str, ...]
    op: str  # the outermost op that the user called, or the kernel's name if the capture has no op
    dir: str
    aten: str
    kernel: str = ""  # the kernel's name if the capture has no aten op


@dataclass(frozen=True, slots=True)
class Kernel:
    """The rows of a line that ran one kernel. Count and time are per step."""

    name: str  # as it is shown
    same: str  # equal for the same kernel in another capture
    tc: str  # 1, 0 or ?; - for kernels without a matrix product
    count: float
    ns: float


@dataclass(frozen=True, slots=True)
class Line:
    """All rows of a capture that agree in place, shapes and dtype."""

    place: Place
    shapes: str  # JSON: the sizes of the tensor arguments
    dtype: str
    kind: str
    ns: Floats = field(compare=False)  # one number per step
    count: float  # rows per step
    kernels: tuple[Kernel, ...]  # the longest first

    @property
    def fused(self) -> bool:
        """Whether torch.compile fused it from several ops."""
        return any(FUSED.match(name) for name in (self.place.aten, self.place.op, *(k.name for k in self.kernels)))


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two captures."""

    name: str
    profiler: str | None
    gpus: tuple[str, ...]
    on_cpu: bool
    steps: Steps
    lines: tuple[Line, ...]  # in the order in which a step runs them
    loading: Leading | None  # copies before the first kernel, if they were left out
    kind_ns: dict[str, Floats]  # one number per step
    layer_ns: dict[tuple[str, ...], Floats]
    rows: Floats  # operations per step
    flop: Floats  # of the rows whose FLOPs are known
    nbytes: Floats
    counted: float  # share of the time whose FLOPs are known
    counted_rows: float  # share of the rows whose FLOPs are known
    bytes_counted: float  # the same two shares for bytes
    bytes_counted_rows: float
    attributed: float  # share of the time that has an op
    pace: Pace | None  # of its ranks, if there are several and nothing of the capture is lost
    sm_mhz: float  # mean SM clock of the GPUs while they worked in these steps; NaN where --nvml did not read it
    table: Table
    kind: Coded

    @property
    def family(self) -> str:
        """The profiler's name without its version; empty if it is unknown."""
        return (self.profiler or "").partition(" ")[0]

    @property
    def work_ns(self) -> Floats:
        """The time of all rows per step; overlapping rows count twice."""
        return np.sum(list(self.kind_ns.values()), axis=0) if self.kind_ns else np.zeros(len(self.steps))

    @property
    def overlap_ns(self) -> Floats:
        return self.work_ns + self.steps.idle_ns - self.steps.span_ns


def make_side(loaded: LoadedFile, wanted: Wanted | None = None) -> Side:
    """Annotate a capture, choose its steps and sum its rows. ``wanted`` says which steps to take."""
    table = _with_phases(loaded.table)
    table, annotation, copies = without_loading(table, annotate(table))
    steps = find_steps(loaded.name, table, wanted)
    what = kinds(table, annotation)
    duration = table.ints("kDuration")
    flops, nbytes = (np.where(v == NULL, 0, v) for v in (annotation.flops, annotation.bytes))
    alone = np.zeros(len(table), np.int64)
    layer = table.coded("layer")
    paths, path = _numbered([*map(layer_parts, layer.values), ()])  # code -1 selects the last
    inside = steps.step >= 0
    time = AttributedTime.of_columns(duration[inside], table.coded("op").take(inside), runs_on_cpu(table.coded("kind")))
    taken = max(float(time.total_ns), 1.0)
    return Side(
        name=loaded.name,
        profiler=loaded.profiler,
        gpus=tuple(sorted(set(table.coded("gpu").take(inside).texts()) - {""})),
        on_cpu=time.on_cpu,
        steps=steps,
        lines=_lines(table, annotation, what, steps),
        loading=copies if copies is not None and copies.apart else None,
        kind_ns=_by(what, steps, duration),
        layer_ns=dict(zip(paths, steps.sums(path[layer.codes], len(paths), duration), strict=True)),
        rows=steps.sums(alone, 1, np.ones(len(table)))[0],
        flop=steps.sums(alone, 1, flops)[0],
        nbytes=steps.sums(alone, 1, nbytes)[0],
        counted=float(duration[inside & (annotation.flops != NULL)].sum()) / taken,
        counted_rows=_known_share(annotation.flops[inside]),
        bytes_counted=float(duration[inside & (annotation.bytes != NULL)].sum()) / taken,
        bytes_counted_rows=_known_share(annotation.bytes[inside]),
        attributed=time.attributed_ns / taken,
        pace=None if losses(table) else pace_of_table(table, annotation),
        sm_mhz=_sm_mhz(table.take(np.flatnonzero(inside))),
        table=table,
        kind=what,
    )


def _sm_mhz(table: Table) -> float:
    """The mean SM clock of the GPUs, weighted by their time of work; NaN if unknown."""
    known = [gpu for gpu in clocks(table) if not math.isnan(gpu.sm_mhz) and gpu.work_ns]
    work_ns = sum(gpu.work_ns for gpu in known)
    return sum(gpu.sm_mhz * gpu.work_ns for gpu in known) / work_ns if work_ns else math.nan


def _known_share(amounts: Ints) -> float:
    return float((amounts != NULL).mean()) if len(amounts) else 0.0


def _with_phases(table: Table) -> Table:
    """The table with phases, which PyProf's own net.dict has only as directions."""
    if table.coded("phase").values:
        return table
    phases = {"fprop": "forward", "bprop": "backward"}
    return table.with_column("phase", _mapped(table.coded("dir"), lambda way: phases.get(way, "")))


def _by(column: Coded, steps: Steps, values: Ints) -> dict[str, Floats]:
    sums = steps.sums(column.codes.astype(np.int64) + 1, len(column.values) + 1, values)
    return added((text, ns) for text, ns in zip(["", *column.values], sums, strict=True) if ns.any())


def added(amounts: Iterable[tuple[str, Floats]]) -> dict[str, Floats]:
    """The sum of the amounts of each name."""
    sums: dict[str, Floats] = {}
    for name, amount in amounts:
        sums[name] = sums[name] + amount if name in sums else amount
    return sums


def _numbered(values: Iterable[T]) -> tuple[list[T], Ints]:
    """The distinct values in order of their first occurrence, and for each value its index among them."""
    index: dict[T, int] = {}
    numbers = [index.setdefault(value, len(index)) for value in values]
    return list(index), np.array(numbers, np.int64)


def _lines(table: Table, annotation: Annotation, what: Coded, steps: Steps) -> tuple[Line, ...]:
    rows = np.flatnonzero(steps.step >= 0)
    if not len(rows):
        return ()
    place, places = _places(table)
    shapes = _mapped(table.coded("sizes"), _shapes)
    dtype = dtype_of_rows(table, annotation.family)
    keys, line = _distinct_rows(rows, place, shapes.codes)
    line = _steady(line, keys, steps, len(table))
    duration, ones = table.ints("kDuration"), np.ones(len(table))
    ids, number = np.unique(line[rows], return_inverse=True)
    line[rows] = number.reshape(-1)
    times, counts = steps.sums(line, len(ids), duration), steps.sums(line, len(ids), ones).mean(axis=1)
    kernels = _kernels_of_lines(table, annotation, steps, rows, line)
    first = np.full(len(ids), len(table), np.int64)
    np.minimum.at(first, line[rows], rows)
    kind, of = (_dominant(line, column, duration, rows, len(ids)) for column in (what, dtype))
    texts = [*shapes.values, ""]
    made = []
    for i, key in enumerate(ids.tolist()):
        at, shape = keys[key] if key < len(keys) else (keys[key - len(keys)][0], None)
        sizes = VARYING if shape is None else texts[shape]
        made.append(Line(places[at], sizes, of[i], kind[i], times[i], float(counts[i]), kernels[i]))
    return tuple(made[i] for i in np.argsort(first, kind="stable").tolist())


def _kernels_of_lines(
    table: Table, annotation: Annotation, steps: Steps, rows: Ints, line: Ints
) -> list[tuple[Kernel, ...]]:
    """The kernels of each line, the longest first. ``line``: the line of each row."""
    names, name = _kernels(table)
    tensor_cores = np.where(annotation.role.among("main"), annotation.tc.codes, -1)
    parts, part = _distinct_rows(rows, line, name, tensor_cores)
    amounts = table.ints("kDuration"), np.ones(len(table))
    part_ns, part_count = (steps.sums(part, len(parts), v).mean(axis=1).tolist() for v in amounts)
    kernels: list[list[Kernel]] = [[] for _ in range(int(line.max()) + 1)]
    for (owner, which, tc), ns, count in zip(parts, part_ns, part_count, strict=True):
        kernels[owner].append(Kernel(*names[which], [*annotation.tc.values, "-"][tc], count, ns))
    return [tuple(sorted(of_line, key=lambda k: (-k.ns, k.name))) for of_line in kernels]


def _distinct_rows(rows: Ints, *columns: NDArray[Any]) -> tuple[list[tuple[int, ...]], Ints]:
    """``distinct`` over some rows; -1 for the others."""
    keys, number = distinct(*(column[rows] for column in columns))
    whole = np.full(len(columns[0]), -1, np.int64)
    whole[rows] = number
    return keys, whole


def _steady(line: Ints, keys: Sequence[tuple[int, ...]], steps: Steps, rows: int) -> Ints:
    """Merge the lines of a place if their row counts change from step to step because the data's shapes change.

    The merged line's number is its first line's number plus the total number of lines.
    """
    if len(steps) < 2:
        return line
    counts = steps.sums(line, len(keys), np.ones(rows))
    changing = np.abs(counts - counts[:, :1]).max(axis=1) > 1e-6
    first: dict[int, int] = {}
    number = np.arange(len(keys))
    for i in np.flatnonzero(changing).tolist():
        number[i] = len(keys) + first.setdefault(keys[i][0], i)
    return np.where(line >= 0, number[line], -1)


def _places(table: Table) -> tuple[Ints, list[Place]]:
    phase, layer, op, aten = (table.coded(key) for key in ("phase", "layer", "op", "aten"))
    name = table.coded("kShortName")
    no_op = aten.where(COMPILED.match) | aten.among("")
    unnamed = Coded(np.where(no_op, name.codes, -1), name.values)
    texts, place = distinct_texts(phase, layer, op, table.coded("dir"), aten, unnamed)
    paths = {text: layer_parts(text) for text in [*layer.values, ""]}
    ops = {text: first_text(text) if text else "" for text in [*op.values, ""]}
    found = []
    for when, where, call, direction, inner, kernel in texts:
        kernel = GENERATED.sub(r"\1", _kernel(kernel, "")[0])
        outer = ops[call] or inner.removeprefix("aten::") or kernel
        inner = "" if COMPILED.match(inner) else inner
        inner = "fused" if FUSED.match(inner) else inner
        found.append(Place(when or "other", paths[where], outer, direction, inner, "" if inner else kernel))
    places, number = _numbered(found)
    return number[place], places


def _shapes(text: str) -> str:
    """The sizes of the tensor arguments, with lists of tensors flattened and scalars left out."""
    try:
        sizes = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    found = list(_tensors(sizes))
    return json.dumps(found, separators=(",", ":")) if found else ""


def _tensors(sizes: object, depth: int = 0) -> Iterator[list[int]]:
    if not isinstance(sizes, list) or not sizes or depth > 3:
        return
    if all(isinstance(n, int) for n in sizes):
        yield sizes
    else:
        for item in sizes:
            yield from _tensors(item, depth + 1)


def _mapped(column: Coded, change: Callable[[str], str]) -> Coded:
    """The column with ``change`` applied to each text. Equal results share a code; empty results get no code."""
    texts = Coded.of(change(text) for text in column.values)
    return Coded(np.append(texts.codes, np.int32(-1))[column.codes], texts.values)


def _kernels(table: Table) -> tuple[list[tuple[str, str]], Ints]:
    """The distinct kernels, each as (shown, compared) name, and the index of each row's kernel."""
    pairs, row = distinct_texts(table.coded("kShortName"), table.coded("kLongName"))
    names, number = _numbered(_kernel(short, long) for short, long in pairs)
    return names, number[row]


def _kernel(short: str, long: str) -> tuple[str, str]:
    """A kernel's name as shown, and as compared: without compilers' numbers and differences between demanglers."""
    name = short or long
    if copy := COPY.match(name):
        name = f"{copy[1].lower()} {WAYS.get(copy[2], copy[2])}".strip()
        return name, name
    name = narrow_name(name)
    same = CASTS.sub("", ANONYMOUS.sub("", long or short))
    return name, GENERATED.sub(r"\1", same.partition(">(")[0].replace(" ", ""))


def _dominant(line: Ints, what: Coded, duration: Ints, rows: Ints, lines: int) -> list[str]:
    """For each line, the text with most of its time; empty only if no row has a text."""
    rows = rows[what.codes[rows] >= 0]
    keys, pair = distinct(line[rows], what.codes[rows])
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, pair, duration[rows])
    best: list[tuple[int, str]] = [(-1, "")] * lines
    for (owner, kind), ns in zip(keys, sums.tolist(), strict=True):
        if ns > best[owner][0]:
            best[owner] = (ns, what.values[kind])
    return [kind for _, kind in best]
