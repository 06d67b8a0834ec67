"""How every command runs: it parses its arguments, does its work, and prints its lines or its error.

    def build_parser():
        parser = Parser(prog="pyprof report", ...)
        ...                                            # the command's own options
        add_json(parser)
        add_common(parser, writes="file")              # --force, --quiet, --version
        return parser

    def main(argv=None):
        return run_command("pyprof report", build_parser, _run, argv)

    def _run(args):
        ...                                            # raises PyprofError (exit 1) or UsageError (exit 2)
        return Done([*warned(warnings), "wrote report.html"])

Exit codes: 0; 1 for bad input; 2 for wrong usage; 130 after ^C. SIGTERM and SIGHUP end the process as ever, once
temporary files have been removed. ``Done`` may name another one: ``pyprof diff`` exits
with 3 if a condition of ``--fail-if`` is true, and ``pyprof run`` exits with the script's code.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyprof.command.envelope import fail
from pyprof.command.parser import Parser, wants_json
from pyprof.errors import PyprofError, UsageError, packages
from pyprof.files import remove_scratch, tell
from pyprof.gc_pause import one_heap


class Done(NamedTuple):
    """The result of a command's work."""

    lines: Sequence[str] = ()  # printed on standard error; part of the object with --json; dropped with --quiet
    code: int = 0


class _Ended(BaseException):
    """SIGTERM or SIGHUP has come."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Received:
    """Which signal has come; 0: none. Its exception may be lost: SQLite takes one in a function that it calls for a
    refusal, and Python drops those of finalizers."""

    number = 0

    def end(self, number: int, _: Any) -> None:
        self.number = number
        raise _Ended(number)

    def interrupt(self, number: int, frame: Any) -> None:
        self.number = number
        signal.default_int_handler(number, frame)

    def again(self) -> None:
        """Raise the exception of the signal that has come, if one has."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.number:
            raise _Ended(self.number)


@contextmanager
def _removing_files(wanted: bool) -> Iterator[_Received]:
    """If a signal ends the process, leave the block by an exception first, so that it removes its temporary files.

    What someone else has set for a signal stays: nohup ignores SIGHUP. ``wanted``: false for a user's own code, which
    an exception from nowhere would surprise.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in _SIGNALS if wanted and is_main and signal.getsignal(number) == signal.SIG_DFL]
    received = _Received()
    before: dict[int, Any] = dict.fromkeys(ours, signal.SIG_DFL)
    for number in ours:
        signal.signal(number, received.end)
    if wanted and is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, received.interrupt)
    try:
        yield received
        if received.number != signal.SIGINT:  # after ^C, what is done is done
            received.again()
    except _Ended as ended:
        signal.signal(ended.number, signal.SIG_IGN)  # a second one does not stop the removal
        remove_scratch()
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_command(
    prog: str,
    build_parser: Callable[[], Parser],
    work: Callable[[argparse.Namespace], Done],
    argv: Sequence[str] | None,
    inputs: Sequence[str] = ("file",),
    runs_code: bool = False,
) -> int:
    """Parse and run a command, and return its exit code. ``inputs``: the arguments that name the files it reads.

    ``runs_code``: whether the command runs a user's program in this process, whose signals are then its own.
    """
    if not runs_code:
        one_heap()
    with _removing_files(not runs_code) as received:
        return _run(prog, build_parser, _signal_first(work, received), argv, inputs)
    raise AssertionError("the process has ended by a signal")


def _signal_first(
    work: Callable[[argparse.Namespace], Done], received: _Received
) -> Callable[[argparse.Namespace], Done]:
    """The work, whose error is the signal's if one came: an error may be what SQLite made of it."""

    def run(args: argparse.Namespace) -> Done:
        try:
            return work(args)
        except PyprofError:
            received.again()
            raise

    return run


def _run(
    prog: str,
    build_parser: Callable[[], Parser],
    work: Callable[[argparse.Namespace], Done],
    argv: Sequence[str] | None,
    inputs: Sequence[str],
) -> int:
    words = sys.argv[1:] if argv is None else argv
    args = argparse.Namespace(json=wants_json(words), quiet=False)
    try:
        with packages():
            parser = build_parser()
            args = parser.parse_args(words)
            done = work(args)
    except UsageError as error:
        parser.error(str(error))
    except PyprofError as error:
        return fail(prog, error, args.json, _names(args, inputs))
    except OSError as error:  # of the file system, such as a name that is too long; a script's own stay within its run
        named = f"{error.filename}: " if error.filename else ""
        return fail(prog, PyprofError(f"{named}{error.strerror or error}"), args.json, _names(args, inputs))
    except MemoryError:
        return fail(prog, PyprofError("there is not enough memory for this file"), args.json, _names(args, inputs))
    except KeyboardInterrupt:  # incomplete files have already been removed
        remove_scratch()
        tell(f"{prog}: interrupted")
        return 130
    if not args.quiet and not args.json:
        for line in done.lines:
            tell(f"{prog}: {line}")
    return done.code


def _names(args: argparse.Namespace, inputs: Sequence[str]) -> list[str]:
    """The names of the input files, as given; ``-`` is standard input."""
    values = [getattr(args, name) for name in inputs if hasattr(args, name)]
    return [name or "-" for value in values for name in (value if isinstance(value, list) else [value])]


def check_standard_output(args: argparse.Namespace, what: str) -> None:
    """Raise UsageError if both ``what`` and the object of --json would go to standard output."""
    if args.json and args.output == "-":
        raise UsageError(f"--json prints on standard output: give the {what} another name with -o")


def warned(warnings: Iterable[str]) -> list[str]:
    """A reader's warnings as lines."""
    return [f"warning: {text}" for text in warnings]
