"""The command pyprof report: kernel table (or a profiler's file) in, one web page out."""

import argparse
from pathlib import Path

from pyprof.command.argument_types import check_suffix
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, check_standard_output, run_command, warned
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import InputError
from pyprof.prof.load import add_counters, add_input, load_annotated


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof report",
        description="Write a run as one web page: step times, roofline, layers, timeline, kernels. It needs no network "
        "and no server, so the file can be sent as it is.",
    )
    add_input(parser)
    add_counters(parser)
    output = "the page to write; - is standard output (default: report.html)"
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help=output)
    parser.add_argument("--title", metavar="TEXT", help="the page's title (default: the file's name)")
    add_json(parser)
    add_common(parser, writes="file")
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof report", build_parser, _run, argv)


def _run(args: argparse.Namespace) -> Done:
    check_standard_output(args, "page")
    check_suffix(args.output, (".html", ".htm"), ".html, .htm or none (each also with .gz)")
    from pyprof.files import open_output
    from pyprof.prof.changes.find_changes import captured_at, find_changes
    from pyprof.prof.print_table import counter_notes
    from pyprof.prof.report.json_document import page_of
    from pyprof.prof.report.page_model import page_model
    from pyprof.prof.report.render import render

    loaded, annotation, peaks = load_annotated(args, host=True)
    if not len(loaded.table):
        raise InputError(args.file, "expected kernels, found none: there is nothing to report")
    changes = find_changes(
        loaded.table, annotation, loaded.host, peaks, loaded.name, newest=captured_at(args.file)
    ).document
    title = args.title or Path(args.file).name
    model = page_model(loaded.table, annotation, peaks, changes, title, memory=loaded.memory, path=loaded.path)
    with open_output(args.output, args.force) as out:
        render(model, out)
    if args.json:
        write_answer("report", page_of(args.output, model), input=[loaded.input], warnings=loaded.warnings)
    written = "" if args.output == "-" else f"wrote {args.output}: "
    joined = counter_notes(annotation, loaded.table)
    return Done([*warned(loaded.warnings), *joined, f"{written}{model['summary']['headline']}"])
