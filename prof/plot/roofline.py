"""The figure `roofline`, log-log: one dot per op, kernel or layer. A dot's area is its time, its colour its class.

There is one roof for each unit that did arithmetic and for the GPU's other tensor-core formats. Solid roofs were
measured by ``pyprof peaks`` (if its file is given); dashed roofs are the data sheet's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.errors import PyprofError
from pyprof.prof.kernels.precision import on_tensor_cores, precision_of
from pyprof.prof.limits.devices import Device
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import CLASSES, classes
from pyprof.prof.work.layer_path import layer_texts
from pyprof.quantities import amount
from pyprof.table.columns import Coded, Ints, Table, distinct
from pyprof.table.schema import first_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyprof.prof.colours import Theme
    from pyprof.prof.plot.labels import Along
    from pyprof.prof.plot.style import Look, Picture

DOTS = 400  # with more groups, only the longest are drawn
LEAST = 0.0005  # smallest share of the total time that is drawn; smaller dots would be specks
LABELLED = 14  # number of dots with a name
SOLID, DASHED = "-", (0, (5, 3))
ALIKE = 0.01  # peaks with a smaller relative difference share one line
DRAWN = ("fp32", "tc_tf32", "tc_fp16", "tc_bf16", "tc_fp8")  # roofs that are drawn even if nothing used the unit
# One marker per class, with the factor that scales its area to that of a circle.
MARKERS = {"o": 1.0, "s": 0.8, "^": 1.2, "D": 0.7, "v": 1.2, "P": 1.0, "X": 1.0, "p": 1.05, "h": 1.0, "*": 1.6}


@dataclass(frozen=True, slots=True)
class Dot:
    """A group of rows whose FLOPs and bytes are known and not zero."""

    name: Annotated[str, doc("op and direction, kernel, or layer and direction")]
    kind: Annotated[str, doc("the class of work that took most of its time; sets its colour")]
    unit: Annotated[str, doc("the unit that most of its time used; empty: not known")]
    rows: Annotated[int, doc("number of rows")]
    time_ns: Annotated[int, doc("their time; sets its area")]
    flop: Annotated[int, doc("sum of their FLOPs")]
    nbytes: Annotated[int, doc("sum of their bytes")]
    ai: Annotated[float, nan_doc("arithmetic intensity: flop / nbytes, FLOP/byte")]
    flop_per_s: Annotated[float, nan_doc("flop / time")]


@dataclass(frozen=True, slots=True)
class Roof:
    """A limit: FLOP/s of one or more units with nearly equal peaks, or bytes/s of the memory (``units`` is empty)."""

    units: Annotated[tuple[str, ...], doc("units whose peaks are alike; empty: the memory")]
    used: Annotated[bool, doc("whether the arithmetic of some dot ran there")]
    measured: Annotated[
        tuple[tuple[str, float], ...], doc("unit (empty: the memory) and rate in the peaks file, FLOP/s or bytes/s")
    ]
    sheet: Annotated[float | None, doc("the data sheet's rate, FLOP/s or bytes/s; null if it has none")]

    @property
    def best(self) -> float:
        """The rate that limits dots: the measured one if there is one, otherwise the data sheet's."""
        return max((rate for _, rate in self.measured), default=self.sheet or math.nan)

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of all lines of this roof."""
        return (*(rate for _, rate in self.measured), *(() if self.sheet is None else (self.sheet,)))


@dataclass(frozen=True, slots=True)
class Rooflines:
    """The dots and roofs of the figure."""

    device: Annotated[str, doc("the GPU whose roofs these are; empty: not known")]
    by: Annotated[str, doc("what a dot is: op, kernel or layer")]
    dots: Annotated[tuple[Dot, ...], doc("those that take longest first")]
    roofs: Annotated[tuple[Roof, ...], doc("the memory's first, then in order of their peaks")]
    rows_ns: Annotated[int, doc("the time of all rows")]
    shown_ns: Annotated[int, doc("the time of the rows that dots show")]
    left_out: Annotated[int, doc("number of groups that are too small to be seen")]


def numbers(table: Table, annotation: Annotation, peaks: Peaks | None = None, by: str = "op") -> Rooflines:
    """The dots, and the roofs of the first device whose limits are known. Raises PyprofError where there is no dot."""
    found = roofline(table, annotation, peaks)
    duration, flop, nbytes = table.ints("kDuration"), annotation.flops, annotation.bytes
    rows = np.flatnonzero((flop > 0) & (nbytes > 0) & (duration > 0))
    if not len(rows):
        raise PyprofError(
            "there is no roofline: no operation has a count of FLOPs and bytes (capture with "
            "pyprof.init(), or with shapes: record_shapes=True)"
        )
    dots = _dots(table, annotation, found, rows, by)
    least = LEAST * sum(dot.time_ns for dot in dots)
    shown = tuple(dot for dot in dots[:DOTS] if dot.time_ns >= least)
    sheet = roofline(table, annotation).devices if peaks is not None else found.devices
    device = next((d for d in found.devices if d.byte_per_s), None)
    roofs = () if device is None else _roofs(device, sheet, peaks, {dot.unit for dot in shown})
    rows_ns, shown_ns = int(duration.sum()), sum(dot.time_ns for dot in shown)
    name = "" if device is None else device.name
    return Rooflines(name, by, shown, roofs, rows_ns, shown_ns, left_out=len(dots) - len(shown))


def _dots(table: Table, annotation: Annotation, found: Roofline, rows: Ints, by: str) -> list[Dot]:
    """One dot per group of these rows, longest time first."""
    names = _names(table, by)
    back = table.coded("dir").among("bprop") & (by != "kernel")
    keys, group = distinct(names.codes[rows], back[rows].astype(np.int64))
    duration, size, texts = table.ints("kDuration"), len(keys), [*names.values, ""]
    time, flop, nbytes = (_sums(values[rows], group, size) for values in (duration, annotation.flops, annotation.bytes))
    count = np.bincount(group, minlength=size)
    kind, unit = (_most(column, duration, rows, group, size) for column in (classes(table, annotation), found.unit))
    dots = []
    for i, (code, is_back) in enumerate(keys):
        name = (texts[code] or "(no name)") + (", backward" if is_back else "")
        sums = int(count[i]), int(time[i]), int(flop[i]), int(nbytes[i])
        ai, flop_per_s = float(flop[i] / nbytes[i]), float(1e9 * flop[i] / time[i])
        dots.append(Dot(name, kind[i], unit[i], *sums, ai, flop_per_s))
    return sorted(dots, key=lambda dot: (-dot.time_ns, dot.name))


def _names(table: Table, by: str) -> Coded:
    """The name of the group that each row belongs to."""
    if by == "kernel":
        return Coded.concat([table.coded("kShortName")])
    if by == "op":
        aten = table.coded("aten")
        return op_names(table, Coded(aten.codes, [text.removeprefix("aten::") for text in aten.values]))
    return Coded.concat([layer_texts(table.coded("layer"))])


def op_names(table: Table, otherwise: Coded) -> Coded:
    """The op that the user called; for rows without one, the other text."""
    op, rows = table.coded("op"), np.arange(len(table))
    both = Coded.concat([Coded(op.codes, [first_text(text) if text else "" for text in op.values]), otherwise])
    return both.take(np.where(op.codes >= 0, rows, len(table) + rows))


def _sums(values: Ints, group: Ints, size: int) -> Ints:
    sums = np.zeros(size, np.int64)
    np.add.at(sums, group, values)
    return sums


def _most(column: Coded, weight: Ints, rows: Ints, group: Ints, size: int) -> list[str]:
    """For each group, the text that has the largest sum of weights."""
    texts = ["", *column.values]
    sums = np.zeros((size, len(texts)))
    np.add.at(sums, (group, column.codes[rows] + 1), weight[rows])
    return [texts[code] for code in sums.argmax(axis=1).tolist()]


def _roofs(device: Device, sheets: Sequence[Device], peaks: Peaks | None, used: set[str]) -> tuple[Roof, ...]:
    """The roof of the memory and those of the units; units with the same peak share a roof."""
    sheet = next((d for d in sheets if d.name == device.name), None)
    of_sheet: Mapping[str, float] = sheet.flop_per_s if sheet else {}
    measured: Mapping[str, float] = peaks.flop_per_s if peaks else {}
    memory = Roof((), True, _measured("", peaks.byte_per_s if peaks else None), sheet.byte_per_s if sheet else None)
    roofs: list[Roof] = []
    for unit in sorted(device.flop_per_s, key=lambda name: (of_sheet.get(name) or device.flop_per_s[name], name)):
        if unit not in used and unit not in DRAWN:
            continue
        roof = Roof((unit,), unit in used, _measured(unit, measured.get(unit)), of_sheet.get(unit))
        if roofs and _alike(roofs[-1], roof):
            last = roofs[-1]
            together = (*last.measured, *roof.measured)
            roofs[-1] = Roof((*last.units, unit), last.used or roof.used, together, last.sheet)
        else:
            roofs.append(roof)
    return (memory, *roofs)


def _measured(unit: str, rate: float | None) -> tuple[tuple[str, float], ...]:
    return () if rate is None else ((unit, rate),)


def _alike(a: Roof, b: Roof) -> bool:
    """Whether two roofs share a line, by the data sheet's rates, or by the measured ones if it has neither."""
    if a.sheet is None or b.sheet is None:
        return a.sheet is b.sheet and abs(a.best - b.best) <= ALIKE * max(a.best, b.best)
    return abs(a.sheet - b.sheet) <= ALIKE * max(a.sheet, b.sheet)


