"""`pyprof run script.py args...`: run a script, unchanged, under the embedded collector or an attached tool."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.command.envelope import Parser, add_json, envelope, fail, write_envelope
from pyprof.command.json_schema import Schema, integer, maybe, record, text
from pyprof.errors import PyprofError, require
from pyprof.files import tell

if TYPE_CHECKING:
    from pyprof.capture.collector import Window

DEFAULT_OUTPUT = "net.json.gz"
TRACES: dict[str, bool | str] = {"user": True, "all": "all", "none": False}  # --trace -> init(trace=)


def run(
    script: str,
    args: Sequence[str] = (),
    out: str | Path | None = None,
    *,
    force: bool = False,
    trace: bool | str = True,
    dispatch: bool = False,
    module: bool = False,
    window: Window | None = None,
) -> int:
    """Run `script` as __main__ with `args`, collect it into `out`; returns the exit code that it would have had.

    The file is written when the script fails, exits or is interrupted, too. Without `out`, a tool that is attached
    (nsys, nvprof, ncu) collects, or else it is net.json.gz. With `module`, `script` is a module's name, as for
    `python -m`. Raises PyprofError, before anything runs, where there is no such script or the file cannot be written.

    Of several ranks (torchrun), each writes its own file, `net.rank0.json.gz` for `net.json.gz`.
    """
    if not module and not Path(script).is_file():
        raise PyprofError(f"{script}: no such file (a script to run was expected)")
    require("torch", "the collector is PyTorch's own: install it for this Python")
    from pyprof.capture.collector import Window, attach, profile

    before = sys.argv[:], sys.path[:]
    part = window or Window()
    file = output_file(out)
    collecting: AbstractContextManager[None]
    if file is None:
        collecting = attach(part, trace=trace, dispatch=dispatch)
    else:
        collecting = profile(
            file,
            force=force,
            trace=trace,
            dispatch=dispatch,
            warmup=part.warmup,
            steps=part.steps,
            wait=part.wait,
        )
    with collecting:
        sys.argv[:] = [script, *args]
        sys.path.insert(0, "" if module else str(Path(script).resolve().parent))
        try:
            return _exit_code(script, module)
        finally:
            sys.argv[:], sys.path[:] = before


def output_file(out: str | Path | None) -> Path | None:
    """The trace to write; None where none is asked for and a tool is attached: PyTorch's profiler would disturb it."""
    from pyprof.capture.sinks import Nvtx

    if out is None and Nvtx.listening():
        return None
    return rank_file(Path(DEFAULT_OUTPUT if out is None else out), os.environ)


def rank_file(file: Path, environ: Mapping[str, str]) -> Path:
    """This rank's file, by the variables that torchrun sets; `file` itself for a program of one."""
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world.isdecimal() and int(world) > 1):
        return file
    stem, dot, suffixes = file.name.partition(".")
    return file.with_name(f"{stem}.rank{int(rank)}{dot}{suffixes}")


def _exit_code(script: str, module: bool) -> int:
    """Run it. As the interpreter would: 0, what SystemExit says, 1 after an exception's traceback, 130 after ^C."""
    try:
        if module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        return _code_of(stop)
    except KeyboardInterrupt as error:
        _print_script_error(error)
        return 130
    except Exception as error:  # noqa: BLE001  (the script's own failure, told as Python tells it)
        _print_script_error(error)
        return 1
    return 0


def _code_of(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _print_script_error(error: BaseException) -> None:
    """The traceback, from the script's own first frame on."""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename in ours:
        tb = tb.tb_next
    traceback.print_exception(type(error), error, tb)


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof run",
        description="Run a script with every PyTorch call marked, and collect it into a trace for `pyprof parse`. "
        "Where the script calls pyprof.start() and pyprof.stop(), just that range is collected. "
        "Under nsys, nvprof or ncu, without -o, that tool collects.",
    )
    parser.add_argument(
        "-o", "--output", help=f"the trace to write (default: {DEFAULT_OUTPUT}, or none where a tool is attached)"
    )
    parser.add_argument("--force", action="store_true", help="write over an existing file")
    parser.add_argument(
        "--trace",
        choices=tuple(TRACES),
        default="user",
        help="whose frames to keep in the call stacks (default: %(default)s)",
    )
    parser.add_argument(
        "--warmup",
        type=_count,
        default=0,
        metavar="N",
        help="pass over the first N iterations (pyprof.step() ends one)",
    )
    parser.add_argument("--steps", type=_count, metavar="M", help="collect M iterations and no more")
    parser.add_argument(
        "--capture-range",
        choices=("all", "cudaProfilerApi"),
        default="all",
        help="cudaProfilerApi: collect nothing before pyprof.start() (default: %(default)s)",
    )
    parser.add_argument(
        "--dispatch",
        action="store_true",
        help="mark each aten op too, with the types its kernels get (13 us an op)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name, as for python -m")
    add_json(parser, "one JSON object of what was collected, errors too (pyprof schema run); what the script prints "
             "goes to standard error")  # fmt: skip
    parser.add_argument("script", help="the script to run")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of iterations")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """The command. The script's exit code, or 1 where pyprof itself could not do its part."""
    from pyprof.capture.collector import Window

    options = build_parser().parse_args(argv)
    window = Window(options.warmup, options.steps, options.capture_range == "cudaProfilerApi")
    try:
        with _aside() if options.json else nullcontext():
            code = run(
                options.script,
                options.args,
                options.output,
                force=options.force,
                trace=TRACES[options.trace],
                dispatch=options.dispatch,
                module=options.module,
                window=window,
            )
        file = output_file(options.output)
        if options.json:
            _answer(options.script, code, file)
    except PyprofError as error:
        return fail("pyprof run", error, options.json)
    if not options.json:
        tell("pyprof run: the tool that is attached collected" if file is None else f"pyprof run: wrote {file}")
    return code


@contextmanager
def _aside() -> Iterator[None]:
    """What the script and its children print goes to standard error: standard output is for one JSON object."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):  # whatever sys.stdout is: a buffer of it may outlive the change of files
            yield
    finally:
        sys.stdout.flush()
        os.dup2(ours, 1)
        os.close(ours)


def _answer(script: str, code: int, file: Path | None) -> None:
    from pyprof.files import open_output

    made = None if file is None else {"name": file, "bytes": file.stat().st_size}
    own = {"script": script, "exit_code": code, "output": made}
    with open_output(None) as out:
        write_envelope(envelope("run", own), out)


def _schema() -> Schema:
    made = {"name": text("of the file; of several ranks, this one's"), "bytes": integer("its size")}
    return record(
        {
            "script": text("as given"),
            "exit_code": integer("the script's, and so the command's"),
            "output": maybe(record(made, "the trace, for pyprof parse; null where a tool that is attached collected")),
        },
        "run",
    )


SCHEMAS = {"run": _schema}
