"""The figures of a capture by name: their options, and the functions that make their numbers and draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pyprof.errors import PyprofError
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.plot import layers, phases, roofline, timeline
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import Table

if TYPE_CHECKING:
    from pyprof.prof.plot.style import Picture


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: its module (which has ``draw``), its own options and the function that makes its numbers."""

    module: ModuleType
    options: tuple[str, ...]
    numbers: Callable[[Table, Annotation, Peaks | None, Mapping[str, Any]], Any]


FIGURES: Mapping[str, Figure] = {
    "roofline": Figure(roofline, ("by",), lambda table, notes, peaks, o: roofline.numbers(table, notes, peaks, **o)),
    "layers": Figure(layers, ("depth",), lambda table, _notes, _peaks, o: layers.numbers(table, **o)),
    "phases": Figure(phases, (), lambda table, _notes, _peaks, o: phases.numbers(table, **o)),
    "timeline": Figure(timeline, ("step",), lambda table, notes, _peaks, o: timeline.numbers(table, notes, **o)),
}


def drawn(
    name: str, table: Table, annotation: Annotation, peaks: Peaks | None, options: Mapping[str, Any]
) -> tuple[Any, Picture]:
    """The numbers of a figure, and the figure. ``options`` are the figure's own and the fields of ``style.Look``.

    Raises PyprofError for an unknown figure or option, and where the capture has nothing to show.
    """
    if name not in FIGURES:
        raise PyprofError(f"expected one of {', '.join(FIGURES)}, found {name!r}")
    figure = FIGURES[name]
    from pyprof.prof.plot.style import Look

    looks = Look.__slots__
    unknown = [option for option in options if option not in (*figure.options, *looks)]
    if unknown:
        raise PyprofError(f"{name}: no option {unknown[0]!r}; there are {', '.join((*figure.options, *looks))}")
    shown = figure.numbers(table, annotation, peaks, {key: options[key] for key in figure.options if key in options})
    look = Look(**{key: options[key] for key in looks if key in options})
    return shown, figure.module.draw(shown, look)
