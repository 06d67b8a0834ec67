"""The user's call stack as marker text: `file.py:123`, outermost first.

A frame costs one dictionary lookup: what a code object is, and what its instruction offset prints as, are
remembered. Frames of torch, pyprof and the standard library are left out unless asked for. Paths are cut to what
tells the file without telling the machine: relative to the working directory or to site-packages, else the last two
parts.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from types import CodeType, FrameType

_FRAMES = 50  # innermost frames kept: a deeper stack is recursion, and the text has a limit
_MEMO_MOST = 100_000  # entries; programs have fewer call sites, generated code may not

_LIBRARY = tuple(
    os.path.join(path, "") for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if path
)
_PACKAGES = tuple(
    os.path.join(path, "") for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} if path
)
_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_RUN = _OURS + "run.py"


class Tracer:
    """Call `text(frame)`: the JSON fragment to put before a payload's last brace, "" where no frame is the user's."""

    def __init__(self, everything: bool = False, function_stack: bool = False) -> None:
        self._everything = everything
        self._function_stack = function_stack
        # By id: hashing a code object hashes its bytecode. The object stays in the value, so no id is used twice.
        # "" for code that is left out, None for `pyprof run` itself, outside of which nothing is the user's.
        self._names: dict[int, tuple[str | None, CodeType]] = {}
        self._texts: dict[tuple[int, ...], str] = {}
        self._here = os.path.join(os.getcwd(), "")
        self._skipped = () if everything else (_OURS, _torch_folder(), "<frozen")

    def text(self, frame: FrameType | None) -> str:
        names = self._names
        key: list[int] = []
        while frame is not None:
            code = frame.f_code
            number = id(code)
            known = names.get(number)
            if known is None:
                known = names[number] = (self._name(code.co_filename), code)
            name = known[0]
            if name:
                key += number, frame.f_lasti
            elif name is None:
                break
            frame = frame.f_back
        found = self._texts.get(tuple(key))
        return found if found is not None else self._make(tuple(key))

    def _make(self, key: tuple[int, ...]) -> str:
        if len(self._texts) >= _MEMO_MOST:
            self._texts.clear()
        calls = [(*self._names[key[i]], key[i + 1]) for i in range(0, len(key), 2)][_FRAMES - 1 :: -1]
        lines = [f"{name}:{_line(code, offset)}" for name, code, offset in calls]
        text = ',"trace":' + json.dumps(lines, separators=(",", ":")) if lines else ""
        if self._function_stack and calls:
            text += ',"funcStack":' + json.dumps("".join("/" + _function(code) for _, code, _ in calls))
        self._texts[key] = text
        return text

    def _name(self, path: str) -> str | None:
        if path == _RUN and not self._everything:
            return None
        if path.startswith(self._skipped):
            return ""
        for folder in (self._here, *_PACKAGES):
            if path.startswith(folder):
                return path[len(folder) :]
        if path.startswith(_LIBRARY) and not self._everything:
            return ""
        return os.path.join(*path.split(os.sep)[-2:]) if os.path.isabs(path) else path


def _torch_folder() -> str:
    import torch

    return os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")


def _line(code: CodeType, offset: int) -> int:
    """The line of an instruction, as `frame.f_lineno` tells it while the frame runs."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def _function(code: CodeType) -> str:
    name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return name.replace(".<locals>", "").replace(".", "::")
