"""Op models from outside pyprof: from installed packages and from a Python file that the user names.

A package names a module in its own ``pyproject.toml`` (entry points of the group ``pyprof.models``), and that module
registers its models when it is imported:

    [project.entry-points."pyprof.models"]
    mylib = "mylib.flops"

    # mylib/flops.py
    @pyprof.model("mylib::op", family="gemm")
    def op(a, b): ...

``prof.py`` and ``pyprof.count`` load them once, before counting anything. The option ``--models FILE.py`` runs a file
with the same content.
"""

import runpy
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from pyprof.errors import InputError, ModelError, PyprofError
from pyprof.prof.ops.model import MODELS

GROUP = "pyprof.models"


@cache
def load_models() -> tuple[str, ...]:
    """Import every module of the group; return the names of the entry points.

    Raises ModelError, which names the package, if an import fails.
    """
    return tuple(_load(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _load(point: EntryPoint) -> str:
    try:
        point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "an unknown package"
        raise ModelError(f"the op models {point.value} of {package} cannot be loaded: {error!r}") from error
    return point.name


@cache
def load_model_file(file: str) -> tuple[str, ...]:
    """Run a Python file once, after loading pyprof's and the packages' models; return the ops that it registered.

    Raises InputError (with the line number, if known) if the file cannot be read, is not Python, raises an exception,
    registers an op that already has a model, or registers none.
    """
    import pyprof.prof.ops.families  # noqa: F401  (fills the registry, so that a clash is found here)

    load_models()
    before = set(MODELS)
    try:
        Path(file).read_bytes()
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from error
    try:
        runpy.run_path(file, run_name="pyprof_models")
    except (Exception, SystemExit) as error:
        raise InputError(file, _failure(error), _line(file, error)) from error
    registered = tuple(name for name in MODELS if name not in before)
    if not registered:
        raise InputError(file, 'expected functions decorated with @pyprof.model("library::op"), found none')
    return registered


def _failure(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"is not Python: {error.msg}"
    return str(error) if isinstance(error, PyprofError) else f"raised {error!r}"


def _line(file: str, error: BaseException) -> int | None:
    """The last line of the file that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None
