"""The run that rules examine: the kernels of the marked steps in order of time, and values computed once from them."""

import math
from collections.abc import Iterable, Sized
from functools import cached_property

import numpy as np

from pyprof.prof.changes.effect.run_columns import Rows, numel
from pyprof.prof.kernels.frameworks import is_pytorch
from pyprof.prof.limits.devices import Device
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.timing.gpus import devices_of_rows
from pyprof.prof.timing.loading import loading
from pyprof.prof.timing.steps import Step, steps_of_devices
from pyprof.prof.timing.timeline import alone
from pyprof.prof.timing.warmup import warm_up
from pyprof.prof.work.annotate import Annotation
from pyprof.quantities import rounded
from pyprof.table.attribution import attributed_rows, launched_alone, runs_on_cpu
from pyprof.table.columns import NULL, Bools, Floats, Ints, Table, distinct
from pyprof.table.graph_replays import launched_by_graphs
from pyprof.table.losses import losses

# Time of a product: START_NS + max(flops / (REACHED × peak), bytes / (STREAMED × bandwidth)). Fitted to an H200,
# PyTorch 2.11: bf16 products of 4.2 to 1687 GFLOP take 11.5 to 2118 µs, the formula gives 10.1 to 2084; those of
# GPT-2's layers (14 to 19 GFLOP, 21 to 30 µs) 23 to 29.
START_NS = 5000.0
REACHED = 0.82  # bf16 811 of 989, fp16 780 of 989, tf32 403 of 495 TFLOP/s (docs/reference/peaks.md)
STREAMED = 0.85  # copies reach 4.25 of 4.8 TB/s, element-wise kernels 0.78 to 0.92 of it
BELIEVED = (0.5, 0.95)  # efficiencies of products seen in the run that may replace REACHED
LAST_NS = 1 << 50  # 13 days; later times mean a damaged file
LONG_NS = 20000.0  # the shortest product whose efficiency counts

# The most that one call fewer saves the host. Single ops in Python loops take 6 to 14 µs (the same programs); the mean
# over a step is higher, because it includes the modules' own Python code.
CALL_NS = 10_000.0
# Why no rule can judge a capture
LAUNCHES = "these CPU ops only launched GPU work, and the capture does not have that work"
NOT_PYTORCH = "the capture has no op and no kernel of PyTorch, and the rules are about PyTorch programs"


