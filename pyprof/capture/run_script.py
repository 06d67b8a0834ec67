"""Run a script as `python script.py` would, with its PyTorch calls marked and collected.

The script is `__main__`, with its own `sys.argv` and `sys.path[0]`; its output, its exceptions and its exit code do not
change. While it runs, `pyprof.init()` is in effect (session.py says what it replaces).
"""

from __future__ import annotations

import atexit
import builtins
import concurrent.futures.thread
import os
import pkgutil
import runpy
import shutil
import sys
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pyprof.errors import NothingCollected, PyprofError, require

if TYPE_CHECKING:
    from pyprof.capture.collector import Window

DEFAULT_OUTPUT = "net.json.gz"
_ROOM = os.path.dirname(__file__)
_OURS = (
    _ROOM + os.sep,
    os.path.join(os.path.dirname(_ROOM), "variants") + os.sep,
)  # the rooms whose code a script runs


class Script(NamedTuple):
    name: str  # a path, or with `module` a module's name, as for `python -m`
    args: tuple[str, ...] = ()
    module: bool = False


class Ran(NamedTuple):
    """How a script ended."""

    code: int
    written: bool  # whether its trace was written, if one was asked for
    warnings: tuple[str, ...]
    nothing: bool = False  # whether nothing was written, because nothing of what was asked for ran
    interrupted: bool = False  # by ^C; Python then ends by SIGINT


class ProcessState(NamedTuple):
    """What a script changes, and what its atexit handlers and pyprof itself read."""

    main: ModuleType
    argv: list[str]
    path: list[str]
    folder: str | None  # None if it has been deleted

    @classmethod
    def now(cls) -> ProcessState:
        try:
            folder = os.getcwd()
        except OSError:
            folder = None
        return cls(sys.modules["__main__"], sys.argv, sys.path, folder)

    def restore(self) -> None:
        _set_main(self.main)
        sys.argv, sys.path = self.argv, self.path
        if self.folder is not None:
            with suppress(OSError):  # deleted since
                os.chdir(self.folder)


def _set_main(main: ModuleType) -> None:
    """Make this module `__main__`, also under the name by which children of multiprocessing pickle its classes.

    multiprocessing gives `__main__` that second name when it is imported, which torch does before the script begins.
    """
    if sys.modules.get("__mp_main__") is sys.modules["__main__"]:
        sys.modules["__mp_main__"] = main
    sys.modules["__main__"] = main


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
    graphs: bool = True,
    share: Callable[[Callable[..., Ran]], object] | None = None,
) -> Ran:
    """Run the script and collect it into `file`. The result has the exit code that the script would have had.

    The file is also written when the script fails, exits or is interrupted. Without `file`, the attached tool
    (nsys, nvprof, ncu) collects, and this function only marks the calls. If nothing was collected or the file cannot be
    written, no file is, and the result's last warning says why. A child that the script forked ends here.
    ``share`` gets the function that ends collecting, for a script that ends by os._exit(code): ended(code).
    Raises PyprofError before anything runs if there is no such script or the file cannot be written.
    """
    check_script(script)
    require("torch", "the collector is PyTorch's own: install it for this Python")
    from pyprof.capture.control import attach, collect

    if file is None:
        collecting = attach(window, trace=trace, dispatch=dispatch, graphs=graphs)
    else:
        more: dict[str, Any] = {"dispatch": dispatch, "nvml": nvml, "memory": memory, "graphs": graphs}
        collecting = collect(file, window, force=force, trace=trace, at_first_call=True, **more)
    pid, threads, before = os.getpid(), threading.enumerate(), ProcessState.now()
    with ExitStack() as stack:
        collector = stack.enter_context(collecting)

        def ended(code: int, interrupted: bool = False) -> Ran:
            try:
                stack.close()
            except PyprofError as error:
                return Ran(code, False, (str(error),), isinstance(error, NothingCollected), interrupted)
            return Ran(code, True, tuple(collector.warnings()), interrupted=interrupted)

        if share is not None:
            share(ended)
        try:
            code, interrupted = _exit_code(script)
            _wait_for_threads(threads)
            if os.getpid() != pid:
                end_process(code)
            return ended(code, interrupted)
        finally:
            atexit.register(ProcessState.now().restore)  # before the script's own handlers: the last one runs first
            before.restore()


