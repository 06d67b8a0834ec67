"""Channels last: convolutions, and the norms, poolings and upsamplings around them, by measured calls like them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.calls_of_run import CallOfRun, calls_of, changed_ns, like_the_measured
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import NOTHING_FOUND, Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.finding import RULES, edit_of
from pyprof.prof.changes.effect.nearest_sizes import CONVOLUTIONS, Ratio, Variant
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.kernels.layout import change_to_nhwc
from pyprof.quantities import rounded

BY_NAMES = 0.3  # deviation of the logarithm of durations that kernels' names say
LEAST_GAIN = 1.02  # of the calls' time before over afterwards, below which there is no edit


@edit_rule("channels_last")
def channels_last(scenario: Scenario) -> Iterator[Proposal]:
    """2-d and 3-d convolutions in channels last, an edit each, with the norms and poolings of as many dimensions.

    Abstains where an instance norm runs, which changes its operand to NCHW and back.

    Refuted by: calls in channels last, by their strides; an instance norm.
    """
    run, found = scenario.run, False
    if any(edit.rule == "channels_last" for edit in scenario.edits):
        yield Abstained("channels_last", "the plan has it already")
        return
    if bool(run.mentions("nodes", "aten::instance_norm").any()):
        yield Abstained("channels_last", "an instance norm runs, which supports only NCHW")
        return
    known = list(_in_nhwc(run))
    if not known:
        for finding in RULES["channels_last"](run) if run.rows else ():
            if bool((finding.saved_ns > 0).any()):
                found = True
                yield edit_of(run, "channels_last", finding, BY_NAMES)
    mixed = {2, 3} <= {each.spatial for each, _ in known if each.call.kind in CONVOLUTIONS}
    for rank in (2, 3):
        some = [(each, ratio) for each, ratio in known if each.spatial == rank]
        if any(each.call.kind in CONVOLUTIONS for each, _ in some):
            edit = _edit(run, rank, mixed, some)
            if edit is not None:
                found = True
                yield edit
    if not found:
        yield Abstained("channels_last", NOTHING_FOUND)


def _in_nhwc(run: Run) -> Iterator[tuple[CallOfRun, Ratio]]:
    """The calls that run in NCHW, and what they take in NHWC."""
    for each in calls_of(run):
        if each.now.form == "nchw" and each.spatial > 1:
            found = each.to(Variant(each.now.precision, "nhwc"))
            if found is not None and like_the_measured(run, each.now.precision, each.now.precision):
                yield each, found


def _edit(run: Run, rank: int, mixed: bool, calls: list[tuple[CallOfRun, Ratio]]) -> Edit | None:
    rows, ns, deviation = changed_ns(run, calls)
    before, after = float(run.dur[rows].sum()), float(ns.sum())
    if before < LEAST_GAIN * after:
        return None
    convolutions = [each for each, _ in calls if each.call.kind in CONVOLUTIONS]
    others = len(calls) - len(convolutions)
    names = f"{run.number(len(convolutions), 'convolution', 'convolutions')}"
    if others:
        names += f" and {run.number(others, 'norm, pooling or upsampling', 'norms, poolings and upsamplings')}"
    nchw, nhwc = ("NCHW", "NHWC") if rank == 2 else ("NCDHW", "NDHWC")
    why = (
        f"{names} in {nchw} take {rounded(run.ms(before))} ms; {rounded(run.ms(after))} ms are expected in {nhwc}, by "
        "calls of similar sizes that were measured in both formats on an H200"
    )
    return Edit(
        rule="channels_last",
        change=change_to_nhwc(rank, mixed),
        why=why,
        cost=COSTS["channels_last"],
        rows=rows,
        ns=ns,
        left=np.ones(len(rows)),
        deviation=deviation,
    )
