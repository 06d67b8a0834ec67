"""The command pyprof stats: the tables of nsys stats, of any profiler's file."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pyprof.errors import PyprofError, packages

if TYPE_CHECKING:
    from pyprof.parse.stats.reports import Rows, Wanted

FORMATS = ("column", "csv", "json")


def build_parser() -> argparse.ArgumentParser:
    from pyprof.parse.stats.reports import DEFAULT

    parser = argparse.ArgumentParser(
        prog="pyprof stats",
        description="The tables of nsys stats, of an nsys or nvprof database or a torch.profiler trace.\n"
        "What a file lacks for a table is told on standard error, and the table left out.",
        epilog=_reports_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="net.sqlite, net.sql or net.json, gzipped or not")
    parser.add_argument("-r", "--report", metavar="NAME[,NAME]", type=_reports, default=_reports(",".join(DEFAULT)),
                        help=f"the tables to print, in this order, or all (without: {', '.join(DEFAULT)})")  # fmt: skip
    parser.add_argument("-f", "--format", choices=FORMATS, default="column",
                        help="column: aligned, under a title; csv: a header and rows, an empty line between tables; "
                        "json: a list of objects, of several tables an object of lists (without: column)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output")
    parser.add_argument("--force", action="store_true", help="overwrite the output file")
    return parser


def main(argv: list[str] | None = None) -> int:
    try:
        with packages():  # the reports' names already need numpy
            args = build_parser().parse_args(argv)
            skipped = _run(args)
    except PyprofError as error:
        print(f"pyprof stats: {error}", file=sys.stderr)
        return 1
    for missing in skipped:
        print(f"SKIPPED: {args.file} does not contain {missing}.", file=sys.stderr)
    return 0


def _run(args: argparse.Namespace) -> list[str]:
    """Write the tables; what the file lacks for the others, each once."""
    from pathlib import Path

    from pyprof.files import check_output, open_output
    from pyprof.parse.stats import layout
    from pyprof.parse.stats.opened import recording

    check_output(args.output, args.force)  # before minutes of work
    with recording(Path(args.file)) as found:
        tables: list[tuple[Wanted, Rows]] = [(report, report.rows(found)) for report in args.report]
    text = layout.FORMATS[args.format](tables)
    with open_output(args.output, args.force) as out:
        out.write(text.encode("utf-8", "replace"))
    return list(dict.fromkeys(report.report.missing for report, rows in tables if not rows))


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
