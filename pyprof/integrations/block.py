"""``with pyprof.profile(...)`` for a loop that is not ours: entered by one callback, and left by another."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pyprof


class Block:
    """The block, with the arguments of ``pyprof.profile``. It can be entered again after it was left."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._args, self._options = args, options
        self._open: ExitStack | None = None

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def enter(self) -> None:
        """Enter; a block that was never left, for the loop before had raised, is left first."""
        self.leave()
        with ExitStack() as stack:
            stack.enter_context(pyprof.profile(*self._args, **self._options))
            self._open = stack.pop_all()

    def leave(self) -> None:
        """Leave, if it is entered."""
        stack, self._open = self._open, None
        if stack is not None:
            stack.close()
