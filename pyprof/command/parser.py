"""The argument parser of every command, and the options that mean the same everywhere."""

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from pyprof._version import __version__
from pyprof.command.argument_types import whole_number
from pyprof.command.envelope import usage_error

JSON_HELP = "one JSON object with everything that is printed, errors too (pyprof schema prints its schema)"

COMMAND = re.compile(r" +(?:pyprof|prof\.py|parse\.py) ")  # an example
NAMED = re.compile(r" +\S+  +")  # of a list: a name, and blanks up to what it means


class Parser(argparse.ArgumentParser):
    """An argument parser that with ``--json`` also reports wrong usage as an error object; exit 2."""

    _wants_json = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        self._wants_json = wants_json(words)
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error; for an option's value, which the usage does not explain, the error alone."""
        if self._wants_json:
            usage_error(self.prog, message)
        if message.startswith("argument "):
            self.exit(2, f"{self.prog}: error: {message}\n")
        super().error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, which has characters such as \u00d7 that some locales' encodings lack."""
        encoding = getattr(file, "encoding", None) or "utf-8"
        super()._print_message(message.encode(encoding, "replace").decode(encoding), file)


class LinesAsWritten(argparse.HelpFormatter):
    """Help that keeps the lines of description and epilog, and wraps those that are longer than the terminal.

    What goes on stands below the text that follows the line's name. Commands are not wrapped, so that they can be
    copied.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(part for line in text.splitlines() for part in _wrapped_help(line, width, indent) or [""])


def _wrapped_help(line: str, width: int, indent: str) -> list[str]:
    if COMMAND.match(line):
        return [indent + line]
    named = NAMED.match(line)
    hang = indent + " " * (len(named[0]) if named and len(named[0]) < width / 2 else len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line, width, initial_indent=indent, subsequent_indent=hang, break_on_hyphens=False, break_long_words=False
    )


def wants_json(words: Sequence[str]) -> bool:
    """Whether ``--json`` is among the words of a command line. The other words may be invalid."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def add_json(parser: argparse._ActionsContainer, help: str = JSON_HELP) -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_forms(
    group: argparse._ArgumentGroup, least: int, width: str, json: str = JSON_HELP
) -> argparse._MutuallyExclusiveGroup:
    """Add ``-w`` (from ``least`` on) and ``--json``, and return what other forms are to be added to.

    A command takes one form. Beside one that is no text, ``-w`` has no effect, so that a script may always give it.
    """
    characters = whole_number(least, 6, f"a number from {least} on")
    group.add_argument("-w", metavar="N", dest="width", type=characters, help=f"{width}; only text has a width")
    forms = group.add_mutually_exclusive_group()
    add_json(forms, json)
    return forms


def add_common(parser: argparse.ArgumentParser, writes: str = "") -> None:
    """Add ``--quiet``, ``--version``, and ``--force`` if the command writes files (``writes``: "file" or "files")."""
    if writes:
        parser.add_argument("--force", action="store_true", help=f"overwrite the output {writes}")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on standard error but errors")
    parser.add_argument("--version", action="version", version=f"pyprof {__version__}")
