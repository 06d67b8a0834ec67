"""What the rules look at: the kernels of the marked steps in order of time, and what was computed of them once."""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.prof.advice.host import host_ns
from pyprof.prof.annotate import Annotation
from pyprof.prof.devices import Device, Peaks
from pyprof.prof.dtypes import kernel_dtypes
from pyprof.prof.occupancy import Floats
from pyprof.prof.roofline import roofline
from pyprof.prof.summary import loading
from pyprof.prof.timeline import alone
from pyprof.prof.usage import covered
from pyprof.table import NULL, Coded, Ints, Table, distinct

__all__ = ["CALL_NS", "SMALL_MESSAGE", "START_NS", "STREAMED", "Bools", "Run", "numel"]

Bools = NDArray[np.bool_]

# Time of a product: START_NS + max(flops / (REACHED × peak), bytes / (STREAMED × bandwidth)). Fitted to an H200,
# PyTorch 2.11: bf16 products of 4.2 to 1687 GFLOP take 11.5 to 2118 µs, the formula gives 10.1 to 2084; those of
# GPT-2's layers (14 to 19 GFLOP, 21 to 30 µs) 23 to 29.
START_NS = 5000.0
REACHED = 0.82  # bf16 811 of 989, fp16 780 of 989, tf32 403 of 495 TFLOP/s (docs/peaks.md)
STREAMED = 0.85  # copies reach 4.25 of 4.8 TB/s, element-wise kernels 0.78 to 0.92 of it
BELIEVED = (0.5, 0.95)  # efficiencies of products seen in the run that may replace REACHED
LAST_NS = 1 << 50  # 13 days; a time beyond is none
LONG_NS = 20000.0  # a product that tells an efficiency takes at least this

# From a kernel's end to the next one's start where it waits already: what steps in a row took over the sum of their
# kernels, a kernel, 0.7 to 1.5 µs (45 programs on an H200).
BETWEEN_NS = 1100.0
# A message below this is latency: 8 to 20 µs within a host (192 of 1 MB and less on two H200: median 8.6), or waits.
SMALL_MESSAGE, MESSAGE_NS = 4 << 20, 50_000.0
# What a call fewer saves the host at the most: single ops in Python's loops take 6 to 14 µs (the same programs); a
# step's mean is more, for its modules' own Python.
CALL_NS = 10_000.0
# The host's time without the profiler over its estimate (advice/host.py): tenths 1, 3, 5, 7 and 9 of a distribution
# whose logarithm deviates by 0.3, as those of the 45 programs did.
HOST_ERRORS = np.exp(0.3 * np.array([-1.28, -0.52, 0.0, 0.52, 1.28]))


