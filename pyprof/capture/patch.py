"""Replace attributes, and restore exactly the previous values."""

from typing import Any

_INHERITED = object()  # marks an attribute that the owner only inherited


class Patches:
    """A record of the replaced attributes, in order. `undo` restores all of them."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`. If setattr raises, the exception passes through and nothing has changed."""
        previous = vars(owner).get(name, _INHERITED)
        setattr(owner, name, value)
        self._before.append((owner, name, previous))

    def undo(self) -> None:
        """Restore every previous value, in reverse order of replacement."""
        while self._before:
            owner, name, previous = self._before.pop()
            if previous is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)
