"""The JSON that pyprof plot prints with --json: the numbers drawn (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pyprof.command.json_schema import FileWritten, Record, doc, extended, schema_of_class
from pyprof.prof.plot.growth import Growth
from pyprof.prof.plot.layers import Layers
from pyprof.prof.plot.phases import Phases
from pyprof.prof.plot.roofline import Rooflines
from pyprof.prof.plot.timeline import Timeline


class Track(Record):
    """A lane of the timeline; its boxes are rows of the kernel table, which pyprof prof --json prints."""

    name: Annotated[str, doc("its label")]
    kind: Annotated[str, doc("phase, stream or launches")]
    boxes: Annotated[int, doc("number of boxes")]
    busy_ns: Annotated[int, doc("time covered by boxes")]


class Tracks(Record):
    step: Annotated[int | None, doc("its number")]
    span_ns: Annotated[int, doc("from the left edge to the right")]
    lanes: Annotated[tuple[Track, ...], doc("from the top")]
    aligned: Annotated[bool, doc("whether each device begins at the left edge")]
    left_out: Annotated[int, doc("number of lanes and devices that are not drawn")]


NUMBERS = {"anyOf": [schema_of_class(kind) for kind in (Rooflines, Layers, Phases, Tracks, Growth)]}


class Plot(Record):
    """The figure that was written, and the numbers drawn."""

    figure: Annotated[Literal["roofline", "layers", "phases", "timeline", "growth"], doc("which")]
    output: Annotated[FileWritten, doc("the figure written")]
    rows: Annotated[int, doc("rows of the kernel table that it shows; of growth, curves")]
    numbers: Annotated[Any, extended("what is drawn; times in ns", NUMBERS)]


def plotted(figure: Any, output: str, rows: int, numbers: Any) -> Plot:
    """The JSON document; ``output`` is the file that was written."""
    if isinstance(numbers, Timeline):
        lanes = tuple(Track(lane.name, lane.kind, len(lane.start_ns), lane.busy_ns) for lane in numbers.lanes)
        numbers = Tracks(numbers.step, numbers.span_ns, lanes, numbers.aligned, numbers.left_out)
    return Plot(figure=figure, output=FileWritten.of(output), rows=rows, numbers=numbers)
