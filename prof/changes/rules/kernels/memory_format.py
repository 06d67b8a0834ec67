"""Channels last: convolutions, and the norms, poolings and upsamplings around them, by measured calls like them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.calls_of_run import CallOfRun, calls_of, changed_ns, like_the_measured
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import NOTHING_FOUND, Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.measured_call import CONVOLUTIONS, Variant
from pyprof.prof.changes.effect.nearest_sizes import Ratio
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.kernels.rules_of_runs import findings_of
from pyprof.quantities import rounded

LEAST_GAIN = 1.02  # of the calls' time before over afterwards, below which there is no edit
FORMATS = {2: ("torch.channels_last", "NCHW", "NHWC"), 3: ("torch.channels_last_3d", "NCDHW", "NDHWC")}  # by rank


@edit_rule("channels_last")
def channels_last(scenario: Scenario) -> Iterator[Proposal]:
    """2-d and 3-d convolutions in channels last, an edit each, with the norms and poolings of as many dimensions.

    Abstains where an instance norm runs, which changes its operand to NCHW and back.

    Refuted by: calls in channels last, by their strides; an instance norm.
    """
    if any(edit.rule == "channels_last" for edit in scenario.edits):
        yield Abstained("channels_last", "the plan has it already")
    elif bool(scenario.run.mentions("nodes", "aten::instance_norm").any()):
        yield Abstained("channels_last", "an instance norm runs, which supports only NCHW")
    else:
        found: list[Proposal] = list(_edits(scenario.run))
        yield from found or [Abstained("channels_last", NOTHING_FOUND)]


@rule("channels_last")
def work_in_nhwc(run: Run) -> Iterator[Finding]:
    """The same by the work of the GPU alone.

    Refuted by: calls in channels last, by their strides; an instance norm.
    """
    return findings_of(run, _edits(run) if not run.mentions("nodes", "aten::instance_norm").any() else ())


def _edits(run: Run) -> Iterator[Edit]:
    known = list(_in_nhwc(run))
    ranks = {each.spatial for each, _ in known if each.call.kind in CONVOLUTIONS}
    for rank in FORMATS:
        edit = _edit(run, rank, set(FORMATS) <= ranks, [pair for pair in known if pair[0].spatial == rank])
        if rank in ranks and edit is not None:
            yield edit


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
    form, nchw, nhwc = FORMATS[rank]
    why = (
        f"{names} in {nchw} take {rounded(run.ms(before))} ms; {rounded(run.ms(after))} ms are expected in {nhwc}, by "
        "calls of similar sizes that were measured in both formats on an H200"
    )
    # Module.to raises an error for a model that has weights of the other rank, too
    what = f"each nn.Conv{rank}d" if mixed else "model"
    refused = " (it refuses the whole model, which has weights of the other rank)" if mixed else ""
    return Edit(
        rule="channels_last",
        change=(
            f"Use {form.removeprefix('torch.').replace('_', ' ')}: {what}.to(memory_format={form}){refused}, and the "
            f"same for the input. Look for ops in between that fall back to {nchw}."
        ),
        why=why,
        cost=COSTS["channels_last"],
        rows=rows,
        ns=ns,
        left=np.ones(len(rows)),
        deviation=deviation,
    )
