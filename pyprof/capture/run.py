"""The command pyprof run: it runs an unchanged script under the embedded collector or an attached tool."""

import argparse
import atexit
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import NoReturn

from pyprof.capture.run_report import PAGE_SUFFIXES, Report, default_page, make_report
from pyprof.capture.run_script import DEFAULT_OUTPUT, Ran, Script, check_script, output_file, rank_file, run
from pyprof.command.argument_types import whole_number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import add_common, add_json
from pyprof.command.script_line import ScriptParser, tell_misplaced
from pyprof.errors import PyprofError, ScriptInterrupted, UsageError
from pyprof.files import check_output, tell

TRACES: dict[str, bool | str] = {"user": True, "all": "all", "none": False}  # --trace -> init(trace=)


def build_parser() -> ScriptParser:
    parser = ScriptParser(
        prog="pyprof run",
        description="Run a script with every PyTorch call marked, and collect it into a trace for `pyprof parse`. "
        "Where the script calls pyprof.start() and pyprof.stop(), just that range is collected. "
        "Under nsys, nvprof or ncu, without -o, that tool collects.",
        values=PAGE_SUFFIXES,
    )
    _add_output(parser)
    _add_collection(parser)
    parser.add_script()
    return parser


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", help=f"the trace to write (default: {DEFAULT_OUTPUT}, or none where a tool is attached)"
    )
    parser.add_argument(
        "--report",
        nargs="?",
        const="",
        metavar="FILE.html",
        help="when the script has ended, write the trace as a web page, too (default: the trace's name with .html), "
        "and print its summary on standard error",
    )
    add_json(
        parser,
        "one JSON object of what was collected, errors too (pyprof schema run); what the script prints "
        "goes to standard error",
    )
    add_common(parser, writes="file")


def _add_collection(parser: argparse.ArgumentParser) -> None:
    iterations = whole_number(0, what="a number of iterations")
    parser.add_argument(
        "--trace",
        choices=tuple(TRACES),
        default="user",
        help="whose frames to keep in the call stacks (default: %(default)s)",
    )
    parser.add_argument(
        "--warmup",
        type=iterations,
        default=0,
        metavar="N",
        help="pass over the first N iterations: one ends with the first optimizer's step(), or with pyprof.step()",
    )
    parser.add_argument("--steps", type=iterations, metavar="M", help="collect M iterations and no more")
    parser.add_argument(
        "--capture-range",
        choices=("all", "cudaProfilerApi"),
        default="all",
        help="cudaProfilerApi: collect nothing before pyprof.start() (default: %(default)s)",
    )
    parser.add_argument(
        "--memory", action="store_true", help="record allocations and frees, too, for `pyprof memory` (0.2 us for each)"
    )
    parser.add_argument(
        "--no-graph-captures",
        dest="graph_captures",
        action="store_false",
        help="do not record captures of CUDA graphs before the collected iterations, whose replays then have no ops "
        "(to record one of 200 kernels takes 30 ms)",
    )
    parser.add_argument(
        "--nvml",
        action="store_true",
        help="read the GPUs' clocks, power, temperature and energy meanwhile, into the trace (needs nvidia-ml-py)",
    )
    parser.add_argument(
        "--dispatch", action="store_true", help="mark each aten op too, with the types its kernels get (13 us an op)"
    )


def main(argv: list[str] | None = None) -> int:
    """Return the script's exit code, or 1 if pyprof itself failed. Raises ScriptInterrupted if ^C ended the script."""
    scripts: list[Ran] = []
    code = run_command("pyprof run", build_parser, partial(_run, scripts), argv, inputs=(), runs_code=True)
    if any(ran.interrupted for ran in scripts):
        raise ScriptInterrupted
    return code


