"""A sweep as a figure: FLOP/s and bytes/s by the first variable that is a number, one curve per rest of the point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyprof.benchmark.bench_result import Bench
from pyprof.errors import UsageError
from pyprof.prof.plot.growth import MOST, Curve, panel
from pyprof.quantities import amount

if TYPE_CHECKING:
    from pyprof.prof.plot.style import Look, Picture

Found = Sequence[tuple[Mapping[str, Any], Bench]]


def sweep_variable(points: Sequence[Mapping[str, Any]]) -> str:
    """The variable on the horizontal axis. Raises UsageError if no variable takes several numbers."""
    for name in points[0]:
        values = {point[name] for point in points}
        if len(values) > 1 and all(isinstance(value, int) for value in values):
            return name
    raise UsageError("--plot needs a --sweep of several numbers")


def curves(found: Found, variable: str) -> tuple[list[Curve], list[Curve]]:
    """The curves of FLOP/s and of bytes/s; rates that are zero or unknown have no point."""
    flop: dict[str, list[tuple[float, float]]] = {}
    nbytes: dict[str, list[tuple[float, float]]] = {}
    for point, bench in found:
        rest = ", ".join(f"{name}={value}" for name, value in point.items() if name != variable)
        for direction, measured in bench.directions().items():
            name = ", ".join(filter(None, (rest, direction if bench.backward else ""))) or bench.name
            for of_name, rate in ((flop, measured.flop_per_s), (nbytes, measured.byte_per_s)):
                if rate and point[variable] > 0:
                    of_name.setdefault(name, []).append((float(point[variable]), rate))
    return _curves(flop), _curves(nbytes)


def _curves(of_name: Mapping[str, list[tuple[float, float]]]) -> list[Curve]:
    return [Curve(name, tuple(points), None) for name, points in list(of_name.items())[:MOST]]


def draw(found: Found, title: str, look: Look) -> Picture:
    from pyprof.prof.plot.style import legend, log_ticks, picture, titled

    variable = sweep_variable([point for point, _ in found])
    panels = [(drawn, unit) for drawn, unit in zip(curves(found, variable), ("FLOP/s", "B/s"), strict=True) if drawn]
    if not panels:
        raise UsageError("--plot needs FLOPs or bytes, and none are known of this statement")
    with picture(look, 0.44 * look.width) as figure:
        caption = "Measured by pyprof bench; calls take turns with copies of the inputs."
        titled(figure, look, title, caption)
        for axes, (drawn, unit) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            panel(axes, drawn, look)
            axes.set(yscale="log", xlabel=variable, ylabel=unit)
            log_ticks(axes.yaxis, amount, axes.get_ylim())
            log_ticks(axes.xaxis, lambda value: f"{value:,.0f}", base=2)
            legend(axes, look, width=look.width / len(panels))
    return figure