# Drawing


def draw(shown: Rooflines, look: Look) -> Picture:
    """The figure."""
    from pyprof.prof.plot.labels import Label, Side, place
    from pyprof.prof.plot.style import bare, legend, log_ticks, picture, titled

    theme = look.theme
    with picture(look, 0.62 * look.width) as figure:
        axes = figure.add_subplot()
        bare(axes, theme)
        titled(figure, look, f"Roofline{f': {shown.device}' if shown.device else ''}", caption(shown))
        x_limits, (bottom, top) = _edges(shown)
        axes.set(xscale="log", yscale="log", xlim=x_limits, ylim=(bottom, top), xlabel="FLOP / byte", ylabel="FLOP/s")
        log_ticks(axes.xaxis, amount, axes.get_xlim())
        log_ticks(axes.yaxis, amount, axes.get_ylim())
        slope = _draw_memory(axes, shown.roofs, theme) if shown.roofs else []
        flat = [roof for roof in shown.roofs[1:] if roof.best <= top]
        for roof in flat:
            _draw_roof(axes, roof, shown.roofs[0], theme)
        sides = [Side("\n".join(roof_words(roof, shown.device)), max(roof.rates)) for roof in flat]
        _scatter(axes, shown.dots, theme)
        legend(axes, look)
        names = [Label(dot.name, dot.ai, dot.flop_per_s) for dot in shown.dots[:LABELLED]]
        place(figure, axes, names, slope, sides, theme)
    return figure


