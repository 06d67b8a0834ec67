"""Names beside dots and lines, none over another: each takes the first free place, and a dot may go without."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from pyprof.prof.colours import Theme
from pyprof.prof.plot.style import FONT, plain

__all__ = ["Along", "Label", "Side", "place"]

GAP = 2.0  # points between a dot's edge and its name
LONGEST = 34  # characters
FAR = (1.0, 2.4, 4.0)  # times the nearest distance; beyond the first, a line leads to the dot
PLACES = 24  # along a line
STEP = 6  # pixels

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Label:
    """A name at a point, in the axes' units, and its dot's radius in points."""

    text: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Along:
    """Words above a line that is straight in the picture, from one point to another."""

    text: str
    start: Point
    end: Point
    at: float = 1.0  # the best place for the words' end, 1 being the line's


@dataclass(frozen=True, slots=True)
class Side:
    """Words at the right of the axes, at a height in their units."""

    text: str
    y: float


def place(
    figure: Figure,
    axes: Axes,
    labels: Sequence[Label],
    lines: Sequence[Along],
    sides: Sequence[Side],
    most: int,
    theme: Theme,
) -> list[Text]:
    """Write the sides' and the lines' words, and the names of those of the first ``most`` labels that find room."""
    beside = [_beside_axes(axes, side, theme) for side in sides]
    figure.draw_without_rendering()  # only now it is known where the axes are
    _apart(axes, beside, figure.dpi / 72)
    room = _Room(figure, axes, theme, [_dot(axes, label, figure.dpi / 72) for label in labels[: 4 * most]])
    written = [room.along(line) for line in lines]
    named = [room.beside(label) for label in labels[:most]]
    return [*beside, *written, *(text for text in named if text is not None)]


def _beside_axes(axes: Axes, side: Side, theme: Theme) -> Text:
    return axes.annotate(side.text, (1, side.y), (4, 0), axes.get_yaxis_transform(), "offset points", va="center",
                         color=theme.dim, fontsize=FONT - 1.2, linespacing=1.05, annotation_clip=False)  # fmt: skip


def _apart(axes: Axes, texts: Sequence[Text], scale: float) -> None:
    """Move down what would lie over the words above it."""
    lowest = math.inf
    for text in sorted(texts, key=lambda each: -each.xy[1]):
        box = text.get_window_extent()
        down = max(0.0, box.y1 - lowest)
        text.set_position((4, -down / scale))
        lowest = box.y0 - down - scale


def _dot(axes: Axes, label: Label, scale: float) -> Bbox:
    x, y = axes.transData.transform((label.x, label.y))
    half = 0.75 * label.radius * scale  # a name may touch a dot's rim, not its heart
    return Bbox.from_extents(x - half, y - half, x + half, y + half)


class _Room:
    """The axes, and what is taken of them, in pixels."""

    def __init__(self, figure: Figure, axes: Axes, theme: Theme, taken: list[Bbox]) -> None:
        self.axes, self.theme, self.taken = axes, theme, taken
        self.renderer = figure.canvas.get_renderer()  # Agg's, which `picture` gave it
        self.scale = figure.dpi / 72
        self.inside = axes.get_window_extent(self.renderer)
        self.lines = [box for line in axes.lines for box in _along(axes.transData.transform(line.get_xydata()))]

    def text(self, words: str, size: float, colour: str) -> tuple[Text, float, float]:
        """A text somewhere, and its width and height."""
        stroke = withStroke(linewidth=2.2, foreground=self.theme.card)
        made = self.axes.text(0.5, 0.5, words, transform=self.axes.transAxes, fontsize=size, color=colour, zorder=5,
                              ha="left", va="bottom", path_effects=[stroke])  # fmt: skip
        made.set_in_layout(False)  # else the layout makes room for it once more
        box = made.get_window_extent(self.renderer)
        return made, box.width, box.height

    def put(self, text: Text, left: float, bottom: float) -> None:
        text.set_position(self.axes.transAxes.inverted().transform((left, bottom)))

    def free(self, box: Bbox) -> bool:
        at = self.inside
        within = box.x0 >= at.x0 and box.x1 <= at.x1 and box.y0 >= at.y0 and box.y1 <= at.y1
        return within and not any(_overlap(box, other) for other in self.taken)

    def along(self, line: Along) -> Text:
        """The words above their line, as near to their best place as it is free; there where it never is."""
        made, wide, high = self.text(line.text, FONT - 0.9, self.theme.dim)
        (x0, y0), (x1, y1) = (self.axes.transData.transform(point) for point in (line.start, line.end))
        long = math.hypot(x1 - x0, y1 - y0)
        angle = math.atan2(y1 - y0, x1 - x0)
        cos, sin = math.cos(angle), math.sin(angle)
        best: tuple[float, list[Bbox]] | None = None
        spare = max(long - wide - 6, 0)
        wanted = line.at * spare if long > wide + 6 else long - wide - 3  # a short line's words reach over its start
        for step in sorted(range(PLACES), key=lambda k: abs(k * spare / (PLACES - 1) - wanted)):
            far = 3 + step * spare / (PLACES - 1) if spare else wanted
            boxes = [
                Bbox.from_bounds(x0 + t * cos - high * sin / 2, y0 + t * sin, high * cos, high * cos)
                for t in (far + high / 2 * k for k in range(max(1, int(2 * wide / high))))
            ]
            best = best or (far, boxes)
            if all(self.free(box) for box in boxes):
                best = (far, boxes)
                break
        assert best is not None
        far, boxes = best
        off = 1.5 * self.scale
        self.put(made, x0 + far * cos - off * sin, y0 + far * sin + off * cos)
        made.set(rotation=math.degrees(angle), rotation_mode="anchor")
        self.taken += boxes
        return made

    def beside(self, label: Label) -> Text | None:
        """The name around its dot, or None where all places are taken."""
        made, wide, high = self.text(plain(label.text, LONGEST, "middle"), FONT - 0.6, self.theme.ink)
        x, y = self.axes.transData.transform((label.x, label.y))
        near = (label.radius + GAP) * self.scale
        places = [(far, place) for far in FAR for place in _around(x, y, wide, high, far * near)]
        boxes = [(far, Bbox.from_bounds(left, bottom, wide, high)) for far, (left, bottom) in places]
        open_to = [(far, box) for far, box in boxes if self.free(box)]
        if not open_to:
            made.remove()
            return None
        # Over a line rather than further away, and that rather than not at all.
        far, box = min(open_to, key=lambda place: (place[0], any(_overlap(place[1], line) for line in self.lines)))
        self.put(made, box.x0, box.y0)
        self.taken.append(box)
        if far > 1:
            self.lead(x, y, box)
        return made

    def lead(self, x: float, y: float, box: Bbox) -> None:
        """A line from a dot to its name."""
        end = (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))
        points = self.axes.transAxes.inverted().transform([(x, y), end])
        self.axes.plot(points[:, 0], points[:, 1], transform=self.axes.transAxes, color=self.theme.dim, linewidth=0.6,
                       zorder=4)  # fmt: skip


def _along(points: Any) -> Iterator[Bbox]:
    """Small boxes along a straight line, in pixels."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    steps = max(1, int(math.hypot(x1 - x0, y1 - y0) / STEP))
    for i in range(steps + 1):
        x, y = x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps
        yield Bbox.from_extents(x - STEP / 2, y - 1, x + STEP / 2, y + 1)


def _around(x: float, y: float, wide: float, high: float, off: float) -> Iterator[Point]:
    """Lower left corners of a box around a point: right, left, above, below, then the corners."""
    slant = 0.7 * off
    yield x + off, y - high / 2
    yield x - off - wide, y - high / 2
    yield x - wide / 2, y + off
    yield x - wide / 2, y - off - high
    yield x + slant, y + slant
    yield x - slant - wide, y + slant
    yield x + slant, y - slant - high
    yield x - slant - wide, y - slant - high


def _overlap(a: Bbox, b: Bbox) -> bool:
    return bool(a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1)
