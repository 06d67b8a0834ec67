"""Replace attributes, and restore exactly the previous values of those that are still ours."""

from typing import Any

_INHERITED = object()  # marks an attribute that the owner only inherited


class Patches:
    """A record of the replaced attributes, in order. `undo` restores them."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`. If setattr raises, the exception passes through and nothing has changed."""
        previous = vars(owner).get(name, _INHERITED)
        setattr(owner, name, value)
        self._before.append((owner, name, previous, value))

    def undo(self) -> None:
        """Restore the previous values, in reverse order of replacement.

        A value that another tool has replaced since is left alone: it is the other tool's, and may call ours.
        """
        while self._before:
            owner, name, previous, ours = self._before.pop()
            if vars(owner).get(name, _INHERITED) is not ours:
                continue
            if previous is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)