def _scatter(axes: Axes, dots: Sequence[Dot], theme: Theme) -> None:
    """Draw the dots, class by class; a dot's area in points² has a minimum, so that every dot can be seen."""
    longest = max(dot.time_ns for dot in dots)
    style = {"edgecolors": theme.card, "linewidths": 0.7, "alpha": 0.9, "zorder": 3}
    for (marker, factor), name in zip(MARKERS.items(), CLASSES, strict=True):
        of_class = [dot for dot in dots if dot.kind == name]
        if of_class:
            ai, rates = [dot.ai for dot in of_class], [dot.flop_per_s for dot in of_class]
            areas = [(18.0 + 550.0 * dot.time_ns / longest) * factor for dot in of_class]
            axes.scatter(ai, rates, s=areas, marker=marker, color=theme.of_class(name), label=name, **style)


def caption(shown: Rooflines) -> str:
    """The caption: what the figure shows, and its share of the time."""
    share = 100 * shown.shown_ns / shown.rows_ns if shown.rows_ns else 0.0
    what = {"op": "an op and direction", "kernel": "a kernel", "layer": "a layer and direction"}[shown.by]
    words = f"Each dot is {what}; its area is its time. {share:.1f}% of {shown.rows_ns / 1e6:.4g} ms is shown"
    words += "; the rest does no FLOPs or is not counted" if share < 100 else ""
    words += f", or is too short to be seen ({shown.left_out:,})." if shown.left_out else "."
    if not shown.roofs:
        return f"{words} There are no roofs because the limits of the device are unknown."
    measured = any(roof.measured for roof in shown.roofs)
    return f"{words} Roofs: {'measured (solid), data sheet (dashed)' if measured else 'data sheet, dense'}."


