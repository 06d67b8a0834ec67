"""From the user's command, `python train.py --lr 0.1`, the one that runs the script with its calls marked.

Only a Python script can be marked: `python [options] SCRIPT`, `python -m MODULE`, and a script by its name. Any other
command, such as torchrun, stays as it is.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyprof.errors import PyprofError

CHILD = "pyprof.ncu.marked_script"  # the module that runs the script
_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_TAKE_A_VALUE = "WX"  # Python's options of one letter that have one; m and c end the options


class PythonProgram(NamedTuple):
    """`python -u -m train --lr 0.1`, taken apart."""

    interpreter: tuple[str, ...]  # ("python", "-u")
    script: str  # "train"
    module: bool
    args: tuple[str, ...]  # ("--lr", "0.1")


def python_program(command: Sequence[str]) -> PythonProgram | None:
    """The script that a command runs.

    None if it is not Python, if its code is in no file (`python -c`), or if it is `python -m pyprof`, which marks by
    itself.
    """
    first, *words = command
    if first.endswith(".py"):
        return PythonProgram((sys.executable,), first, False, tuple(words))
    if not _PYTHON.fullmatch(Path(first).name):
        return None
    options, found, rest = _split(words)
    if not rest or found == "c" or rest[0] == ("pyprof" if found == "m" else "-"):
        return None
    return PythonProgram((first, *options), rest[0], found == "m", tuple(rest[1:]))


def _split(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Python's options; "m" or "c" if that one ended them; and what follows, with the module's name first.

    >>> _split("-uX dev -mtrain -v".split()), _split(["-u", "train.py", "-m"])
    ((['-uX', 'dev'], 'm', ['train', '-v']), (['-u'], '', ['train.py', '-m']))
    """
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        letter, at = _last_option(word)
        value = word[at + 1 :]
        if letter in ("m", "c"):
            return [*options, *([word[:at]] if at > 1 else [])], letter, [*([value] if value else []), *rest]
        options.append(word)
        if (letter and not value) or word == "--check-hash-based-pycs":
            options += rest[:1]
            del rest[:1]
    return options, "", rest


def _last_option(word: str) -> tuple[str, int]:
    """The first letter of `-uW` that has a value, and where it is; nothing if none has.

    >>> _last_option("-uWignore"), _last_option("-m"), _last_option("-OO"), _last_option("--help")
    (('W', 2), ('m', 1), ('', 0), ('', 0))
    """
    letters = "" if word.startswith("--") else word
    return next(((letter, at) for at, letter in enumerate(letters) if letter in f"{_TAKE_A_VALUE}mc"), ("", 0))


def marked_command(program: PythonProgram, options: Sequence[str]) -> list[str]:
    """The command that runs the script marked; ``options`` are those of marked_script.py."""
    module = ("-m",) if program.module else ()
    return [*program.interpreter, "-m", CHILD, *options, *module, "--", program.script, *program.args]


def check_interpreter(program: PythonProgram) -> None:
    """Raise PyprofError if the interpreter cannot be run, or pyprof is not installed for it."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec('pyprof') is None or not u.find_spec('{CHILD}'))"
    try:
        done = subprocess.run([*program.interpreter, "-c", code], capture_output=True, check=False)
    except OSError as error:
        raise PyprofError(f"{program.interpreter[0]}: cannot be run: {error.strerror or error}") from None
    if done.returncode:
        raise PyprofError(
            f"{program.interpreter[0]}: pyprof is not installed for this Python, and marks the script's calls from "
            "within: install it there"
        )
