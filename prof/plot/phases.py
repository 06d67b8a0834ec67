"""The figure `phases`: one bar per step, its time stacked by phase; idle time has the background's colour.

In an incomplete capture, the time in which nothing is on record is no idle time: it is left blank, with a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from pyprof.command.json_schema import doc
from pyprof.errors import PyprofError
from pyprof.prof.colours import ink_on
from pyprof.prof.timing.steps import PHASES, Step, owners, steps
from pyprof.table.columns import Table
from pyprof.table.losses import INCOMPLETE, losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyprof.prof.plot.style import Look, Picture

FEW = 14  # up to this many steps per device are horizontal bars; more are narrow columns
DEVICES = 8
PARTS = (*PHASES, "idle")


@dataclass(frozen=True, slots=True)
class StepBar:
    """A step as it is drawn."""

    owner: Annotated[int, doc("number of the device")]
    number: Annotated[int | None, doc("number of the step; null for a capture without steps, which counts as one")]
    start_ns: Annotated[int, doc("when it begins")]
    span_ns: Annotated[int, doc("from there to where the next step begins")]
    phase_ns: Annotated[dict[str, int], doc("time by phase, each instant counted once")]
    idle_ns: Annotated[int | None, doc("time in which no operation ran; null in an incomplete capture")]
    mark_ns: Annotated[int | None, doc("on the host's clock, from its mark to the next; null where no mark says")]
    extent_ns: Annotated[int, doc("GPU extent: from the start of its first operation to the end of its last one")]


@dataclass(frozen=True, slots=True)
class Phases:
    """The steps of each device in their order. ``left_out`` is the number of devices that are not drawn."""

    devices: Annotated[tuple[str, ...], doc("their names")]
    steps: Annotated[tuple[tuple[StepBar, ...], ...], doc("the steps of each device")]
    left_out: Annotated[int, doc("number of devices that are not drawn")]
    incomplete: Annotated[bool, doc("whether records are missing, so that idle time is unknown")] = False

    @property
    def marked(self) -> bool:
        """Whether the capture marks steps. Otherwise each device has one step, which is all of its time."""
        return any(step.number is not None for mine in self.steps for step in mine)


def numbers(table: Table) -> Phases:
    """The steps, as on the web page. Raises PyprofError if the table has no times."""
    owner, names = owners(table)
    found = steps(table, owner)
    if not found:
        raise PyprofError("there are no steps: the table has no start times (PyProf's own net.dict)")
    there = sorted({step.owner for step in found})
    drawn = there[:DEVICES]
    incomplete = bool(losses(table))
    steps_of_devices = tuple(
        tuple(_bar(step, incomplete) for step in found if step.owner == number) for number in drawn
    )
    left_out = len(there) - len(drawn)
    return Phases(tuple(names[number] for number in drawn), steps_of_devices, left_out, incomplete)


def _bar(step: Step, incomplete: bool) -> StepBar:
    known = {field.name: getattr(step, field.name) for field in fields(Step)}
    return StepBar(**{**known, "idle_ns": None if incomplete else step.idle_ns})


def part(step: StepBar, name: str) -> int:
    """The time in a step, in ns, of a phase or of idle time; 0 for idle time that is unknown."""
    return step.idle_ns or 0 if name == "idle" else step.phase_ns.get(name, 0)


def draw(shown: Phases, look: Look) -> Picture:
    """The figure, with one set of axes per device."""
    from matplotlib.patches import Patch

    from pyprof.prof.plot.style import FONT, legend, picture, plain, titled

    flat = max(map(len, shown.steps)) <= FEW
    height = 1.35 + (sum(0.25 + 0.3 * len(mine) for mine in shown.steps) if flat else 1.9 * len(shown.steps))
    names = [name for name in PARTS if any(part(step, name) for mine in shown.steps for step in mine)]
    with picture(look, height) as figure:
        titled(figure, look, "Step time by phase" if shown.marked else "Time by phase", caption(shown))
        longest = max(1, *(step.span_ns for mine in shown.steps for step in mine))  # all bars share one time axis
        ratios = [len(mine) for mine in shown.steps] if flat else None
        all_axes = figure.subplots(len(shown.steps), 1, sharex=flat, squeeze=False, height_ratios=ratios)[:, 0]
        for axes, device, mine in zip(all_axes, shown.devices, shown.steps, strict=True):
            if flat:
                _bars(axes, mine, names, look, longest)
            else:
                _columns(axes, mine, names, look)
            if len(shown.devices) > 1:
                style = {"fontsize": FONT - 0.5, "color": look.theme.dim, "pad": 3}
                axes.set_title(plain(device, 80, "left"), loc="right", **style)
        for axes in all_axes[:-1] if flat else ():
            axes.set_xlabel("")
        colours = {name: _colour(name, look) for name in names}
        legend(all_axes[0], look, [Patch(color=colour, label=name) for name, colour in colours.items()])
    return figure


def caption(shown: Phases) -> str:
    more = f" {shown.left_out} more devices are not shown." if shown.left_out else ""
    overlap = "Time in which several phases ran counts for the first of the list."
    idle = f"{INCOMPLETE}: idle time is not drawn." if shown.incomplete else "Idle: no operation ran."
    return f"{overlap} {idle} {_lasts(shown)}{more}"


def _lasts(shown: Phases) -> str:
    if not shown.marked:
        return "The capture marks no steps."
    if any(step.mark_ns is not None for mine in shown.steps for step in mine):
        return "A step lasts from mark to mark, as the device reaches them."
    return "By extent: a step ends where the first operation of the next begins."


def _colour(name: str, look: Look) -> str:
    return look.theme.idle if name == "idle" else look.theme.of_phase(name)


def _bars(axes: Axes, mine: Sequence[StepBar], names: Sequence[str], look: Look, longest: int) -> None:
    """One bar per step, the first on top. Shares are written where there is room."""
    from pyprof.prof.plot.style import FONT, bare, stacked, time_unit

    scale, unit = time_unit(longest)
    bare(axes, look.theme)
    axes.grid(False, axis="y")
    places = range(len(mine))
    lengths = {name: [part(step, name) / scale for step in mine] for name in names}
    rims = {"edgecolor": look.theme.card, "linewidth": 0.6}
    stacked(axes, places, [(_colour(name, look), part) for name, part in lengths.items()], True, height=0.72, **rims)
    before = [0.0] * len(mine)
    for name, wide in lengths.items():
        ink = look.theme.dim if name == "idle" else ink_on(_colour(name, look))
        for place, (step, left, width) in enumerate(zip(mine, before, wide, strict=True)):
            if width * scale > 0.055 * longest * 9 / look.width:
                share = f"{100 * part(step, name) / step.span_ns:.0f}%"
                axes.text(left + width / 2, place, share, ha="center", va="center", color=ink, fontsize=FONT - 1)
        before = [left + width for left, width in zip(before, wide, strict=True)]
    axes.set_yticks(places, ["all" if step.number is None else f"step {step.number}" for step in mine])
    axes.set(ylim=(len(mine) - 0.45, -0.55), xlim=(0, longest / scale), xlabel=unit)


def _columns(axes: Axes, mine: Sequence[StepBar], names: Sequence[str], look: Look) -> None:
    """One column per step, side by side."""
    from matplotlib.ticker import MaxNLocator

    from pyprof.prof.plot.style import bare, stacked, time_unit

    scale, unit = time_unit(max(step.span_ns for step in mine))
    bare(axes, look.theme)
    axes.grid(False, axis="x")
    places = [step.number if step.number is not None else 0 for step in mine]
    lengths = [(_colour(name, look), [part(step, name) / scale for step in mine]) for name in names]
    stacked(axes, places, lengths, False, width=0.9 if len(mine) < 80 else 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlim=(min(places) - 0.6, max(places) + 0.6), ylabel=unit, xlabel="step")
