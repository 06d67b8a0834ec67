"""Option types for ``add_argument(type=...)``. All of them report a wrong value in the same form."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pyprof.errors import PyprofError, UsageError

T = TypeVar("T")


def whole_number(least: int = 1, digits: int = 9, what: str = "a number from 1 on") -> Callable[[str], int]:
    """The type of a whole number from ``least`` on, of at most ``digits`` digits; ``what`` describes it in errors."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > digits or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected {what}, found {text!r}")
        return int(text)

    return parse


def number(least: float, most: float, what: str) -> Callable[[str], float]:
    """The type of a number from ``least`` to ``most``; ``what`` describes it in errors."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected {what}, {least:g} to {most:g}, found {text!r}")
        return value

    return parse


def file_name(endings: Sequence[str], *, standard: bool = True) -> Callable[[str], str]:
    """The type of a file name whose ending chooses the format. ``standard``: standard output and devices, which have
    no ending, are allowed too."""

    def parse(text: str) -> str:
        path = Path(text)
        if text.lower().endswith(tuple(endings)):
            return text
        if standard and (text == "-" or (path.exists() and not path.is_file())):
            return text
        raise argparse.ArgumentTypeError(f"expected a name that ends in {', '.join(endings)}, found {text!r}")

    return parse


def check_suffix(output: str, known: Sequence[str], forms: str) -> None:
    """Raise UsageError if the name for ``-o`` has a suffix, apart from .gz, that is not among ``known``.

    A name without a suffix, a device and a named pipe are allowed. ``forms`` names the suffixes in the message.
    """
    path, suffix = Path(output), Path(output.removesuffix(".gz")).suffix
    if suffix and suffix not in known and (path.is_file() or not path.exists()):
        raise UsageError(f"argument -o: {output}: {suffix} is no known suffix; there are {forms}")


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an option whose own parser raises ValueError or PyprofError."""

    def checked(text: str) -> T:
        try:
            return parse(text)
        except (ValueError, PyprofError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def imported(module: str, name: str) -> Callable[[str], Any]:
    """``parsed`` with a function whose module is imported only if the option is given, so that --help stays fast."""

    def parse(text: str) -> Any:
        return getattr(importlib.import_module(module), name)(text)

    return parsed(parse)
