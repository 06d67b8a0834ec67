"""Which calls checkpointing makes again, on a run small enough to be followed by hand."""

from types import SimpleNamespace

import numpy as np

from pyprof.prof.changes.effect.recomputation import checkpointing
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
    work = SimpleNamespace(row=number, call=number, pid=np.zeros(count, np.int64))
    recorded = SimpleNamespace(work=work, calls=calls)
    made = checkpointing(SimpleNamespace(table=table, recorded=recorded, unit=number), "h.1", ["GPT:h.1"], [1.0])
    (again,) = made.repeats
    assert (again.repeat.calls.tolist(), again.repeat.before) == ([0, 1], 4)
    # two ops that save two tensors each: 6.8 µs a tensor, and 2 more where it is loaded
    assert (again.enter_ns, again.again_ns) == (250_000 + 4 * 6_800, 300_000 + 4 * 8_800)
    assert made.deviation < 0.5  # of a logarithm: within a factor of 1.65 two times of three


def test_each_process_runs_its_own_layer_again():
    """Two ranks take turns: forward 0 to 3, back 4 and 5. Each goes back over its own two launches."""
    count = 6
    table = Table(
        count,
        {
            "layer": Coded.of(['["GPT", "h"]'] * count),
            "phase": Coded.of(["forward"] * 4 + ["backward"] * 2),
            "dir": Coded.of(["fprop"] * 4 + ["bprop"] * 2),
            "opId": np.arange(count),
        },
    )
    number, rank = np.arange(count), np.arange(count) % 2
    calls = SimpleNamespace(thread=rank, before=number - 2)
    recorded = SimpleNamespace(work=SimpleNamespace(row=number, call=number, pid=rank), calls=calls)
    made = checkpointing(SimpleNamespace(table=table, recorded=recorded, unit=number), "h", ["GPT:h"], [1.0])
    again = [(each.repeat.calls.tolist(), each.repeat.before) for each in made.repeats]
    assert again == [([0, 2], 4), ([1, 3], 5)]
