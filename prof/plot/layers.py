"""The figure `layers`: one bar per layer in the order in which they run, time per step stacked by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.errors import PyprofError
from pyprof.prof.timing.steps import PHASES, owners, phase_places
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct

if TYPE_CHECKING:
    from pyprof.prof.plot.style import Look, Picture

MOST = 32  # bars; with more layers, the longest have one bar each and all others share one
NONE = "(no layer)"


@dataclass(frozen=True, slots=True)
class Bar:
    """The time of a layer including everything inside it, or of several layers together."""

    layer: Annotated[
        tuple[str, ...], doc("the parts of its path; empty: rows without a layer, or several layers as one")
    ]
    name: Annotated[str, doc("its label")]
    rows: Annotated[int, doc("number of rows")]
    phase_ns: Annotated[dict[str, int], doc("their time by phase, summed over all steps and devices")]

    @property
    def time_ns(self) -> int:
        return sum(self.phase_ns.values())


@dataclass(frozen=True, slots=True)
class Layers:
    """The bars of the figure. Times are ns, summed over ``steps``."""

    depth: Annotated[int, doc("the number of parts to which paths are cut")]
    bars: Annotated[tuple[Bar, ...], doc("in the order in which they first ran; rows without a layer last")]
    steps: Annotated[int, doc("pairs of a step and a device over which times are sums; 0: the capture marks no steps")]
    outer: Annotated[tuple[str, ...], doc("the parts with which all paths begin")]

    @property
    def whole_ns(self) -> int:
        return sum(bar.time_ns for bar in self.bars)


def numbers(table: Table, depth: int | None = None) -> Layers:
    """The layers, with paths cut to ``depth`` parts; by default as deep as ``MOST`` bars allow.

    Raises PyprofError where the capture names no layers.
    """
    rows, count = _of_steps(table)
    column = table.coded("layer").take(rows)
    paths = [layer_parts(text) for text in column.values]
    there = {paths[code] for code in np.unique(column.codes).tolist() if code >= 0} - {()}
    if not there:
        raise PyprofError(
            "there are no layers: the capture names none (capture with pyprof.init() or pyprof run, or "
            "torch.profiler's with_modules=True)"
        )
    depths = range(1, max(map(len, there)) + 1)
    depth = depth or max((d for d in depths if len({path[:d] for path in there}) <= MOST), default=1)
    bars = _bars(table, rows, Coded(column.codes, ["\x1f".join(path[:depth]) for path in paths]))
    outer = _common([bar.layer for bar in bars if bar.layer])
    named = [Bar(b.layer, _name(b, bars, len(outer)), b.rows, b.phase_ns) for b in bars]
    return Layers(depth, tuple(_fewer(named)), count, outer)


def _name(bar: Bar, bars: Sequence[Bar], outer: int) -> str:
    """The path without the parts common to all bars; "(own ops)" is added if layers inside this one have own bars."""
    name = ":".join(bar.layer[outer:]) or ":".join(bar.layer[-1:]) or bar.name
    parts = any(len(other.layer) > len(bar.layer) and other.layer[: len(bar.layer)] == bar.layer for other in bars)
    return f"{name} (own ops)" if bar.layer and parts else name


def _of_steps(table: Table) -> tuple[Ints, int]:
    """The rows within steps, and the number of (device, step) pairs; all rows and 0 where no step is marked."""
    step = table.ints("step")
    rows = np.flatnonzero(step != NULL)
    if not len(rows):
        return np.arange(len(table)), 0
    return rows, len(distinct(owners(table)[0][rows], step[rows])[0])


def _bars(table: Table, rows: Ints, layers: Coded) -> list[Bar]:
    layers = Coded.concat([layers])
    texts = [*layers.values, ""]  # code -1 finds the last
    sums = np.zeros((len(texts), len(PHASES)), np.int64)
    np.add.at(sums, (layers.codes, phase_places(table)[rows]), table.ints("kDuration")[rows])
    counts = np.bincount(layers.codes % len(texts), minlength=len(texts)).tolist()
    start = np.where(table.ints("start") == NULL, np.arange(len(table)), table.ints("start"))[rows]
    first = np.full(len(texts), np.iinfo(np.int64).max)
    np.minimum.at(first, layers.codes, start)
    first[-1] = np.iinfo(np.int64).max
    bars = []
    for code in np.argsort(first, kind="stable").tolist():
        path = tuple(texts[code].split("\x1f")) if texts[code] else ()
        if counts[code]:
            times = {name: ns for name, ns in zip(PHASES, sums[code].tolist(), strict=True) if ns}
            bars.append(Bar(path, ":".join(path) or NONE, counts[code], times))
    return bars


def _common(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The parts with which all paths begin: ("net",) for ("net", "a"), ("net", "b") and ("net",)."""
    outer: tuple[str, ...] = ()
    while True:
        depth = len(outer) + 1
        heads = {path[:depth] for path in paths if len(path) > depth}
        if len(heads) != 1:
            return outer
        (head,) = heads
        if any(path != head[: len(path)] for path in paths if len(path) <= depth):
            return outer
        outer = head


