"""The command pyprof stats: the tables of nsys stats from any profiler's file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pyprof.command.argument_types import parsed
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import LinesAsWritten, Parser, add_common, add_json

if TYPE_CHECKING:
    from pyprof.parse.stats.reports import Wanted


def build_parser() -> Parser:
    from pyprof.parse.stats.reports import DEFAULT

    parser = Parser(
        prog="pyprof stats",
        description="The tables of nsys stats, from an nsys or nvprof database or a torch.profiler trace.\n"
        "A table for which the file lacks data is left out, and standard error says what is missing.",
        epilog=_reports_help(),
        formatter_class=LinesAsWritten,
    )
    parser.add_argument("file", help="net.sqlite, net.sql or net.json, gzipped or not")
    reports: dict[str, Any] = {"metavar": "NAME[,NAME]", "type": parsed(_reports), "default": _reports(DEFAULT)}
    of_reports = f"the tables to print, in this order, or all (default: {DEFAULT.replace(',', ', ')})"
    parser.add_argument("-r", "--report", **reports, help=of_reports)
    form = parser.add_mutually_exclusive_group()
    of_formats = (
        "column: aligned, under a title; csv: a header and rows, with an empty line between tables; json: as nsys "
        "writes it, one table as a list of objects, several as an object of such lists (default: column)"
    )
    form.add_argument("-f", "--format", choices=("column", "csv", "json"), default="column", help=of_formats)
    add_json(form)
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file instead of standard output")
    add_common(parser, writes="file")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof stats", build_parser, _run, argv)


def _run(args: argparse.Namespace) -> Done:
    """Write the tables. For tables that cannot be made, the printed lines name the data that the file lacks."""
    from pathlib import Path

    from pyprof.files import check_output, open_output
    from pyprof.gc_pause import uncollected
    from pyprof.parse.stats import layout
    from pyprof.parse.stats.json_document import tables_of
    from pyprof.parse.stats.recording import recording

    check_output(args.output, args.force)  # before minutes of work
    with uncollected(), recording(Path(args.file)) as events:
        tables = [(report, report.rows(events)) for report in args.report]
        warnings = events.warnings
    missing = dict.fromkeys(report.report.missing for report, rows in tables if not rows)
    skipped = [f"{args.file} does not contain {data}." for data in missing]
    if args.json:
        answer = tables_of(tables)
        write_answer(
            "stats", answer, input=[args.file], warnings=[*warnings, *skipped], output=args.output, force=args.force
        )
    else:
        with open_output(args.output, args.force) as out:
            for text in layout.FORMATS[args.format](tables):
                out.write(text.encode("utf-8", "replace"))
    return Done([*warned(warnings), *(f"skipped: {line}" for line in skipped)])


def _reports(text: str) -> list[Wanted]:
    from pyprof.parse.stats.reports import REPORTS, Wanted, wanted

    if text == "all":
        return [Wanted(report) for report in REPORTS]
    return [wanted(name) for name in text.split(",")]


def _reports_help() -> str:
    from pyprof.parse.stats.reports import REPORTS

    width = max(len(report.name) for report in REPORTS)
    lines = ["reports:"]
    for report in REPORTS:
        variants = "".join(f" [:{variant}]" for variant in report.variants)
        lines.append(f"  {report.name:{width}}  {report.title}{variants}")
    return "\n".join([*lines, "", "example: pyprof stats -r cuda_gpu_kern_sum:base,nvtx_sum net.sqlite"])
