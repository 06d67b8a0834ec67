"""Op models that installed packages bring: the entry points of the group ``pyprof.models``.

A package names a module in its own ``pyproject.toml``, and that module registers its models when it is imported:

    [project.entry-points."pyprof.models"]
    mylib = "mylib.flops"

    # mylib/flops.py
    @pyprof.model("mylib::op", family="gemm")
    def op(a, b): ...

They are loaded once, before anything is counted, by ``prof.py`` and ``pyprof.count`` alike.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pyprof.errors import ModelError

GROUP = "pyprof.models"


@cache
def load_models() -> tuple[str, ...]:
    """Import every module of the group; the names of those entry points.

    Raises ModelError, which names the package, where one cannot be imported.
    """
    return tuple(_load(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _load(point: EntryPoint) -> str:
    try:
        point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "an unknown package"
        raise ModelError(f"the op models {point.value} of {package} cannot be loaded: {error!r}") from error
    return point.name
