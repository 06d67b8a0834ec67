"""What Nsight Compute measured: the launches of a report and, column by column, their metrics in base units."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Size = tuple[int, int, int]
Floats = NDArray[np.float64]
NAN = float("nan")


class Range(NamedTuple):
    """An NVTX range that was open when the kernel was launched."""

    text: str
    domain: str = ""  # empty: NVTX's default domain
    nested: bool = True  # pushed and popped by the launching thread; else started and ended, and in no nesting


class Launch(NamedTuple):
    """One kernel that was measured. None and empty texts are unknown.

    ``names`` are all spellings that the report has: a .ncu-rep has the function's bare name, the demangled and the
    mangled one; a table has the one that was printed.
    """

    id: int
    name: str
    names: tuple[str, ...] = ()
    process_id: int | None = None
    process: str = ""
    host: str = ""
    context: int | None = None
    stream: int | None = None
    device: int | None = None
    device_name: str = ""
    cc: str = ""  # compute capability, "9.0"
    grid: Size | None = None
    block: Size | None = None
    ranges: tuple[Range, ...] = ()  # pushed ranges first, outermost first


@dataclass(frozen=True, slots=True)
class Report:
    """The launches of a file in its order, and their metrics.

    ``metrics`` has one array per metric with a value for each launch, NaN where it is unknown, in the unit that
    ``units`` names: ns, byte, byte/s, inst, %, hz and so on, never a multiple. Percentages are 0 to 100. The names are
    Nsight Compute's (``dram__bytes_read.sum``); a label of the details page without a known metric stands under
    "Section: Label".
    """

    file: str
    launches: tuple[Launch, ...]
    metrics: dict[str, Floats]
    units: dict[str, str]
    noise: int = 0  # lines that are not of the table: ncu's log and what the program printed
    merged: int = 0  # rows that repeated a launch, as one per pass, and were united with it
    unread: int = 0  # cells that are numbers in another notation than the rest of the file

    def __len__(self) -> int:
        return len(self.launches)

    def metric(self, name: str) -> Floats | None:
        """The metric's value for each launch in base units; None if no launch has it."""
        return self.metrics.get(name)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """The launches whose time is unknown although others have it: their replay failed."""
        times = self.metrics.get("gpu__time_duration.sum")
        if times is None:
            return np.zeros(len(self), bool)
        return np.isnan(times) & bool(np.isfinite(times).any())


@dataclass(slots=True)
class Builder:
    """A report in the making. Rows of one launch, such as one per pass, are united: the first known value stands."""

    file: str
    launches: list[Launch] = field(default_factory=list)
    columns: dict[str, array[float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    texts: list[dict[str, str]] = field(default_factory=list)  # metrics that are names, of those in KEPT
    noise: int = 0
    merged: int = 0
    unread: int = 0
    _rows: dict[Launch, int] = field(default_factory=dict)

    def row(self, launch: Launch) -> int:
        """The number of a launch's row, which is a new one unless the same launch has been seen."""
        number = self._rows.setdefault(launch, len(self.launches))
        if number == len(self.launches):
            self.launches.append(launch)
            self.texts.append({})
        return number

    def put(self, row: int, metric: str, value: float, unit: str) -> None:
        """Set a metric of a row unless it is known. NaN is unknown."""
        column = self.columns.get(metric)
        if column is None:
            column = self.columns[metric] = array("d")
            self.units[metric] = unit
        if len(column) <= row:
            column.extend([NAN] * (row + 1 - len(column)))
        if column[row] != column[row]:
            column[row] = value

    def done(self) -> Report:
        """The report, with the launches' device names and sizes filled in from their metrics."""
        count = len(self.launches)
        for column in self.columns.values():
            column.extend([NAN] * (count - len(column)))
        metrics = {name: np.frombuffer(column, np.float64) for name, column in self.columns.items()}
        known = {name: values for name, values in metrics.items() if not np.isnan(values).all()}
        launches = tuple(
            _filled(launch, text, row, known)
            for row, (launch, text) in enumerate(zip(self.launches, self.texts, strict=True))
        )
        return Report(self.file, launches, known, self.units, self.noise, self.merged, self.unread)


DEVICE_NAME = "device__attribute_display_name"
KEPT = (DEVICE_NAME,)


def _filled(launch: Launch, texts: dict[str, str], row: int, metrics: dict[str, Floats]) -> Launch:
    """The launch with what its row says elsewhere: older versions print no device, grid or block."""

    def whole(name: str) -> int | None:
        column = metrics.get(name)
        return int(column[row]) if column is not None and np.isfinite(column[row]) else None

    def size(name: str) -> Size | None:
        x, y, z = (whole(f"launch__{name}_dim_{axis}") for axis in "xyz")
        return None if x is None or y is None or z is None else (x, y, z)

    major, minor = (whole(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return launch._replace(
        names=launch.names or (launch.name,),
        device_name=launch.device_name or texts.get(DEVICE_NAME, ""),
        cc=launch.cc or ("" if major is None else f"{major}.{minor or 0}"),
        context=whole("launch__context_id") if launch.context is None else launch.context,
        stream=whole("launch__stream_id") if launch.stream is None else launch.stream,
        device=whole("launch__device_id") if launch.device is None else launch.device,
        grid=launch.grid or size("grid"),
        block=launch.block or size("block"),
    )
