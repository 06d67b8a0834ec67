"""The figure `growth`: the rates of matrix products and of memory by size, as ``pyprof peaks`` measured them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pyprof.command.json_schema import doc
from pyprof.errors import InputError
from pyprof.prof.limits.architectures import unit_of
from pyprof.prof.limits.devices import find_device
from pyprof.prof.limits.peaks_file import load_peaks
from pyprof.quantities import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pyprof.prof.plot.style import Look, Picture

MARKERS = "osDv^Pp*Xh"
MOST = 10  # curves per panel
KEYS = ("products_flop_per_s", "memory_byte_per_s")  # of the curves in a peaks file

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Rates by size: FLOP/s by the rows of a square matrix, or bytes/s by the bytes moved."""

    name: Annotated[str, doc("dtype or op")]
    points: Annotated[Points, doc("size (rows of a square matrix, or bytes moved) and rate (FLOP/s, bytes/s)")]
    sheet: Annotated[float | None, doc("the data sheet's rate; null if unknown")]
    lasting: Annotated[float | None, doc("FLOP/s of the best size under a lasting load; null if not measured")] = None

    @property
    def best(self) -> tuple[float, float]:
        """The size at which the rate is highest, and that rate."""
        return max(self.points, key=lambda point: point[1])


@dataclass(frozen=True, slots=True)
class Growth:
    """The curves of the figure."""

    device: Annotated[str, doc("its name, as measured")]
    products: Annotated[tuple[Curve, ...], doc("products of square matrices, by dtype")]
    memory: Annotated[tuple[Curve, ...], doc("memory rates, by op")]
    cache_bytes: Annotated[float | None, doc("the size of the last-level cache")]


def read(file: str | Path) -> dict[str, Any]:
    """Read a peaks file with its curves. Raises an InputError that names the problem."""
    load_peaks(file)  # checks that it is a peaks file
    found: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    curves = found.get("curves")
    if not isinstance(curves, dict):
        why = "expected curves, found none: the file was written by hand (pyprof peaks -o peaks.json measures them)"
        raise InputError(file, why)
    for key in KEYS:
        named = curves.get(key, {})
        if not isinstance(named, dict) or not all(_is_curve(points) for points in named.values()):
            raise InputError(file, f"curves: {key}: expected lists of [size, rate], positive numbers")
    lasting = found.get("lasting_flop_per_s", {})
    if not isinstance(lasting, dict) or not all(_is_curve([[1, rate]]) for rate in lasting.values()):
        raise InputError(file, "lasting_flop_per_s: expected rates by unit, positive numbers")
    if not any(map(curves.get, KEYS)):
        raise InputError(file, "curves: expected products_flop_per_s or memory_byte_per_s, found neither")
    return found


def _is_curve(points: Any) -> bool:
    pairs = isinstance(points, list) and all(isinstance(point, list) and len(point) == 2 for point in points)
    return pairs and all(type(n) in (int, float) and 0 < n < 1e30 for point in points for n in point)


def numbers(found: Mapping[str, Any]) -> Growth:
    """The curves from the contents of a peaks file, with the data sheet's rates."""
    arch, name = str(found.get("arch", "")), str(found.get("device", ""))
    device = find_device(name) if arch != "cpu" else None
    sheet: Mapping[str, float] = device.flop_per_s if device else {}
    byte_per_s = device.byte_per_s if device else None
    lasting, cache = found.get("lasting_flop_per_s", {}), found.get("cache_bytes")
    products, memory = (_drawn(found["curves"].get(key, {})) for key in KEYS)
    units = {dtype: unit_of(dtype, arch) for dtype in products}
    return Growth(
        device=name,
        products=tuple(Curve(d, points, sheet.get(units[d]), lasting.get(units[d])) for d, points in products.items()),
        memory=tuple(Curve(op, points, byte_per_s) for op, points in memory.items()),
        cache_bytes=float(cache) if isinstance(cache, (int, float)) and 0 < cache < 1e30 else None,
    )


def _drawn(curves: Mapping[str, Any]) -> dict[str, Points]:
    """The first ``MOST`` curves, without those that have no points."""
    first = list(curves.items())[:MOST]
    return {name: tuple((float(size), float(rate)) for size, rate in points) for name, points in first if points}


def draw(shown: Growth, look: Look) -> Picture:
    """Draw the figure: matrix products on the left, memory on the right."""
    from pyprof.prof.plot.style import legend, log_ticks, picture, titled

    panels = [curves for curves in (shown.products, shown.memory) if curves]
    with picture(look, 0.44 * look.width) as figure:
        titled(figure, look, f"Measured rates: {shown.device}" if shown.device else "Measured rates", caption(shown))
        for axes, curves in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            panel(axes, curves, look)
            if curves is shown.products:
                axes.set(yscale="log", xlabel="rows and columns of the matrices", ylabel="FLOP/s")
                log_ticks(axes.yaxis, amount, axes.get_ylim())
                log_ticks(axes.xaxis, lambda value: f"{value:,.0f}", base=2)
            else:
                axes.set(xlabel="bytes moved", ylabel="B/s", ylim=(0, None))
                axes.yaxis.set_major_formatter(lambda value, _: amount(value))
                log_ticks(axes.xaxis, size_text, base=2)
                if shown.cache_bytes:
                    _mark_cache(axes, shown.cache_bytes, look)
            legend(axes, look, width=look.width / len(panels))
    return figure


def _mark_cache(axes: Axes, nbytes: float, look: Look) -> None:
    axes.axvline(nbytes, color=look.theme.dim, linewidth=0.8, linestyle=":", zorder=1)
    words, place = f" last cache\n {size_text(nbytes)}", axes.get_xaxis_transform()
    axes.annotate(words, (nbytes, 0.02), xycoords=place, fontsize=7.4, color=look.theme.dim)


def caption(shown: Growth) -> str:
    known = any(curve.sheet for curve in (*shown.products, *shown.memory))
    words = "Measured by pyprof peaks on random data."
    words += " Hollow marks: under a lasting load." if any(curve.lasting for curve in shown.products) else ""
    return f"{words} Dashed: the data sheet's rate." if known else words


def panel(axes: Axes, curves: Sequence[Curve], look: Look) -> None:
    from pyprof.prof.plot.style import bare, plain

    bare(axes, look.theme)
    axes.set_xscale("log", base=2)
    for i, curve in enumerate(curves):
        colour = look.theme.classes[i % len(look.theme.classes)]
        style = {"marker": MARKERS[i % len(MARKERS)], "color": colour}
        sizes, rates = zip(*curve.points, strict=True)
        axes.plot(sizes, rates, markersize=4, linewidth=1.5, label=plain(curve.name, 20), zorder=3, **style)
        if curve.lasting:
            best = [curve.best[0]], [curve.lasting]
            axes.plot(*best, markersize=5.5, markerfacecolor=look.theme.card, zorder=4, **style)
    sheets = {curve.sheet: i for i, curve in enumerate(curves) if curve.sheet}
    for rate, i in sheets.items():
        colour = look.theme.classes[i % len(look.theme.classes)] if len(sheets) > 1 else look.theme.dim
        axes.axhline(rate, color=colour, linewidth=0.9, linestyle=(0, (5, 3)), alpha=0.8, zorder=2)


def size_text(nbytes: float) -> str:
    """
    >>> size_text(4 << 30), size_text(50 * 2**20), size_text(65536), size_text(12)
    ('4 GiB', '50 MiB', '64 KiB', '12 B')
    """
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):.3g} {unit}"
    return f"{nbytes:.0f} B"
