"""What every command has: how it is run, the options that mean the same everywhere, and the lines that it says.

def build_parser():
    parser = Parser(prog="pyprof report", ...)
    add_force(parser)
    add_json(parser)
    add_quiet(parser)

def main(argv=None):
    args = build_parser().parse_args(argv)
    return carry_out("pyprof report", _run, args, [args.file])  # _run(args) returns what to say
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence

from pyprof._version import __version__
from pyprof.command.envelope import fail
from pyprof.errors import PyprofError, packages
from pyprof.files import tell

__all__ = ["add_force", "add_quiet", "add_version", "carry_out", "check_standard_output", "warned"]


def add_force(parser: argparse.ArgumentParser, what: str = "file") -> None:
    parser.add_argument("--force", action="store_true", help=f"overwrite the output {what}")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on standard error but errors")


def add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")


def check_standard_output(parser: argparse.ArgumentParser, args: argparse.Namespace, what: str) -> None:
    """Wrong usage where both ``what`` and --json's object would go to standard output."""
    if args.json and args.output == "-":
        parser.error(f"--json prints on standard output: give the {what} another name with -o")


def carry_out(
    prog: str, work: Callable[[argparse.Namespace], Sequence[str]], args: argparse.Namespace, files: Iterable[str]
) -> int:
    """Do a command's work and say its lines on standard error, or why it failed. The exit code; 130 after ^C."""
    try:
        with packages():
            lines = work(args)
    except PyprofError as error:
        return fail(prog, error, args.json, files)
    except KeyboardInterrupt:  # what was half written is gone already
        tell(f"{prog}: interrupted")
        return 130
    if not args.quiet and not args.json:  # whose object has told them
        for line in lines:
            tell(f"{prog}: {line}")
    return 0


def warned(warnings: Iterable[str]) -> list[str]:
    """A reader's warnings, as lines."""
    return [f"warning: {text}" for text in warnings]
