"""What checkpointing would change, on steps small enough to be worked out by hand."""

import numpy as np
import pytest

from pyprof.prof.memory.checkpointing import predict, tensor_bytes
from pyprof.prof.memory.layer_groups import groups, patterns
from pyprof.prof.memory.memory_numbers import memory_numbers
from pyprof.table.columns import Coded, Table
from tests.prof.memory.memory_rows import event, table

F, B = "forward", "backward"
H0, H1 = "GPT:h.0", "GPT:h.1"

# Each of two layers saves 100 bytes, its output of 40 bytes among them, and needs 30 bytes for a moment. 1,000 bytes
# are in use before. The head saves 5, the loss needs 20.
STEP = (
    event(10, 60, 1, F, H0), event(11, 30, 2, F, H0), event(12, -30, 2, F, H0), event(13, 40, 3, F, H0),
    event(20, 60, 4, F, H1), event(21, 30, 5, F, H1), event(22, -30, 5, F, H1), event(23, 40, 6, F, H1),
    event(30, 5, 7, F, "GPT:head"),
    event(40, 20, 8, B, ""), event(41, -5, 7, B, "GPT:head"),
    event(50, 10, 9, B, H1),  # the peak: 1000 + 2 * 100 + 20 + 10 = 1230
    event(51, -40, 6, B, H1), event(52, -60, 4, B, H1),
    event(60, 10, 10, B, H0), event(61, -40, 3, B, H0), event(62, -60, 1, B, H0),
)  # fmt: skip


def kernels(*rows):
    """(launch, duration, layer, sizes of the op's inputs)"""
    launch, duration, layer, sizes = zip(*rows, strict=True)
    names = [f'["GPT", "{path.partition(":")[2]}"]' for path in layer]
    return Table(
        len(rows),
        {
            "kShortName": Coded.of(["k"] * len(rows)), "kDuration": np.array(duration, np.int64),
            "start": np.array(launch, np.int64) + 1000, "apiStart": np.array(launch, np.int64),
            "layer": Coded.of(names), "sizes": Coded.of(sizes), "dtypes": Coded.of(['["float32"]'] * len(rows)),
            "dir": Coded.of(["fprop"] * len(rows)), "phase": Coded.of([F] * len(rows)),
            "pid": np.full(len(rows), 7), "step": np.zeros(len(rows), np.int64),
        },
    )  # fmt: skip


# An input of 10 floats, 40 bytes, is the output of the layer before.
KERNELS = kernels(
    (10, 500, H0, "[[15]]"), (14, 70, H0, "[[15]]"),
    (20, 600, H1, "[[10]]"), (24, 80, H1, "[[15]]"),
    (31, 9, "GPT:head", "[[10]]"),
)  # fmt: skip


def effect(pattern, *events, rows=None, start=1000):
    (device,) = memory_numbers(table(*events, start=start), rows, pattern)
    return device.checkpointing[0] if device.checkpointing else None


def test_both_layers():
    found = effect("GPT:h.*", *STEP, rows=KERNELS)
    assert found.names == [H0, H1]
    assert (found.saved_bytes, found.dropped_bytes) == (200, 120)  # the outputs of 40 bytes stay
    assert found.peak_bytes == 1230
    # When h.1 runs again, 1000 + 40 (h.0's output) + 40 (its own) + 20 (the loss's gradient) are in use, and its
    # forward pass needs 100 at most: 60, then 30 beside it, then 40. Then, at the old peak, the 60 of h.0
    # are gone: 1170.
    assert found.new_peak_bytes == 1000 + 40 + 40 + 20 + 100
    assert found.freed_bytes == 30
    # Each layer saves its output itself (it frees it in its own backward pass), and so runs to its end.
    assert found.cost_ns == 500 + 70 + 600 + 80


def test_one_layer():
    found = effect(H0, *STEP, rows=KERNELS)
    # 60 are gone at the old peak: 1165. h.0 runs again beside 1000 + 40 + 20 + 10 (h.1's gradient): at most 1170.
    assert (found.dropped_bytes, found.new_peak_bytes, found.cost_ns) == (60, 1170, 570)


def others_free_the_outputs():
    events = [each for each in STEP if each["time"] not in (51, 61)]
    events += [event(45, -40, 6, B, "GPT:head"), event(55, -40, 3, B, H1)]
    return sorted(events, key=lambda each: each["time"])


