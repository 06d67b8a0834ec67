"""The command pyprof report: kernel table (or a profiler's file) in, one web page out."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof._version import __version__
from pyprof.envelope import Input, Parser, add_json, envelope, fail, write_envelope
from pyprof.errors import InputError, PyprofError, packages
from pyprof.files import tell

if TYPE_CHECKING:
    from pyprof.prof.load_table import Loaded


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
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    parser.add_argument("--title", metavar="TEXT", help="the page's title (default: the file's name)")
    parser.add_argument("--peaks", metavar="FILE", help="peaks of the GPU as pyprof peaks writes them; without it, its "
                        "data sheet's")  # fmt: skip
    add_json(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on standard error but errors")
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.json and args.output == "-":
        parser.error("--json prints on standard output: give the page another name with -o")
    try:
        with packages():
            lines = _run(args)
    except PyprofError as error:
        return fail("pyprof report", error, args.json, [args.file])
    if not args.quiet and not args.json:
        for line in lines:
            tell(f"pyprof report: {line}")
    return 0


def _run(args: argparse.Namespace) -> list[str]:
    from pyprof.files import check_output, open_output
    from pyprof.parse.progress import progress
    from pyprof.prof.advice import Run, advise
    from pyprof.prof.annotate import annotate
    from pyprof.prof.devices import load_peaks
    from pyprof.prof.load_table import load_table
    from pyprof.prof.report.collect import page_model
    from pyprof.prof.report.render import render

    check_output(args.output, args.force)  # before minutes of work
    peaks = load_peaks(args.peaks) if args.peaks else None
    with progress(2, not args.quiet) as say:
        loaded = load_table(args.file, say)
    table = loaded.table
    if not len(table):
        raise InputError(args.file, "expected kernels, found none: there is nothing to report")
    annotation = annotate(table)
    cards = advise(Run(table, annotation, peaks))
    model = page_model(table, annotation, peaks, cards, args.title or Path(args.file).name)
    with open_output(args.output, args.force) as out:
        render(model, out)
    if args.json:
        _answer(args.output, model, loaded)
    where = "" if args.output == "-" else f"wrote {args.output}: "
    return [*(f"warning: {text}" for text in loaded.warnings), f"{where}{model['sentences'][0]}"]


def _answer(output: str, model: Mapping[str, Any], loaded: Loaded) -> None:
    from pyprof.files import open_output
    from pyprof.prof.report.answers import page_of

    own = page_of(output, Path(output).stat().st_size, model)
    files = [Input(loaded.name, loaded.profiler)]
    with open_output(None) as out:
        write_envelope(envelope("report", own, input=files, warnings=loaded.warnings), out)
