"""Cross-entropy over a large vocabulary, which copies the logits in float32."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.product import VOCABULARY
from pyprof.prof.changes.effect.run import Run
from pyprof.quantities import rounded

STEPS = tuple(
    "_log_softmax _log_softmax_backward_data copy_ fill_ nll_loss_forward nll_loss_backward div mul zero_".split()
)
# Compiled, forward reads the logits twice (greatest and sum; loss), backward once, and writes the gradient. Measured on
# an H200 (4096 × 50304 in bf16, torch.compile): 575 µs, 0.7 of what streaming kernels reach.
PASSES = 4
REACHED = 0.7
WORTH = 1.15


@rule("cross_entropy")
def cross_entropy(run: Run) -> Iterator[Finding]:
    """A log_softmax of 16384 columns or more, with the casts and fills of the same size around it.

    Abstains without shapes, or where the logits' dtype is unknown.

    Refuted by: logits that are read in place, by the time that this takes; no backward pass of the loss.
    """
    shapes = [run.first_shape(row) for row in np.flatnonzero(run.aten == "_log_softmax").tolist()]
    calls_of = Counter(tuple(shape) for shape in shapes if len(shape) == 2 and shape[1] >= VOCABULARY)
    for (rows, columns), calls in calls_of.items():
        yield from _finding(run, rows * columns, columns, calls)


def _finding(run: Run, size: int, columns: int, calls: int) -> Iterator[Finding]:
    rows = np.flatnonzero(np.isin(run.aten, STEPS) & (run.elements == size))
    casts = rows[run.aten[rows] == "copy_"]
    # The forward's log_softmax reads the logits themselves if there is no cast.
    first = rows[run.aten[rows] == "_log_softmax"][0]
    item = 2.0 if len(casts) else ITEM_BYTES.get(run.dtype[first], 4.0)
    expected = calls * (1e9 * PASSES * item * size / (REACHED * run.bandwidth))
    now = float(run.dur[rows].sum())
    if not bool((run.aten[rows] == "_log_softmax_backward_data").any()) or not now > WORTH * expected:
        return
    cast = f" ({run.number(casts, 'of them a cast', 'of them casts')})" if len(casts) else ""
    why = (
        f"{run.number(rows, 'kernel', 'kernels')}{cast} went over logits of {size // columns} × {columns}: "
        f"{rounded(run.ms(now))} ms; {rounded(run.ms(expected))} ms are expected where the logits are read in place "
        "and their gradient is written once"
    )
    change = (
        "Fuse the cross-entropy: torch.compile the loss (F.cross_entropy and the cast before it as one function), or "
        "use a fused linear and cross-entropy, which never holds all logits."
    )
    yield Finding(rows, run.dur[rows] * (1 - expected / now), why, change, launches=len(rows) - 2 * calls)
