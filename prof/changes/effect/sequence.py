"""One change after others: the precision of a run is changed first, whenever the plan comes to it."""

from __future__ import annotations

from pyprof.prof.changes.effect.edit import Edit, proposed_again
from pyprof.prof.changes.effect.scenario import Scenario, apply

# Their ratios are those of kernels as captured, while those of memory formats, attention and fusion are known per type.
# Measured on an H200, channels last and bf16 on four convolutional networks: what the GPU does takes 27 to 46 ms; in
# this order it is predicted as 0.88 to 1.05 of that, in the other as 1.00 to 1.25.
PRECISION = ("tf32", "amp")


def following(edit: Edit, scenario: Scenario) -> Scenario:
    """The run after one more change, which a rule proposed for this scenario.

    A change of the precision comes before all others: they are proposed again for the run that has it. If one of them
    is not, all stay in their order.
    """
    first, later = scenario, [edit]
    while edit.rule in PRECISION and first.before and not (first.edits[-1].rule in PRECISION or first.edits[-1].device):
        later.insert(1, first.edits[-1])
        first = first.before
    if len(later) == 1:
        return apply(edit, scenario)
    for each in later:
        again = proposed_again(each, first)
        if again is None:
            return apply(edit, scenario)
        first = apply(again, first)
    return first


def applied_with(edit: Edit, after: Scenario) -> Edit:
    """A change as it was made in a run: with measured durations, where there are."""
    return next(each for each in after.edits if each.key == edit.key)