class Run(Rows):
    """The kernels of a run, sorted by process, device and start: of the marked steps, or all if no steps are marked.

    ``lanes`` is the number of GPUs. Amounts per step are per GPU: the mean of all GPUs.
    """

    def __init__(self, table: Table, annotation: Annotation, peaks: Peaks | None = None) -> None:
        self.on_cpu = runs_on_cpu(table.coded("kind"))  # the rows are CPU ops, which run where the program does
        self.incomplete = losses(table)  # then there is no advice, because it would be false
        self.origin = _in_order(table, annotation)  # the row of the given table that each row comes from
        self.of_pytorch = _of_pytorch(table)
        if np.array_equal(self.origin, np.arange(len(table))):
            super().__init__(table, annotation)
        else:
            super().__init__(table.take(self.origin), annotation.take(self.origin))
        self.limits = roofline(self.table, self.annotation, peaks)
        self.rows = len(self.origin)
        took = np.clip(self.table.ints("kDuration"), 0, LAST_NS)
        self.dur: Floats = took.astype(np.float64)  # ns
        self.start = _starts(self.table.ints("start"), took)
        self.end = self.start + took
        numbers, self.lane = devices_of_rows(self.table)
        self.lanes = max(len(numbers), 1)
        self.marked = int((np.unique(self.table.ints("step")) != NULL).sum())  # number of steps that the capture marks
        self.times = _times(table, self.origin) if self.marked else []  # of each GPU's steps; empty: not known
        self.marked = max(self.marked, len({step.number for step in self.times}))  # with those that launch nothing
        self.steps = max(self.marked, 1)
        self.unit = "step" if self.marked else "capture"  # what amounts "per step" refer to

    @cached_property
    def unfit(self) -> str:
        """Why no rule can judge these rows; empty if rules can."""
        if self.on_cpu:
            return LAUNCHES if bool(launched_alone(self.table.coded("reason")).any()) else ""
        return "" if self.of_pytorch or not self.rows else NOT_PYTORCH

    @cached_property
    def has_sizes(self) -> bool:
        """Whether the shapes of any op are known."""
        return bool((self.table.coded("sizes").codes >= 0).any())

    # Amounts

    @cached_property
    def step_ns(self) -> float:
        """The mean time of a step in ns; without marked steps, from the first to the last operation."""
        if self.times:
            return float(np.mean([step.span_ns for step in self.times]))
        spans = [int(self.end[mine].max() - self.start[mine].min()) for mine in self.lane_rows]
        return float(np.mean(spans)) / self.steps if spans else 0.0

    @cached_property
    def of_extent(self) -> Bools:
        """A mask of the operations from when the first step's time counts; of all of them without marked steps."""
        found: Bools = self.start >= min((step.start_ns for step in self.times), default=NULL)
        return found if found.any() else np.ones(self.rows, bool)

    @cached_property
    def extent_ns(self) -> int:
        """From the first of these operations to the last one's end: what a replay times where no other step follows."""
        chosen = self.of_extent
        return int(self.end[chosen].max() - self.start[chosen].min()) if self.rows else 0

    @cached_property
    def in_graph(self) -> Bools:
        """A mask of the rows that a CUDA graph launched."""
        return launched_by_graphs(self.table)

    def exposed(self, rows: Ints) -> Ints:
        """For each of these rows, the ns in which its GPU did nothing else."""
        others = np.ones(self.rows, bool)
        others[rows] = False
        found = np.zeros(len(rows), np.int64)
        for lane in np.unique(self.lane[rows]).tolist():
            mine = self.lane[rows] == lane
            beside = np.flatnonzero(others & (self.lane == lane))
            found[mine] = alone(self.start[rows[mine]], self.end[rows[mine]], self.start[beside], self.end[beside])
        return found

    def message_bytes(self, rows: Ints) -> Floats:
        """The bytes of collectives' messages, assuming 4 bytes per element (twice too many for 16 bits); or 0."""
        found = []
        for row in rows.tolist():
            first = (self.listed("sizes", row) or [[]])[0]
            several = isinstance(first, list) and bool(first) and isinstance(first[0], list)
            found.append(4.0 * sum(map(numel, first if several else [first])))
        return np.array(found, np.float64)

    @cached_property
    def lane_rows(self) -> list[Ints]:
        """The rows of each GPU, in order of their start."""
        bounds = np.searchsorted(self.lane, np.arange(self.lanes + 1))
        return [np.arange(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True) if b > a]

    @cached_property
    def _gaps(self) -> tuple[Floats, Ints]:
        """Per row, the idle time of its GPU before it in ns, and the row whose end began it; 0 and -1 without one."""
        idle, since = np.zeros(self.rows), np.full(self.rows, -1)
        for rows in self.lane_rows:
            end = self.end[rows]
            reach = np.maximum.accumulate(end)
            last = np.maximum.accumulate(np.where(end == reach, np.arange(len(rows)), 0))
            idle[rows[1:]] = np.maximum(self.start[rows[1:]] - reach[:-1], 0)
            since[rows[1:]] = rows[last[:-1]]
        return idle, since

    @property
    def gaps(self) -> Floats:
        """The idle time of its GPU before each row in ns; 0 for the first row of a GPU."""
        return self._gaps[0]

    @cached_property
    def recurring_gaps(self) -> Floats:
        """``gaps``, with those between two steps extended so that there is one for each: a capture ends in the last."""
        gaps = self.gaps.copy()
        for rows in self.lane_rows:
            later = rows[1:][np.diff(self.table.ints("step")[rows]) != 0]
            gaps[later] *= (len(later) + 1) / max(len(later), 1)
        return gaps

    def ms(self, ns: float) -> float:
        """ms per step and GPU, from ns of the whole run."""
        return ns / self.steps / self.lanes / 1e6

    def ms_of(self, rows: Ints | list[int]) -> float:
        """ms per step and GPU that these rows take."""
        return self.ms(float(self.dur[rows].sum()))

    def count(self, rows: int) -> float:
        """Rows per step and GPU, from rows of the whole run."""
        return rows / self.steps / self.lanes

    def number(self, rows: Sized | int, one: str, many: str) -> str:
        """The number of these rows (or groups of rows) per step and GPU, and the word for one or many of them."""
        count = self.count(rows if isinstance(rows, int) else len(rows))
        if count == 1:
            return f"1 {one}"
        return f"{rounded(count)} {many}" if count.is_integer() else f"on average {rounded(count, 3)} {many}"

    def replaced(self, groups: Iterable[tuple[list[int], float]], worth: float = 1.0) -> tuple[list[int], Floats, int]:
        """The effect of replacing each group of rows, if it takes more than ``worth`` times its expected time in ns.

        Returns the rows of these groups, the ns that each row saves, and the number of the groups. A group of which a
        row belongs to an earlier group is left out, and so is one whose expected time is NaN.
        """
        rows: dict[int, float] = {}
        count = 0
        for members, expected in groups:
            now = float(self.dur[members].sum())
            if now > worth * expected and not any(row in rows for row in members):
                count += 1
                rows |= {row: (now - expected) * float(self.dur[row]) / now for row in members}
        return list(rows), np.array(list(rows.values())), count

    # The device

    @cached_property
    def device(self) -> Device | None:
        """The GPU, if all of the run was on GPUs of one known kind."""
        kinds = {(d.part, d.arch, d.sms): d for d in self.limits.devices}
        return next(iter(kinds.values())) if len(kinds) == 1 and bool((self.limits.device >= 0).all()) else None

    def in_makers_words(self, text: str) -> str:
        """A text about the hardware in the words of the GPU's maker."""
        return hardware_words(text, [self.device.name] if self.device else [])

    @property
    def bandwidth(self) -> float:
        """The bytes/s that streaming kernels reach; NaN if unknown."""
        return self.device.bandwidth * STREAMED if self.device else math.nan

    def rate(self, unit: str) -> float:
        """The FLOP/s that products reach on a unit: the rate of the run's long products, else a share of the peak."""
        return self.device.peak(unit) * self._reached.get(unit, REACHED) if self.device else math.nan

    @cached_property
    def _reached(self) -> dict[str, float]:
        """The efficiency of the run's long matrix products per unit: the upper quartile of believable values."""
        share = self.limits.compute_ns / np.maximum(self.dur - START_NS, 1)
        good = (self.family == "gemm") & (self.dur > LONG_NS) & (share > BELIEVED[0]) & (share < BELIEVED[1])
        codes, units = self.limits.unit.codes, self.limits.unit.values
        present = np.unique(codes[good & (codes >= 0)]).tolist()
        return {units[code]: float(np.quantile(share[good & (codes == code)], 0.75)) for code in present}

    def product_ns(self, flop: float, nbytes: float, unit: str, efficiency: float = 1.0) -> float:
        """Expected time in ns of a well-shaped product; NaN if the device is unknown.

        ``efficiency``: the share of a matrix product's rate that this kind of product reaches.
        """
        return START_NS + 1e9 * max(flop / (self.rate(unit) * efficiency), nbytes / self.bandwidth)


