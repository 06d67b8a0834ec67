"""The table of steps: time by phase, idle time, and the work of the operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyprof.prof.notebook.frame_columns import Columns, int_array, own_column, ratio
from pyprof.prof.table.cells import Data
from pyprof.prof.timing.steps import PHASES, Step
from pyprof.table.columns import NULL, Bools, Coded, Ints

STEP = (
    own_column("device", "", "the GPU, and which one where there are several", "text"),
    own_column("step", "", "the step's number; missing where the capture marks none and all of it is one row"),
    own_column("start", "ns", "first operation, since the capture began"),
    own_column("time", "ns", "until the next step's first operation; of the last one until its last operation's end"),
    *(own_column(name, "ns", f"of time, {name}; an instant counts once, for the first phase") for name in PHASES),
    own_column("idle", "ns", "of time, no operation ran on the device"),
    own_column("count", "", "operations"),
    own_column("flops", "flop", "of the operations that are counted"),
    own_column("bytes", "bytes", "of the operations that are counted"),
    own_column("tflops", "TFLOP/s", "flops / time, idle time included", "float"),
    own_column("uncounted", "%", "share of the operations' time in those without FLOPs", "float"),
)


def step_columns(
    steps: Sequence[Step], names: Sequence[str], owner: Ints, step: Ints, time: Ints, flops: Ints, nbytes: Ints
) -> Columns:
    """One row per device and step. ``owner``, ``step`` and the rest: of the rows that count as operations."""
    rows = [(owner == each.owner) & (step == _number(each)) for each in steps]
    flop = int_array(_known_sum(flops[mask]) for mask in rows)
    spans = int_array(each.span_ns for each in steps)
    data: dict[str, Data] = {
        "device": Coded.of(names[each.owner] for each in steps),
        "step": int_array(map(_number, steps)),
        "start": int_array(each.start_ns for each in steps),
        "time": spans,
        **{name: int_array(each.phase_ns.get(name, 0) for each in steps) for name in PHASES},
        "idle": int_array(each.idle_ns for each in steps),
        "count": int_array(int(np.count_nonzero(mask)) for mask in rows),
        "flops": flop,
        "bytes": int_array(_known_sum(nbytes[mask]) for mask in rows),
        "tflops": ratio(np.where(flop == NULL, np.nan, flop / 1e3), spans),
        "uncounted": np.array([_uncounted(mask, time, flops) for mask in rows], np.float64),
    }
    return [(column, data[column.name]) for column in STEP]


def _number(step: Step) -> int:
    return NULL if step.number is None else step.number


def _known_sum(amounts: Ints) -> int:
    """NULL where there are amounts and none is known."""
    known = amounts != NULL
    return int(amounts[known].sum()) if known.any() or not len(amounts) else NULL


def _uncounted(rows: Bools, time: Ints, flops: Ints) -> float:
    """% of the rows' time without FLOPs."""
    whole = int(time[rows].sum())
    return 100 * int(time[rows & (flops == NULL)].sum()) / whole if whole else float("nan")
