"""The tables of layers, each with everything below it, and of steps, each by phase with its idle time and its work."""

from collections.abc import Sequence

import numpy as np

from pyprof.prof.notebook.frame_columns import Columns, int_array
from pyprof.prof.table.cells import Data
from pyprof.prof.table.group import aggregates, own_column, ratio, row_amounts
from pyprof.prof.timing.steps import PHASES, Step
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.layer_path import layer_parts
from pyprof.serving_range import SERVING_PHASES
from pyprof.table.attribution import launched_alone
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table
from pyprof.table.losses import losses

LAYER = (
    own_column(
        "layer", "", "path of module names, outermost first, joined by a colon; missing: rows without a layer", "text"
    ),
    own_column("depth", "", "parts of the path"),
    own_column("count", "", "rows in the layer and below it"),
    own_column("time", "ns", "their silicon time"),
    own_column("own", "ns", "of it, in the layer itself and in none below it; these sum to all time"),
    own_column("share", "%", "time, of the time of all rows", "float"),
    own_column("forward", "ns", "of time, in the forward pass"),
    own_column("backward", "ns", "of time, in the backward pass"),
    own_column("flops", "flop", "of the rows that are counted"),
    own_column("bytes", "bytes", "of the rows that are counted"),
    own_column("tflops", "TFLOP/s", "flops / time of the rows that are counted", "float"),
    own_column("gbps", "GB/s", "bytes / time of the rows that are counted", "float"),
    own_column("uncounted", "%", "share of the time in rows without FLOPs", "float"),
    own_column("bytes_uncounted", "%", "share of the time in rows without bytes", "float"),
)
STEP = (
    own_column("device", "", "the GPU, and which one where there are several", "text"),
    own_column("step", "", "the step's number; missing where the capture marks none and all of it is one row"),
    own_column(
        "start", "ns", "its mark, or when the GPU is done with the steps before; without marks: first operation"
    ),
    own_column("time", "ns", "until the next step; of the last one to its mark's end, or its last operation's"),
    *(own_column(name, "ns", f"of time, {name}; an instant counts once, for the first phase") for name in PHASES),
    own_column("idle", "ns", "of time, no operation ran on the device"),
    own_column("mark", "ns", "on the host's clock, from its mark to the next; missing where no mark says"),
    own_column("extent", "ns", "GPU extent: from the start of its first operation to the end of its last one"),
    own_column("count", "", "operations"),
    own_column("flops", "flop", "of the operations that are counted"),
    own_column("bytes", "bytes", "of the operations that are counted"),
    own_column("tflops", "TFLOP/s", "flops / time, idle time included", "float"),
    own_column("uncounted", "%", "share of the operations' time in those without FLOPs", "float"),
    own_column("bytes_uncounted", "%", "share of the operations' time in those without bytes", "float"),
)
# The sums per layer, one array column each: number of rows, two phases' time, those of ``row_amounts``.
AMOUNTS = ("time", "alone_rows", "flops", "flops_ns", "flops_rows", "bytes", "bytes_ns", "bytes_rows")
DIRECTIONS = {"forward": ("forward", *SERVING_PHASES), "backward": ("backward",)}
SUMS = ("count", "forward", "backward", *AMOUNTS)
TIME = SUMS.index("time")
Path = tuple[str, ...]


def layer_columns(table: Table, annotation: Annotation) -> Columns:
    """One row per layer and per layer that contains one, in the order in which they first ran. Times in ns."""
    layer, time = table.coded("layer"), table.ints("kDuration")
    paths = [layer_parts(text) for text in layer.values]
    codes = np.where(layer.where(layer_parts), layer.codes, -1)
    time = np.where(time == NULL, 0, time)
    amounts = dict(row_amounts(time, annotation.flops, annotation.bytes, launched_alone(table.coded("reason"))))
    sums_of_path = _sums(codes, len(paths), table.coded("phase"), amounts)
    in_order = [code for code in _first_run(codes, len(paths), table.ints("start")) if sums_of_path[code, 0]]
    rows = _rows([paths[code] for code in in_order])
    place = {path: i for i, path in enumerate(rows)}
    sums = np.zeros((len(rows), len(SUMS)), np.int64)
    own = np.zeros(len(rows), np.int64)
    for code in in_order:
        path = paths[code]
        for size in range(1, len(path) + 1):
            sums[place[path[:size]]] += sums_of_path[code]
        own[place[path]] += sums_of_path[code, TIME]
    names, depth = [":".join(path) for path in rows], [len(path) for path in rows]
    without = sums_of_path[-1]
    if without[0]:  # rows without a layer come last
        names, depth = [*names, ""], [*depth, 0]
        sums, own = np.vstack([sums, without]), np.append(own, without[TIME])
    summed = {name: sums[:, i] for i, name in enumerate(SUMS)}
    data: dict[str, Data] = {"layer": Coded.of(names), "depth": np.array(depth, np.int64), "own": own}
    data |= {**summed, **aggregates(summed, int(time.sum()))}
    return [(column, data[column.name]) for column in LAYER]


