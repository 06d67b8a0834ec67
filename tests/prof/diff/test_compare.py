"""The difference: it sums, exactly; and what is said of it."""

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.command.terminal_text import shown_width
from pyprof.prof.diff.compare import compare
from pyprof.prof.diff.sentences import headline, percent, replaced, sentences, side_words, swap_words, warnings
from pyprof.prof.diff.table_rows import contributions, every_entry, fitted, table_rows
from pyprof.prof.diff.write_terminal import write_terminal
from pyprof.table.columns import NULL, Coded, Table
from pyprof.table.losses import Loss, losses_column
from tests.prof.diff.diff_rows import NO_TC, TC, compared, entry, mm, row, side, table_of
from tests.tables import tables

OPS = st.sampled_from(["linear", "relu", "gelu", "triton_poi_fused_1", ""])
LAYERS = st.sampled_from(["", "GPT", "GPT:h.0", "GPT:h.1:mlp", "Net:fc"])


@st.composite
def captures(draw: st.DrawFn):
    """Steps of rows on one device, some beside others, with gaps."""
    made = st.builds(
        lambda us, op, layer, phase, gap, beside: row(
            us, op, layer=layer, phase=phase, name=op or "k", **({"at": gap} if beside else {"gap": gap})
        ),
        st.integers(1, 50), OPS, LAYERS, st.sampled_from(["forward", "backward", "optimizer", ""]), st.integers(0, 9),
        st.booleans(),
    )  # fmt: skip
    steps = draw(st.lists(st.lists(made, min_size=1, max_size=6), min_size=1, max_size=4))
    marked = draw(st.booleans())
    return table_of(steps, None if marked else [None] * len(steps))


@settings(max_examples=60)
@given(captures(), captures())
def test_the_parts_sum_to_the_difference(a, b):
    found = compare(side(a), side(b))
    whole = found.step.change
    work = sum(e.ns.change for e in found.entries)
    assert work + found.overlap.change + found.idle.change == pytest.approx(whole, abs=1e-6)
    assert sum(c.ns.change for c in found.phases) + found.idle.change == pytest.approx(whole, abs=1e-6)
    for changes in (found.kinds, found.layers):
        if changes:
            total = sum(c.ns.change for c in changes) + found.overlap.change + found.idle.change
            assert total == pytest.approx(whole, abs=1e-6)
    assert found.busy.change + found.idle.change == pytest.approx(whole, abs=1e-6)


@settings(max_examples=40)
@given(captures(), captures(), st.sampled_from([1.0, 1e3, 1e4]), st.sampled_from([1, 3, None]))
def test_printed_rows_sum_to_the_printed_step(a, b, unit, top):
    found = compare(side(a), side(b))
    tables_of = [contributions(found, unit, top), every_entry(found, unit)]
    tables_of += [
        table_rows(found, changes, unit, top, work) for changes, work in ((found.phases, False), (found.kinds, True))
    ]
    for rows in tables_of:
        *parts, total = rows
        assert total.total
        assert sum(part.before for part in parts) == total.before == round(found.step.before / unit)
        assert sum(part.change for part in parts) == total.change
        assert total.after == round(found.step.after / unit)


@settings(max_examples=40)
@given(captures())
def test_a_capture_does_not_differ_from_itself(table):
    found = compare(side(table), side(table))
    assert found.step.change == 0
    assert all(e.ns.change == 0 and e.status not in ("appeared", "vanished") for e in found.entries)
    assert not found.swaps
    assert (found.tc_lost, found.tc_gained) == (0, 0)
    assert all(r.change == 0 for r in contributions(found, 1.0, None))
    assert headline(found).startswith("A and B take the same time")


