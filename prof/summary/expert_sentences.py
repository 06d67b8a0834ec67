"""Sentences about mixtures of experts: how evenly the router spreads the tokens, and how far tiles are padded."""

from collections.abc import Iterator

from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.wording import layer_name
from pyprof.quantities import counted

UNEVEN = 1.005  # the least imbalance that a sentence does not round to that of equal experts, 1.00


def expert_sentences(summary: Summary) -> Iterator[str]:
    """The least even layer of experts, unless all are even, as where each computes every token; and the bounds of
    padded rows."""
    layers = summary.experts
    worst = max(layers, key=lambda layer: layer.imbalance, default=None)
    if worst is not None and worst.imbalance >= UNEVEN:
        fullest = worst.experts[worst.tokens.index(max(worst.tokens))]
        among = (
            f"Of {counted(len(layers), 'layer')} of experts, the least even is " if len(layers) > 1 else "Experts of "
        )
        yield (
            f"{among}{layer_name(worst.layer)}: expert {fullest} computes {max(worst.tokens):,} of "
            f"{sum(worst.tokens):,} tokens, {worst.imbalance:.2f} times the mean of the {len(worst.tokens)} that ran."
        )
    for tiles in summary.expert_tiles:
        yield (
            f"In {counted(tiles.calls, 'call')} the {tiles.rows:,} rows of fused experts are padded to tiles of "
            f"{tiles.tile}: to at least {tiles.least:,} and at most {tiles.most:,} rows. How many rows each expert has "
            "is data on the GPU."
        )
