"""Tensors that a layer makes on the CPU in each forward pass, such as windows, masks and indices, and then copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.rules.host_waits import made_in_layers, released_by, segments_of
from pyprof.prof.edits.scenario import Scenario


@edit_rule("made_on_cpu")
def made_on_cpu(scenario: Scenario) -> Iterator[Proposal]:
    """Small copies of pageable memory to the GPU within a layer, of the same sizes in each step.

    As buffers of the layer they stay on the GPU: the copy, the work of the CPU before it and the wait for it go away.
    """
    run = scenario.run
    rows = made_in_layers(run)
    calls = scenario.calls(rows)
    rows, calls = rows[calls >= 0], calls[calls >= 0]
    if not len(rows):
        yield Abstained("made_on_cpu", "no layer copies equal small tensors from the CPU in each step")
        return
    yield Edit(
        rule="made_on_cpu",
        change=(
            "Keep on the GPU what a layer makes on the CPU each time: make it once, register_buffer(..., "
            "persistent=False), or make it with device=x.device."
        ),
        why=(
            f"{run.number(rows, 'copy', 'copies')} of small tensors to the GPU within layers "
            f"({run.trace(int(rows[0]))}): the host makes each, and waits for its copy"
        ),
        cost=COSTS["made_on_cpu"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
        released=released_by(scenario, rows),
        prompt=segments_of(scenario, calls),
    )