@settings(max_examples=40)
@given(tables(), tables())
def test_any_tables_are_compared_and_written(a, b):
    """Hostile texts and numbers: no error but the reader's, and lines that keep to the width."""
    a, b = (_sane(table) for table in (a, b))
    found = compare(side(a), side(b))
    out = io.BytesIO()
    write_terminal(found, [], out, 80, False)
    text = out.getvalue().decode()
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def _sane(table: Table) -> Table:
    """Times within a quarter of an hour: numbers are printed whole, and longer ones take more than a line."""
    for key in ("start", "kDuration", "apiStart", "step", "markStart", "markEnd", "stepStart", "stepEnd"):
        table = table.with_column(key, np.abs(table.ints(key)) % (1 << 40))
    for key in ("dtypes", "strides", "args", "outs", "marker", "nodes", "grads", "gpuInfo"):  # the models' to read
        table = table.with_column(key, Coded.empty(len(table)))
    return table


def test_steps_are_averaged_whatever_their_number():
    found = compared([[mm(10)], [mm(12)]], [[mm(20)], [mm(22)], [mm(24)]])
    assert (found.step.before, found.step.after, found.step.change) == (11_000, 22_000, 11_000)
    assert found.step.ratio == 1.0


def test_overlap_and_idle_time_are_parts_of_their_own():
    a = [[mm(10), row(6, "relu", at=2), row(5, "gelu", gap=4)]]  # relu beside linear: 6 us overlap, 4 idle
    b = [[mm(10), row(6, "relu"), row(5, "gelu")]]
    found = compared(a, b)
    assert (found.step.before, found.step.after) == (19_000, 21_000)  # 10 + 4 + 5; 10 + 6 + 5
    assert (found.overlap.before, found.overlap.change, found.idle.change) == (-6_000, 6_000, -4_000)
    assert [e.ns.change for e in found.entries] == [0, 0, 0]


def test_layers_that_a_name_counts_are_one_entry():
    def model(us):
        return [mm(us + i, layer=f"GPT:h.{i}:up") for i in range(3)]

    found = compared([model(10)], [model(12)])
    (one,) = found.entries
    assert (one.name, one.layers, one.ns.before, one.ns.change) == ("h.*:up linear", 3, 33_000, 6_000)
    assert {change.name: change.ns.change for change in found.layers} == {"h.0": 2000, "h.1": 2000, "h.2": 2000}


def test_lost_and_gained_tensor_cores_are_counted_by_product():
    a = [mm(2, layer=f"GPT:h.{i}:up") for i in range(3)] + [mm(9, layer="GPT:head", name=NO_TC)]
    b = [mm(8, layer=f"GPT:h.{i}:up", name=NO_TC) for i in range(3)] + [mm(1, layer="GPT:head")]
    found = compared([a], [b])
    assert (found.tc_lost, found.tc_gained) == (3, 1)
    up = entry(found, "h.*:up linear")
    assert (up.tc_lost, up.tc_gained) == (3, 0)
    (swap,) = up.swaps
    assert swap_words(swap, 3) == (
        "h.*:up linear (3 places) forward, mm: 0.006 -> 0.024 ms (+300.0%), tensor cores 1 -> 0"
    )
    assert ([k.name for k in swap.a], [k.name for k in swap.b], swap.b[0].count) == ([TC], [NO_TC], 3)
    assert any(
        s.startswith("Tensor cores lost: 3 matrix products no longer run on them (h.*:up") for s in sentences(found)
    )


@pytest.mark.parametrize(("gpu", "cores"), [("AMD Instinct MI300X", "atrix cores"), ("NVIDIA H200", "ensor cores")])
def test_lost_cores_have_the_name_that_their_maker_gave_them(gpu, cores):
    found = compare(*(side(table_of([[mm(us, name=name)]], gpu=gpu)) for us, name in ((2, TC), (8, NO_TC))))
    (swap,) = found.swaps
    assert swap_words(swap, 3, found.gpus).endswith(f"{cores} 1 -> 0")
    assert any(f"{cores} lost: 1 matrix product no longer runs on them" in s for s in sentences(found))


