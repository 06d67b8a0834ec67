"""Python frames of a torch.profiler trace (with_stack, with_modules) or a memory snapshot -> the user's calls."""

import re

from pyprof.parse.attribute.scope import Kind, Scope

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


def short_path(path: str) -> str:
    """A file's path without the machine's folders: the part after site-packages, or else the last two parts.

    >>> short_path("/home/me/work/nets/net.py"), short_path("nets/deep/er/net.py")
    ('nets/net.py', 'nets/deep/er/net.py')
    """
    path = path.replace("\\", "/")
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in path:
            return path.rpartition(folder)[2]
    absolute = path.startswith("/") or path[1:3] == ":/"
    parts = path.split("/")
    if absolute and re.search(r"/lib/python3\.\d+/", path):  # the standard library
        return path.rpartition("/lib/python3.")[2].partition("/")[2]
    return "/".join(parts[-2:]) if absolute else path
