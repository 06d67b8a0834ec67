"""The command pyprof plan: which changes to make, in which order, and what the step takes after each."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from pyprof.command.argument_types import number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import Parser, add_common, add_forms
from pyprof.errors import UsageError
from pyprof.prof.load import add_device, add_peaks

if TYPE_CHECKING:
    from pyprof.command.progress import Say
    from pyprof.prof.changes.effect.base_run import BaseRun
    from pyprof.prof.load import LoadedFile
    from pyprof.prof.step.run_step import RunStep

MEASURE_S = 120.0  # for which --measure times calls at most


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof plan",
        description="What to change in a program, in the order in which it brings most: each change is applied to the "
        "run that the changes before it leave, and the step is replayed, so that savings interact and the host's pace "
        "counts. Prints the step's time without a profiler as it is and after each change, with an 80% interval, the "
        "source line, and what the change costs. Ends where each further change saves less than 1% of the step.",
    )
    file = "a profiler's file (net.sqlite, net.json, ...; files gzipped or not) or net.pyprof"
    parser.add_argument("file", help=file)
    first = "begin the plan with the changes of these rules, in this order (amp,alignment)"
    parser.add_argument("--with", metavar="RULES", dest="first", type=_names, default=[], help=first)
    parser.add_argument("--without", metavar="RULES", type=_names, default=[], help="leave these rules out (fusion)")
    step = "what a step takes without a profiler, where it was measured: it sets the host's pace"
    parser.add_argument("--step-ms", metavar="MS", type=number(1e-3, 1e9, "a time in ms"), help=step)
    check = "a capture of the program after some of these changes: compare the prediction with it"
    parser.add_argument("--check", metavar="FILE", help=check)
    add_device(parser, "plan for another GPU")
    _add_timings(parser)
    add_peaks(parser)
    add_forms(parser.add_argument_group("form"), 60, "characters per line")
    add_common(parser)
    return parser


def _add_timings(parser: Parser) -> None:
    group = parser.add_argument_group("measured durations")
    measure = "time the calls that changes concern, as they are and as they would be, on this machine's GPU"
    group.add_argument("--measure", action="store_true", help=measure)
    seconds = f"with --measure: stop timing after this many seconds (default: {MEASURE_S:.0f})"
    group.add_argument("--measure-seconds", metavar="S", type=number(1, 1e6, "seconds"), help=seconds)
    timings = "a file of such times: read if it is there, and extended with --measure. Reading it needs no GPU"
    group.add_argument("--timings", metavar="FILE", help=timings)
    group.add_argument(
        "--any-gpu",
        action="store_true",
        help="with --timings or --measure: use times of another GPU than the capture's",
    )


def _check_timings(args: argparse.Namespace) -> None:
    """Raise UsageError for options of measured durations that would have no effect."""
    if args.measure_seconds is not None and not args.measure:
        raise UsageError("--measure-seconds goes with --measure")
    if args.any_gpu and not (args.measure or args.timings):
        raise UsageError("--any-gpu goes with --timings or --measure")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof plan", build_parser, _run, argv)


def _run(args: argparse.Namespace) -> Done:
    from pyprof.command.progress import progress
    from pyprof.files import open_output
    from pyprof.prof.changes.effect.forecast import Forecaster
    from pyprof.prof.changes.find_changes import captured_at, planned
    from pyprof.prof.changes.rules import REMOVED
    from pyprof.prof.changes.search import make_plan
    from pyprof.prof.planning.check import check
    from pyprof.prof.planning.json_document import plan_document
    from pyprof.prof.planning.plan_device import check_device_options, on_other_gpu
    from pyprof.prof.planning.plan_timings import Source
    from pyprof.prof.planning.print_plan import WIDTH, plan_lines

    check_device_options(args)
    _check_timings(args)
    measured = None if args.step_ms is None else args.step_ms * 1e6
    with progress(None if args.measure else 3, not args.quiet) as say:
        loaded, base, step = load_base(args.file, args.peaks, say)
        gone = [name for name in (*args.first, *args.without) if name in REMOVED]
        loaded = loaded._replace(warnings=(*loaded.warnings, *(f"rule {name} was removed in 2.0" for name in gone)))
        first, without = ([name for name in names if name not in gone] for names in (args.first, args.without))
        say("planning")
        forecaster = Forecaster(base, measured, None if step is None else step.captured_ns)
        start, device = on_other_gpu(args.device, forecaster) if args.device else (None, None)
        seconds, asked = args.measure_seconds or MEASURE_S, args.timings or args.measure
        source = Source(base, args.timings, args.measure, seconds, args.any_gpu) if asked else None
        find = partial(make_plan, forecaster, first, without, start)
        plan = find() if source is None else source.plan(find, say)
        wrote = source.write() if source is not None else None
        checked = None
        if args.check:
            _, second, its_step = load_base(args.check, args.peaks, say)
            captured_ns = None if its_step is None else its_step.captured_ns
            checked = check(plan, forecaster, Forecaster(second, captured_ns=captured_ns))
    found = planned(forecaster, plan, step, captured_at(args.file)).document
    timings = None if source is None else source.document()
    document = plan_document(found, checked=checked, timings=timings, device=device)
    if args.json:
        write_answer("plan", document, input=[loaded.input], warnings=loaded.warnings)
    else:
        with open_output(None) as out:
            out.write("".join(f"{line}\n" for line in plan_lines(document, args.width or WIDTH)).encode())
    return Done([*warned(loaded.warnings), *([f"wrote {wrote}"] if wrote else [])])


def load_base(file: str, peaks: str | None, say: Say) -> tuple[LoadedFile, BaseRun, RunStep | None]:
    """The file, its run, and its step. Raises InputError for a file that cannot be judged: without the host's calls or
    anything of PyTorch, or with lost records.
    """
    from pyprof.errors import InputError
    from pyprof.prof.changes.find_changes import base_of, doubt
    from pyprof.prof.limits.peaks_file import load_peaks
    from pyprof.prof.load import load_with_calls
    from pyprof.prof.replay.cut_to_steps import step_window
    from pyprof.prof.replay.replayed_run import refuse_incomplete
    from pyprof.prof.step.run_step import run_step
    from pyprof.prof.work.annotate import annotate

    given = load_peaks(peaks) if peaks else None
    loaded, calls = load_with_calls(file, say)
    refuse_incomplete(loaded.table, loaded.name)
    say("replaying")
    annotation = annotate(loaded.table)
    base = base_of(step_window(loaded.table, annotation, calls), loaded.name, given)
    if base.run.unfit:
        raise InputError(loaded.name, f"expected a PyTorch program, found none: {base.run.unfit}")
    if why := doubt(base):
        loaded = loaded._replace(warnings=(*loaded.warnings, f"{loaded.name}: {why}, so the plan may be false"))
    return loaded, base, run_step(loaded.table, annotation)
