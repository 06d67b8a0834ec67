"""Tensors that the forward pass makes anew on the CPU, such as windows, masks and indices, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.host_waits import made_on_host, released_by, segments_of


@edit_rule("made_on_cpu")
def made_on_cpu(scenario: Scenario) -> Iterator[Proposal]:
    """Copies to the GPU of what a layer or a loss makes on the CPU, of the same sizes in each step (``made_on_host``).

    As buffers they stay on the GPU: the copy, the work of the CPU before it and the wait for it go away.

    Refuted by: sizes that differ between steps.
    """
    run = scenario.run
    rows = made_on_host(scenario)
    calls = scenario.calls(rows)
    rows, calls = rows[calls >= 0], calls[calls >= 0]
    if not len(rows):
        yield Abstained("made_on_cpu", "no layer or loss makes tensors of equal sizes on the CPU in each step")
        return
    yield Edit(
        rule="made_on_cpu",
        change=(
            "Keep on the GPU what is made on the CPU each time: make it once, register_buffer(..., "
            "persistent=False), or make it with device=x.device."
        ),
        why=(
            f"{run.number(rows, 'copy', 'copies')} to the GPU of tensors that a layer or a loss makes on the CPU "
            f"({run.trace(int(rows[0]))}): the host makes each, and waits for its copy"
        ),
        cost=COSTS["made_on_cpu"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
        released=released_by(scenario, rows),
        prompt=segments_of(scenario, calls),
    )