def _of_pytorch(table: Table) -> bool:
    """Whether any row, also of those outside of the marked steps, has an op or a kernel of PyTorch."""
    named = table.coded("kLongName"), table.coded("kShortName")
    ops = attributed_rows(table.coded("op")) | attributed_rows(table.coded("aten"))
    return bool(ops.any()) or any(bool(names.where(is_pytorch).any()) for names in named)


def _starts(start: Ints, took: Ints) -> Ints:
    """The start of each row in ns. In a table without times (PyProf's own) the rows follow one another."""
    if bool((np.abs(start.astype(np.float64)) < LAST_NS).all()):
        return start
    return np.asarray(np.r_[0, np.cumsum(took.astype(np.float64))[:-1]], np.int64)[: len(took)]


def _times(table: Table, rows: Ints) -> list[Step]:
    """The steps of the devices that these rows belong to."""
    _, owner = devices_of_rows(table)
    step = table.ints("step")
    kept = set(distinct(owner[rows], step[rows])[0])
    found = [each for each in steps_of_devices(table) if (each.owner, each.number) in kept or each.number not in step]
    first = {each.owner: each.start_ns for each in reversed(found) if (each.owner, each.number) in kept}
    return [each for each in found if each.start_ns >= first.get(each.owner, each.start_ns + 1)]


def _in_order(table: Table, annotation: Annotation) -> Ints:
    """GPU operations, or CPU ops, in order: of the marked steps without warm-up, or all after the model's loading."""
    kind, start, step = table.coded("kind"), table.ints("start"), table.ints("step")
    works = np.array([*(value != "cpu" for value in kind.values), True])[kind.codes] | runs_on_cpu(kind)
    marked = bool((step[works] != NULL).any())
    inside = works & (step != NULL) & ~warm_up(table)[1] if marked else works & ~loading(table, annotation)
    rows = np.flatnonzero(inside)
    return rows[np.lexsort((start[rows], devices_of_rows(table)[1][rows]))]
