"""Inference that does unnecessary training work: dropout."""

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.quantities import rounded


@rule("dropout_in_eval")
def dropout_in_eval(run: Run) -> Iterator[Finding]:
    """Dropout in a run that records no gradients, because model.eval() was forgotten.

    PyTorch's profilers number each op that autograd could record (at::sequence_number), so a capture with aten ops and
    no number at all ran under no_grad or inference_mode. Abstains if any has one: a forward pass by itself may be
    part of a training step.

    Refuted by: a number of autograd's at any op.
    """
    rows = np.flatnonzero(np.isin(run.aten, ("native_dropout", "_fused_dropout")))
    if not len(rows) or run.records_gradients:
        return
    now = run.ms_of(rows)
    why = (
        f"{run.number(rows, 'dropout runs', 'dropouts run')} although no gradient is recorded: {rounded(now)} ms, and "
        "random outputs"
    )
    change = "Call model.eval() before inference. Keep the dropout where it is wanted, as in Monte Carlo dropout."
    yield Finding(rows, run.dur[rows].copy(), why, change, launches=len(rows))
