"""The command pyprof trend: one program's step over many captures; with --fail-if a gate for the last of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyprof.command.argument_types import imported, number
from pyprof.command.envelope import Input, write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import UsageError
from pyprof.prof.load import add_models, load_model_files

if TYPE_CHECKING:
    from pyprof.command.progress import Say
    from pyprof.prof.diff.lines import Side
    from pyprof.prof.diff.trend import Compared

FAILED = 3  # as of pyprof diff
LEAST = 1.0


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof trend",
        description="One program's step over many captures, in the order given (of a pattern or folder, that of the "
        "numbers in names): a line for each, and where the step changed, the parts of it that did, as pyprof diff "
        "finds them.",
        epilog="`pyprof trend nightly/*.json.gz --fail-if 'step > 3%'` exits with 3 if the last capture's step is more "
        "than 3% longer than that of the one before; pyprof diff --help lists the conditions.",
    )
    parser.add_argument("files", nargs="+", metavar="file", help="captures, patterns or folders; two or more")
    least = (
        f"report no change where the step differs by less than this (default: {LEAST:g}%%), or by less than its steps "
        "differ among themselves"
    )
    percent = number(0, 1000, "a number of percent from 0 on")
    parser.add_argument("--least", metavar="PERCENT", type=percent, default=LEAST, help=least)
    parse_gate = imported("pyprof.prof.diff.gate", "parse_gate")
    fail_if = "exit with 3 if this is true of the change from the last but one capture to the last"
    parser.add_argument("--fail-if", metavar="COND", type=parse_gate, action="append", default=[], help=fail_if)
    add_models(parser)
    add_json(parser)
    add_common(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof trend", build_parser, _run, argv, inputs=("files",))


def _run(args: argparse.Namespace) -> Done:
    from pyprof.command.progress import progress
    from pyprof.command.terminal_text import output_width
    from pyprof.files import open_output
    from pyprof.prof.diff.gate import check
    from pyprof.prof.diff.trend import trend, trend_lines
    from pyprof.prof.job.sources import sources

    load_model_files(args)
    files = sources(args.files)
    if len(files) < 2:
        raise UsageError("expected two captures or more, found one")
    with progress(len(files), not args.quiet) as say:
        captures, warnings = _compared(files, say)
    document = trend(captures, args.least / 100)
    last = captures[-1].found
    verdicts = [check(gate, last) for gate in args.fail_if if last is not None]
    if args.json:
        inputs = [Input(capture.side.name, capture.profiler) for capture in captures]
        write_answer("trend", document, input=inputs, warnings=warnings)
    else:
        width, _ = output_width(None, None)
        text = trend_lines(captures, document, width)
        with open_output(None) as out:
            out.write("".join(f"{line}\n" for line in text).encode())
    failed = "; ".join(verdict.text for verdict in verdicts if verdict.fails)
    lines = warned(warnings)
    return Done([*lines, f"failed: {failed}"], FAILED) if failed else Done(lines)


def _compared(files: list[str], say: Say) -> tuple[list[Compared], list[str]]:
    """Each capture against the one before; only two tables are in memory at a time."""
    from pyprof.prof.diff.compare import compare
    from pyprof.prof.diff.json_document import side_of
    from pyprof.prof.diff.lines import make_side
    from pyprof.prof.diff.trend import Compared
    from pyprof.prof.load import load_table

    found: list[Compared] = []
    warnings = []
    before: Side | None = None
    for file in files:
        loaded = load_table(file, say)
        warnings += [f"{file}: {text}" for text in loaded.warnings]
        side = make_side(loaded)
        difference = None if before is None else compare(before, side)
        found.append(Compared(side_of(side), loaded.profiler, float(side.steps.span_ns.mean()), difference))
        before = side
    return found, warnings
