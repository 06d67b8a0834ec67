"""PyProf's names, for programs written for it: ``pyprof.nvtx.init`` is ``pyprof.init``, ``.wrap`` is ``pyprof.wrap``.

Both work as ever and say, in a DeprecationWarning, what they are called now.
"""

import warnings
from typing import Any

import pyprof


def init(**options: Any) -> None:
    """Begin to mark calls, as ``pyprof.init(**options)`` does."""
    _warn("init")
    pyprof.init(**options)


def wrap(owner: Any, name: str) -> None:
    """Mark the calls of ``owner.name``, as ``pyprof.wrap(owner, name)`` does."""
    _warn("wrap")
    pyprof.wrap(owner, name)


def _warn(name: str) -> None:
    warnings.warn(f"pyprof.nvtx.{name} is deprecated; it is called pyprof.{name}", DeprecationWarning, stacklevel=3)