def _edges(shown: Rooflines) -> tuple[tuple[float, float], tuple[float, float]]:
    """The limits of the axes, with some room around the dots, the ridges and the roofs in use."""
    ai, rate = [dot.ai for dot in shown.dots], [dot.flop_per_s for dot in shown.dots]
    memory = shown.roofs[0].best if shown.roofs else math.nan
    peaks = [peak for roof in shown.roofs if roof.units and roof.used for peak in roof.rates]
    ridges = [peak / memory for peak in peaks if memory > 0]
    low, high = min([0.06, *(0.4 * x for x in ai)]), max([60.0, *(4 * x for x in (*ai, *ridges))])
    return (low, high), (0.35 * min(rate), 3.0 * max([*rate, *peaks]))


def _draw_memory(axes: Axes, roofs: Sequence[Roof], theme: Theme) -> list[Along]:
    """Draw the memory's slope up to the highest roof; returns its label and the line along which to write it."""
    from pyprof.prof.plot.labels import Along

    (low, high), (bottom, top), memory = axes.get_xlim(), axes.get_ylim(), roofs[0]
    ceiling = max((peak for roof in roofs[1:] for peak in roof.rates if peak <= top), default=top)
    for rate, how in _lines(memory):
        ends = (max(low, bottom / rate), min(high, ceiling / rate))
        axes.plot(ends, [rate * x for x in ends], linestyle=how, **_style(memory, theme))
    over = max(memory.rates)
    start, end = max(low, bottom / over), min(high, ceiling / over)
    return [Along(": ".join(roof_words(memory)), (start, start * over), (end, end * over), 0.62)]


def _draw_roof(axes: Axes, roof: Roof, memory: Roof, theme: Theme) -> None:
    """Draw the lines of a roof, each from its ridge: a measured peak starts at the measured bandwidth."""
    low, high = axes.get_xlim()
    for rate, how in _lines(roof):
        bandwidth = memory.best if how == SOLID else memory.sheet or memory.best
        axes.plot([max(low, rate / bandwidth), high], [rate, rate], linestyle=how, **_style(roof, theme))


def _lines(roof: Roof) -> list[tuple[float, Any]]:
    return [*((rate, SOLID) for _, rate in roof.measured), *([(roof.sheet, DASHED)] if roof.sheet else [])]


def _style(roof: Roof, theme: Theme) -> dict[str, Any]:
    strength = {"linewidth": 1.4, "alpha": 1.0} if roof.used else {"linewidth": 0.8, "alpha": 0.6}
    return {"color": theme.dim, "zorder": 2, **strength}


def roof_words(roof: Roof, device: str = "") -> tuple[str, str]:
    """The units of a roof (or "memory") in the words of the device's maker, and its rates.

    >>> roof_words(Roof(("tc_bf16",), True, (), 989e12)), roof_words(Roof((), True, (("", 4.25e12),), 4.8e12))
    (('bf16 tensor cores', '989 TFLOP/s'), ('memory', '4.25 of 4.8 TB/s'))
    >>> roof_words(Roof(("tc_fp16", "tc_bf16"), True, (("tc_fp16", 780e12), ("tc_bf16", 811e12)), 989e12))
    ('fp16, bf16 tensor cores', '780, 811 of 989 TFLOP/s')
    """
    vector = [name for name in roof.units if not on_tensor_cores(name)]
    tensor = [precision_of(name) for name in roof.units if on_tensor_cores(name)]
    names = [", ".join(vector)] if vector else []
    names += [f"{', '.join(tensor)} tensor cores"] if tensor else []
    unit = "FLOP/s" if roof.units else "B/s"
    rates = [amount(rate, unit) for _, rate in roof.measured] or [amount(roof.best, unit)]
    if roof.measured and roof.sheet:
        rates = [", ".join(text.split()[0] for text in rates) + f" of {amount(roof.sheet, unit)}"]
    return hardware_words("; ".join(names), [device]) or "memory", ", ".join(rates)
