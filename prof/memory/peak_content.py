"""What is alive when a device's memory peaks: by category and layer, and by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.memory.categories import BEFORE, CATEGORIES, Blocks
from pyprof.prof.memory.layer_groups import groups
from pyprof.prof.memory.timeline import Timeline
from pyprof.table.columns import Bools, Coded, Ints, MemoryTable, distinct
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
    """The blocks that are alive at the peak. What the total has beyond them was allocated before the capture."""
    peak = line.peak
    alive = np.flatnonzero(blocks.alive_at(peak.place))
    nbytes, rows = blocks.nbytes[alive], blocks.row[alive]
    rest = peak.nbytes - int(nbytes.sum()) if line.initial is not None else 0
    category = blocks.category.take(alive)
    members = groups(memory.coded("layer").take(rows))
    own = Coded.of(list_texts(text)[-1] if text else "" for text in memory.coded("trace").values)
    lines = Coded(np.append(own.codes, np.int32(-1))[memory.coded("trace").codes[rows]], own.values)
    return PeakContent(
        categories=_by_category(category, nbytes, rest),
        layers=_by_layer(members.group, members.member, category, nbytes, rest),
        lines=_by_line(lines, nbytes, rest),
    )


def _sums(column: Coded, nbytes: Ints, mask: Bools | None = None) -> dict[str, tuple[int, int]]:
    """Bytes and number of blocks by text."""
    codes = column.codes if mask is None else column.codes[mask]
    sizes = nbytes if mask is None else nbytes[mask]
    total = np.zeros(len(column.values) + 1, np.int64)
    np.add.at(total, codes, sizes)
    count = np.bincount(codes + 1, minlength=len(total))
    texts = [*column.values, ""]
    return {
        text: (int(total[i]), int(count[(i + 1) % len(total)]))
        for i, text in enumerate(texts)
        if count[(i + 1) % len(total)]
    }


def _by_category(category: Coded, nbytes: Ints, rest: int) -> list[Share]:
    sums = _sums(category, nbytes)
    shares = [Share(name, *sums.pop(name)) for name in CATEGORIES if name in sums]
    shares += [Share(name, *found) for name, found in sums.items()]  # categories of other writers
    return _with_rest(shares, BEFORE, rest)


def _with_rest(shares: Sequence[Share], name: str, rest: int) -> list[Share]:
    """The shares, with the bytes of unknown blocks added to those of that name."""
    found = [Share(name, each.nbytes + rest, None) if each.name == name and rest else each for each in shares]
    return found if not rest or any(each.name == name for each in shares) else [*found, Share(name, rest, None)]


def _by_layer(group: Coded, member: Coded, category: Coded, nbytes: Ints, rest: int) -> list[LayerShare]:
    keys, number = distinct(group.codes, category.codes)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, number, nbytes)
    of_group: dict[str, dict[str, int]] = {}
    for (code, kind), size in zip(keys, total.tolist(), strict=True):
        of_group.setdefault([*group.values, ""][code], {})[[*category.values, ""][kind]] = int(size)
    counts, members = _sums(group, nbytes), dict[str, int]()
    for code, _ in distinct(group.codes, member.codes)[0]:
        members[[*group.values, ""][code]] = members.get([*group.values, ""][code], 0) + 1
    shares = [LayerShare(name, *counts[name], members[name] if name else 0, kinds) for name, kinds in of_group.items()]
    if rest:
        none = next((share for share in shares if not share.name), LayerShare("", 0, None, 0, {}))
        kinds = {**none.categories, BEFORE: none.categories.get(BEFORE, 0) + rest}
        shares = [*(share for share in shares if share.name), LayerShare("", none.nbytes + rest, None, 0, kinds)]
    return sorted(shares, key=lambda share: (-share.nbytes, share.name))


def _by_line(lines: Coded, nbytes: Ints, rest: int) -> list[Share]:
    shares = _with_rest([Share(name, *found) for name, found in _sums(lines, nbytes).items()], "", rest)
    return sorted(shares, key=lambda share: (-share.nbytes, share.name))
