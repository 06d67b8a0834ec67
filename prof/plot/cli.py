"""The command pyprof plot: a figure of a capture, for a paper or a slide."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyprof.command.envelope import Parser, add_json, envelope, write_envelope
from pyprof.command.frame import add_force, add_quiet, add_version, carry_out, warned
from pyprof.errors import MissingPackage, PyprofError
from pyprof.prof.load import add_models, load_model_files
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.condition import ConditionError
from pyprof.prof.table.where import parse_where

if TYPE_CHECKING:
    from pyprof.command.envelope import Input
    from pyprof.prof.plot.style import Picture

FIGURES = {
    "roofline": "rate against FLOP/byte below the GPU's roofs; a dot an op, kernel or layer",
    "layers": "time by layer, forward and backward",
    "phases": "each step's time by phase",
    "timeline": "a step by phase, stream and launch",
    "growth": "rates of products and memory by size; FILE is a peaks.json",
}
OWN = {"by": "roofline", "depth": "layers", "step": "timeline"}  # options of one figure
SUFFIXES = (".png", ".svg", ".pdf")


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof plot",
        description="Draw a figure of a capture with matplotlib, as PNG, SVG or PDF.",
        epilog="figures:\n" + "\n".join(f"  {name:8}  {does}" for name, does in FIGURES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("figure", choices=list(FIGURES), metavar="FIGURE", help=f"{', '.join(FIGURES)}; see below")
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="net.dict (or .gz), net.parquet, or a profiler's file: net.sqlite, "
        "net.json, ...; several are the ranks of a job; for growth a peaks.json",
    )
    add(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        type=_output,
        help="x.png, x.svg or x.pdf; text stays text in the last two",
    )
    add_force(parser)
    add("--by", choices=("op", "kernel", "layer"), help="roofline: what a dot is (without: op)")
    add("--depth", metavar="N", type=_count, help="layers: the outermost N parts of layers (without: as many as fit)")
    add("--step", metavar="N", type=_step, help="timeline: that step (without: the one of median length)")
    add("--where", metavar="COND", type=_condition, help="only these rows, as prof.py --where takes it")
    add(
        "--peaks",
        metavar="FILE",
        help="peaks of the GPU as pyprof peaks writes them: roofs as measured, beside the data sheet's",
    )
    add_models(parser)
    add("--title", metavar="TEXT", default="", help="in place of the figure's own title")
    add("--width", metavar="INCHES", type=_inches, default=9.0, help="(without: 9)")
    add("--height", metavar="INCHES", type=_inches, help="(without: what the figure needs)")
    add("--dpi", metavar="N", type=_dots, default=150.0, help="dots an inch of a PNG (without: 150)")
    add("--dark", action="store_true", help="light on dark")
    add_json(parser)
    add_quiet(parser)
    add_version(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if (wrong := _misplaced(args)) is not None:
        parser.error(wrong)
    return carry_out("pyprof plot", _run, args, args.files)


def _run(args: argparse.Namespace) -> list[str]:
    made = _made(args)
    _write(made, args)
    return [*warned(made.warnings), f"wrote {args.output}: {made.what}"]


class _Made(NamedTuple):
    figure: Picture
    numbers: Any
    rows: int  # of growth, curves
    what: str
    input: list[Input | str]
    warnings: tuple[str, ...] = ()


def _misplaced(args: argparse.Namespace) -> str | None:
    """An option that the figure does not have."""
    for option, figure in OWN.items():
        if getattr(args, option) is not None and args.figure != figure:
            return f"argument --{option}: it is {figure}'s, not {args.figure}'s"
    if args.figure == "growth":
        for option in ("where", "peaks", "models"):
            if getattr(args, option):
                return f"argument --{option}: growth takes a peaks.json, not a capture"
        if len(args.files) > 1:
            return "growth: expected one peaks.json, found several files"
    return None


def _made(args: argparse.Namespace) -> _Made:
    from pyprof.files import check_output

    check_output(args.output, args.force)  # before minutes of work
    return _growth(args) if args.figure == "growth" else _of_capture(args)


def _write(made: _Made, args: argparse.Namespace) -> None:
    from pyprof.files import open_output
    from pyprof.prof.plot.json_document import plotted
    from pyprof.prof.plot.style import save

    picture = io.BytesIO()
    save(made.figure, picture, Path(args.output).suffix[1:].lower())
    with open_output(args.output, args.force) as out:
        out.write(picture.getbuffer())
    if args.json:
        own = plotted(args.figure, args.output, picture.tell(), made.rows, made.numbers)
        with open_output(None) as out:
            write_envelope(envelope("plot", own, input=made.input, warnings=made.warnings), out)


def _look(args: argparse.Namespace) -> dict[str, Any]:
    return {key: getattr(args, key) for key in ("width", "height", "dpi", "dark", "title")}


def _growth(args: argparse.Namespace) -> _Made:
    from pyprof.prof.plot import growth
    from pyprof.prof.plot.style import Look

    shown = growth.numbers(growth.read(args.files[0]))
    curves = len(shown.products) + len(shown.memory)
    return _Made(growth.draw(shown, Look(**_look(args))), shown, curves, f"{curves} curves", args.files)


def _of_capture(args: argparse.Namespace) -> _Made:
    from pyprof.command.envelope import Input
    from pyprof.prof.notebook import load

    load_model_files(args)
    profile = load(*args.files, peaks=args.peaks)
    if args.where:
        profile = profile.where(args.where)
    own = {option: getattr(args, option) for option in OWN if getattr(args, option) is not None}
    try:
        shown, figure = profile.drawn(args.figure, **own, **_look(args))
    except MissingPackage:
        raise
    except PyprofError as error:  # there is nothing to show: in which file?
        raise PyprofError(f"{', '.join(args.files)}: {error}") from error
    totals = profile.totals
    what = f"{totals.rows:,} rows, {totals.time_ns / 1e6:.4g} ms"
    return _Made(figure, shown, totals.rows, what, [Input(*each) for each in profile.inputs], profile.warnings)


def _output(text: str) -> str:
    if Path(text).suffix.lower() in SUFFIXES:
        return text
    raise argparse.ArgumentTypeError(f"expected a name that ends in {', '.join(SUFFIXES)}, found {text!r}")


def _condition(text: str) -> str:
    try:
        parse_where(text, COLUMN)
    except ConditionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)


def _step(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"expected a step's number, found {text!r}")
    return int(text)


def _inches(text: str) -> float:
    return _number(text, 2.5, 60, "inches")


def _dots(text: str) -> float:
    return _number(text, 20, 1200, "dots an inch")


def _number(text: str, least: float, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected {what}, {least:g} to {most:g}, found {text!r}")
    return value
