"""The command pyprof ncu: it measures the kernels of a program by Nsight Compute, or reports on what was measured."""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyprof.command.argument_types import whole_number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.json_schema import FileWritten
from pyprof.command.parser import Parser, add_common
from pyprof.command.script_line import misplaced, tell_before
from pyprof.errors import UsageError
from pyprof.files import check_output
from pyprof.ncu.counter_access import check_access
from pyprof.ncu.find_ncu import find_ncu
from pyprof.ncu.gpu_metrics import capability, metrics
from pyprof.ncu.json_document import CountersTaken
from pyprof.ncu.marked_command import check_interpreter, marked_command, python_program
from pyprof.ncu.measure import ENDED, Measured, Options, Outputs, measure, outputs
from pyprof.prof.ncu.cli import add_report_options, report

DEFAULT_OUTPUT = "counters"
WARMUP, STEPS = 1, 1
MEASURING_OPTIONS = (
    "warmup steps capture_range trace clock_control cache_control replay_mode metrics ncu_options".split()
)
REPORT_OPTIONS = "layers sort top peaks csv width".split()


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof ncu",
        usage="pyprof ncu [options] -- python SCRIPT ...\n       pyprof ncu [options] REPORT",
        description="The hardware's counters of each kernel: time, bytes of DRAM and L2, tensor cores, instructions. "
        "With `--`, Nsight Compute (ncu) measures a program; all that stands behind `--` is the program's. The script "
        "need not be changed: its PyTorch calls are marked as `pyprof run` marks them, and one iteration is measured "
        "after one of warmup. Its exit code is the command's. With the file that ncu wrote, a report: each kernel, "
        "sums by kind and by phase, and efficiency.",
    )
    parser.add_argument(
        "report",
        nargs="?",
        metavar="REPORT",
        help="written by ncu: .ncu-rep, or .csv of its page raw or details",
    )
    _add_range(parser.add_argument_group("which kernels to measure"))
    _add_how(parser.add_argument_group("how to measure"))
    add_report_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME",
        help=f"write NAME.ncu-rep and NAME.csv, or just one if NAME has that ending (default: {DEFAULT_OUTPUT}); of a "
        "report: write it to this file, not to standard output",
    )
    add_common(parser, writes="files")
    return parser


def _add_range(group: argparse._ArgumentGroup) -> None:
    iterations = whole_number(0, what="a number of iterations")
    group.add_argument(
        "--warmup", type=iterations, metavar="N", help=f"pass over the first N iterations (default: {WARMUP})"
    )
    group.add_argument("--steps", type=iterations, metavar="M", help=f"measure M iterations (default: {STEPS})")
    group.add_argument(
        "--capture-range",
        choices=("steps", "cudaProfilerApi", "all"),
        default="steps",
        help="steps: those of --warmup and --steps; cudaProfilerApi: what the program encloses in pyprof.start() and "
        "stop(), or in cudaProfilerStart and Stop; all: the whole run, which takes long (default: %(default)s)",
    )
    group.add_argument(
        "--trace",
        choices=("user", "all", "none"),
        default="user",
        help="whose frames to keep in the call stacks of the marks (default: %(default)s)",
    )


def _add_how(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--clock-control",
        choices=("none", "base"),
        default="none",
        help="none: clocks as in a run without ncu, so that times and peaks can be compared with it; base: ncu locks "
        "the base clock, so that times repeat from run to run, and are longer (default: %(default)s)",
    )
    group.add_argument(
        "--cache-control",
        choices=("all", "none"),
        default="all",
        help="all: the caches are emptied before each kernel, so that the bytes of each are its own; none: they hold "
        "what ran before, which is the kernel's own last pass where it needs several (default: %(default)s)",
    )
    group.add_argument(
        "--replay-mode",
        choices=("kernel", "application"),
        default="kernel",
        help="kernel: run each kernel several times, with its memory saved and restored; application: run the whole "
        "program several times, which has to do the same each time (default: %(default)s)",
    )
    group.add_argument("--metrics", metavar="NAMES", help="measure these as well: ncu's names, with commas between")
    group.add_argument(
        "--ncu-options", metavar="TEXT", default="", help='more options of ncu, such as "--kernel-name regex:gemm"'
    )


def main(argv: list[str] | None = None) -> int:
    """Return the program's exit code, or 1 if the measurement failed."""
    words = sys.argv[1:] if argv is None else argv
    at = words.index("--") if "--" in words else len(words)
    command = words[at + 1 :] if at < len(words) else None
    return run_command(
        "pyprof ncu",
        build_parser,
        lambda options: _run(options, command),
        words[:at],
        ("report",),
        runs_code=bool(command),
    )


