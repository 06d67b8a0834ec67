"""The user's call stack as marker text: `file.py:123`, outermost first.

The frames are walked once per marked call, and the text of a stack that occurred before is looked up. The lookup key
is the tuple of the frames' instruction offsets. On a match, the code objects are compared by identity: hashing a code
object would hash its bytecode, and equal code objects may come from two files. Frames of torch, pyprof and the standard
library are left out unless the user asks for them. Paths do not identify the machine or the user: they are relative to
the working directory or to site-packages; all other paths are cut to their last two parts, without a home folder
(source_path.py).
"""

import json
import os
import sys
import sysconfig
from operator import is_
from types import CodeType, FrameType

from pyprof.source_path import short_path

_FRAMES = 50  # innermost frames kept: a deeper stack is recursion, and the text has a limit
_REMEMBERED_MOST = 100_000  # stacks kept; ordinary programs have fewer call sites, generated code may have more


def _folders(*names: str) -> tuple[str, ...]:
    return tuple(os.path.join(path, "") for path in {sysconfig.get_path(name) for name in names} if path)


_LIBRARY, _PACKAGES = _folders("stdlib", "platstdlib"), _folders("purelib", "platlib")
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_TRITON = os.sep + os.path.join("triton", "runtime", "")  # Triton's own frames between the user and a launch
_RUN = os.path.join(_OURS, "capture", "run_script.py")


class Tracer:
    """`text(frame)` is the JSON fragment to insert before a marker's last brace; "" if no frame is the user's."""

    def __init__(self, everything: bool = False, function_stack: bool = False) -> None:
        import torch

        self._everything = everything
        self._function_stack = function_stack
        # The value is "" for code that is left out, and None for `pyprof run`, below which no frame is the user's.
        self._names: dict[str, str | None] = {}
        self._texts: dict[tuple[int, ...], list[tuple[list[CodeType], str]]] = {}
        self._folder = os.path.join(os.getcwd(), "")
        torch_folder = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
        self._skipped = () if everything else (_OURS, torch_folder, "<frozen")

    def text(self, frame: FrameType | None) -> str:
        codes: list[CodeType] = []
        offsets: list[int] = []
        add_code, add_offset = codes.append, offsets.append
        while frame is not None:
            add_code(frame.f_code)
            add_offset(frame.f_lasti)
            frame = frame.f_back
        key = tuple(offsets)
        for known, text in self._texts.get(key, ()):
            if all(map(is_, known, codes)):
                return text
        return self._make(key, codes)

    def _make(self, key: tuple[int, ...], codes: list[CodeType]) -> str:
        if len(self._texts) >= _REMEMBERED_MOST:
            self._texts.clear()
        calls = []
        for code, offset in zip(codes, key, strict=True):
            path = code.co_filename
            if path not in self._names:
                self._names[path] = self.shown(path)
            name = self._names[path]
            if name is None:
                break
            if name:
                calls.append((name, code, offset))
        calls = calls[_FRAMES - 1 :: -1]
        lines = [f"{name}:{_line(code, offset)}" for name, code, offset in calls]
        text = ',"trace":' + json.dumps(lines, separators=(",", ":")) if lines else ""
        if self._function_stack and calls:
            text += ',"funcStack":' + json.dumps("".join("/" + _function(code) for _, code, _ in calls))
        self._texts.setdefault(key, []).append((codes, text))
        return text

    def shown(self, path: str) -> str | None:
        """The name of a source file without machine and user; "" if its lines are left out, None for `pyprof run`."""
        if path == _RUN and not self._everything:
            return None
        if path.startswith(self._skipped) or (_TRITON in path and not self._everything):
            return ""
        for folder in (self._folder, *_PACKAGES):
            if path.startswith(folder):
                return path[len(folder) :]
        if path.startswith(_LIBRARY) and not self._everything:
            return ""
        return short_path(path)


def _line(code: CodeType, offset: int) -> int:
    """The line number of an instruction, equal to `frame.f_lineno` while the frame runs."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def _function(code: CodeType) -> str:
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return name.replace(".<locals>", "").replace(".", "::")
