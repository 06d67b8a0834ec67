"""The style of all figures: size, theme, fonts and number formats, and the canvas that they are drawn on."""

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.colours import DARK, LIGHT, Theme

FORMATS = ("png", "svg", "pdf")
FONT = 8.5  # points: readable when a figure of 9 inches is shrunk to a column of text

# These override the user's matplotlib settings: kernel names must not become formulas, and text must stay text.
SETTINGS: Mapping[str, Any] = {
    "font.family": "sans-serif",
    "font.size": FONT,
    "text.usetex": False,
    "axes.unicode_minus": True,
    "axes.formatter.use_mathtext": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "pyprof",
    "pdf.fonttype": 42,
    "path.simplify": True,
    "savefig.bbox": None,
    "savefig.transparent": False,
    "savefig.facecolor": "auto",
    "savefig.edgecolor": "auto",
}


@dataclass(frozen=True, slots=True)
class Look:
    """Width and height in inches, dots per inch, theme and title. Without a height, the figure chooses its own."""

    width: float = 9.0
    height: float | None = None
    dpi: float = 150.0
    dark: bool = False
    title: str = ""

    @property
    def theme(self) -> Theme:
        return DARK if self.dark else LIGHT


class Picture(Figure):
    """A figure that keeps these settings wherever it is drawn, and that a notebook shows without pyplot."""

    def draw(self, renderer: Any) -> None:
        with _settings():
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        save(self, out, "png")
        return out.getvalue()


@contextmanager
def _settings() -> Iterator[None]:
    with matplotlib.rc_context(dict(SETTINGS)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # missing characters are drawn as boxes
        yield


@contextmanager
def picture(look: Look, height: float) -> Iterator[Picture]:
    """An empty picture, ``height`` inches high unless the look says otherwise, to be filled within the block."""
    with _settings():
        size = (look.width, look.height or height)
        made = Picture(figsize=size, dpi=look.dpi, facecolor=look.theme.card, layout="constrained")
        FigureCanvasAgg(made)
        yield made


def save(figure: Figure, out: BinaryIO, form: str) -> None:
    """Write the figure. Equal figures give equal bytes."""
    dated: Mapping[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    with _settings():
        figure.savefig(out, format=form, dpi=figure.dpi, metadata=dict(dated))


# Parts of figures


def titled(figure: Figure, look: Look, title: str, under: str) -> None:
    """Add the title (the look's, if it has one), and the caption in small type at the bottom."""
    theme = look.theme
    head = plain(look.title or title, int(look.width * 11))
    figure.suptitle(head, x=0.008, ha="left", fontsize=FONT + 3.5, fontweight="bold", color=theme.ink)
    if under:
        text = figure.supxlabel(plain(under, 400), x=0.008, ha="left", fontsize=FONT - 1, color=theme.dim)
        text.set_wrap(True)


def bare(axes: Axes, theme: Theme) -> None:
    """Style axes by the theme: no box, dim ticks, a faint grid behind everything."""
    axes.set_facecolor(theme.card)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.line)
    axes.tick_params(which="both", colors=theme.dim, labelsize=FONT - 0.5, length=0)
    axes.grid(True, color=theme.grid, linewidth=0.7)
    axes.set_axisbelow(True)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(theme.dim)


def legend(axes: Axes, look: Look, handles: list[Any] | None = None, width: float | None = None) -> None:
    """Add the legend in a line or two above the axes."""
    shown = axes.get_legend_handles_labels()[0] if handles is None else handles
    if not shown:
        return
    inches = sum(0.36 + 0.067 * len(handle.get_label()) for handle in shown)
    columns = math.ceil(len(shown) / math.ceil(inches / ((width or look.width) - 0.8)))
    spacing = {"handlelength": 1.1, "handletextpad": 0.5, "columnspacing": 1.3, "borderpad": 0.2}
    place = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0), "ncols": columns}
    made = axes.legend(handles=shown, frameon=False, fontsize=FONT - 0.3, **place, **spacing)
    for text, handle in zip(made.get_texts(), made.legend_handles, strict=True):
        text.set_color(look.theme.ink)
        if hasattr(handle, "set_sizes"):
            handle.set_sizes([38.0])


def stacked(
    axes: Axes, places: Sequence[float], parts: Iterable[tuple[str, Sequence[float]]], flat: bool, **look: Any
) -> None:
    """Draw a bar of consecutive parts at each place: to the right if ``flat``, otherwise upwards.

    ``parts``: each a colour and its length in each bar. ``look`` is passed to matplotlib.
    """
    before = [0.0] * len(places)
    for colour, lengths in parts:
        if flat:
            axes.barh(places, lengths, left=before, color=colour, zorder=2, **look)
        else:
            axes.bar(places, lengths, bottom=before, color=colour, zorder=2, **look)
        before = [done + length for done, length in zip(before, lengths, strict=True)]


def log_ticks(
    axis: Axis, text: Callable[[float], str], limits: tuple[float, float] | None = None, base: int = 10
) -> None:
    """Ticks of a logarithmic axis with these texts; between ``limits`` that are near, also at 2 and 5."""
    near = limits is not None and limits[1] < 300 * limits[0]
    axis.set_major_locator(LogLocator(base, (1.0, 2.0, 5.0) if near else (1.0,), numticks=7 if base == 2 else 20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def plain(text: str, size: int = 60, cut: Any = "right") -> str:
    """A name that matplotlib shows literally: no control characters, no formulas, at most ``size`` characters."""
    return cut_to(safe(text), size, cut).replace("$", r"\$")


def time_unit(longest_ns: float) -> tuple[float, str]:
    """The unit that suits the longest time: its length in ns, and its name.

    >>> time_unit(47e6), time_unit(3e3), time_unit(9e9), time_unit(12)
    ((1000000.0, 'ms'), (1000.0, 'µs'), (1000000000.0, 's'), (1.0, 'ns'))
    """
    units = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
    return next(((size, unit) for size, unit in units if longest_ns >= size), (1.0, "ns"))