def test_unchanged_kernels_that_all_run_longer_are_the_machines_doing():
    a, b = ([[mm(100), row(100, "relu"), row(50, "gelu")]], [[mm(103), row(103, "relu"), row(51.5, "gelu")]])
    found = compared(a, b)
    assert found.drift == pytest.approx(0.03)
    assert any("run 3.0% longer, too: the clock or the machine may differ" in s for s in sentences(found))
    mixed = compared(a, [[mm(103), row(97, "relu"), row(50, "gelu")]])
    assert math.isnan(mixed.drift)


def test_what_noise_explains_does_not_count():
    a = [[mm(us)] for us in (99, 100, 101)]
    within = compared(a, [[mm(us)] for us in (101, 102, 103)])  # +2 us; t 4.604 * sqrt(2/3) = 3.76
    assert not within.step.counts
    assert headline(within) == (
        "There is no difference beyond noise: 0.1000 -> 0.1020 ms per step (+0.0020 ms, +2.0%; noise ±0.0038 ms)."
    )
    beyond = compared(a, [[mm(us)] for us in (105, 106, 107)])
    assert headline(beyond) == "B is 0.0060 ms per step slower: 0.1000 -> 0.1060 ms (+6.0%; noise ±0.0038 ms)."


def test_a_backward_pass_without_sequence_numbers_is_compared_by_aten_ops():
    """One capture knows that linear made the product, the other only that AddmmBackward0 did."""
    forward = row(10, "linear", aten="aten::addmm")
    named, unnamed = (row(20, op, phase="backward", aten="aten::mm", name=TC) for op in ("linear", "Addmm"))
    found = compared([[forward, named]], [[forward, unnamed]])
    assert sentences(found) == ["Only one capture has autograd's sequence numbers, so both are compared without."]
    assert [(e.name, e.phase, e.status) for e in found.entries if e.phase == "backward"] == [("mm", "backward", "same")]


def test_an_incomplete_capture_is_not_said_to_be_faster():
    """Of two products of 10 µs, B has lost the launch of one: the program does not take half as long."""
    b = table_of([[mm(10)]])
    b = b.with_column(
        "incomplete", losses_column([Loss("1 kernel has no record of the launch", "record it anew")], len(b))
    )
    found = compare(side(table_of([[mm(10), mm(10)]]), "a.dict"), side(b, "b.dict"))
    assert headline(found) == (
        "B is an incomplete capture, so this does not compare the programs. What is recorded of them: 0.0200 -> 0.0100 "
        "ms of operations per step (-50.0%)."
    )
    assert sentences(found) == []


def test_a_step_that_takes_as_long_may_have_a_gpu_that_works_less():
    """10 µs of a product become 5, and the next one still begins 10 µs after it did."""
    found = compared([[mm(10), mm(10)]], [[mm(5), mm(10, at=10)]])
    assert headline(found).startswith("A and B take the same time: 0.0200 ms")
    assert sentences(found)[0].startswith(
        "The GPU works 0.0050 ms less (0.0200 -> 0.0150 ms) and is idle 0.0050 ms more (0.0000 -> 0.0050 ms"
    )