def _fewer(bars: list[Bar]) -> list[Bar]:
    """At most ``MOST`` bars: the longest, and one for all others."""
    if len(bars) <= MOST:
        return bars
    kept = set(sorted(range(len(bars)), key=lambda i: -bars[i].time_ns)[: MOST - 1])
    rest = [bar for i, bar in enumerate(bars) if i not in kept]
    sums = {name: sum(bar.phase_ns.get(name, 0) for bar in rest) for name in PHASES}
    more = Bar((), f"{len(rest)} more", sum(bar.rows for bar in rest), {name: ns for name, ns in sums.items() if ns})
    return [*(bars[i] for i in sorted(kept)), more]


def draw(shown: Layers, look: Look) -> Picture:
    """The figure."""
    from matplotlib.patches import Patch

    from pyprof.prof.plot.style import FONT, bare, legend, picture, plain, stacked, time_unit, titled

    times = max(shown.steps, 1)
    longest = max(bar.time_ns for bar in shown.bars) / times
    scale, unit = time_unit(longest)
    phases = [name for name in PHASES if any(name in bar.phase_ns for bar in shown.bars)]
    with picture(look, 1.45 + 0.2 * len(shown.bars)) as figure:
        titled(figure, look, "Time by layer", caption(shown))
        axes = figure.add_subplot()
        bare(axes, look.theme)
        axes.grid(False, axis="y")
        places = range(len(shown.bars))
        lengths = {name: [bar.phase_ns.get(name, 0) / times / scale for bar in shown.bars] for name in phases}
        stacked(axes, places, [(look.theme.of_phase(n), part) for n, part in lengths.items()], True, height=0.74)
        for place, bar in enumerate(shown.bars):
            end = sum(part[place] for part in lengths.values())
            share = 100 * bar.time_ns / shown.whole_ns if shown.whole_ns else 0.0
            words, left = f"{end:.3g} {unit}, {share:.1f}%", end + 0.008 * longest / scale
            axes.text(left, place, words, va="center", fontsize=FONT - 1.2, color=look.theme.dim)
        axes.set_yticks(places, [plain(bar.name, 38, "left") for bar in shown.bars])
        axes.tick_params(axis="y", labelcolor=look.theme.ink)
        axes.set(ylim=(len(shown.bars) - 0.4, -0.6), xlim=(0, 1.16 * longest / scale or 1), xlabel=_per(shown, unit))
        legend(axes, look, [Patch(color=look.theme.of_phase(name), label=name) for name in phases])
    return figure


def caption(shown: Layers) -> str:
    within = f"Within {':'.join(shown.outer)}. " if shown.outer else ""
    return f"{within}Each bar is a layer with everything in it that has no bar of its own, in the order of execution."


def _per(shown: Layers, unit: str) -> str:
    if not shown.steps:
        return f"{unit}, whole capture"
    return f"{unit} per step" + (f", mean of {shown.steps}" if shown.steps > 1 else "")
