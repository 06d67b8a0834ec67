"""The figures of a file: rows by kind, GPUs, processes, steps, and how much of the time is attributed to an op.

They come from the kernel table, or from fewer columns if the user wants only a summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.parse.attribute.reasons import UNKNOWN, general
from pyprof.table.attribution import AttributedTime, attributed_rows, runs_on_cpu
from pyprof.table.columns import NULL, Coded, Data, Ints, Table, coded_of, distinct, ints_of
from pyprof.table.intervals import covered


class Estimate(NamedTuple):
    """The uncertainty of an attributed time that was estimated from a sample of the operations."""

    rows: int  # number of rows in the sample
    sampled_ns: int  # total time of these rows
    low_ns: int  # lower bound of the attributed time
    high_ns: int


@dataclass(frozen=True, slots=True)
class Attribution(AttributedTime):
    """How much of the time is attributed to an op, and why the remaining time is not."""

    reasons: dict[str, int]  # reason -> ns, the largest first
    estimate: Estimate | None = None  # None: the attributed time is exact; the total always is


def attribution_of(columns: Mapping[str, Data], weight: Ints | None = None) -> Attribution:
    """Compute the part of the rows' time that has an op, from the columns kind, op, reason and kDuration.

    ``weight``: each row's weight, in place of its duration. Reasons that differ only in a range's name count as one.
    """
    rows = len(columns["kind"])
    kind, op, reason = (coded_of(columns, key, rows) for key in ("kind", "op", "reason"))
    weight = ints_of(columns, "kDuration", rows) if weight is None else weight
    time = AttributedTime.of_columns(weight, op, runs_on_cpu(kind))
    unattributed = ~attributed_rows(op)
    reasons: Counter[str] = Counter()
    for code in np.unique(reason.codes[unattributed]).tolist():
        text = general(reason.values[code]) if code >= 0 else UNKNOWN
        reasons[text] += int(weight[unattributed & (reason.codes == code)].sum())
    return Attribution(time.total_ns, time.attributed_ns, time.on_cpu, _largest_first(reasons))


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """The time from the first to the last operation on one process's device, and its busy time."""

    pid: Annotated[int | None, doc("process")]
    device: Annotated[int | None, doc("GPU, as the process numbers them")]
    span_ns: Annotated[int, doc("from its first start to its last end", "ns")]
    busy_ns: Annotated[int, doc("time with at least one operation, of the span", "ns")]


@dataclass(frozen=True, slots=True)
class Contents:
    """The figures of a file's rows."""

    kinds: dict[str, int]  # kind -> number of rows
    attribution: Attribution
    gpus: dict[str, int]  # name -> number of GPUs (one per process and device); an unknown name is empty
    pids: list[int]
    ranks: list[int]
    steps: list[int]
    devices: list[DeviceSpan]

    @property
    def rows(self) -> int:
        return sum(self.kinds.values())

    @property
    def exact(self) -> Estimate:
        """The exact attributed time as an estimate: all rows are its sample."""
        known = self.attribution.attributed_ns
        return Estimate(self.rows, self.attribution.total_ns, known, known)

    @classmethod
    def of(cls, table: Table) -> Contents:
        return cls.of_columns(table.columns, attribution_of(table.columns))

    @classmethod
    def of_columns(cls, columns: Mapping[str, Data], attribution: Attribution) -> Contents:
        """The figures, computed from the columns kind, gpu, pid, rank, step, device, start and kDuration."""
        keys = ("pid", "rank", "step", "device", "start", "kDuration")
        rows = len(columns["kind"])
        pid, rank, step, device, start, duration = (ints_of(columns, key, rows) for key in keys)
        return cls(
            _rows_by_kind(coded_of(columns, "kind", rows)),
            attribution,
            {} if attribution.on_cpu else _gpus(coded_of(columns, "gpu", rows), pid, device),
            known_numbers(pid),
            known_numbers(rank),
            known_numbers(step),
            _device_spans(pid, device, start, duration),
        )


def _rows_by_kind(kind: Coded) -> dict[str, int]:
    counts = np.bincount(kind.codes[kind.codes >= 0], minlength=len(kind.values)).tolist()
    return {name: count for name, count in zip(kind.values, counts, strict=True) if count}


def _gpus(name: Coded, pid: Ints, device: Ints) -> dict[str, int]:
    names = [*name.values, ""]  # code -1 selects the last item
    return Counter(names[code] for code, _, _ in distinct(name.codes, pid, device)[0])


def _device_spans(pid: Ints, device: Ints, start: Ints, duration: Ints) -> list[DeviceSpan]:
    pairs, pair_number = distinct(pid, device)
    spans = []
    for number, pair in enumerate(pairs):
        rows = pair_number == number
        begin, end = start[rows], start[rows] + duration[rows]
        process, ordinal = (None if value == NULL else value for value in pair)
        spans.append(DeviceSpan(process, ordinal, int(end.max() - begin.min()), covered(begin, end)))
    return spans


def known_numbers(values: Ints) -> list[int]:
    """The distinct numbers, ascending, without NULL."""
    return sorted(number for (number,) in distinct(values)[0] if number != NULL)


def together(files: Sequence[Contents]) -> Contents:
    """The combined figures of several files."""
    return Contents(
        _added(file.kinds for file in files),
        _all_attributions(files),
        _added(file.gpus for file in files),
        _united(file.pids for file in files),
        _united(file.ranks for file in files),
        _united(file.steps for file in files),
        [span for file in files for span in file.devices],
    )


def _all_attributions(files: Sequence[Contents]) -> Attribution:
    """The attributions of all files together. An exact time is added to both bounds of an estimate."""
    attributions = [file.attribution for file in files]
    estimate = None
    if any(attribution.estimate for attribution in attributions):
        bounds = (file.attribution.estimate or file.exact for file in files)
        estimate = Estimate(*map(sum, zip(*bounds, strict=True)))
    return Attribution(
        sum(attribution.total_ns for attribution in attributions),
        sum(attribution.attributed_ns for attribution in attributions),
        all(attribution.on_cpu for attribution in attributions),
        _largest_first(_added(attribution.reasons for attribution in attributions)),
        estimate,
    )


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def _united(lists: Iterable[list[int]]) -> list[int]:
    return sorted({number for numbers in lists for number in numbers})


def _largest_first(times: dict[str, int]) -> dict[str, int]:
    return dict(sorted(times.items(), key=lambda item: (-item[1], item[0])))
