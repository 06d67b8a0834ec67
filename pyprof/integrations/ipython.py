"""The magic ``%%pyprof`` of IPython and Jupyter, after ``%load_ext pyprof``: profiles a cell and shows the summary."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pyprof
from pyprof.command.argument_types import whole_number
from pyprof.errors import PyprofError

DESCRIPTION = """Collect what a cell runs, show where the time went, and keep the profile in a variable."""


class _WrongUsage(Exception):
    """A line after %%pyprof that is none, or asks for help."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _WrongUsage(f"%%pyprof: {message}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _WrongUsage(message or "")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%pyprof", description=DESCRIPTION)
    parser.add_argument("name", nargs="?", default="profile", help="the variable for the profile (default: profile)")
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the trace in this file (net.json.gz)")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    skipped = "iterations of the cell to skip; one ends with the first optimizer's step, or with pyprof.step()"
    parser.add_argument("--warmup", metavar="N", type=whole_number(0), default=0, help=skipped)
    parser.add_argument("--steps", metavar="N", type=whole_number(), help="iterations to collect after them")
    return parser


def register(shell: Any) -> None:
    """Add the magic to a running IPython."""

    def pyprof_magic(line: str, cell: str) -> None:
        profile_cell(shell, line, cell)

    shell.register_magic_function(pyprof_magic, magic_kind="cell", magic_name="pyprof")


def profile_cell(shell: Any, line: str, cell: str) -> None:
    """Run the cell under the collector. Its own error is shown as always, and so is what was collected until then."""
    try:
        args = build_parser().parse_args(shlex.split(line))
        if not args.name.isidentifier():
            raise _WrongUsage(f"%%pyprof: {args.name!r} is no name for a variable")
        with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:
            file = Path(args.output or Path(folder, "cell.json.gz"))
            with pyprof.profile(file, force=args.force, warmup=args.warmup, steps=args.steps):
                shell.run_cell(cell)
            found = pyprof.load(file)
    except (_WrongUsage, PyprofError, ValueError) as error:
        print(error)  # noqa: T201  (the cell's output)
        return
    shell.push({args.name: found})
    print(found.summary())  # noqa: T201