def _run(options: argparse.Namespace, command: Sequence[str] | None) -> Done:
    _check_options(options, command)
    return report(options) if command is None else _measure(options, command)


def _check_options(options: argparse.Namespace, command: Sequence[str] | None) -> None:
    """Raise UsageError if there is neither a command nor a report, or both, or an option of the other half."""
    if command is None and options.report is None:
        raise UsageError("give a command behind --, as in pyprof ncu -- python SCRIPT, or ncu's report")
    if command is None and options.report.endswith(".py"):
        raise UsageError(f"{options.report} is a script; to measure it: pyprof ncu -- python {options.report}")
    if command is not None and options.report is not None:
        raise UsageError(f"{options.report}: only options may precede the --")
    if command == []:
        raise UsageError("a command is missing behind --: pyprof ncu [options] -- python SCRIPT ...")
    defaults = vars(build_parser().parse_args([]))
    others = MEASURING_OPTIONS if command is None else REPORT_OPTIONS
    given = next((name for name in others if getattr(options, name) != defaults[name]), None)
    if given is not None:
        what = "measuring, not of a report" if command is None else "a report, not of measuring"
        raise UsageError(f"{'-w' if given == 'width' else '--' + given.replace('_', '-')} is an option of {what}")


def _measure(options: argparse.Namespace, command: Sequence[str]) -> Done:
    out = outputs(options.output or DEFAULT_OUTPUT)
    for file in out.files:
        check_output(file, options.force)  # checked now, before the program runs
    program = _program(options, command)
    tell_before("pyprof ncu", program.warnings, options)
    ncu = find_ncu(os.environ)
    check_access()
    more = [name.strip() for name in (options.metrics or "").split(",") if name.strip()]
    how = Options(
        metrics=list(dict.fromkeys([*metrics(ncu, capability()), *more])),
        from_start=program.whole_run,
        replay_mode=options.replay_mode,
        clock_control=options.clock_control,
        cache_control=options.cache_control,
        more=shlex.split(options.ncu_options),
    )
    measured = measure(ncu, how, program.words, out, force=options.force, to_standard_error=options.json)
    errors = [f"ncu: {error}" for error in measured.errors]
    if options.json:
        document = CountersTaken(
            program=list(command),
            marked=program.marked,
            exit_code=measured.code,
            ncu=ncu,
            metrics=list(how.metrics),
            kernels=measured.kernels,
            passes=measured.passes,
            outputs=[FileWritten.of(file) for file in out.files] if measured.written else [],
        )
        write_answer("ncu-run", document, warnings=[*program.warnings, *errors])
    return Done([*warned(errors), *_lines(measured, out)], measured.code)


class _Program(NamedTuple):
    words: Sequence[str]
    marked: bool
    whole_run: bool
    warnings: tuple[str, ...] = ()


def _program(options: argparse.Namespace, command: Sequence[str]) -> _Program:
    """What ncu is to run, and whether from its first kernel on. Raises UsageError and PyprofError."""
    chosen = options.warmup is not None or options.steps is not None
    if chosen and options.capture_range != "steps":
        raise UsageError(f"--warmup and --steps do not go together with --capture-range {options.capture_range}")
    python = python_program(command)
    if python is None:
        if chosen:
            raise UsageError("--warmup and --steps need a Python script: in other commands, pyprof finds no iterations")
        whole_run = options.capture_range != "cudaProfilerApi"
        kernels = "all its kernels are measured" if whole_run else "what it encloses in cudaProfilerStart and Stop is"
        warning = f"{command[0]} runs as it is, no script that pyprof ncu marks: {kernels}"
        return _Program(command, False, whole_run, (warning,))
    check_interpreter(python)
    before = ["--", *python.interpreter, *(["-m"] if python.module else [])]
    warnings = misplaced(build_parser(), python.script, python.args, before)
    words = ["--ended", ENDED, "--trace", options.trace]
    if options.capture_range == "steps":
        warmup = WARMUP if options.warmup is None else options.warmup
        words += ["--warmup", str(warmup), "--steps", str(STEPS if options.steps is None else options.steps)]
    return _Program(marked_command(python, words), True, options.capture_range == "all", tuple(warnings))


def _lines(measured: Measured, out: Outputs) -> Iterator[str]:
    if not measured.written:
        yield "nothing was measured"
        return
    kernels = "1 kernel" if measured.kernels == 1 else f"{measured.kernels:,} kernels"
    yield f"measured {kernels}, {'in one pass each' if measured.passes <= 1 else f'in {measured.passes} passes each'}"
    for file in out.files:
        yield f"wrote {file}"
    yield f"next: {shlex.join(('pyprof', 'ncu', str(out.files[-1])))}"
