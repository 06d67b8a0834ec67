"""The command pyprof report: kernel table (or a profiler's file) in, one web page out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof.command.envelope import Input, Parser, add_json, envelope, write_envelope
from pyprof.command.frame import add_force, add_quiet, add_version, carry_out, check_standard_output, warned
from pyprof.errors import InputError
from pyprof.prof.load import add_models, add_peaks, judged

if TYPE_CHECKING:
    from pyprof.prof.load import Loaded


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof report",
        description="Write a run as one web page: step times, roofline, layers, timeline, kernels. It needs no network "
        "and no server; send it as it is.",
    )
    parser.add_argument("file", help="net.dict (or .gz) or net.parquet from pyprof parse, or a profiler's file that "
                        "it reads (net.sqlite, net.json, ...); - is a net.dict on standard input")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html",
                        help="the page to write; - is standard output (default: report.html)")  # fmt: skip
    add_force(parser)
    parser.add_argument("--title", metavar="TEXT", help="the page's title (default: the file's name)")
    add_peaks(parser)
    add_models(parser)
    add_json(parser)
    add_quiet(parser)
    add_version(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check_standard_output(parser, args, "page")
    return carry_out("pyprof report", _run, args, [args.file])


def _run(args: argparse.Namespace) -> list[str]:
    from pyprof.files import open_output
    from pyprof.prof.advice import Run, advise
    from pyprof.prof.report.collect import page_model
    from pyprof.prof.report.render import render

    loaded, annotation, peaks = judged(args)
    table = loaded.table
    if not len(table):
        raise InputError(args.file, "expected kernels, found none: there is nothing to report")
    cards = advise(Run(table, annotation, peaks))
    model = page_model(table, annotation, peaks, cards, args.title or Path(args.file).name)
    with open_output(args.output, args.force) as out:
        render(model, out)
    if args.json:
        _answer(args.output, model, loaded)
    where = "" if args.output == "-" else f"wrote {args.output}: "
    return [*warned(loaded.warnings), f"{where}{model['summary']['headline']}"]


def _answer(output: str, model: Mapping[str, Any], loaded: Loaded) -> None:
    from pyprof.files import open_output
    from pyprof.prof.report.json_document import page_of

    own = page_of(output, Path(output).stat().st_size, model)
    files = [Input(loaded.name, loaded.profiler)]
    with open_output(None) as out:
        write_envelope(envelope("report", own, input=files, warnings=loaded.warnings), out)
