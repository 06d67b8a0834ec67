"""Run a script as `python script.py` would, with its PyTorch calls marked and collected.

The script is `__main__`, with its own `sys.argv` and `sys.path[0]`; its output, its exceptions and its exit code do not
change. While it runs, `pyprof.init()` is in effect (session.py says what it replaces).
"""

from __future__ import annotations

import builtins
import concurrent.futures.thread
import os
import runpy
import sys
import threading
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NamedTuple

from pyprof.errors import PyprofError, require

if TYPE_CHECKING:
    from pyprof.capture.collector import Window

DEFAULT_OUTPUT = "net.json.gz"


class Script(NamedTuple):
    name: str  # a path, or with `module` a module's name, as for `python -m`
    args: tuple[str, ...] = ()
    module: bool = False


class Ran(NamedTuple):
    """How a script ended."""

    code: int
    written: bool  # whether its trace was written, if one was asked for
    warnings: tuple[str, ...]
    forked: bool  # whether this is a child that the script forked: the trace is its parent's


def run(
    script: Script,
    file: Path | None,
    window: Window,
    *,
    force: bool = False,
    trace: bool | str = True,
    dispatch: bool = False,
    nvml: bool = False,
    memory: bool = False,
) -> Ran:
    """Run the script and collect it into `file`. The result has the exit code that the script would have had.

    The file is also written when the script fails, exits or is interrupted. Without `file`, the attached tool
    (nsys, nvprof, ncu) collects, and this function only marks the calls.
    Raises PyprofError before anything runs if there is no such script or the file cannot be written, and afterwards if
    nothing was collected, unless the script itself failed.
    """
    if not script.module and not Path(script.name).is_file():
        raise PyprofError(f"{script.name}: no such file (a script to run was expected)")
    require("torch", "the collector is PyTorch's own: install it for this Python")
    from pyprof.capture.control import attach, collect

    if file is None:
        collecting = attach(window, trace=trace, dispatch=dispatch)
    else:
        collecting = collect(file, window, force=force, trace=trace, dispatch=dispatch, nvml=nvml, memory=memory)
    code, pid, threads = 0, os.getpid(), threading.enumerate()
    with _everything_restored():
        try:
            with collecting as collector:
                code = _exit_code(script)
                _wait_for_threads(threads)
        except PyprofError as error:
            if not code:
                raise
            return Ran(code, False, (str(error),), os.getpid() != pid)
        return Ran(code, True, tuple(collector.warnings()), os.getpid() != pid)


@contextmanager
def _everything_restored() -> Iterator[None]:
    """Restore what a script changes, for a caller in this process that runs on."""
    main, argv, path, folder = sys.modules["__main__"], sys.argv[:], sys.path[:], os.getcwd()
    try:
        yield
    finally:
        sys.modules["__main__"], sys.argv[:], sys.path[:] = main, argv, path
        os.chdir(folder)


def _wait_for_threads(before: Container[threading.Thread]) -> None:
    """Wait for the script's own threads, as Python does before it exits. ``before``: those of whoever called.

    Workers of a ThreadPoolExecutor end only when the interpreter tells them to, after this; they have done what the
    script waited for.
    """
    workers = getattr(concurrent.futures.thread, "_threads_queues", {})
    for thread in threading.enumerate():
        if thread not in before and thread not in workers and not thread.daemon:
            thread.join()


def output_file(out: str | None) -> Path | None:
    """The trace to write: `out`, or net.json.gz.

    None if a tool is attached and the user names no trace: PyTorch's profiler would take the GPU records from the tool.
    """
    from pyprof.capture.sinks import Nvtx

    if out is None and Nvtx.listening():
        return None
    return rank_file(Path(DEFAULT_OUTPUT if out is None else out), os.environ)


def rank_file(file: Path, environ: Mapping[str, str]) -> Path:
    """This rank's file: `net.rank0.json.gz` for `net.json.gz`, or `file` itself if the program has one rank.

    torchrun sets RANK and WORLD_SIZE.
    """
    rank, world = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world.isdecimal() and int(world) > 1):
        return file
    stem, dot, suffixes = file.name.partition(".")
    return file.with_name(f"{stem}.rank{int(rank)}{dot}{suffixes}")


def _exit_code(script: Script) -> int:
    """Run the script; return the interpreter's exit code: 0, SystemExit's, 1 after a traceback, or 130 after ^C."""
    try:
        _run_as_main(script)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  (the script's failure, reported as Python reports it)
        tb = _traceback_of_script(error)
        sys.excepthook(type(error), error.with_traceback(tb), tb)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _run_as_main(script: Script) -> None:
    """Run the script as the module `__main__`, whose variables are those that Python gives it."""
    sys.argv[:] = [script.name, *script.args]
    first = os.getcwd() if script.module else str(Path(script.name).resolve().parent)
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # otherwise Python puts no folder before the others
        sys.path[:1] = [first]
    if script.module:
        runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        return
    path = os.path.join(os.getcwd(), script.name)  # not normalised, as in Python
    loader = SourceFileLoader("__main__", path)
    main = ModuleType("__main__")
    vars(main).update(
        __annotations__={}, __builtins__=builtins, __cached__=None, __file__=path, __loader__=loader, __spec__=None
    )
    sys.modules["__main__"] = main
    exec(loader.source_to_code(loader.get_data(path), path), vars(main))  # noqa: S102  (the script the user named)


def _traceback_of_script(error: BaseException) -> TracebackType | None:
    """The traceback, beginning at the script's own first frame."""
    frozen = ("<frozen runpy>", "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
    not_the_script = (__file__, runpy.__file__, *frozen)
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename in not_the_script:
        tb = tb.tb_next
    return tb
