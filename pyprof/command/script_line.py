"""The command line of a command that runs a script: the command's options, the script, the script's own words.

As with python, torchrun and nsys, options stand before the script, and what stands behind it is the script's. An option
of the command that a user wrote behind the script would be without effect and nobody would know: `misplaced` says so.
"""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyprof.command.frame import warned
from pyprof.command.parser import Parser
from pyprof.files import tell


class ScriptParser(Parser):
    """A parser of `[options] SCRIPT [args ...]`; what stands behind the script is not parsed.

    ``follow``: options that may also stand directly behind the script. An option whose value may be left out has one
    only if the next word ends in one of ``values``: in `--report train.py`, argparse would take the script for it.
    The result has ``module``, ``script``, ``args``, and ``separated``: whether `--` stands before the script.
    """

    def __init__(self, *args: Any, follow: tuple[str, ...] = (), values: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self._follow, self._values = follow, values

    def add_script(self) -> None:
        """Add -m, SCRIPT and its arguments."""
        but = f"; but {', '.join(self._follow)} directly behind it are pyprof's" if self._follow else ""
        self.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name, as for python -m")
        self.add_argument("script", metavar="SCRIPT", help="the script to run")
        what = f"its arguments: all that stands behind it, options too{but}"
        self.add_argument("args", nargs=argparse.REMAINDER, help=what)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        ours, rest = self._split(sys.argv[1:] if args is None else args)
        separated = rest[:1] == ["--"]
        upto = 2 if separated else 1
        script, own = rest[:upto], rest[upto:]
        if not separated:
            more, own = self._split(own, self._follow)
            ours += more
        namespace, unknown = super().parse_known_args([*ours, *script], namespace)
        namespace.args, namespace.separated = own, separated
        return namespace, unknown

    def _split(self, words: Sequence[str], only: Sequence[str] | None = None) -> tuple[list[str], list[str]]:
        """The options at the beginning of a command line with their values, and the words that follow.

        ``only``: the options to take; the first other one is a word that follows.
        """
        options: list[str] = []
        rest = list(words)
        while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
            if only is not None and rest[0].partition("=")[0] not in only:
                break
            word = rest.pop(0)
            action = self._meant(word)
            if action is not None and action.nargs == "?":
                word += f"={rest.pop(0) if rest and rest[0].endswith(self._values) else ''}"
            options.append(word)
            if action is not None and action.nargs is None:
                options += rest[:1]
                del rest[:1]
        return options, rest

    def _meant(self, word: str) -> argparse.Action | None:
        """The option that a word is; None if none or several are meant. A long option may be abbreviated."""
        known = self._option_string_actions
        if word in known:
            return known[word]
        meant = {id(each): each for name, each in known.items() if word.startswith("--") and name.startswith(word)}
        return next(iter(meant.values())) if len(meant) == 1 else None


def tell_misplaced(parser: ScriptParser, options: argparse.Namespace) -> list[str]:
    """Print what `misplaced` finds, before the script runs, unless `--` stands before the script; return it."""
    if options.separated:
        return []
    warnings = misplaced(parser, options.script, options.args, ["-m"] if options.module else [])
    tell_before(parser.prog, warnings, options)
    return warnings


def tell_before(prog: str, warnings: Iterable[str], options: argparse.Namespace) -> None:
    """Print warnings before the script runs, which may take long; of a job's ranks, the first one does."""
    if not (options.quiet or options.json) and os.environ.get("RANK", "0") in ("", "0"):
        for line in warned(warnings):
            tell(f"{prog}: {line}")


def misplaced(parser: argparse.ArgumentParser, script: str, args: Sequence[str], before: Sequence[str]) -> list[str]:
    """One line if a script gets options of the command that its own text does not name; else none.

    ``script``: a path, or a module's name behind `-m`; ``args``: the words behind it; ``before``: the words that stand
    directly before it, such as `-m`.
    """
    own = args[: args.index("--")] if "--" in args else args
    text = _text(script, before[-1:] == ["-m"])
    found, moved = list[str](), list[str]()
    for place, word in enumerate(own):
        name, equals, _ = word.partition("=")
        action = parser._option_string_actions.get(name)
        if action is None or "--help" in action.option_strings or _names(text, name):
            continue
        found.append(name)
        moved += [word, *(own[place + 1 : place + 2] if action.nargs is None and not equals else [])]
    if not found:
        return []
    right = shlex.join((*parser.prog.split(), *moved, *before, script))
    return [
        f"{script} gets {' and '.join(dict.fromkeys(found))}, which its text does not name: an option of {parser.prog} "
        f"stands before the script ({right})"
    ]


def _text(script: str, module: bool) -> bytes:
    """What the script's file holds; nothing of a folder. A module is not imported, for that would run its package."""
    files = [Path(script)]
    if module:
        stems = [Path(folder, *script.split(".")) for folder in ("", *sys.path)]
        files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__main__.py")]
    return next((file.read_bytes() for file in files if file.is_file()), b"")


def _names(text: bytes, option: str) -> bool:
    return re.search(rb"(?<![\w-])" + re.escape(option.encode()) + rb"(?![\w-])", text) is not None
