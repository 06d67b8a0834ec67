"""The command pyprof run: it runs an unchanged script under the embedded collector or an attached tool."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof.capture.run_report import PAGE_SUFFIXES, Report, can_be_read, default_page, make_report
from pyprof.capture.run_script import (
    DEFAULT_OUTPUT,
    Ran,
    check_script,
    found_script,
    output_file,
    rank_file,
    run,
)
from pyprof.command.argument_types import whole_number
from pyprof.command.envelope import write_answer
from pyprof.command.frame import Done, run_command, warned
from pyprof.command.parser import add_common, add_json
from pyprof.command.script_line import ScriptParser, tell_misplaced
from pyprof.errors import NothingCollected, PyprofError, ScriptInterrupted, UsageError, require
from pyprof.files import check_output, tell

if TYPE_CHECKING:
    from pyprof.processes.children import Children

TRACES: dict[str, bool | str] = {"user": True, "all": "all", "none": False}  # --trace -> init(trace=)


def build_parser() -> ScriptParser:
    parser = ScriptParser(
        prog="pyprof run",
        description="Run a script with every PyTorch call marked, and collect it into a trace for `pyprof parse`. "
        "Where the script calls pyprof.start() and pyprof.stop(), just that range is collected. "
        "Under nsys, nvprof or ncu, without -o, that tool collects. Each child that uses PyTorch has a trace of its "
        "own, named by its rank (net.rank0.json.gz) or process number.",
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
        "--no-children",
        dest="children",
        action="store_false",
        help="collect this process alone, and leave those that it starts as they are (workers of a DataLoader and of "
        "torch.compile always are)",
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

    script = found_script(options.script, options.args, options.module)
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
    require("torch", "the collector is PyTorch's own: install it for this Python")
    from pyprof.processes.child_capture import Orders, watch
    from pyprof.processes.children import following

    more: dict[str, Any] = {name: getattr(options, name) for name in ("dispatch", "nvml", "memory")}
    more |= {"trace": TRACES[options.trace], "graphs": options.graph_captures}
    file = None if trace is None else str(Path(options.output or DEFAULT_OUTPUT).absolute())
    orders = Orders("", file, os.environ.get("RANK", ""), options.force, astuple(window), more)
    enders: list[Callable[..., Ran]] = []
    with following(orders if options.children else None) as children:

        def at_hard_exit(status: int) -> int:
            """The script calls os._exit(), in this process or in a forked child."""
            if os.getpid() != pid or not enders or threading.current_thread() is not threading.main_thread():
                return status
            ran = enders.pop()(status)
            done = _finish(options, ran, trace, page, warnings, children)
            for line in () if options.quiet or options.json else done.lines:
                tell(f"pyprof run: {line}")
            return done.code

        pid, patches = os.getpid(), watch(at_hard_exit)
        try:
            with _script_output_on_standard_error() if options.json else nullcontext():
                ran = run(script, trace, window, force=options.force, share=enders.append, **more)
        finally:
            enders.clear()
            patches.undo()
        scripts.append(ran)
        return _finish(options, ran, trace, page, warnings, children)


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


def _finish(
    options: argparse.Namespace,
    ran: Ran,
    trace: Path | None,
    page: Path | None,
    warnings: Sequence[str],
    children: Children,
) -> Done:
    """Make the report if the user asked for one, and list the files written. ``warnings``: told before the run.

    Raises NothingCollected if the script itself ended well and neither it nor a child has been collected.
    """
    children.settle(ran.interrupted)
    written = [trace] if trace is not None and ran.written else []
    own = len(written)
    if trace is not None:
        written += [trace.with_name(Path(report.file).name) for report in children.written]
    told = [*([] if ran.nothing and (written or children.running) else ran.warnings), *children.warnings()]
    if ran.nothing and ran.code == 0 and not written and not children.running:
        raise NothingCollected("; ".join(told))
    report, failure, code = None, "", ran.code
    if written and page is not None:
        try:
            page = page if own else default_page(written[0])
            report = make_report(written[0], page, force=options.force, quiet=options.quiet or options.json)
        except PyprofError as error:
            failure, code = f"no report was made: {error}", code or 1
        except KeyboardInterrupt:
            failure, code = "interrupted: no report was made", 130
    if options.json:
        told = [*warnings, *told, *([failure] if failure else ())]
        _answer(options.script, code, written, own, children, report, told)
        return Done(code=code)
    is_first_rank = os.environ.get("RANK", "0") in ("", "0")  # the summaries of eight ranks would hide each other
    if report is not None and not options.quiet and is_first_rank:
        sys.stderr.write(f"\n{report.summary}\n")
    if failure:
        tell(f"pyprof run: {failure}")
    of_job = not own and all(child.rank is not None for child in children.written)
    lines = [*warned(told), *(() if trace is None else _lines(written, report, of_job))]
    if trace is None and ran.written:
        lines.append("the tool that is attached collected")
        lines.append("next: pyprof prof --summary FILE, with the tool's file (of nsys: nsys export --type sqlite)")
    lines += [f"process {child.pid} still runs: it writes its capture when it ends" for child in children.running]
    return Done(lines, code)


def _lines(written: Sequence[Path], report: Report | None, of_job: bool) -> Iterator[str]:
    """What has been written, and the commands that read it. ``of_job``: by the ranks of a job, and no other process."""
    if report is not None:
        yield from warned(report.warnings)
    for trace in written:
        yield f"wrote {trace}" if report is None else f"wrote {trace}, the trace"
    if report is not None:
        yield f"wrote {report.page.output.name}, the report: open it in a browser"
    if len(written) > 1:
        yield f"next: {shlex.join(('pyprof', 'prof', '--summary', *map(str, written)))}"
        if of_job and importlib.util.find_spec("distributed") is not None:
            yield f"next: {shlex.join(('pyprof', 'ranks', *map(str, written), '-o', 'job'))}"
    elif report is not None:
        yield f"next: {shlex.join(report.next_command)}"
    elif written and can_be_read(written[0]):
        yield f"next: {shlex.join(('pyprof', 'prof', '--summary', str(written[0])))}"


def _answer(
    script: str,
    code: int,
    written: Sequence[Path],
    own: int,
    children: Children,
    report: Report | None,
    warnings: list[str],
) -> None:
    from pyprof.capture.json_document import ChildCapture, ScriptRun
    from pyprof.command.json_schema import FileWritten

    found = zip(children.written, written[own:], strict=False)
    document = ScriptRun(
        script=script,
        exit_code=code,
        output=FileWritten.of(written[0]) if own else None,
        report=None if report is None else report.page,
        children=[ChildCapture(pid=one.pid, rank=one.rank, output=FileWritten.of(file)) for one, file in found],
    )
    write_answer("run", document, warnings=[*warnings, *(report.warnings if report else ())])
