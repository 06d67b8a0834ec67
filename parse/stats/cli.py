"""The command pyprof stats: the tables of nsys stats, of any profiler's file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pyprof.command.envelope import Parser, add_json, envelope, fail, wants_json, write_envelope
from pyprof.command.frame import add_force
from pyprof.errors import PyprofError, packages
from pyprof.files import tell

if TYPE_CHECKING:
    from pyprof.parse.stats.reports import Rows, Wanted

FORMATS = ("column", "csv", "json")


def build_parser() -> Parser:
    from pyprof.parse.stats.reports import DEFAULT

    parser = Parser(
        prog="pyprof stats",
        description="The tables of nsys stats, of an nsys or nvprof database or a torch.profiler trace.\n"
        "What a file lacks for a table is told on standard error, and the table left out.",
        epilog=_reports_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="net.sqlite, net.sql or net.json, gzipped or not")
    parser.add_argument("-r", "--report", metavar="NAME[,NAME]", type=_reports, default=_reports(",".join(DEFAULT)),
                        help=f"the tables to print, in this order, or all (without: {', '.join(DEFAULT)})")  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", choices=FORMATS, default="column",
                        help="column: aligned, under a title; csv: a header and rows, an empty line between tables; "
                        "json: nsys's own, a list of objects, of several tables an object of lists (without: "
                        "column)")  # fmt: skip
    add_json(form)
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output")
    add_force(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    as_json, files = wants_json(words), []
    try:
        with packages():  # the reports' names already need numpy
            args = build_parser().parse_args(words)
            files = [args.file]
            skipped = _run(args)
    except PyprofError as error:
        return fail("pyprof stats", error, as_json, files)
    for missing in [] if as_json else skipped:
        tell(f"SKIPPED: {missing}")
    return 0


def _run(args: argparse.Namespace) -> list[str]:
    """Write the tables; what the file lacks for the others, each once."""
    from pathlib import Path

    from pyprof.files import check_output, open_output
    from pyprof.parse.stats import layout
    from pyprof.parse.stats.json_document import tables_of
    from pyprof.parse.stats.open_recording import recording

    check_output(args.output, args.force)  # before minutes of work
    with recording(Path(args.file)) as found:
        tables: list[tuple[Wanted, Rows]] = [(report, report.rows(found)) for report in args.report]
    missing = dict.fromkeys(report.report.missing for report, rows in tables if not rows)
    skipped = [f"{args.file} does not contain {what}." for what in missing]
    with open_output(args.output, args.force) as out:
        if args.json:
            write_envelope(envelope("stats", tables_of(tables), input=[args.file], warnings=skipped), out)
        else:
            out.write(layout.FORMATS[args.format](tables).encode("utf-8", "replace"))
    return skipped


def _reports(text: str) -> list[Wanted]:
    from pyprof.parse.stats.reports import REPORTS, Wanted, wanted

    if text == "all":
        return [Wanted(report) for report in REPORTS]
    try:
        return [wanted(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _reports_help() -> str:
    from pyprof.parse.stats.reports import REPORTS

    width = max(len(report.name) for report in REPORTS)
    lines = [
        f"  {report.name:{width}}  {report.title}" + "".join(f" [:{variant}]" for variant in report.variants)
        for report in REPORTS
    ]
    return "\n".join(["reports:", *lines, "", "example: pyprof stats -r cuda_gpu_kern_sum:base,nvtx_sum net.sqlite"])
