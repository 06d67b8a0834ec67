"""The command pyprof diff: prints the difference of two captures; with --fail-if it is a gate for CI."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pyprof.command.argument_types import imported, whole_number
from pyprof.command.envelope import Input, write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.parser import LinesAsWritten, Parser, add_common, add_forms
from pyprof.errors import UsageError
from pyprof.prof.load import add_models, load_model_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof.prof.diff.compare import Comparison
    from pyprof.prof.diff.gate import Verdict

FAILED = 3  # exit code of a gate that fails: neither bad input (1) nor wrong usage (2)
EPILOG = """\
conditions of --fail-if, on the change B - A per step: QUANTITY > NUMBER (>= < <= == !=), and, or, not, ( )
  times    step, gpu, idle, forward, backward, optimizer, data, prefill, decode, mixed, other: 3%, 0.5 ms, 20 us
  globs    op:NAME layer:NAME kind:NAME kernel:NAME: the times of what NAME, a glob, matches
  amounts  kernels, tc_lost, tc_gained, flops, bytes: 10, 3%, 2 GFLOP, 1 GB
A change within noise counts as zero.
exit code: 0; 3 if a condition is true; 1 for bad input; 2 for wrong usage

examples:
  pyprof diff before.json.gz after.json.gz
  pyprof diff base.sqlite head.sqlite --html diff.html --fail-if 'step > 3%' --fail-if 'tc_lost > 0'
"""


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof diff",
        description="Compare two captures of a program: how much faster or slower a step got, and where. Ops are "
        "matched by layer, op, arguments and direction. Times are means over steps, with their noise.",
        epilog=EPILOG,
        formatter_class=LinesAsWritten,
    )
    first = "the one to compare with: net.dict (or .gz), net.parquet, or a profiler's file (net.sqlite, net.json, ...)"
    parser.add_argument("before", metavar="A", help=first)
    other = "the other one; one of the two may be -, a net.dict on standard input"
    parser.add_argument("after", metavar="B", help=other)
    _add_gate(parser)
    _add_form(parser)
    step = "compare these steps of both (default: all but outliers, such as a first step that warms up)"
    parse_steps = imported("pyprof.parse.selection", "parse_steps")
    parser.add_argument("--step", metavar="N[-M]", type=parse_steps, help=step)
    output = "write here, not to standard output; a name that ends in .html is --html"
    parser.add_argument("-o", "--output", metavar="FILE", help=output)
    add_models(parser)
    add_common(parser, writes="files")
    return parser


def _add_gate(parser: argparse.ArgumentParser) -> None:
    gate = parser.add_argument_group("gate")
    fail_if = "exit with 3 if this is true of the change: 'step > 3%%', 'tc_lost > 0'; may be given several times"
    parse_gate = imported("pyprof.prof.diff.gate", "parse_gate")
    gate.add_argument("--fail-if", metavar="COND", type=parse_gate, action="append", default=[], help=fail_if)
    gate.add_argument("--strict", action="store_true", help="count changes within noise, too")


def _add_form(parser: argparse.ArgumentParser) -> None:
    form, positive = parser.add_argument_group("form"), whole_number(digits=6)
    add_forms(form, 1, "characters per line (default: the terminal's, or 100)")
    form.add_argument("--html", metavar="FILE", help="write the difference as a web page, too")
    form.add_argument("--top", metavar="N", type=positive, help="show the N greatest changes (default: 12)")
    form.add_argument("--all", action="store_true", help="show all changes")


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof diff", build_parser, _run, argv, inputs=("before", "after"))


def _run(args: argparse.Namespace) -> Done:
    from pyprof.files import check_output, open_output
    from pyprof.prof.diff.gate import check
    from pyprof.prof.diff.write_html import write_html

    if args.before == args.after == "-":
        raise UsageError("A and B are both standard input")
    page_only = (args.output or "").endswith(".html") and not args.html and not args.json
    if page_only:
        args.html, args.output = args.output, None
    for output in (args.output, args.html):
        check_output(output, args.force)  # before minutes of work
    found, reader_warnings = _compared(args)
    verdicts = [check(gate, found, args.strict) for gate in args.fail_if]
    if args.html:
        with open_output(args.html, args.force) as out:
            write_html(found, verdicts, out)
    if args.json:
        _write_json(args, found, verdicts, reader_warnings)
    elif not page_only:
        _write_text(args, found, verdicts)
    failed = "; ".join(verdict.text for verdict in verdicts if verdict.fails)
    return Done([*reader_warnings, f"failed: {failed}"], FAILED) if failed else Done(reader_warnings)


def _compared(args: argparse.Namespace) -> tuple[Comparison, list[str]]:
    """The difference, and the readers' warnings."""
    from pyprof.prof.diff.compare import compare
    from pyprof.prof.diff.lines import make_side
    from pyprof.prof.load import load_table

    load_model_files(args)
    loaded = [load_table(name) for name in (args.before, args.after)]
    steps = args.step
    wanted = None if steps is None else lambda number: steps[0] <= number <= steps[1]
    a, b = (make_side(capture, wanted) for capture in loaded)
    return compare(a, b), [f"{capture.name}: {warning}" for capture in loaded for warning in capture.warnings]


def _write_json(args: argparse.Namespace, found: Comparison, verdicts: Sequence[Verdict], notes: Sequence[str]) -> None:
    from pyprof.prof.diff.json_document import difference
    from pyprof.prof.diff.sentences import warnings

    write_answer(
        "diff",
        difference(found, verdicts),
        input=[Input(side.name, side.profiler) for side in (found.a, found.b)],
        warnings=[*notes, *warnings(found)],
        output=args.output,
        force=args.force,
    )


def _write_text(args: argparse.Namespace, found: Comparison, verdicts: Sequence[Verdict]) -> None:
    from pyprof.command.terminal_text import output_width
    from pyprof.files import open_output
    from pyprof.prof.diff.write_terminal import TOP, write_terminal

    width, terminal = output_width(args.output, args.width)
    with open_output(args.output, args.force) as out:
        write_terminal(found, verdicts, out, width, terminal, None if args.all else args.top or TOP)
