"""The figure `timeline`: the phases, streams and launches of one step, in lanes one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pyprof.errors import PyprofError
from pyprof.prof.colours import ink_on
from pyprof.prof.plot.roofline import op_names
from pyprof.prof.timing.gpus import ends
from pyprof.prof.timing.steps import PHASES, Step, owners, phase_places, short_owners, steps
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import CLASSES, classes
from pyprof.table.columns import NULL, Coded, Ints, Table
from pyprof.table.intervals import covered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyprof.prof.plot.style import Look, Picture

DEVICES = 8
LANES = 8  # streams (or threads) shown per device, the busiest first
MANY = 3000  # a lane with more boxes is stored as an image in SVG and PDF
NARROW = 0.3  # inches; only wider boxes show their name
SHORTEST = 10  # characters to which a name may be cut

LaneKind = Literal["phase", "stream", "launches"]


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """Boxes side by side. Times are ns from the figure's left edge."""

    name: str
    kind: LaneKind
    start_ns: Ints
    dur_ns: Ints
    of_class: Ints  # one index into CLASSES per box
    text: Coded  # one name per box

    @property
    def busy_ns(self) -> int:
        return covered(self.start_ns, self.start_ns + self.dur_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    step: int | None  # None if the capture marks no steps: then all of it is shown
    span_ns: int
    lanes: tuple[Lane, ...]  # device by device: phases, streams, launches
    aligned: bool  # True: each device's step starts at the left edge, because the steps do not overlap in time
    left_out: int  # the number of lanes and devices that are not shown


def numbers(table: Table, annotation: Annotation, step: int | None = None) -> Timeline:
    """The operations of the given step, by default of the step of median length.

    Raises PyprofError where the table has no times, or no such step.
    """
    owner, _ = owners(table)
    names = short_owners(table)
    found = steps(table, owner)
    if not found:
        raise PyprofError("there is no timeline: the table has no start times (PyProf's own net.dict)")
    chosen = _chosen(found, step)
    windows = sorted((each for each in found if each.number == chosen), key=lambda each: each.owner)
    starts = [each.start_ns for each in windows]
    longest = max(each.span_ns for each in windows)
    aligned = max(starts) - min(starts) > longest
    kinds = classes(table, annotation)
    lanes: list[Lane] = []
    left_out = max(0, len(windows) - DEVICES)
    for window in windows[:DEVICES]:
        zero = window.start_ns if aligned else min(starts)
        mine = _device_lanes(table, kinds, owner, window, zero, names[window.owner])
        streams = [lane for lane in mine if lane.kind == "stream"]
        kept = sorted(streams, key=lambda lane: -lane.busy_ns)[:LANES]
        left_out += len(streams) - len(kept)
        lanes += [lane for lane in mine if lane.kind != "stream" or lane in kept]
    span = max(longest, 1) if aligned else max(1, max(each.start_ns + each.span_ns for each in windows) - min(starts))
    return Timeline(chosen, span, tuple(lanes), aligned and len(windows) > 1, left_out)


def _chosen(found: Sequence[Step], wanted: int | None) -> int | None:
    """The number of the step to show."""
    there = sorted({each.number for each in found if each.number is not None})
    if wanted is not None and wanted not in there:
        known = f"the steps are {there[0]} to {there[-1]}" if there else "the capture marks no steps"
        raise PyprofError(f"there is no step {wanted}; {known}")
    if wanted is not None or not there:
        return wanted
    working = {each.number for each in found if each.number is not None and each.idle_ns < each.span_ns}
    there = sorted(working) or there  # not a step without work
    spans = {number: max(each.span_ns for each in found if each.number == number) for number in there}
    return sorted(there, key=lambda number: (spans[number], number))[(len(there) - 1) // 2]


def _device_lanes(table: Table, kinds: Coded, owner: Ints, window: Step, zero: int, device: str) -> list[Lane]:
    """A device's lanes during a step: what runs and what is launched then, whichever step it belongs to."""
    low, high = window.start_ns, window.start_ns + window.span_ns
    start, end, api = table.ints("start"), ends(table), table.ints("apiStart")
    mine = (owner == window.owner) & (start != NULL)
    runs = mine & (start < high) & (end >= low)
    called = np.flatnonzero((runs & (api != NULL)) | (mine & (api >= low) & (api < high)))
    called = called[~table.coded("kind").among("cpu")[called]]
    rows = np.flatnonzero(runs)
    rows = rows[np.argsort(start[rows], kind="stable")]
    start, duration = np.clip(start, low, high), np.clip(end, low, high) - np.clip(start, low, high)
    phase = phase_places(table)
    of_class = np.array([CLASSES.index(name) for name in kinds.values], np.int64)[kinds.codes]
    names = op_names(table, table.coded("kShortName"))

    def lane(name: str, kind: LaneKind, mine: Ints, begin: Ints, took: Ints) -> Lane:
        return Lane(f"{device}: {name}" if device else name, kind, begin - zero, took, of_class[mine], names.take(mine))

    lanes = []
    for number, name in enumerate(PHASES):
        mine = rows[phase[rows] == number]
        if len(mine):
            lanes.append(lane(name, "phase", mine, start[mine], duration[mine]))
    on_cpu = table.coded("kind").among("cpu")
    for cpu, key, word in ((False, "stream", "stream"), (True, "tid", "thread")):
        mine = rows[on_cpu[rows] == cpu]
        for number in np.unique(table.ints(key)[mine]).tolist():
            some = mine[table.ints(key)[mine] == number]
            name = word if number == NULL else f"{word} {number}"
            lanes.append(lane(name, "stream", some, start[some], duration[some]))
    if len(called):
        took = np.where(table.ints("apiDuration") == NULL, 0, table.ints("apiDuration"))[called]
        lanes.append(lane("launches", "launches", called, api[called], np.maximum(took, 0)))
    return lanes


# Drawing


HIGH = {"phase": 0.13, "stream": 0.4, "launches": 0.2}  # inches
GAP = 0.1


def draw(shown: Timeline, look: Look) -> Picture:
    """The figure."""
    from matplotlib.patches import Patch

    from pyprof.prof.plot.style import bare, legend, picture, plain, time_unit, titled

    scale, unit = time_unit(shown.span_ns)
    with picture(look, 1.6 + sum(HIGH[lane.kind] + GAP for lane in shown.lanes)) as figure:
        titled(figure, look, "Timeline" if shown.step is None else f"Timeline of step {shown.step}", caption(shown))
        axes = figure.add_subplot()
        bare(axes, look.theme)
        axes.grid(False, axis="y")
        top, ticks = 0.0, []
        for lane in shown.lanes:
            ticks.append(top + HIGH[lane.kind] / 2)
            axes.axhspan(top, top + HIGH[lane.kind], color=look.theme.grid, zorder=1)
            _boxes(axes, lane, top, shown.span_ns, scale, look)
            top += HIGH[lane.kind] + GAP
        axes.set_yticks(ticks, [plain(lane.name, 30, "left") for lane in shown.lanes])
        axes.tick_params(axis="y", labelcolor=look.theme.ink)
        axes.set(xlim=(0, shown.span_ns / scale), ylim=(top, -0.08), xlabel=unit)
        there = sorted({int(i) for lane in shown.lanes for i in np.unique(lane.of_class)})
        legend(axes, look, [Patch(color=look.theme.classes[i], label=CLASSES[i]) for i in there])
    return figure


def _boxes(axes: Axes, lane: Lane, top: float, span_ns: int, scale: float, look: Look) -> None:
    """Draw the boxes of a lane, coloured by class; phases have one colour each."""
    from matplotlib.collections import PolyCollection

    left, right = lane.start_ns / scale, (lane.start_ns + lane.dur_ns) / scale
    low, high = np.full(len(left), top), np.full(len(left), top + HIGH[lane.kind])
    colours = [look.theme.dim] if lane.kind == "phase" else [look.theme.classes[i] for i in lane.of_class.tolist()]
    x, y = np.stack([left, right, right, left], axis=1), np.stack([low, low, high, high], axis=1)
    # Without snap: it would make a box that is narrower than a pixel vanish or fill the pixel.
    style = {"linewidths": 0, "zorder": 2, "snap": False, "rasterized": len(left) > MANY}
    axes.add_collection(PolyCollection(np.stack([x, y], axis=2), facecolors=colours, **style), autolim=False)
    if lane.kind == "stream":
        _names(axes, lane, top, span_ns, scale, look)


def _names(axes: Axes, lane: Lane, top: float, span_ns: int, scale: float, look: Look) -> None:
    """Write names in the boxes that are wide enough."""
    from pyprof.prof.plot.style import FONT, plain

    inches = lane.dur_ns * ((look.width - 1.4) / span_ns)
    for i in np.flatnonzero(inches > NARROW).tolist():
        room = int((inches[i] - 0.1) / 0.062)
        code = int(lane.text.codes[i])
        name = lane.text.values[code] if code >= 0 else ""
        if len(name) > room < SHORTEST:
            continue
        x, y = (lane.start_ns[i] + lane.dur_ns[i] / 2) / scale, top + HIGH[lane.kind] / 2
        ink = ink_on(look.theme.classes[int(lane.of_class[i])])
        style = {"ha": "center", "va": "center", "fontsize": FONT - 1.7, "color": ink, "clip_on": True}
        axes.text(x, y, plain(name, room, "middle"), **style)


def caption(shown: Timeline) -> str:
    words = "Phases show when their operations ran, streams show the operations by class"
    words += ", launches show the calls on the CPU." if any(lane.kind == "launches" for lane in shown.lanes) else "."
    words += " Each device begins at its own start." if shown.aligned else ""
    return words + (f" {shown.left_out} more lanes are not shown." if shown.left_out else "")
