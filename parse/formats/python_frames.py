"""Python frames of a torch.profiler trace (with_stack, with_modules) or a memory snapshot -> the user's calls."""

import re

from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.source_path import is_between, short_path

_FRAME = re.compile(r"(.+)\((\d+)\): (.*)", re.DOTALL)
_MODULE = "nn.Module: "


def frame_scope(name: str) -> Scope | None:
    """The scope of a ``python_function``; None for a C function or a frame that is not the user's.

    >>> frame = frame_scope("net.py(12): forward")
    >>> frame.name, frame.text, frame_scope("nn.Module: Linear_3").name
    ('net.py:12', 'forward', 'Linear_3')
    """
    if name.startswith(_MODULE):
        return Scope(Kind.MODULE, name[len(_MODULE) :].strip())
    match = _FRAME.match(name)
    if match is None or name.startswith("<"):
        return None
    path = short_path(match[1])
    if not is_users(path):
        return None
    return Scope(Kind.FRAME, f"{path}:{match[2]}", text=match[3].strip())


def is_users(path: str) -> bool:
    """Whether a short path is that of the user's code, and not of torch, pyprof or the standard library's wrappers."""
    return not path.startswith("<") and not is_between(path)