def _sums(codes: Ints, size: int, phase: Coded, amounts: dict[str, Ints]) -> Ints:
    """``SUMS`` over each layer's own rows, without the layers inside it. The last line sums rows without a layer."""
    of_phase = {name: np.where(phase.among(*parts), amounts["time"], 0) for name, parts in DIRECTIONS.items()}
    values = {"count": np.ones(len(codes), np.int64), **of_phase, **amounts}
    sums = np.zeros((size + 1, len(SUMS)), np.int64)
    for place, name in enumerate(SUMS):
        np.add.at(sums[:, place], codes, values[name])
    return sums


def _first_run(codes: Ints, size: int, start: Ints) -> list[int]:
    """The layer paths sorted by first start, or by first row where start times are unknown."""
    first = np.full(size + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, codes, np.where(start == NULL, np.arange(len(start)), start))
    order: list[int] = np.argsort(first[:-1], kind="stable").tolist()
    return order


def _rows(paths: Sequence[Path]) -> list[Path]:
    """The layer paths and the paths of all layers that contain them; a layer comes before the layers inside it."""
    number: dict[Path, int] = {}
    for path in paths:
        for size in range(1, len(path) + 1):
            number.setdefault(path[:size], len(number))
    return sorted(number, key=lambda path: [number[path[: i + 1]] for i in range(len(path))])


def step_columns(
    steps: Sequence[Step], names: Sequence[str], owner: Ints, table: Table, annotation: Annotation
) -> Columns:
    """One row per device and step, with the work of the table's rows; ``owner``: the number of each row's device."""
    step, time, flops = table.ints("step"), table.ints("kDuration"), annotation.flops
    rows = [(owner == each.owner) & (step == _number(each)) for each in steps]
    flop = int_array(_known_sum(flops[mask]) for mask in rows)
    spans = int_array(each.span_ns for each in steps)
    alone = launched_alone(table.coded("reason"))
    incomplete = bool(losses(table))  # then something that is not on record may have run in idle time
    launching = np.array([bool(alone[mask].any()) for mask in rows], bool)
    data: dict[str, Data] = {
        "device": Coded.of(names[each.owner] for each in steps),
        "step": int_array(map(_number, steps)),
        "start": int_array(each.start_ns for each in steps),
        "time": spans,
        **{name: int_array(each.phase_ns.get(name, 0) for each in steps) for name in PHASES},
        "idle": int_array(NULL if incomplete else each.idle_ns for each in steps),
        "mark": int_array(NULL if each.mark_ns is None else each.mark_ns for each in steps),
        "extent": int_array(each.extent_ns for each in steps),
        "count": int_array(int(np.count_nonzero(mask)) for mask in rows),
        "flops": flop,
        "bytes": int_array(_known_sum(annotation.bytes[mask]) for mask in rows),
        "tflops": ratio(np.where((flop == NULL) | launching, np.nan, flop / 1e3), spans),
        "uncounted": np.array([_uncounted(mask, time, flops) for mask in rows], np.float64),
        "bytes_uncounted": np.array([_uncounted(mask, time, annotation.bytes) for mask in rows], np.float64),
    }
    return [(column, data[column.name]) for column in STEP]


def _number(step: Step) -> int:
    return NULL if step.number is None else step.number


def _known_sum(amounts: Ints) -> int:
    """The sum of the known amounts; NULL where there are amounts and none is known."""
    known = amounts != NULL
    return int(amounts[known].sum()) if known.any() or not len(amounts) else NULL


def _uncounted(rows: Bools, time: Ints, amounts: Ints) -> float:
    """The share of the rows' time whose FLOPs (or bytes) are unknown, in %."""
    whole = int(time[rows].sum())
    return 100 * int(time[rows & (amounts == NULL)].sum()) / whole if whole else float("nan")
