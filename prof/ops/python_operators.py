"""The functions behind Python's operators: ``a @ b`` is recorded as ``__matmul__``."""

from __future__ import annotations

from pyprof.prof.ops.evaluation import find

_TORCH_NAMES = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}


def function_of(name: str) -> str:
    """The function behind an operator's method; other names stay as they are.

    >>> function_of("__iadd__"), function_of("__rtruediv__"), function_of("__matmul__"), function_of("linear")
    ('add_', 'div', 'matmul', 'linear')
    """
    if not (name.startswith("__") and name.endswith("__")) or find(name):
        return name
    plain = name.strip("_")
    in_place = ""
    if find(plain) is None and plain[:1] in ("i", "r"):  # __iadd__, __radd__
        in_place = "_" if plain[0] == "i" else ""
        plain = plain[1:]
    return _TORCH_NAMES.get(plain, plain) + in_place
