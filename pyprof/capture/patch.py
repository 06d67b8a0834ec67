"""Replace attributes, and put back exactly what was there."""

from __future__ import annotations

from typing import Any

_INHERITED = object()  # the owner had no such attribute of its own


class Patches:
    """The attributes that were replaced, in order: `undo` uses this record, so nothing can be forgotten."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`. What setattr raises passes through, and then nothing has changed."""
        previous = vars(owner).get(name, _INHERITED)
        setattr(owner, name, value)
        self._before.append((owner, name, previous))

    def undo(self) -> None:
        """Put back every previous value, the last replaced one first."""
        while self._before:
            owner, name, previous = self._before.pop()
            if previous is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)
