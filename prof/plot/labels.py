"""The texts of a roofline: names beside its dots (placed by adjustText), along its slope and beside its roofs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adjustText import adjust_text, get_bboxes_pathcollection
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from pyprof.prof.colours import Theme
from pyprof.prof.plot.style import FONT, plain

LONGEST = 34  # characters shown of a name
ITERATIONS = 300  # of adjustText; a limit in seconds would make the figure depend on the machine

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a dot, and the dot's place in the axes' units."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Along:
    """A text above a straight line of the picture, ``at`` (0 to 1) of its length."""

    text: str
    start: Point
    end: Point
    at: float


@dataclass(frozen=True, slots=True)
class Side:
    """A text to the right of the axes, at a height in their units."""

    text: str
    y: float


def place(
    figure: Figure, axes: Axes, labels: Sequence[Label], lines: Sequence[Along], sides: Sequence[Side], theme: Theme
) -> list[Text]:
    """Write all texts and return those that are shown. A name for which there is no room is left out."""
    beside = [_beside_axes(axes, side, theme) for side in sides]
    figure.draw_without_rendering()  # lays out the axes, on which positions in pixels depend
    _spread(beside, figure.dpi / 72)
    above = [_above_line(axes, line, theme) for line in lines]
    return [*beside, *above, *_beside_dots(axes, labels, [*beside, *above], theme)]


def _beside_axes(axes: Axes, side: Side, theme: Theme) -> Text:
    style = {"va": "center", "color": theme.dim, "fontsize": FONT - 1.2, "linespacing": 1.05}
    place = (1, side.y), (4, 0), axes.get_yaxis_transform(), "offset points"
    return axes.annotate(side.text, *place, annotation_clip=False, **style)


def _spread(texts: Sequence[Text], scale: float) -> None:
    """Move down each text that would overlap the one above it."""
    lowest = math.inf
    for text in sorted(texts, key=lambda text: -text.xy[1]):
        box = text.get_window_extent()
        down = max(0.0, box.y1 - lowest)
        text.set_position((4, -down / scale))
        lowest = box.y0 - down - scale


def _above_line(axes: Axes, line: Along, theme: Theme) -> Text:
    """Write the text, rotated like its line."""
    (x0, y0), (x1, y1) = axes.transData.transform([line.start, line.end])
    words = _words(axes, line.text, FONT - 0.9, theme.dim, theme)
    words.set_position(axes.transData.inverted().transform((x0 + line.at * (x1 - x0), y0 + line.at * (y1 - y0))))
    words.set(rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)), rotation_mode="anchor", ha="center", va="bottom")
    return words


def _beside_dots(axes: Axes, labels: Sequence[Label], taken: Sequence[Text], theme: Theme) -> list[Text]:
    """Write the names, moved until none overlaps another, a dot or the texts that are there already."""
    names = [_words(axes, plain(label.text, LONGEST, "middle"), FONT - 0.6, theme.ink, theme) for label in labels]
    for name, label in zip(names, labels, strict=True):
        name.set_position((label.x, label.y))
    to_data = axes.transData.inverted()
    dots = [box for dots in axes.collections for box in get_bboxes_pathcollection(dots, axes)]
    words = [text.get_window_extent().transformed(to_data) for text in taken]
    adjust_text(names, ax=axes, objects=[*dots, *words], iter_lim=ITERATIONS)
    kept = _without_overlaps(axes, names, taken)
    for name, label in zip(names, labels, strict=True):
        if name in kept:
            _lead(axes, name, label, theme)
    return kept


def _without_overlaps(axes: Axes, names: Sequence[Text], taken: Sequence[Text]) -> list[Text]:
    """Move names that extend beyond the axes back inside, remove names without room, and return the others."""
    boxes = [text.get_window_extent() for text in taken]
    kept = []
    for name in names:
        _move_inside(axes, name)
        box = name.get_window_extent()
        if any(box.overlaps(other) for other in boxes):
            name.remove()
        else:
            boxes.append(box)
            kept.append(name)
    return kept


def _move_inside(axes: Axes, name: Text) -> None:
    inside, box = axes.get_window_extent(), name.get_window_extent()
    right = max(inside.x0 - box.x0, 0) + min(inside.x1 - box.x1, 0)
    up = max(inside.y0 - box.y0, 0) + min(inside.y1 - box.y1, 0)
    x, y = axes.transData.transform(name.get_position())
    name.set_position(axes.transData.inverted().transform((x + right, y + up)))


def _lead(axes: Axes, name: Text, label: Label, theme: Theme) -> None:
    """Draw a line from the dot to the nearest point of its name."""
    box = name.get_window_extent()
    x, y = axes.transData.transform((label.x, label.y))
    nearest = (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))
    (end_x, end_y) = axes.transData.inverted().transform(nearest)
    axes.plot([label.x, end_x], [label.y, end_y], color=theme.dim, linewidth=0.6, zorder=4)


def _words(axes: Axes, text: str, size: float, colour: str, theme: Theme) -> Text:
    """Write a text outlined in the background's colour; the layout ignores it."""
    rim = withStroke(linewidth=2.2, foreground=theme.card)
    words = axes.text(0, 0, text, fontsize=size, color=colour, zorder=5, path_effects=[rim])
    words.set_in_layout(False)
    return words
