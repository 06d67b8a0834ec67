"""The command pyprof diff: two captures in, their difference out; with --fail-if a gate for CI."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from pyprof.command.envelope import Input, Parser, add_json, envelope, fail, write_envelope
from pyprof.command.frame import add_force, add_quiet, add_version
from pyprof.errors import PyprofError, packages
from pyprof.files import tell
from pyprof.prof.load import add_models, load_model_files

if TYPE_CHECKING:
    from pyprof.prof.diff.compare import Comparison
    from pyprof.prof.diff.gate import Gate, Verdict

FAILED = 3  # exit code of a gate that fails: neither bad input (1) nor wrong usage (2)
EPILOG = """\
conditions of --fail-if, on the change B - A of a step: QUANTITY > NUMBER (>= < <= == !=), and, or, ( )
  step, gpu, idle, forward, backward, optimizer, data, other    times: 3%, 0.5 ms, 20 us
  op:NAME layer:NAME kind:NAME kernel:NAME                      times of what a glob names
  kernels, tc_lost, tc_gained, flops, bytes                     amounts: 10, 3%, 2 GFLOP, 1 GB
A change within noise counts as none.
exit code: 0; 3 where a condition is true; 1 bad input; 2 wrong usage

examples:
  pyprof diff before.json.gz after.json.gz
  pyprof diff base.sqlite head.sqlite --html diff.html --fail-if 'step > 3%' --fail-if 'tc_lost > 0'
"""


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof diff",
        description="Compare two captures of a program: how much faster or slower a step got, and where. Ops are\n"
        "matched by layer, op, arguments and direction; times are means over steps, noise is told.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", metavar="A", help="the one to compare with: net.dict (or .gz), net.parquet, or a "
                        "profiler's file (net.sqlite, net.json, ...)")  # fmt: skip
    parser.add_argument("after", metavar="B", help="the other one; one of the two may be -, a net.dict on standard "
                        "input")  # fmt: skip
    gate = parser.add_argument_group("gate")
    gate.add_argument("--fail-if", metavar="COND", type=_condition, action="append", default=[],
                      help="exit with 3 where this is true of the change: 'step > 3%%', 'tc_lost > 0'; "
                      "or several: any of them")  # fmt: skip
    gate.add_argument("--strict", action="store_true", help="let changes count that noise explains")
    form = parser.add_argument_group("form")
    add_json(form)
    form.add_argument("--html", metavar="FILE", help="write the difference as a web page, too")
    form.add_argument("-w", metavar="N", dest="width", type=_positive, help="characters a line (without: the "
                      "terminal's, else 100)")  # fmt: skip
    form.add_argument("--top", metavar="N", type=_positive, help="show the N greatest changes (default: 12)")
    form.add_argument("--all", action="store_true", help="show all changes")
    parser.add_argument("--step", metavar="N[-M]", type=_steps, help="compare these steps of both (without: all but "
                        "outliers, such as a first step that warms up)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="write here, not to standard output; a name that ends "
                        "in .html is --html")  # fmt: skip
    add_models(parser)
    add_force(parser, "files")
    add_quiet(parser)
    add_version(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if (args.output or "").endswith(".html") and not args.html and not args.json:
        args.html, args.output, args.page_only = args.output, None, True
    else:
        args.page_only = False
    if args.before == args.after == "-":
        parser.error("A and B are both standard input")
    try:
        with packages():
            verdicts = _run(args)
    except PyprofError as error:
        return fail("pyprof diff", error, args.json, [args.before, args.after])
    failed = [verdict.text for verdict in verdicts if verdict.fails]
    if failed and not args.quiet:
        tell(f"pyprof diff: failed: {'; '.join(failed)}")
    return FAILED if failed else 0


def _run(args: argparse.Namespace) -> list[Verdict]:
    from pyprof.files import check_output, open_output
    from pyprof.prof.diff.gate import check
    from pyprof.prof.diff.sentences import warnings
    from pyprof.prof.diff.write_html import write_html
    from pyprof.prof.diff.write_json import own_keys
    from pyprof.prof.diff.write_terminal import TOP, write_terminal

    for output in (args.output, args.html):
        check_output(output, args.force)  # before minutes of work
    found, told = _compared(args)
    verdicts = [check(gate, found, args.strict) for gate in args.fail_if]
    if args.html:
        with open_output(args.html, args.force) as out:
            write_html(found, verdicts, out)
    if args.json:
        warned = [*told, *warnings(found)]
        document = envelope("diff", own_keys(found, verdicts), input=_inputs(found), warnings=warned)
        with open_output(args.output, args.force) as out:
            write_envelope(document, out)
        return verdicts
    if not args.quiet:
        for line in told:
            tell(f"pyprof diff: {line}")
    if not args.page_only:
        from pyprof.files import is_standard

        terminal = is_standard(args.output) and sys.stdout.isatty()
        width = args.width or (shutil.get_terminal_size().columns if terminal else 100)
        with open_output(args.output, args.force) as out:
            write_terminal(found, verdicts, out, width, terminal, None if args.all else args.top or TOP)
    return verdicts


def _compared(args: argparse.Namespace) -> tuple[Comparison, list[str]]:
    """The difference, and what the readers said."""
    from pyprof.prof.diff.compare import compare
    from pyprof.prof.diff.lines import make_side
    from pyprof.prof.load import load_table

    load_model_files(args)
    loaded = [load_table(name) for name in (args.before, args.after)]
    steps = args.step
    wanted = None if steps is None else lambda number: steps[0] <= number <= steps[1]
    a, b = (make_side(each, wanted) for each in loaded)
    return compare(a, b), [f"{each.name}: {warning}" for each in loaded for warning in each.warnings]


def _inputs(found: Comparison) -> list[Input]:
    return [Input(side.name, side.profiler) for side in (found.a, found.b)]


def _condition(text: str) -> Gate:
    from pyprof.prof.diff.gate import parse_gate
    from pyprof.prof.table.condition import ConditionError

    try:
        return parse_gate(text)
    except ConditionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _steps(text: str) -> tuple[int, int]:
    from pyprof.parse.selection import parse_steps

    return parse_steps(text)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)
