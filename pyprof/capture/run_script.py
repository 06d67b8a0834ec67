"""Run a script as `python script.py` would, with its PyTorch calls marked and collected.

The script is `__main__`, with its own `sys.argv` and `sys.path[0]`; its output, its exceptions and its exit code do not
change. While it runs, `pyprof.init()` is in effect (session.py says what it replaces).
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyprof.errors import PyprofError, require

if TYPE_CHECKING:
    from pyprof.capture.collector import Window

DEFAULT_OUTPUT = "net.json.gz"


class Script(NamedTuple):
    name: str  # a path, or with `module` a module's name, as for `python -m`
    args: tuple[str, ...] = ()
    module: bool = False


def run(
    script: Script,
    file: Path | None,
    window: Window,
    *,
    force: bool = False,
    trace: bool | str = True,
    dispatch: bool = False,
) -> int:
    """Run the script and collect it into `file`. Return the exit code that the script would have had.

    The file is also written when the script fails, exits or is interrupted. Without `file`, the attached tool
    (nsys, nvprof, ncu) collects, and this function only marks the calls.
    Raises PyprofError before anything runs if there is no such script or the file cannot be written, and afterwards if
    nothing was collected.
    """
    if not script.module and not Path(script.name).is_file():
        raise PyprofError(f"{script.name}: no such file (a script to run was expected)")
    require("torch", "the collector is PyTorch's own: install it for this Python")
    from pyprof.capture.control import attach, collect

    if file is None:
        collecting = attach(window, trace=trace, dispatch=dispatch)
    else:
        collecting = collect(file, window, force=force, trace=trace, dispatch=dispatch)
    argv, path, folder = sys.argv[:], sys.path[:], os.getcwd()
    with collecting:
        sys.argv[:] = [script.name, *script.args]
        sys.path.insert(0, "" if script.module else str(Path(script.name).resolve().parent))
        try:
            return _exit_code(script)
        finally:
            sys.argv[:], sys.path[:] = argv, path
            os.chdir(folder)  # back to the first folder, since `file` may be relative


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
        if script.module:
            runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script.name, run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  (the script's failure, reported as Python reports it)
        _print_script_error(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _print_script_error(error: BaseException) -> None:
    """Print the traceback, beginning at the script's own first frame."""
    not_the_script = (__file__, runpy.__file__, "<frozen runpy>")
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename in not_the_script:
        tb = tb.tb_next
    traceback.print_exception(type(error), error, tb)