class Run:
    """A run's kernels. Rows are those of the steps that the capture marks, else all; sorted by process, device, start.

    ``lanes`` are the GPUs: amounts a step are a GPU's, the mean of all.
    """

    def __init__(self, table: Table, annotation: Annotation, peaks: Peaks | None = None) -> None:
        rows = _in_order(table, annotation)
        self.origin = rows  # of each row, its row in the table given
        self.table = table.take(rows)
        self.annotation = annotation.take(rows)
        self.limits = roofline(self.table, self.annotation, peaks)
        self.rows = len(rows)
        took = np.clip(self.table.ints("kDuration"), 0, LAST_NS)
        self.dur: Floats = took.astype(np.float64)  # ns
        self.start = _starts(self.table.ints("start"), took)
        self.end = self.start + took
        numbers, self.lane = distinct(self.table.ints("pid"), self.table.ints("device"))
        self.lanes = max(len(numbers), 1)
        steps = np.unique(self.table.ints("step"))
        self.marked = int((steps != NULL).sum())  # steps that the capture marks; 0: none
        self.steps = max(self.marked, 1)
        self._decoded: dict[tuple[str, int], Any] = {}
        self._shapes: dict[int, list[list[int]]] = {}

    # Amounts

    @cached_property
    def step_ns(self) -> float:
        """What a step takes, ns: from the first operation to the last on each GPU and the gap to the next step (the
        mean of those that the capture has), the mean of the GPUs."""
        spans = [int(self.end[mine].max() - self.start[mine].min()) + self._pause_ns(mine) for mine in self.lane_rows]
        return float(np.mean(spans)) / self.steps if spans else 0.0

    def _pause_ns(self, rows: Ints) -> float:
        """The mean time that a GPU does nothing between two marked steps."""
        later = np.flatnonzero(np.diff(self.table.ints("step")[rows]) != 0) + 1
        if not len(later):
            return 0.0
        done = np.maximum.accumulate(self.end[rows])
        return float(np.maximum(self.start[rows[later]] - done[later - 1], 0).mean())

    @cached_property
    def busy_ns(self) -> float:
        """Of a step, ns: at least one operation runs."""
        each = [covered(self.start[mine], self.end[mine]) for mine in self.lane_rows]
        return float(np.mean(each)) / self.steps if each else 0.0

    @cached_property
    def host_ns(self) -> float:
        """Of a step, ns: what the host needs for it, without a profiler."""
        return min(sum(self._host), self.step_ns)

    @property
    def launching_ns(self) -> float:
        """Of that, what the host needs for launches."""
        return min(self._host[0], self.step_ns)

    @cached_property
    def _host(self) -> tuple[float, float]:
        return host_ns(self)

    @cached_property
    def queued_ns(self) -> float:
        """Of a step, ns: what its work takes the GPU if it never waits for the host. A graph's nodes follow faster."""
        apart = (self.table.ints("graphNode") == NULL) & (self.texts("kind") != "graph")
        return self.busy_ns - self._for_ranks_ns + BETWEEN_NS * self.count(int(apart.sum()))

    @cached_property
    def _for_ranks_ns(self) -> float:
        """Of a step, ns: what collectives wait for other ranks, with nothing beside them: more than the run's fastest
        take for their bytes. 0 where the messages' sizes are not known."""
        rows = np.flatnonzero(self.collectives)
        size = np.array([self.message_bytes(row) for row in rows.tolist()], np.float64)
        rows, size = rows[size > 0], size[size > 0]
        if not len(rows):
            return 0.0
        rate = (self.dur[rows] / size).min()
        moving = np.maximum(size * rate, self.dur[rows].min())
        moving = np.where(size < SMALL_MESSAGE, np.minimum(moving, MESSAGE_NS), moving)
        return float(np.maximum(self.exposed(rows) - moving, 0.0).sum()) / self.steps / self.lanes

    def exposed(self, rows: Ints) -> Ints:
        """Of each of these rows, ns in which its GPU did nothing else."""
        others = np.ones(self.rows, bool)
        others[rows] = False
        found = np.zeros(len(rows), np.int64)
        for lane in np.unique(self.lane[rows]).tolist():
            mine = self.lane[rows] == lane
            beside = np.flatnonzero(others & (self.lane == lane))
            found[mine] = alone(self.start[rows[mine]], self.end[rows[mine]], self.start[beside], self.end[beside])
        return found

    def message_bytes(self, row: int) -> float:
        """Of a collective, where the capture tells its shape; of 16-bit types twice too many."""
        sizes = self.json("sizes", row)
        tensors = sizes[0] if isinstance(sizes, list) and sizes and isinstance(sizes[0], list) else []
        return 4.0 * sum(numel(t) for t in (tensors if tensors and isinstance(tensors[0], list) else [tensors]))

    def shorter_ns(self, gpu_ns: float, launches: float, calls: float) -> float:
        """By how much the steps fall if the GPU's work falls by ``gpu_ns`` in ``launches`` fewer kernels, and the host
        makes ``calls`` fewer, all steps together: host and GPU work side by side, and the slower one is the step. The
        mean over what the host may really need."""
        per = self.steps * self.lanes
        each = self.launching_ns / max(self.count(int((self.table.ints("graphNode") == NULL).sum())), 1e-9)
        fewer = min(each, CALL_NS) * calls / per
        queued = self.queued_ns - (gpu_ns + BETWEEN_NS * launches) / per
        host = self.host_ns * HOST_ERRORS
        after = host - fewer * HOST_ERRORS
        return float((np.maximum(self.queued_ns, host) - np.maximum(queued, after)).mean()) * per

    @cached_property
    def lane_rows(self) -> list[Ints]:
        """The rows of each GPU, in order of their start."""
        bounds = np.searchsorted(self.lane, np.arange(self.lanes + 1))
        return [np.arange(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True) if b > a]

    def ms(self, ns: float) -> float:
        """ms a step on one GPU, of an amount of the whole run."""
        return ns / self.steps / self.lanes / 1e6

    def count(self, rows: int) -> float:
        """Rows a step on one GPU."""
        return rows / self.steps / self.lanes

    # Columns

    def texts(self, key: str) -> NDArray[np.object_]:
        """A text column, decoded; empty where unknown."""
        return _texts(self.table.coded(key))

    @cached_property
    def aten(self) -> NDArray[np.object_]:
        """The innermost op without ``aten::`` and overload."""
        column = self.table.coded("aten")
        return _texts(Coded(column.codes, [v.removeprefix("aten::").partition(".")[0] for v in column.values]))

    @cached_property
    def name(self) -> NDArray[np.object_]:
        """The kernel's name, with template arguments where they are known."""
        short, long = self.texts("kShortName"), self.texts("kLongName")
        return np.where(long == "", short, long)

    @cached_property
    def family(self) -> NDArray[np.object_]:
        return _texts(self.annotation.family)

    @cached_property
    def tc(self) -> NDArray[np.object_]:
        return _texts(self.annotation.tc)

    @cached_property
    def precision(self) -> NDArray[np.object_]:
        """What entered the tensor cores: ``bf16``."""
        return _texts(self.annotation.tcprec)

    @cached_property
    def role(self) -> NDArray[np.object_]:
        return _texts(self.annotation.role)

    @property
    def stream(self) -> Ints:
        return self.table.ints("stream")

    @cached_property
    def phase(self) -> NDArray[np.object_]:
        return self.texts("phase")

    @cached_property
    def flop(self) -> Floats:
        """NaN: unknown."""
        return _amount(self.annotation.flops)

    @cached_property
    def nbytes(self) -> Floats:
        """NaN: unknown."""
        return _amount(self.annotation.bytes)

    @cached_property
    def dtype(self) -> NDArray[np.object_]:
        """The dtype of each op's first tensor: as recorded, else as the kernel's name tells, else empty."""
        recorded = self.table.coded("dtypes")
        found = _texts(Coded(recorded.codes, [_first_dtype(text) for text in recorded.values]))
        silent = np.flatnonzero(found == "")
        told: dict[tuple[str, str, str], str] = {}
        for i in silent.tolist():
            key = (str(self.name[i]), str(self.aten[i]), str(self.family[i]))
            if key not in told:
                names = kernel_dtypes(*key)
                told[key] = names.of(0) or names.rest
            found[i] = told[key]
        return found

    def json(self, key: str, row: int) -> Any:
        """A JSON column's value of a row, or None; each distinct text is decoded once."""
        column = self.table.coded(key)
        code = int(column.codes[row])
        if code < 0:
            return None
        if (key, code) not in self._decoded:
            self._decoded[key, code] = _json(column.values[code])
        return self._decoded[key, code]

    def shapes(self, row: int) -> list[list[int]]:
        """The shapes of the op's arguments, in their order; empty what is no tensor, or a list of them."""
        code = int(self.table.coded("sizes").codes[row])
        if code not in self._shapes:
            found = self.json("sizes", row)
            plain = [shape if numel(shape) else [] for shape in found] if isinstance(found, list) else []
            self._shapes[code] = plain
        return self._shapes[code]

    def strides(self, row: int) -> list[Any] | None:
        """The strides of the op's arguments, None where the capture does not tell them."""
        found = self.json("strides", row)
        return found if isinstance(found, list) and found else None

    @cached_property
    def elements(self) -> Ints:
        """Elements of the first of each op's arguments that has a shape, 0 where none is known."""
        return self._elements(first=True)

    @cached_property
    def largest(self) -> Ints:
        """Elements of each op's largest argument, 0 where no shape is known."""
        return self._elements(first=False)

    def _elements(self, first: bool) -> Ints:
        column = self.table.coded("sizes")
        lists = [_list(text) for text in column.values]
        each = [[numel(shape) for shape in shapes] for shapes in lists]
        found = [(sizes[0] if first else max(sizes)) if sizes else 0 for sizes in each]
        return np.array([*found, 0], np.int64)[column.codes]

    def mentions(self, key: str, *words: str) -> Bools:
        """Rows whose text in a column holds one of the words."""
        column = self.table.coded(key)
        return np.array([*(any(word in value for word in words) for value in column.values), False])[column.codes]

    @cached_property
    def collectives(self) -> Bools:
        """Kernels of NCCL or RCCL."""
        return self.mentions("kShortName", "ncclDevKernel", "ncclKernel", "rccl")

    @cached_property
    def records_gradients(self) -> bool:
        """Has any row a sequence number? Autograd counts where it could record."""
        return any(len(self.table.ragged(key).values) > 0 for key in ("seqId", "altSeqId"))

    # The device

    @cached_property
    def device(self) -> Device | None:
        """The GPU, where the whole run was on GPUs of one kind and it is known."""
        kinds = {(d.part, d.arch, d.sms): d for d in self.limits.devices}
        if len(kinds) != 1 or bool((self.limits.device < 0).any()):
            return None
        return next(iter(kinds.values()))

    @property
    def bandwidth(self) -> float:
        """What streaming kernels reach, bytes/s; NaN where unknown."""
        return self.device.bandwidth * STREAMED if self.device else math.nan

    def rate(self, unit: str) -> float:
        """What products reach on a unit, FLOP/s: as the run's own long ones did, else the usual share of the peak."""
        if self.device is None:
            return math.nan
        return self.device.peak(unit) * self._reached.get(unit, REACHED)

    @cached_property
    def _reached(self) -> dict[str, float]:
        """Efficiency of the run's long matrix products, a unit: the upper quartile of what is believable."""
        share = self.limits.compute_ns / np.maximum(self.dur - START_NS, 1)
        good = (self.family == "gemm") & (self.dur > LONG_NS) & (share > BELIEVED[0]) & (share < BELIEVED[1])
        units = _texts(self.limits.unit)
        found = {str(unit): share[good & (units == unit)] for unit in np.unique(units[good].astype(str))}
        return {unit: float(np.quantile(shares, 0.75)) for unit, shares in found.items() if unit}

    def product_ns(self, flop: float, nbytes: float, unit: str, efficiency: float = 1.0) -> float:
        """Expected time of a well-shaped product, ns; NaN where the device is unknown.

        ``efficiency``: of what a matrix product reaches, for kinds of products that reach less.
        """
        return START_NS + 1e9 * max(flop / (self.rate(unit) * efficiency), nbytes / self.bandwidth)

    # Words

    def op(self, row: int) -> str:
        """What the user called: the innermost of ``op``, else the aten op, else the kernel."""
        ops = self._items("op", row)
        return ops[-1] if ops else str(self.aten[row] or self.texts("kShortName")[row])

    def layer(self, row: int) -> str:
        return ":".join(self._items("layer", row))

    def trace(self, row: int) -> str:
        """The innermost line of the user's code."""
        lines = self._items("trace", row)
        return lines[-1] if lines else ""

    def _items(self, key: str, row: int) -> list[str]:
        found = self.json(key, row)
        return list(map(str, found)) if isinstance(found, list) else []


