"""Layers by group: those whose names differ only by a number, such as the blocks of a model, are one group.

Of a path, the outermost part that has siblings with other numbers decides: all below `GPT:h.3` belongs to the member
`GPT:h.3` of the group `GPT:h.*`. A path without such a part is cut after its second part.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import Coded

_NUMBERED = re.compile(r"(.*[._])?\d{1,6}")  # h.3, Block_3, or the 3 of a Sequential; not fc3
_NUMBER = re.compile(r"\d+$")


class Groups(NamedTuple):
    """Per row: its group and the member of it, which are equal where there is one member; empty without a layer."""

    group: Coded
    member: Coded


def groups(layers: Coded) -> Groups:
    """The groups of a layer column; each distinct text is looked at once."""
    paths = [layer_parts(text) for text in layers.values]
    siblings: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for path in paths:
        for depth, part in enumerate(path):
            if _NUMBERED.fullmatch(part):
                siblings[(*path[:depth], _starred(part))].add(part)
    found = [_of_path(path, siblings) for path in paths]
    group, member = (Coded.of(texts) for texts in zip(*found, strict=True)) if found else (Coded.of([]), Coded.of([]))
    return Groups(_spread(layers, group), _spread(layers, member))


def _of_path(path: tuple[str, ...], siblings: dict[tuple[str, ...], set[str]]) -> tuple[str, str]:
    for depth, part in enumerate(path):
        pattern = (*path[:depth], _starred(part))
        if len(siblings.get(pattern, ())) > 1:
            return ":".join(pattern), ":".join(path[: depth + 1])
    whole = ":".join(path[:2])
    return whole, whole


def _starred(part: str) -> str:
    """
    >>> _starred("h.3"), _starred("Block_12"), _starred("3")
    ('h.*', 'Block_*', '*')
    """
    return _NUMBER.sub("*", part)


def _spread(layers: Coded, of_value: Coded) -> Coded:
    """A column of the layer's distinct texts as a column of the rows."""
    codes = np.append(of_value.codes, np.int32(-1))
    return Coded(codes[layers.codes], of_value.values)


class Pattern(NamedTuple):
    """Layers whose names differ by numbers only."""

    members: list[str]
    paths: list[str]  # of the layers and what is below them


def patterns(paths: Sequence[str]) -> dict[str, Pattern]:
    """All patterns of several layers at any depth, such as `GPT:h.*:mlp`, and single layers below the model itself.

    >>> list(patterns(["GPT:h.0:mlp", "GPT:h.1:mlp", "GPT:head"]))
    ['GPT:h.*', 'GPT:h.*:mlp', 'GPT:head']
    """
    members: defaultdict[str, dict[str, None]] = defaultdict(dict)
    below: defaultdict[str, list[str]] = defaultdict(list)
    least = min(2, max((path.count(":") + 1 for path in paths), default=1))  # 2: nobody checkpoints a model as a whole
    for path in paths:
        parts = path.split(":")
        starred = [_starred(part) if _NUMBERED.fullmatch(part) else part for part in parts]
        for depth in range(least, len(parts) + 1):
            pattern = ":".join(starred[:depth])
            members[pattern][":".join(parts[:depth])] = None
            below[pattern].append(path)
    several = {pattern for pattern, names in members.items() if len(names) > 1}
    chosen = [pattern for pattern in members if pattern in several or pattern.count(":") < 2]
    return {_named(list(members[pattern])): Pattern(list(members[pattern]), below[pattern]) for pattern in chosen}


def _named(names: Sequence[str]) -> str:
    """The names as one pattern, with a star only where their numbers differ.

    >>> _named(["GPT_0:h.1", "GPT_0:h.2"])
    'GPT_0:h.*'
    """
    parts = zip(*(name.split(":") for name in names), strict=True)
    return ":".join(same[0] if len(set(same)) == 1 else _starred(same[0]) for same in parts)
