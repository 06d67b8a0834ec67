"""Which calls checkpointing makes again, on a run small enough to be followed by hand."""

from types import SimpleNamespace

import numpy as np

from pyprof.prof.changes.checkpointing_times import Again, longer_tasks, made_again
from pyprof.table.columns import Coded, Table


class TaskList:
    lag = np.array([1000])

    def __len__(self):
        return 9


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
    (again,) = made_again(SimpleNamespace(table=table, recorded=recorded, unit=number), "GPT:h.1", 1.0)
    assert (again.calls.tolist(), again.operations.tolist(), again.ops, again.before) == ([0, 1], [0, 1], 2, 4)


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
    made = made_again(SimpleNamespace(table=table, recorded=recorded, unit=number), "GPT:h", 1.0)
    assert [(each.calls.tolist(), each.before) for each in made] == [([0, 2], 4), ([1, 3], 5)]


def test_what_is_made_again_takes_the_host_and_the_gpu_time():
    """Two calls of 5 µs after 10 each, and kernels of 20 µs, the second after a gap of 1, before the third call.

    Two ops save two tensors each: 6.8 µs per tensor in both passes, and 2 more where it is loaded.
    """
    work = SimpleNamespace(start=np.array([0, 21, 42]) * 1000, end=np.array([20, 41, 62]) * 1000, call=np.arange(3))
    pace = SimpleNamespace(before=np.full((1, 3), 10_000.0), own=np.full((1, 3), 5000.0))
    base = SimpleNamespace(
        recorded=SimpleNamespace(work=work),
        tasks=TaskList(),
        pace=lambda shares: pace,
        host_task=np.array([0, 3, 6]),
        work_task=np.array([2, 5, 8]),
        edge_item=np.array([1]),
        gaps=np.array([0]),
    )
    again = Again(np.array([0, 1]), np.array([0, 1]), 2, 2)
    longer = longer_tasks(base, np.ones(1), [again], np.full(1, 2.0))
    enter, host, gpu = 2 * (250_000 + 4 * 6800), 30_000 + 2 * (300_000 + 4 * 8800), 41_000
    assert longer.tolist() == [[enter, 0, 0, 0, 0, 0, host, 0, gpu]]
