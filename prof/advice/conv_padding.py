"""Convolutions in NHWC whose channels do not fill 16 bytes: cuDNN pads copies of their operands in each call."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.advice.card import Finding
from pyprof.prof.advice.run import Run

LINE = 16  # bytes
ITEM = {name: ITEM_BYTES[name] for name in ("bfloat16", "float16", "float32")}
PADS = ("nhwcAddPadding", "nhwcRemovePadding")  # cuDNN's kernels; seen on H200
FEW = 4  # channels of an image: its convolution has special kernels, and padding to 8 gained only 5% (measured)


def conv_padding(run: Run) -> Iterator[Finding]:
    """cuDNN's padding kernels and the fills of their buffers, one card per set of channels.

    The gain of the convolution's own kernel is not counted: with 65 channels it was as much again, with 100 it was a
    loss (docs/explanation/advice.md). Abstains without shapes, and for images of four channels or fewer.
    """
    pads = run.mentions("kShortName", *PADS) & (run.family == "conv")
    calls = set(run.table.ints("opId")[pads].tolist())
    fills = (run.texts("kind") == "memset") & (run.family == "conv")
    rows = [row for row in np.flatnonzero(pads | fills).tolist() if int(run.table.ints("opId")[row]) in calls]
    cards: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        odd = _odd(run, row)
        if odd:
            cards.setdefault(odd, []).append(row)
    for channels, members in cards.items():
        found = np.array(members)
        unit = LINE // ITEM[str(run.dtype[members[0]])]
        why = (
            f"Convolutions of {' and '.join(map(str, channels))} channels in {run.dtype[members[0]]}: not a multiple "
            f"of {unit} (16 bytes), so cuDNN pads copies of the operands in each call. {run.count(len(found)):.4g} "
            f"kernels and fills take {run.ms(float(run.dur[found].sum())):.4g} ms"
        )
        pairs = ", ".join(f"{size} to {-(-size // unit) * unit}" for size in channels)
        change = f"Pad the layer's channels from {pairs}. Let cuDNN measure: torch.backends.cudnn.benchmark = True."
        yield Finding(found, run.dur[found].copy(), why, change, "low", launches=len(found), calls=0.0)


def _odd(run: Run, row: int) -> tuple[int, ...]:
    """The channel counts of the weight that do not fill 16 bytes."""
    shapes, item = run.shapes(row), ITEM.get(str(run.dtype[row]))
    at = 2 if run.aten[row] == "convolution_backward" else 1
    weight = shapes[at] if len(shapes) > at else []
    if item is None or len(weight) < 3 or weight[1] <= FEW:
        return ()
    return tuple(sorted({size for size in weight[:2] if size * item % LINE}))