def numel(shape: Any) -> int:
    """Elements of a shape; 0 of what is none: a scalar, a list of shapes.

    >>> numel([2, 3]), numel([]), numel([[2, 3]])
    (6, 0, 0)
    """
    plain = isinstance(shape, list) and bool(shape) and all(type(n) is int and n >= 0 for n in shape)
    size = math.prod(shape) if plain else 0
    return size if size < 1 << 62 else 0


def _starts(start: Ints, took: Ints) -> Ints:
    """When each row started. Where a table does not tell (PyProf's own have no times): one after the other."""
    if bool((np.abs(start.astype(np.float64)) < LAST_NS).all()):
        return start
    return np.asarray(np.r_[0, np.cumsum(took.astype(np.float64))[:-1]], np.int64)[: len(took)]


def _list(text: str) -> list[Any]:
    found = _json(text)
    return found if isinstance(found, list) else []


def _json(text: str) -> Any:
    """None for what is no JSON: a table may come from a stranger."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _in_order(table: Table, annotation: Annotation) -> Ints:
    """GPU operations of the marked steps, else all but the loading of a model, sorted by process, device and start."""
    kind, start, step = table.coded("kind"), table.ints("start"), table.ints("step")
    on_gpu = np.array([*(value != "cpu" for value in kind.values), True])[kind.codes]
    marked = bool((step[on_gpu] != NULL).any())
    inside = on_gpu & (step != NULL) if marked else on_gpu & ~loading(table, annotation)
    rows = np.flatnonzero(inside)
    return rows[np.lexsort((start[rows], table.ints("device")[rows], table.ints("pid")[rows]))]


def _texts(column: Coded) -> NDArray[np.object_]:
    return np.array([*column.values, ""], object)[column.codes]


def _amount(column: Ints) -> Floats:
    return np.where(column == NULL, np.nan, column.astype(np.float64))


def _first_dtype(text: str) -> str:
    """The first dtype of a JSON list that may hold lists."""
    listed = _list(text)
    flat = [d for item in listed for d in (item if isinstance(item, list) else [item])]
    return next((d for d in flat if isinstance(d, str) and d), "")
