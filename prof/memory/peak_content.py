"""What is alive when a device's memory peaks: by category and layer, and by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.memory.categories import BEFORE, CATEGORIES, Blocks
from pyprof.prof.memory.layer_groups import groups
from pyprof.prof.memory.timeline import Timeline
from pyprof.source_path import place_of
from pyprof.table.columns import NULL, Coded, Ints, MemoryTable, distinct
from pyprof.table.schema import list_texts


@dataclass(frozen=True, slots=True)
class Share:
    """Blocks that are alive at the peak, together."""

    name: Annotated[str, doc("category, layer or line; empty: it is not known")]
    nbytes: Annotated[int, doc("bytes in use", "bytes")]
    blocks: Annotated[int | None, doc("number of blocks; null where only the total is known")]


@dataclass(frozen=True, slots=True)
class LayerShare(Share):
    """The blocks of one group of layers at the peak."""

    layers: Annotated[int, doc("layers of the group that have blocks")]
    categories: Annotated[dict[str, Annotated[int, doc("bytes", "bytes")]], doc("bytes by category")]


@dataclass(frozen=True, slots=True)
class PeakContent:
    """The content of the memory at the peak; the shares of each list sum to the peak where the total is recorded."""

    categories: Annotated[list[Share], doc("by category, in the order of the rules")]
    layers: Annotated[list[LayerShare], doc("by group of layers, the most bytes first")]
    lines: Annotated[list[Share], doc("by line of code, the innermost of the user's, the most bytes first")]


def peak_content(memory: MemoryTable, line: Timeline, blocks: Blocks) -> PeakContent:
    """The blocks that are alive at the peak. What the total has beyond them was allocated before the capture.

    Nothing, where memory was freed until then of which the capture does not say which blocks it was.
    """
    peak = line.peak
    freed = line.rows[: peak.place + 1][line.change[: peak.place + 1] < 0]
    if (memory.ints("address")[freed] == NULL).any():
        return PeakContent([], [], [])
    alive = np.flatnonzero(blocks.alive_at(peak.place))
    nbytes, rows = blocks.nbytes[alive], blocks.row[alive]
    rest = peak.nbytes - int(nbytes.sum()) if line.initial is not None else 0
    category = blocks.category.take(alive)
    trace = memory.coded("trace")
    own = Coded.of(str(place_of(list_texts(text))) if text else "" for text in trace.values)
    lines = Coded(np.append(own.codes, np.int32(-1))[trace.codes[rows]], own.values)
    return PeakContent(
        categories=_by_category(category, nbytes, rest),
        layers=_by_layer(memory.coded("layer").take(rows), category, nbytes, rest),
        lines=_by_line(lines, nbytes, rest),
    )


def layer_shares(layers: Coded, category: Coded, nbytes: Ints) -> list[LayerShare]:
    """Blocks by group of layers, the most bytes first. One value per block: its layer, category and bytes."""
    found = groups(layers)
    parts: dict[str, list[tuple[str, str, int, int]]] = {}
    for (group, member, kind), sums in _sums(nbytes, found.group, found.member, category).items():
        parts.setdefault(group, []).append((member, kind, *sums))
    shares = []
    for group, mine in parts.items():
        kinds: dict[str, int] = {}
        for _, kind, size, _ in mine:
            kinds[kind] = kinds.get(kind, 0) + size
        members = len({member for member, *_ in mine}) if group else 0
        shares.append(LayerShare(group, sum(kinds.values()), sum(count for *_, count in mine), members, kinds))
    return _largest_first(shares)


Shares = TypeVar("Shares", bound=Share)


def _largest_first(shares: list[Shares]) -> list[Shares]:
    return sorted(shares, key=lambda share: (-share.nbytes, share.name))


def _sums(nbytes: Ints, *columns: Coded) -> dict[tuple[str, ...], tuple[int, int]]:
    """Bytes and number of blocks by the texts of some columns."""
    keys, number = distinct(*(column.codes for column in columns))
    sizes = np.zeros(len(keys), np.int64)
    np.add.at(sizes, number, nbytes)
    count = np.bincount(number, minlength=len(keys))
    texts = [[*column.values, ""] for column in columns]  # code -1 is no text
    names = (tuple(values[code] for values, code in zip(texts, key, strict=True)) for key in keys)
    return dict(zip(names, zip(sizes.tolist(), count.tolist(), strict=True), strict=True))


def _by_category(category: Coded, nbytes: Ints, rest: int) -> list[Share]:
    shares = {name: Share(name, *found) for (name,), found in _sums(nbytes, category).items()}
    order = [name for name in CATEGORIES if name in shares]
    others = [name for name in shares if name not in CATEGORIES]  # of other writers
    return _with_rest([shares[name] for name in (*order, *others)], BEFORE, rest)


def _with_rest(shares: Sequence[Share], name: str, rest: int) -> list[Share]:
    """The shares, with the bytes of unknown blocks added to those of that name."""
    found = [Share(name, each.nbytes + rest, None) if each.name == name and rest else each for each in shares]
    return found if not rest or any(each.name == name for each in shares) else [*found, Share(name, rest, None)]


def _by_layer(layers: Coded, category: Coded, nbytes: Ints, rest: int) -> list[LayerShare]:
    shares = layer_shares(layers, category, nbytes)
    if not rest:
        return shares
    none = next((share for share in shares if not share.name), LayerShare("", 0, None, 0, {}))
    kinds = {**none.categories, BEFORE: none.categories.get(BEFORE, 0) + rest}
    others = [share for share in shares if share.name]
    return _largest_first([*others, LayerShare("", none.nbytes + rest, None, 0, kinds)])


def _by_line(lines: Coded, nbytes: Ints, rest: int) -> list[Share]:
    shares = [Share(name, *found) for (name,), found in _sums(nbytes, lines).items()]
    return _largest_first(_with_rest(shares, "", rest))
