"""Cleans trees of plain values, as JSON and pickles hold them."""

from collections.abc import Collection
from decimal import Decimal
from typing import Any

from pyprof.parse.scrub.private_text import Cleaner


def cleaned_tree(tree: Any, cleaner: Cleaner, keys: Collection[str] | None = None) -> Any:
    """The value with its texts cleaned. ``keys``: the keys of objects that stay, at any depth (None: all).

    What stands in several places of a pickle is cleaned once, so that a small file stays small.
    """
    return _Tree(cleaner, keys).cleaned(tree)


class _Tree:
    def __init__(self, cleaner: Cleaner, keys: Collection[str] | None) -> None:
        self._cleaner, self._keys = cleaner, keys
        self._done: dict[int, Any] = {}  # by id

    def cleaned(self, tree: Any) -> Any:
        if isinstance(tree, str):
            return self._cleaner.text(tree)
        if not isinstance(tree, dict | list | tuple):
            return tree
        if id(tree) in self._done:
            return self._done[id(tree)]
        if isinstance(tree, tuple):  # in a pickle: pairs of integers, or of a frame's parts
            return tuple(map(self.cleaned, tree))
        made: Any = {} if isinstance(tree, dict) else []
        self._done[id(tree)] = made
        if isinstance(tree, list):
            made.extend(map(self.cleaned, tree))
        else:
            kept = (pair for pair in tree.items() if self._keys is None or pair[0] in self._keys)
            made.update((self.cleaned(key), self.cleaned(value)) for key, value in kept)
        return made


def numbers_only(tree: Any) -> Any:
    """The value without its texts, and without what held nothing but texts; None if nothing is left."""
    if isinstance(tree, dict):
        kept = {key: inner for key, value in tree.items() if (inner := numbers_only(value)) is not None}
        return kept or None
    if isinstance(tree, list):
        return tree if all(isinstance(value, int | float | Decimal) for value in tree) else None
    return None if isinstance(tree, str) else tree