def _run(scripts: list[Ran], options: argparse.Namespace) -> Done:
    from pyprof.capture.collector import Window

    script = Script(options.script, tuple(options.args), options.module)
    window = Window(options.warmup, options.steps, options.capture_range == "cudaProfilerApi")
    trace = output_file(options.output)
    if options.nvml and trace is None:
        raise UsageError(
            "argument --nvml: the tool that is attached (nsys, nvprof or ncu) collects this run; add -o net.json.gz to "
            "collect it with PyTorch's profiler, or let the tool sample (nsys profile --gpu-metrics-devices=all)"
        )
    if options.memory and trace is None:
        raise UsageError(
            "argument --memory: the tool that is attached (nsys, nvprof or ncu) collects this run; add -o net.json.gz "
            "to collect it with PyTorch's profiler, or let the tool record it (nsys profile --cuda-memory-usage=true)"
        )
    page = _page(options, trace)
    if page is not None:
        check_output(page, options.force)  # checked now, before the script runs
    check_script(script)
    warnings = tell_misplaced(build_parser(), options)
    with _script_output_on_standard_error() if options.json else nullcontext():
        marks = TRACES[options.trace]
        more = {name: getattr(options, name) for name in ("dispatch", "nvml", "memory")}
        more["graphs"] = options.graph_captures
        ran = run(script, trace, window, force=options.force, trace=marks, **more)
    if ran.forked:
        end_process(ran.code)
    scripts.append(ran)
    return _finish(options, ran, trace if ran.written else None, page, warnings)


def _page(options: argparse.Namespace, trace: Path | None) -> Path | None:
    """The path of the page to write; None without --report. Raises UsageError."""
    if options.report is None:
        return None
    if trace is None:
        raise UsageError(
            "argument --report: the tool that is attached (nsys, nvprof or ncu) collects this run; add -o net.json.gz "
            "to collect it with PyTorch's profiler, or make the page of the tool's file: pyprof report net.sqlite"
        )
    if options.report == "-":
        raise UsageError("argument --report: expected a file's name, found -: standard output is the script's")
    page = rank_file(Path(options.report), os.environ) if options.report else default_page(trace)
    if page == trace:
        raise UsageError(f"argument --report: {page} is the trace's name; give the page another")
    return page


@contextmanager
def _script_output_on_standard_error() -> Iterator[None]:
    """Send the output of the script and its children to standard error: standard output is for one JSON object."""
    sys.stdout.flush()
    standard_output = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):  # sys.stdout may have its own buffer, so redirecting the file is not enough
            yield
    finally:
        sys.stdout.flush()
        os.dup2(standard_output, 1)
        os.close(standard_output)


# After the script


def end_process(code: int) -> NoReturn:
    """End a forked child without C++ destructors, which would wait for Kineto's threads: only the parent has them."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)


def _finish(
    options: argparse.Namespace, ran: Ran, trace: Path | None, page: Path | None, warnings: Sequence[str]
) -> Done:
    """Make the report if the user asked for one, and list the files written. ``warnings``: told before the run."""
    report, failure, code = None, "", ran.code
    if trace is not None and page is not None:
        try:
            report = make_report(trace, page, force=options.force, quiet=options.quiet or options.json)
        except PyprofError as error:
            failure, code = f"no report was made: {error}", code or 1
        except KeyboardInterrupt:
            failure, code = "interrupted: no report was made", 130
    if options.json:
        _answer(options.script, code, trace, report, [*warnings, *ran.warnings, *([failure] if failure else ())])
        return Done(code=code)
    is_first_rank = os.environ.get("RANK", "0") in ("", "0")  # the summaries of eight ranks would hide each other
    if report is not None and not options.quiet and is_first_rank:
        sys.stderr.write(f"\n{report.summary}\n")
    if failure:
        tell(f"pyprof run: {failure}")
    return Done([*warned(ran.warnings), *(_lines(trace, report) if ran.written else ())], code)


def _lines(trace: Path | None, report: Report | None) -> Iterator[str]:
    if trace is None:
        yield "the tool that is attached collected"
        yield "next: pyprof prof --summary FILE, with the tool's file (of nsys: nsys export --type sqlite)"
    elif report is None:
        yield f"wrote {trace}"
        yield f"next: {shlex.join(('pyprof', 'prof', '--summary', str(trace)))}"
    else:
        yield from warned(report.warnings)
        yield f"wrote {trace}, the trace"
        yield f"wrote {report.page.output.name}, the report: open it in a browser"
        yield f"next: {shlex.join(report.next_command)}"


def _answer(script: str, code: int, trace: Path | None, report: Report | None, warnings: list[str]) -> None:
    from pyprof.capture.json_document import ScriptRun
    from pyprof.command.json_schema import FileWritten

    document = ScriptRun(
        script=script,
        exit_code=code,
        output=None if trace is None else FileWritten.of(trace),
        report=None if report is None else report.page,
    )
    write_answer("run", document, warnings=[*warnings, *(report.warnings if report else ())])
