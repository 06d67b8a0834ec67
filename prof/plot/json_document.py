"""The JSON of ``pyprof plot --json``: what was written, and the numbers drawn (header: command/envelope.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyprof.command.json_schema import Schema, integer, of_type, record, text
from pyprof.prof.plot.growth import Curve, Growth
from pyprof.prof.plot.layers import Bar, Layers
from pyprof.prof.plot.phases import Phases
from pyprof.prof.plot.roofline import Dot, Roof, Rooflines
from pyprof.prof.plot.timeline import Timeline
from pyprof.prof.timing.steps import Step

__all__ = ["SCHEMAS", "plotted"]


@dataclass(frozen=True, slots=True)
class Track:
    """A lane of the timeline; its boxes are the kernel table's rows (pyprof prof --json has them)."""

    name: str
    kind: str
    boxes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class Tracks:
    """The timeline."""

    step: int | None
    span_ns: int
    lanes: tuple[Track, ...]
    aligned: bool
    left_out: int


def plotted(figure: str, output: str, nbytes: int, rows: int, shown: Any) -> dict[str, Any]:
    """The own keys; ``nbytes``: of the file."""
    if isinstance(shown, Timeline):
        lanes = tuple(Track(lane.name, lane.kind, len(lane.start_ns), lane.busy_ns) for lane in shown.lanes)
        shown = Tracks(shown.step, shown.span_ns, lanes, shown.aligned, shown.left_out)
    return {"figure": figure, "output": {"name": output, "bytes": nbytes}, "rows": rows, "numbers": shown}


DOT = {
    "name": "op and direction, kernel, or layer and direction",
    "kind": "the class that took most of its time, its colour",
    "unit": "what did most of its arithmetic; empty: not known",
    "rows": "how many",
    "time_ns": "their time, its area",
    "flop": "their sum",
    "nbytes": "their sum, bytes",
    "ai": "flop / nbytes, FLOP/byte",
    "flop_per_s": "flop / time",
}
ROOF = {
    "units": "whose peaks are alike; empty: the memory",
    "used": "whether a dot's arithmetic was done there",
    "measured": "unit (empty: the memory) and rate of the peaks file, FLOP/s or bytes/s",
    "sheet": "rate by the data sheet, FLOP/s or bytes/s",
}
ROOFLINE = {
    "device": "whose roofs these are; empty: not known",
    "by": "what a dot is",
    "dots": "the longest first",
    "roofs": "the memory's first",
    "rows_ns": "time of all rows",
    "shown_ns": "of those behind dots",
    "left_out": "groups that are too small to be seen",
}
BAR = {
    "layer": "the path's parts; empty: no layer, or several",
    "name": "as drawn",
    "rows": "how many",
    "phase_ns": "their time by phase, of all steps and devices",
}
LAYERS = {
    "depth": "parts of a path",
    "bars": "in the order in which they first ran",
    "steps": "times devices, which the times are a sum over; 0: the capture marks none",
    "outer": "what all paths begin with",
}
STEP = {
    "owner": "number of the device",
    "number": "the step's",
    "start_ns": "its first operation",
    "span_ns": "until the next step's first operation",
    "phase_ns": "by phase, each instant once",
    "idle_ns": "no operation ran",
}
PHASES = {"devices": "their names", "steps": "of each device", "left_out": "devices that are not drawn"}
TRACK = {"name": "as drawn", "kind": "phase, stream or launches", "boxes": "how many", "busy_ns": "covered by boxes"}
TRACKS = {
    "step": "its number",
    "span_ns": "from the left edge to the right",
    "lanes": "from the top",
    "aligned": "whether each device begins at the left edge",
    "left_out": "lanes and devices that are not drawn",
}
CURVE = {
    "name": "dtype or op",
    "points": "size (rows of a square matrix, or bytes moved) and rate (FLOP/s, bytes/s)",
    "sheet": "rate by the data sheet",
    "lasting": "of products at their best size, under a lasting load, FLOP/s",
}
GROWTH = {"device": "as measured", "products": "of square matrices", "memory": "by op", "cache_bytes": "the last cache"}


def _plot() -> Schema:
    shown = [
        of_type(Rooflines, {Rooflines: ROOFLINE, Dot: DOT, Roof: ROOF}),
        of_type(Layers, {Layers: LAYERS, Bar: BAR}),
        of_type(Phases, {Phases: PHASES, Step: STEP}),
        of_type(Tracks, {Tracks: TRACKS, Track: TRACK}),
        of_type(Growth, {Growth: GROWTH, Curve: CURVE}),
    ]
    return record(
        {
            "figure": text("which", ("roofline", "layers", "phases", "timeline", "growth")),
            "output": record({"name": text("of the file"), "bytes": integer("its size")}, "the figure written"),
            "rows": integer("of the kernel table that it shows; of growth, curves"),
            "numbers": {"description": "what is drawn; times in ns", "anyOf": shown},
        },
        "a figure",
    )


SCHEMAS = {"plot": _plot}
