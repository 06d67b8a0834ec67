"""The command pyprof plot: a figure of a capture, for a paper or a slide."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.command.argument_types import file_name, number, parsed, whole_number
from pyprof.command.envelope import Input, write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import LinesAsWritten, Parser, add_common, add_json
from pyprof.errors import MissingPackage, PyprofError, UsageError, packages
from pyprof.prof.load import add_models, add_peaks, load_model_files
from pyprof.prof.table.where import checked_condition

if TYPE_CHECKING:
    from pyprof.prof.plot.style import Picture

FIGURES = {
    "roofline": "rate against FLOP/byte below the GPU's roofs; one dot per op, kernel or layer",
    "layers": "time by layer, forward and backward",
    "phases": "each step's time by phase",
    "timeline": "a step by phase, stream and launch",
    "growth": "rates of products and memory by size; FILE is a peaks.json",
}
OPTION_OF = {"by": "roofline", "depth": "layers", "step": "timeline"}  # options of one figure
SUFFIXES = (".png", ".svg", ".pdf")


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof plot",
        description="Draw a figure of a capture with matplotlib, as PNG, SVG or PDF.",
        epilog="figures:\n" + "\n".join(f"  {name:8}  {does}" for name, does in FIGURES.items()),
        formatter_class=LinesAsWritten,
    )
    add = parser.add_argument
    add("figure", choices=list(FIGURES), metavar="FIGURE", help=f"{', '.join(FIGURES)}; see below")
    kinds = "net.dict (or .gz), net.parquet, or a profiler's file: net.sqlite, net.json, ..."
    add("files", nargs="+", metavar="FILE", help=f"{kinds}; several are the ranks of a job; for growth a peaks.json")
    output, about = file_name(SUFFIXES, standard=False), "x.png, x.svg or x.pdf; text stays text in the last two"
    add("-o", "--output", metavar="FILE", required=True, type=output, help=about)
    _add_figure_options(parser)
    add("--where", metavar="COND", type=parsed(checked_condition), help="only these rows, as prof.py --where takes it")
    add_peaks(parser)
    add_models(parser)
    add_json(parser)
    add_common(parser, writes="file")
    return parser


def _add_figure_options(parser: argparse.ArgumentParser) -> None:
    add, inches = parser.add_argument, number(2.5, 60, "inches")
    depth, step = whole_number(digits=4), whole_number(0, 15, "a step's number")
    add("--by", choices=("op", "kernel", "layer"), help="roofline: what a dot is (default: op)")
    add("--depth", metavar="N", type=depth, help="layers: the outermost N parts of layers (default: as many as fit)")
    add("--step", metavar="N", type=step, help="timeline: that step (default: the one of median length)")
    add("--title", metavar="TEXT", default="", help="in place of the figure's own title")
    add("--width", metavar="INCHES", type=inches, default=9.0, help="(default: 9)")
    add("--height", metavar="INCHES", type=inches, help="(default: what the figure needs)")
    dots = number(20, 1200, "dots an inch")
    add("--dpi", metavar="N", type=dots, default=150.0, help="dots per inch of a PNG (default: 150)")
    add("--dark", action="store_true", help="light on dark")


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof plot", build_parser, _run, argv, inputs=("files",))


class Figure(NamedTuple):
    picture: Picture
    numbers: Any
    rows: int  # rows shown; for growth, the number of curves
    content: str
    input: list[Input | str]
    warnings: tuple[str, ...] = ()


def _run(args: argparse.Namespace) -> Done:
    from pyprof.files import check_output

    _check_options(args)
    check_output(args.output, args.force)  # before minutes of work
    figure = _growth(args) if args.figure == "growth" else _of_capture(args)
    _write(figure, args)
    return Done([*warned(figure.warnings), f"wrote {args.output}: {figure.content}"])


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for an option that the figure does not have."""
    for option, figure in OPTION_OF.items():
        if getattr(args, option) is not None and args.figure != figure:
            raise UsageError(f"argument --{option} goes with {figure}, not with {args.figure}")
    if args.figure != "growth":
        return
    for option in ("where", "peaks", "models"):
        if getattr(args, option):
            raise UsageError(f"argument --{option}: growth takes a peaks.json, not a capture")
    if len(args.files) > 1:
        raise UsageError("growth: expected one peaks.json, found several files")


def _write(figure: Figure, args: argparse.Namespace) -> None:
    from pyprof.files import open_output
    from pyprof.prof.plot.json_document import plotted
    from pyprof.prof.plot.style import save

    picture = io.BytesIO()
    save(figure.picture, picture, Path(args.output).suffix[1:].lower())
    with open_output(args.output, args.force) as out:
        out.write(picture.getbuffer())
    if args.json:
        document = plotted(args.figure, args.output, figure.rows, figure.numbers)
        write_answer("plot", document, input=figure.input, warnings=figure.warnings)


def _look(args: argparse.Namespace) -> dict[str, Any]:
    return {key: getattr(args, key) for key in ("width", "height", "dpi", "dark", "title")}


def _growth(args: argparse.Namespace) -> Figure:
    from pyprof.prof.plot import growth
    from pyprof.prof.plot.style import Look

    shown = growth.numbers(growth.read(args.files[0]))
    curves = len(shown.products) + len(shown.memory)
    return Figure(growth.draw(shown, Look(**_look(args))), shown, curves, f"{curves} curves", args.files)


def _of_capture(args: argparse.Namespace) -> Figure:
    from pyprof.prof.captured import CapturedRows, read_capture
    from pyprof.table.attribution import AttributedTime

    load_model_files(args)
    capture = read_capture(args.files, args.peaks)
    rows = CapturedRows(capture)
    if args.where:
        rows = rows.where(args.where)
        if not len(rows.table):
            raise PyprofError(f"{', '.join(args.files)}: there is no row for which {args.where} is true")
    own = {option: getattr(args, option) for option in OPTION_OF if getattr(args, option) is not None}
    try:
        with packages():
            from pyprof.prof.plot.figures import drawn

            shown, figure = drawn(args.figure, rows.table, rows.annotation, capture.peaks, {**own, **_look(args)})
    except MissingPackage:
        raise
    except PyprofError as error:  # there is nothing to show; add the file's name
        raise PyprofError(f"{', '.join(args.files)}: {error}") from error
    content = f"{len(rows):,} rows, {AttributedTime.of(rows.table).total_ns / 1e6:.4g} ms"
    return Figure(figure, shown, len(rows), content, [Input(*each) for each in rows.inputs], rows.warnings)
