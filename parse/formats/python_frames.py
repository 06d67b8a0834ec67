"""Python frames of a torch.profiler trace (with_stack, with_modules) or a memory snapshot -> the user's calls."""

import re

from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.source_path import short_path

_FRAME = re.compile(r"(.+)\((\d+)\): (.*)", re.DOTALL)
_MODULE = "nn.Module: "
# Frames that are not the user's: torch, pyprof, and standard library code between a script and its functions.
_FOLDERS = "torch pyprof importlib concurrent multiprocessing asyncio logging collections encodings json re"
_SKIPPED = ("<", *(f"{folder}/" for folder in _FOLDERS.split()))
_SKIPPED_FILES = frozenset(
    """
    abc.py bdb.py cProfile.py contextlib.py copy.py dataclasses.py enum.py functools.py inspect.py os.py pickle.py
    posixpath.py queue.py random.py runpy.py selectors.py socket.py subprocess.py tempfile.py threading.py traceback.py
    types.py typing.py warnings.py weakref.py
    """.split()
)


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
    return not path.startswith(_SKIPPED) and path not in _SKIPPED_FILES
