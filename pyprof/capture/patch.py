"""Replace attributes, and put back exactly what was there."""

from __future__ import annotations

from typing import Any

_INHERITED = object()  # the owner had no such attribute of its own


class Patches:
    """What was replaced, in order. The undo list is what this recorded, never a second list by hand."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """owner.name = value. Raises what setattr raises, and then has changed nothing."""
        was = vars(owner).get(name, _INHERITED)
        setattr(owner, name, value)
        self._before.append((owner, name, was))

    def undo(self) -> None:
        while self._before:
            owner, name, was = self._before.pop()
            if was is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, was)