def end_process(code: int) -> NoReturn:
    """End a forked child without C++ destructors, which would wait for Kineto's threads: only the parent has them."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)


def run_alone(script: Script) -> tuple[int, bool]:
    """Run the script without collecting anything; return its exit code, and whether ^C ended it."""
    threads, before = threading.enumerate(), ProcessState.now()
    try:
        code, interrupted = _exit_code(script)
        _wait_for_threads(threads)
    finally:
        atexit.register(ProcessState.now().restore)
        before.restore()
    return code, interrupted


def found_script(name: str, args: Sequence[str], module: bool) -> Script:
    """The script of these words; a command written in Python, such as torchrun, is found as a shell finds it."""
    command = None if module or os.sep in name or os.path.exists(name) else shutil.which(name)
    if command is not None and os.access(command, os.R_OK) and _is_python(Path(command)):
        name = command
    return Script(name, tuple(args), module)


def _is_python(command: Path) -> bool:
    """Whether a command is text for Python, and no program of another kind."""
    with command.open("rb") as file:
        first = file.read(1000)
    return first.startswith(b"#!") and b"python" in b"".join(first.splitlines()[:3])


def check_script(script: Script) -> None:
    """Raise PyprofError if there is no such script."""
    path = Path(script.name)
    if not script.module and (not path.exists() or (path.is_dir() and not (path / "__main__.py").exists())):
        raise PyprofError(f"{script.name}: no such file (a script to run was expected)")


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
    return numbered(file, f"rank{int(rank)}")


def numbered(file: Path, number: str) -> Path:
    """The file of one process among several.

    >>> numbered(Path("out/net.json.gz"), "rank3").as_posix()
    'out/net.rank3.json.gz'
    """
    stem, dot, suffixes = file.name.partition(".")
    return file.with_name(f"{stem}.{number}{dot}{suffixes}")


def _exit_code(script: Script) -> tuple[int, bool]:
    """Run the script; return the interpreter's exit code (0, SystemExit's, or 1 after a traceback; 130 after ^C), and
    whether ^C ended it."""
    try:
        _run_as_main(script)
    except SystemExit as stop:
        return _code_of(stop), False
    except BaseException as error:  # noqa: BLE001  (the script's failure, reported as Python reports it)
        _leave_out_pyprof(error)
        code = _report(error)
        interrupted = code == 1 and isinstance(error, KeyboardInterrupt)
        return 130 if interrupted else code, interrupted
    return 0, False


def _code_of(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    if sys.stderr is not None:
        print(stop.code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> int:
    """Call sys.excepthook as Python does, and return the exit code: 1, unless the hook itself exits."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as stop:
        return _code_of(stop)
    except BaseException as second:  # noqa: BLE001  (reported as Python reports it)
        second.__context__ = None
        _leave_out_pyprof(second)
        for headline, failure in (("Error in sys.excepthook:", second), ("\nOriginal exception was:", error)):
            if sys.stderr is not None:
                print(headline, file=sys.stderr)
            sys.__excepthook__(type(failure), failure, failure.__traceback__)
    return 1


def _run_as_main(script: Script) -> None:
    """Run the script as the module `__main__`, whose variables are those that Python gives it."""
    main = ModuleType("__main__")
    vars(main).update(__annotations__={}, __builtins__=builtins)
    _set_main(main)
    sys.argv = [script.name, *script.args]
    if script.module:
        _put_first_on_path(os.getcwd())
        _run_module(script.name, alter_argv=True)
    elif pkgutil.get_importer(script.name) is not None:  # a folder or a zip file with a module __main__
        _put_first_on_path(os.path.abspath(script.name))
        _run_module("__main__", alter_argv=False)
    else:
        _put_first_on_path(str(Path(script.name).resolve().parent))
        _run_file(script.name, vars(main))


def _run_module(name: str, *, alter_argv: bool) -> None:
    """Python's own function for -m, folders and zip files: names, messages and tracebacks are Python's."""
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _run_file(name: str, variables: dict[str, object]) -> None:
    path = name if os.path.isabs(name) else os.path.join(os.getcwd(), name)  # not normalised, as in Python
    variables.update(__cached__=None, __file__=path, __spec__=None)
    if name.endswith(".pyc"):
        compiled = SourcelessFileLoader("__main__", path)
        variables["__loader__"], code = compiled, compiled.get_code("__main__")
    else:
        source = SourceFileLoader("__main__", path)
        # Compiled here and not by the loader, whose functions would be part of a SyntaxError's traceback.
        variables["__loader__"], code = source, compile(source.get_data(path), path, "exec", dont_inherit=True)
    assert code is not None  # get_code raises ImportError where there is none
    exec(code, variables)  # noqa: S102  (the script the user named)


def _put_first_on_path(folder: str) -> None:
    """Replace the folder of pyprof's command. With -P and -I, Python puts no folder before the others."""
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path = [folder, *sys.path[1:]]


# Tracebacks without the functions of pyprof that stand between the script and PyTorch


def _leave_out_pyprof(error: BaseException) -> None:
    """Shorten the tracebacks of `error`, of its causes, contexts and parts, to what plain Python would show.

    An error of pyprof's own, such as a file that exists, keeps its frames, except those that ran the script.
    """
    todo, seen = [error], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _shortened(one.__traceback__, only_leading=isinstance(one, PyprofError))
        todo += [other for other in (one.__cause__, one.__context__) if other is not None]
        todo += getattr(one, "exceptions", ())  # of an ExceptionGroup


def _shortened(traceback: TracebackType | None, only_leading: bool) -> TracebackType | None:
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    last = traceback
    while last is not None and not only_leading:
        following = last.tb_next
        while following is not None and _is_ours(following):
            following = following.tb_next
        last.tb_next = following
        last = following
    return traceback


def _is_ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_OURS)
