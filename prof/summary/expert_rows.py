"""How many tokens each expert of a mixture of experts computes, and how many rows tiles are padded to.

Where experts are modules that run one after the other, the products of each have as many rows as it has tokens. Fused
kernels get the router's choice as data on the GPU, which no capture records. There ``moe_align_block_size`` says how
many rows there are and how long a tile is, from which bounds follow: with N rows, tiles of B and E experts, at least
N rounded up to tiles, and at most (N - m) / B + m tiles, m = min(E, N), if m experts have rows and all but N - m rows
begin a tile.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.calls import call_numbers
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import Codes, Ints, Table

# ``experts.3`` of a ModuleList, or a class with Kineto's number, ``SomeExpert_3``; ``MixtralExperts_3`` has them all.
_EXPERT = re.compile(r"(\w*experts?)\.(\d{1,6})|(\w*[Ee]xpert(?:MLP)?)_(\d{1,6})")
_ALIGN = ("_moe_C::moe_align_block_size", "sgl_kernel::moe_align_block_size")
LEAST = 2  # experts of a layer


@dataclass(frozen=True, slots=True)
class ExpertTokens:
    """The experts of one layer that ran, in the order of their numbers."""

    layer: Annotated[str, doc("path of the experts, * for their number")]
    experts: Annotated[tuple[int, ...], doc("their numbers")]
    tokens: Annotated[tuple[int, ...], doc("tokens that each computes in the forward pass, of all steps")]

    @property
    def imbalance(self) -> float:
        """The fullest expert's tokens over the mean of those that ran."""
        return max(self.tokens) * len(self.tokens) / sum(self.tokens)


@dataclass(frozen=True, slots=True)
class PaddedTiles:
    """The rows that fused experts compute in tiles, of all calls that arrange them."""

    calls: Annotated[int, doc("calls of moe_align_block_size")]
    tile: Annotated[int, doc("rows of a tile")]
    rows: Annotated[int, doc("rows of tokens: each token has one for each of its experts")]
    least: Annotated[int, doc("rows with padding at least, if the experts' rows fill tiles")]
    most: Annotated[int, doc("rows with padding at most; how many there are is data on the GPU")]


def expert_tokens(table: Table, annotation: Annotation) -> tuple[ExpertTokens, ...]:
    """The experts of each layer whose own products show their tokens, in the order of the layers."""
    layers, forward = table.coded("layer"), table.coded("dir").among("fprop")
    places = [_expert(layer_parts(text)) for text in layers.values]
    if not any(places):
        return ()
    known = np.array([*(place is not None for place in places), False])[layers.codes]
    products = np.flatnonzero(forward & annotation.family.among("gemm") & annotation.role.among("main"))
    together = _together([*places, None], layers.codes[products])
    rows = products[known[products]]
    sums: dict[tuple[str, int], dict[int, int]] = {}
    for code, count in _products(table, rows):
        place = places[code]
        if place is not None and count:
            part = sums.setdefault(place, {})
            part[code] = part.get(code, 0) + count
    found: dict[str, dict[int, int]] = {}
    for (layer, number), parts in sums.items():
        found.setdefault(layer, {})[number] = max(parts.values())  # each of its products has a row per token
    return tuple(
        ExpertTokens(layer, tuple(sorted(tokens)), tuple(tokens[number] for number in sorted(tokens)))
        for layer, tokens in found.items()
        if len(tokens) >= LEAST and layer in together
    )


def _together(places: list[tuple[str, int] | None], products: Codes) -> set[str]:
    """The layers of which two experts multiply one after the other, in the order of their numbers.

    ``products``: the layer of each product, as an index of ``places``. Modules of the same form of which each block
    of a model has one, as on a rank of an expert-parallel job, have products of other modules between them.
    """
    follows = np.unique(np.stack([products[:-1], products[1:]]), axis=1)
    pairs = ((places[before], places[after]) for before, after in follows.T.tolist())
    return {one[0] for one, other in pairs if one and other and one[0] == other[0] and one[1] < other[1]}


def _expert(parts: tuple[str, ...]) -> tuple[str, int] | None:
    """The path of a layer's experts and the number of one, for a module inside of an expert; None for other modules."""
    for at, part in enumerate(parts[:-1]):
        match = _EXPERT.fullmatch(part)
        if match:
            return ":".join((*parts[:at], f"{match[1]}.*" if match[1] else f"{match[3]}_*")), int(match[2] or match[4])
    return None


def _products(table: Table, rows: Ints) -> list[tuple[int, int]]:
    """For each call of a product among these rows: its layer's code, and the rows of its first matrix."""
    layers, sizes = table.coded("layer"), table.coded("sizes")
    first = rows[np.unique(call_numbers(table)[rows], return_index=True)[1]]
    counts = [_rows_of(text) for text in sizes.values] + [0]
    return [(int(layers.codes[row]), counts[int(sizes.codes[row])]) for row in first.tolist()]


def _rows_of(sizes: str) -> int:
    """The rows of the first matrix, whose last dimension the second one has, too: of mm, addmm and linear."""
    shapes = [shape for shape in json.loads(sizes) if isinstance(shape, list) and len(shape) > 1]
    plain = [shape for shape in shapes if all(isinstance(size, int) for size in shape)]
    return math.prod(plain[0][:-1]) if len(plain) > 1 else 0


def padded_tiles(table: Table) -> tuple[PaddedTiles, ...]:
    """The bounds of the padded rows, by the length of a tile."""
    rows = np.flatnonzero(table.coded("aten").among(*_ALIGN))
    if not len(rows):
        return ()
    sizes, args = table.coded("sizes"), table.coded("args")
    sums: dict[int, list[int]] = {}
    for row in rows[np.unique(call_numbers(table)[rows], return_index=True)[1]].tolist():
        shapes, values = (json.loads([*column.values, "[]"][column.codes[row]]) for column in (sizes, args))
        count = math.prod(shapes[0]) if shapes and isinstance(shapes[0], list) else 0
        experts, tile = (_whole(values, place) for place in (1, 2))
        if count and experts and tile:
            ran = min(experts, count)
            bounds = (count, -(-count // tile) * tile, ((count - ran) // tile + ran) * tile)
            sums[tile] = [a + b for a, b in zip(sums.get(tile, [0] * 4), (1, *bounds), strict=True)]
    return tuple(PaddedTiles(calls, tile, *amounts) for tile, (calls, *amounts) in sorted(sums.items()))


def _whole(values: list[object], place: int) -> int:
    """A positive whole number among an op's values, which the capture may write as a text; 0 if there is none."""
    text = str(values[place]) if place < len(values) else ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0
