"""Which calls checkpointing makes again, on a run small enough to be followed by hand."""

from types import SimpleNamespace

import numpy as np

from pyprof.prof.edits.recomputation import checkpointing
from pyprof.table.columns import Coded, Table


def test_a_layer_and_what_is_within_it_run_again():
    """Launches of h.1, of a layer within it, and of h.10; then back, h.10 first. h.10 is no part of h.1."""
    layers = ["h.1", "h.1:mlp", "h.10", "h.10", "h.1:mlp", "h.1"]
    count = len(layers)
    table = Table(
        count,
        {
            "layer": Coded.of(f'["GPT", "{layer}"]' for layer in layers),
            "phase": Coded.of(["forward"] * 3 + ["backward"] * 3),
            "dir": Coded.of(["fprop"] * 3 + ["bprop"] * 3),
            "opId": np.arange(count),
        },
    )
    number = np.arange(count)
    calls = SimpleNamespace(thread=np.zeros(count, np.int64), before=number - 1)
    recorded = SimpleNamespace(work=SimpleNamespace(row=number, call=number), calls=calls)
    made = checkpointing(SimpleNamespace(table=table, recorded=recorded, unit=number), "h.1", ["GPT:h.1"], [1.0])
    (again,) = made.repeats
    assert (again.repeat.calls.tolist(), again.repeat.before) == ([0, 1], 4)
    # two ops that save two tensors each: 6.8 µs a tensor, and 2 more where it is loaded
    assert (again.enter_ns, again.again_ns) == (250_000 + 4 * 6_800, 300_000 + 4 * 8_800)
    assert made.deviation < 0.5  # of a logarithm: within a factor of 1.65 two times of three