def test_a_layer_whose_output_only_the_next_one_saves_stops_early():
    """Nothing is saved after the blocks of 60 bytes, at 10 and 20; the next allocations follow at 11 and 21."""
    found = effect("GPT:h.*", *others_free_the_outputs(), rows=KERNELS)
    assert (found.saved_bytes, found.dropped_bytes, found.cost_ns) == (200, 120, 500 + 600)


def test_without_kernels_the_output_is_what_another_layer_frees():
    found = effect("GPT:h.*", *others_free_the_outputs())
    assert (found.saved_bytes, found.dropped_bytes, found.cost_ns) == (200, 120, None)


def test_the_time_with_the_gaps_is_told_apart():
    found = effect(H0, *STEP, rows=kernels((10, 5, H0, "[]"), (10, 5, H0, "[]"), (31, 9, "GPT:head", "[[10]]")))
    assert (found.cost_ns, found.cost_span_ns) == (10, 5)  # they start at one time: 1010 to 1015


def test_what_does_not_lower_the_peak_frees_nothing():
    events = [*STEP, event(70, 900, 70, "optimizer"), event(71, -900, 70, "optimizer")]
    found = effect("GPT:h.*", *events, rows=KERNELS)
    assert (found.peak_bytes, found.freed_bytes, found.new_peak_bytes) == (1940, 0, 1940)  # 1000+20+10+10+900


@pytest.mark.parametrize("pattern", ["GPT:none", "h.*", "GPT:h.0:deeper", "[", "GPT:*:*"])
def test_layers_that_are_not_there(pattern):
    assert effect(pattern, *STEP, rows=KERNELS) is None


def test_layers_without_a_backward_pass_cannot_be_checkpointed():
    assert effect("GPT:h.*", *[each for each in STEP if each["phase"] == F], rows=KERNELS) is None


def test_all_patterns_are_tried_the_best_first():
    (device,) = memory_numbers(table(*STEP, start=1000), KERNELS)
    assert [each.layers for each in device.checkpointing] == ["GPT:h.*", "GPT:head"]
    assert [(each.name, each.nbytes, each.layers) for each in device.saved] == [("GPT:h.*", 200, 2), ("GPT:head", 5, 1)]


def test_patterns_at_every_depth():
    found = patterns(["R:layer1:0:conv", "R:layer1:1:conv", "R:layer2:0:conv", "R:fc", "R"])
    assert {name: len(pattern.members) for name, pattern in found.items()} == {
        "R:layer1": 1, "R:layer1:*": 2, "R:layer1:*:conv": 2, "R:layer2": 1, "R:fc": 1,
    }  # fmt: skip


def test_a_group_is_the_outermost_part_with_other_numbers():
    texts = [
        '["G", "h.0", "h.0.mlp"]',
        '["G", "h.1"]',
        '["G", "head", "head.x"]',
        "",
        '["Net_0", "Block_3", "Linear_4"]',
    ]
    found = groups(Coded.of(texts))
    assert found.group.texts() == ["G:h.*", "G:h.*", "G:head", "", "Net_0:Block_3"]
    assert found.member.texts() == ["G:h.0", "G:h.1", "G:head", "", "Net_0:Block_3"]


@pytest.mark.parametrize(
    ("sizes", "dtypes", "expected"),
    [
        ("[[2, 3], [], [4]]", '["float32", "", "bfloat16"]', [24, 8]),
        ("[[[2], [3]], [5]]", '[["", ""], "int64"]', [40]),  # a list of tensors
        ("[[0, 4]]", '["float32"]', [0]),
        ("[[4]]", '["unheard_of"]', []),
        ("", "", []),
    ],
)
def test_the_bytes_of_an_ops_tensors(sizes, dtypes, expected):
    assert tensor_bytes(sizes, dtypes) == expected


def test_predict_is_none_without_layers():
    from pyprof.prof.memory.categories import blocks_of
    from pyprof.prof.memory.step_window import Window
    from pyprof.prof.memory.timeline import timelines

    found = table(*STEP)
    (line,) = timelines(found)
    assert predict(Window(found, line, blocks_of(found, line), 0, len(line.rows), None), "x", []) is None
