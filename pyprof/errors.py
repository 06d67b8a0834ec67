"""The errors that pyprof raises, in one tree.

    PyprofError                 anything below; a command prints it as one line and exits with 1
      InputError                a file is not what it should be
        SchemaError             a table, column or field is missing or has another meaning
      ModelError                an op model cannot count this call
        ShapeError              the shapes do not fit the op
        UnknownArgument         the capture lacks an argument that the count depends on
      UsageError                the command line is wrong: exit 2
      OutputError               standard output cannot be written
      NothingCollected          the program ran nothing that a collector records
      MissingPackage            a dependency is not installed for this Python

A message holds the file, what was expected, what was found and what to do.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager


class PyprofError(Exception):
    """The base class. A command reports it in one line and exits with 1."""


class InputError(PyprofError):
    """A file does not have the expected content."""

    def __init__(self, file: object, message: str, line: int | None = None) -> None:
        super().__init__(f"{file}: {message}" if line is None else f"{file}:{line}: {message}")
        self.file = str(file)
        self.line = line  # line number in a text file, from 1


class SchemaError(InputError):
    """A table, column or field of the file is missing or has another meaning than expected."""


class ModelError(PyprofError):
    """An op model cannot count this call."""


class ShapeError(ModelError):
    """The shapes do not fit the op."""

    def __init__(self, op: str, expected: str, found: object) -> None:
        super().__init__(f"{op}: expected {expected}, found {found}")


class UnknownArgument(ModelError):
    """The count depends on an argument that the capture lacks."""


class UsageError(PyprofError):
    """The command line is wrong, or its parts do not go together."""


class OutputError(PyprofError):
    """Standard output cannot be written, for example because the disk is full."""


class NothingCollected(PyprofError):
    """The program ran nothing that the collector records, or nothing in the part that was asked for."""


class ScriptInterrupted(KeyboardInterrupt):
    """^C ended the script that `pyprof run` ran, and all has been said; the process ends as the script would have."""


class MissingPackage(PyprofError):
    """A dependency is not installed for this Python: a checkout can be run without installing it."""


def require(module: str, why: str) -> None:
    """Raise PyprofError if a package is missing that users install themselves, such as torch."""
    if importlib.util.find_spec(module) is None:
        raise PyprofError(f"no module {module}; {why}")


# package -> the extra in setup.py that installs it
EXTRA = {"matplotlib": "plot", "adjustText": "plot", "dask": "cluster", "distributed": "cluster", "fsspec": "cluster"}


@contextmanager
def packages() -> Iterator[None]:
    """Raise MissingPackage if the block imports a dependency that is not installed.

    A missing module of pyprof is a bug, and stays a ModuleNotFoundError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "pyprof"):
            raise
        what = f"'.[{EXTRA[package]}]'" if package in EXTRA else "."
        message = f"the package {package} is not installed for this Python (install pyprof: pip install {what})"
        raise MissingPackage(message) from None
