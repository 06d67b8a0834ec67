"""`pyprof ncu REPORT`: its options, and what they ask for."""

import argparse

from pyprof.command.argument_types import imported, whole_number
from pyprof.command.frame import Done
from pyprof.command.parser import add_forms

JSON = (
    "one JSON object of what was measured or of the report, errors too (pyprof schema ncu); what the program "
    "prints goes to standard error"
)
WIDTH = "of a report: characters per line (default: the terminal's, or 100)"
SORTS = ("time", "dram", "l2", "tensor", "instructions", "efficiency")


def add_report_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of a report")
    group.add_argument(
        "--layers",
        metavar="[NAME=]N",
        type=imported("pyprof.prof.ncu.report_layers", "parse_layers"),
        help="scale to a model with N layers: each kernel of a profiled layer counts N / (number of profiled layers) "
        "times; NAME chooses one of several stacks of layers, as in blocks=12",
    )
    group.add_argument("--sort", choices=SORTS, help="the kernels with the most first (default: as launched)")
    group.add_argument("--top", metavar="N", type=whole_number(digits=6), help="show N kernels; sums are of all")
    group.add_argument("--peaks", metavar="FILE", help="measured peaks, in place of the data sheet's (pyprof peaks)")
    forms = add_forms(parser.add_argument_group("form"), 20, WIDTH, JSON)
    forms.add_argument(
        "--csv", action="store_true", help="of a report: the kernels as CSV, in bytes and ns; unknown values are empty"
    )


def report(args: argparse.Namespace) -> Done:
    """Write the report of ``args.report`` to ``args.output``, or to standard output."""
    from pyprof.prof.ncu.report_output import CSV, JSON, TEXT, Asked, write_report

    form = CSV if args.csv else JSON if args.json else TEXT
    asked = Asked(form, args.sort, args.top, args.layers, args.peaks, args.width, args.output, args.force)
    return Done(write_report(args.report, asked))