def test_kernels_of_one_short_name_are_told_apart_by_the_whole_one():
    """Tiles of 64 and of 128 columns: the short name has neither."""
    a, b = (table_of([[mm(10, name="Kernel2")]]) for _ in range(2))
    a, b = (
        table.with_column(
            "kLongName", Coded.of([f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_{tile}_32x6_nn_align8>"])
        )
        for table, tile in ((a, "64x64"), (b, "128x64"))
    )
    (swap,) = compare(side(a), side(b)).swaps
    assert replaced(swap) == (
        "Kernel2: ..0_tensorop_bf16_64x64_32x6_nn_align8>", "Kernel2: ..0_tensorop_bf16_128x64_32x6_nn_align8>"
    )  # fmt: skip


def test_one_step_each_has_no_noise_and_says_so():
    assert "noise unknown: one step each" in headline(compared([[mm(10)]], [[mm(9)]]))


def test_other_devices_numbers_of_gpus_and_profilers_are_warned_of():
    one = table_of([[mm(10)]])
    both = Table.concat([one, table_of([[mm(10)]], device=1)])
    other = table_of([[mm(10)]], gpu="NVIDIA A100-SXM4-80GB")
    assert warnings(compare(side(one), side(one))) == []
    assert warnings(compare(side(one, "a", "nsys 2025.3"), side(both, "b", "kineto"))) == [
        "1 and 2 GPUs or processes are compared: times are means over them",
        "the captures are by different profilers (nsys 2025.3, kineto), whose overhead is part of idle time",
    ]
    assert warnings(compare(side(one), side(other))) == [
        "the captures are of different devices: NVIDIA H200 and NVIDIA A100-SXM4-80GB"
    ]
    assert side_words(side(both, "b", "kineto")) == "1 step; mean of 2 GPUs, NVIDIA H200; kineto"


def test_a_side_without_marked_steps_is_warned_of():
    marked, not_marked = table_of([[mm(10)], [mm(10)]]), table_of([[mm(10)], [mm(10)]], [None, None])
    assert warnings(compare(side(marked), side(not_marked, "b.dict"))) == [
        "b.dict marks no steps: all of it counts as one"
    ]


def test_more_work_is_not_a_slower_program():
    # 2 * 64 * 64 * 64 = 524,288 FLOP against twice as many rows: 1,048,576.
    found = compared([[mm(10)]], [[mm(19, m=128)]])
    assert "B does 100.0% more FLOPs per step (524.3 kFLOP -> 1.049 MFLOP): it is not the same work." in sentences(
        found
    )


def test_rows_keep_to_the_width_and_show_what_is_greatest():
    a = [[mm(10 + i, layer=f"GPT:some_rather_long_name_of_a_block_{i}x:and_of_its_part:up") for i in range(30)]]
    b = [[mm(10 + 2 * i, layer=f"GPT:some_rather_long_name_of_a_block_{i}x:and_of_its_part:up") for i in range(30)]]
    for width in (60, 80, 120):
        out = io.BytesIO()
        write_terminal(compared(a, b), [], out, width, False)
        lines = out.getvalue().decode().splitlines()
        assert max(map(shown_width, lines)) <= width
    assert any("17 smaller changes" in line for line in lines)  # 30 entries, one without a change, 12 shown
    assert any("1 without any change" in line for line in lines)


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [(0.184, "+18.4%"), (-0.5, "-50.0%"), (0.0001, "0.0%"), (14.2, "×15.2"), (math.nan, ""), (math.inf, "")],
)
def test_percent(ratio, shown):
    assert percent(ratio) == shown


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_fitted_values_move_by_less_than_a_unit_and_a_half(values):
    whole = fitted(values, 1000.0, round(sum(values) / 1000))
    assert sum(whole) == round(sum(values) / 1000)
    assert all(abs(w - v / 1000) <= 1.5 for w, v in zip(whole, values, strict=True))


def test_captures_of_different_numbers_of_steps_are_told():
    one = table_of([[mm(10), row(5, "relu")]], [None])
    three = table_of([[mm(10), row(5, "relu")]] * 3, [None] * 3)
    found = compare(side(one), side(three))
    assert any(s.startswith("B runs 3 times the operations (2 -> 6), and neither") for s in sentences(found))
    assert any(s.startswith("2 parts of the capture got slower") for s in sentences(found))
    *_, total = contributions(found, 1000.0)
    assert (total.name, total.before, total.after) == ("capture", 15, 45)
    assert math.isnan(found.drift) or found.drift == 0  # a call takes as long as before


def test_a_table_without_starts_and_phases_is_compared_by_its_rows():
    """PyProf's own net.dict: no start, no phase, directions."""
    timed = table_of([[mm(10), row(5, "relu", phase="backward", gap=100)]], [None])
    bare = timed.with_column("start", np.full(2, NULL, np.int64)).with_column("phase", Coded.empty(2))
    found = compare(side(bare), side(timed))
    assert (found.step.before, found.step.after, found.idle.after) == (15_000, 15_000, 0)
    assert {change.name: change.ns.before for change in found.phases} == {"forward": 10_000, "backward": 5_000}
    assert {e.status for e in found.entries} == {"same"}
