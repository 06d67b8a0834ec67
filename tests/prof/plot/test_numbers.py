"""What figures show, worked out by hand on small tables; and that the figure has just these numbers."""

import json

import numpy as np
import pytest

from pyprof.errors import InputError, PyprofError
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.plot import growth, layers, phases, roofline, timeline
from pyprof.prof.plot.style import Look
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Coded, Table

H200 = "NVIDIA H200"  # data sheet: 4.8 TB/s, fp32 66.9, tf32 494.7, bf16 989.4 TFLOP/s
FC = '["net", "net.fc"]'


def table(**more) -> Table:
    """Two steps of a product (2·512³ flop, 3·512²·4 bytes), its backward, an in-place add of 1,000 floats.

    ns:  step 0: mm 0-100, mm backward 150-350, add_ 340-400   step 1: the same 1,000 later, mm 100 longer
    """
    rows = [  # op, kernel, dir, phase, layer, aten, sizes, start, dur, step
        ("linear", "gemm_a", "fprop", "forward", FC, "aten::mm", [[512, 512], [512, 512]], 0, 100, 0),
        ("linear", "gemm_b", "bprop", "backward", FC, "aten::mm", [[512, 512], [512, 512]], 150, 200, 0),
        ("step", "vec", "", "optimizer", "", "aten::add_", [[1000], [1000]], 340, 60, 0),
        ("linear", "gemm_a", "fprop", "forward", FC, "aten::mm", [[512, 512], [512, 512]], 1000, 200, 1),
        ("linear", "gemm_b", "bprop", "backward", FC, "aten::mm", [[512, 512], [512, 512]], 1250, 200, 1),
        ("step", "vec", "", "optimizer", "", "aten::add_", [[1000], [1000]], 1440, 60, 1),
    ]
    op, kernel, direction, phase, layer, aten, sizes, start, took, step = zip(*rows, strict=True)
    columns = {
        "op": Coded.of(json.dumps([text]) for text in op),
        "mod": Coded.of(json.dumps(["torch"]) for _ in op),
        "kShortName": Coded.of(kernel),
        "dir": Coded.of(direction),
        "phase": Coded.of(phase),
        "layer": Coded.of(layer),
        "aten": Coded.of(aten),
        "sizes": Coded.of(map(json.dumps, sizes)),
        "dtypes": Coded.of(json.dumps(["float32", "float32"]) for _ in op),
        "start": np.array(start),
        "kDuration": np.array(took),
        "step": np.array(step),
        "kind": Coded.of(["kernel"] * 6),
        "opId": np.arange(6),
        "pid": np.full(6, 1),
        "device": np.zeros(6, np.int64),
        "stream": np.array([7, 7, 8, 7, 7, 8]),
        "gpu": Coded.of([H200] * 6),
        "apiStart": np.array([-50, -40, NULL, 900, 910, NULL]),
        "apiDuration": np.array([5, 6, NULL, 7, NULL, NULL]),
        **more,
    }
    return Table(6, columns)


def rooflines(peaks: Peaks | None = None, by: str = "op", **more) -> roofline.Rooflines:
    made = table(**more)
    return roofline.numbers(made, annotate(made), peaks, by)


FLOP, BYTES = 2 * 512**3, 3 * 512 * 512 * 4


def test_a_dot_is_an_op_and_direction_with_the_sums_of_its_rows():
    back, front, step = rooflines().dots
    assert (back.name, back.kind, back.rows, back.time_ns) == ("linear, backward", "GEMM, recurrent layers", 2, 400)
    assert (front.name, front.rows, front.time_ns, front.flop, front.nbytes) == ("linear", 2, 300, 2 * FLOP, 2 * BYTES)
    assert front.ai == pytest.approx(512 / 6)  # 2·n³ / (3·n²·4)
    assert front.flop_per_s == pytest.approx(2 * FLOP / 300e-9)
    assert (step.name, step.flop, step.nbytes) == ("step", 2000, 2 * 3 * 4000)  # a + b -> a, each 4 bytes
    assert rooflines().shown_ns == rooflines().rows_ns == 820


def test_a_dot_may_be_a_kernel_or_a_layer():
    assert [dot.name for dot in rooflines(by="kernel").dots] == ["gemm_b", "gemm_a", "vec"]
    assert [dot.name for dot in rooflines(by="layer").dots] == ["net:fc, backward", "net:fc", "(no name)"]


def test_what_has_no_flops_no_bytes_or_no_time_is_no_dot():
    found = rooflines(aten=Coded.of(["aten::mm", "my::own", "aten::add_", "aten::mm", "my::own", "aten::add_"]))
    assert [dot.name for dot in found.dots] == ["linear", "step"]
    assert (found.shown_ns, found.rows_ns) == (420, 820)


def test_a_speck_is_left_out_and_counted():
    took = np.array([100_000, 200_000, 60, 200_000, 200_000, 60])  # 120 of 700,120 is less than 0.05%
    found = rooflines(kDuration=took)
    assert ([dot.name for dot in found.dots], found.left_out) == (["linear, backward", "linear"], 1)
    assert "too short to be seen (1)" in roofline.caption(found)


def test_roofs_are_the_data_sheets_units_of_one_peak_together():
    memory, *units = rooflines().roofs
    assert (memory.units, memory.sheet, memory.measured) == ((), 4.8e12, ())
    assert [roof.units for roof in units] == [("fp32",), ("tc_tf32",), ("tc_bf16", "tc_fp16"), ("tc_fp8",)]
    assert [roof.used for roof in units] == [True, False, False, False]
    assert units[0].sheet == pytest.approx(66.9e12, rel=0.01)


def test_measured_roofs_stand_beside_the_data_sheets():
    peaks = Peaks("peaks.json", H200, "sm_90", {"fp32": 51e12, "tc_bf16": 811e12, "tc_fp16": 780e12}, 4.25e12)
    memory, fp32, tf32, half, _ = rooflines(peaks).roofs
    assert (memory.measured, memory.sheet) == ((("", 4.25e12),), 4.8e12)
    assert fp32.measured == (("fp32", 51e12),) and fp32.sheet == pytest.approx(66.9e12, rel=0.01)
    assert tf32.measured == ()
    assert half.measured == (("tc_bf16", 811e12), ("tc_fp16", 780e12))
    assert half.best == 811e12
    assert roofline.roof_words(fp32) == ("fp32", "51 of 67 TFLOP/s")


def test_roofs_of_amd_are_those_of_matrix_cores():
    roof = roofline.Roof(("tc_bf16",), True, (), 1307.4e12)
    assert roofline.roof_words(roof, "AMD Instinct MI300X")[0] == "bf16 matrix cores"


def test_no_dot_at_all_is_told():
    with pytest.raises(PyprofError, match="no operation has a count of FLOPs"):
        rooflines(aten=Coded.of(["my::own"] * 6))


def test_the_figure_has_the_dots_where_the_numbers_are():
    found = rooflines()
    (axes,) = roofline.draw(found, Look()).axes
    drawn = np.concatenate([each.get_offsets() for each in axes.collections])
    expected = np.array(sorted((dot.ai, dot.flop_per_s) for dot in found.dots))
    assert np.array(sorted(drawn.tolist())) == pytest.approx(expected)
    sizes = {each.get_label(): each.get_sizes() for each in axes.collections}
    assert sizes["GEMM, recurrent layers"].tolist() == pytest.approx(
        [568, 18 + 550 * 300 / 400]
    )  # by time, the longest 568 pt²
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    words = {text.get_text() for text in axes.texts}
    assert {"linear", "linear, backward", "step", "memory: 4.8 TB/s", "fp32\n67 TFLOP/s"} <= words


def test_roofs_meet_at_the_ridge():
    (axes,) = roofline.draw(rooflines(), Look()).axes
    lines = [(line.get_xdata(), line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 2]
    flat = [(x, y) for x, y in lines if y[0] == y[1] and y[0] > 1e12]
    assert len(flat) == 4
    for (start, _), (rate, _) in flat:
        assert start == pytest.approx(rate / 4.8e12)


# Layers


def test_layers_sum_forward_and_backward_of_all_steps():
    found = layers.numbers(table())
    assert [(bar.layer, bar.rows, bar.phase_ns) for bar in found.bars] == [
        (("net", "fc"), 4, {"forward": 300, "backward": 400}),
        ((), 2, {"optimizer": 120}),
    ]
    assert (found.steps, found.whole_ns, found.depth) == (2, 820, 2)
    assert [bar.name for bar in layers.numbers(table(), depth=1).bars] == ["net", "(no layer)"]


def test_rows_outside_of_steps_do_not_count_where_steps_are_marked():
    found = layers.numbers(table(step=np.array([NULL, 0, 0, 1, 1, 1])))
    assert found.bars[0].phase_ns == {"forward": 200, "backward": 400}
    unmarked = layers.numbers(table(step=np.full(6, NULL)))
    assert (unmarked.steps, unmarked.bars[0].phase_ns["forward"]) == (0, 300)


def test_layers_come_in_the_order_in_which_they_ran_and_name_their_own_ops():
    paths = ['["net", "net.b"]', '["net"]', '["net", "net.a"]', '["net", "net.a"]', "", '["net", "net.b"]']
    found = layers.numbers(table(layer=Coded.of(paths)))
    assert [bar.name for bar in found.bars] == ["b", "net (own ops)", "a", "(no layer)"]
    assert found.outer == ("net",)


def test_of_many_layers_the_longest_have_bars_and_the_others_one():
    paths = Coded.of(f'["m{i}"]' for i in range(40))
    many = Table(40, {"kShortName": Coded.of(["k"] * 40), "kDuration": np.arange(1, 41), "layer": paths})
    found = layers.numbers(many)
    assert len(found.bars) == layers.MOST == 32
    assert (found.bars[-1].name, found.bars[-1].time_ns) == ("9 more", 45)  # 1 + 2 + ... + 9
    assert found.whole_ns == 820  # 40·41/2


@pytest.mark.parametrize(
    ("paths", "outer"),
    [
        ([("a", "b"), ("a", "c")], ("a",)),
        ([("a", "b", "c"), ("a", "b", "d"), ("a", "b")], ("a", "b")),
        ([("a", "b", "c"), ("a", "b", "d"), ("a",)], ("a", "b")),
        ([("a", "b"), ("c",)], ()),
        ([("a", "b"), ("c", "d")], ()),
        ([("a",)], ()),
        ([], ()),
    ],
)
def test_what_all_paths_begin_with(paths, outer):
    assert layers._common(paths) == outer


def test_no_layers_are_told():
    with pytest.raises(PyprofError, match="the capture names none"):
        layers.numbers(table(layer=Coded.of([""] * 6)))


def test_bars_are_as_long_as_the_mean_of_the_steps():
    (axes,) = layers.draw(layers.numbers(table()), Look()).axes
    widths = [patch.get_width() for patch in axes.patches]
    assert axes.get_xlabel() == "ns per step, mean of 2"
    assert widths == pytest.approx([150, 0, 200, 0, 0, 60])  # forward of both bars, backward, optimizer
    assert [label.get_text() for label in axes.get_yticklabels()] == ["fc", "(no layer)"]


# Phases


def test_phases_and_idle_time_sum_to_the_step():
    found = phases.numbers(table())
    (mine,) = found.steps
    first, last = mine
    # 0-100 forward, 150-350 backward, 350-400 optimizer (10 ns lie under backward), idle until 1000
    assert (first.span_ns, first.phase_ns, first.idle_ns) == (
        1000,
        {"forward": 100, "backward": 200, "optimizer": 50},
        650,
    )
    assert (last.span_ns, last.idle_ns) == (500, 50)
    assert found.marked


def test_a_bar_has_a_piece_a_phase_one_after_the_other():
    (axes,) = phases.draw(phases.numbers(table()), Look()).axes
    pieces = sorted((round(p.get_y(), 2), p.get_x(), p.get_width()) for p in axes.patches)
    expected = [(0, 0.1), (0.1, 0.2), (0.3, 0.05), (0.35, 0.65)]  # µs
    assert np.array([piece[1:] for piece in pieces[:4]]) == pytest.approx(np.array(expected))
    assert {text.get_text() for text in axes.texts} >= {"10%", "20%", "65%"}


def test_devices_share_one_axis_and_unit():
    columns = {"kDuration": [3_000_000, 5], "start": [0, 0], "device": [0, 1], "step": [0, 0]}
    texts = {"kShortName": Coded.of(["k", "k"]), "phase": Coded.of(["forward", "forward"])}
    two = Table(2, {**{key: np.array(column) for key, column in columns.items()}, **texts})
    axes = phases.draw(phases.numbers(two), Look()).axes
    assert [each.get_xlim() for each in axes] == [(0, 3), (0, 3)]  # ms
    assert [max(patch.get_width() for patch in each.patches) for each in axes] == pytest.approx([3, 5e-6])
    assert axes[-1].get_xlabel() == "ms"
    assert [text.get_text() for each in axes for text in each.texts] == ["100%"]  # there is no room in the other


def test_many_steps_are_columns():
    step = np.arange(40)
    many = Table(40, {"kShortName": Coded.of(["k"] * 40), "kDuration": np.full(40, 30), "start": 100 * step,
                      "step": step, "phase": Coded.of(["forward"] * 40)})  # fmt: skip
    (axes,) = phases.draw(phases.numbers(many), Look()).axes
    assert [patch.get_height() for patch in axes.patches][:41] == [30] * 40 + [70]  # then idle time
    assert axes.get_xlabel() == "step"


def test_no_times_are_told():
    blank = table(start=np.full(6, NULL))
    with pytest.raises(PyprofError, match="no start times"):
        phases.numbers(blank)
    with pytest.raises(PyprofError, match="no start times"):
        timeline.numbers(blank, annotate(blank))


# Timeline


def lanes(found: timeline.Timeline) -> dict[str, tuple]:
    return {lane.name: (lane.kind, lane.start_ns.tolist(), lane.dur_ns.tolist()) for lane in found.lanes}


def test_lanes_are_phases_streams_and_launches_from_the_steps_start():
    made = table()
    found = timeline.numbers(made, annotate(made), 1)
    assert lanes(found) == {
        "forward": ("phase", [0], [200]),
        "backward": ("phase", [250], [200]),
        "optimizer": ("phase", [440], [60]),
        "stream 7": ("stream", [0, 250], [200, 200]),
        "stream 8": ("stream", [440], [60]),
        "launches": ("launches", [-100, -90], [7, 0]),  # the second one's duration is not known
    }
    assert (found.step, found.span_ns, found.aligned) == (1, 500, False)
    assert [lane.text.texts() for lane in found.lanes if lane.name == "stream 7"] == [["linear", "linear"]]


def test_without_a_number_it_is_the_step_of_median_length():
    start = np.array([0, 1000, 3000, 4000, 4100, 4200])  # steps of 1000, 2000, 1000, 100, 100, 60
    made = table(start=start, step=np.arange(6), apiStart=np.full(6, NULL))
    assert timeline.numbers(made, annotate(made)).step == 4  # 60, 100 (3), 100 (4), 1000 (0), 1000 (2), 2000
    with pytest.raises(PyprofError, match="there is no step 9; the steps are 0 to 5"):
        timeline.numbers(made, annotate(made), 9)


def test_devices_have_lanes_each_named_by_what_tells_them_apart():
    made = table(device=np.array([0, 0, 0, 1, 1, 1]), step=np.zeros(6, np.int64))
    names = [lane.name for lane in timeline.numbers(made, annotate(made)).lanes if lane.kind == "stream"]
    assert names == ["device 0: stream 7", "device 0: stream 8", "device 1: stream 7", "device 1: stream 8"]


def test_devices_whose_clocks_have_nothing_in_common_begin_together():
    made = table(rank=np.array([0, 0, 0, 1, 1, 1]), step=np.zeros(6, np.int64))
    far = made.with_column("start", np.array([0, 150, 340, 10**9, 10**9 + 250, 10**9 + 440]))
    found = timeline.numbers(far, annotate(far))
    assert found.aligned and found.span_ns == 500
    assert lanes(found)["rank 1: stream 7"][1] == [0, 250]


def test_boxes_are_where_the_operations_were():
    made = table()
    (axes,) = timeline.draw(timeline.numbers(made, annotate(made), 1), Look()).axes
    boxes = [path.get_extents() for each in axes.collections for path in each.get_paths()]
    assert [(box.x0, box.x1) for box in boxes[:5]] == [(0, 200), (250, 450), (440, 500), (0, 200), (250, 450)]
    assert axes.get_xlabel() == "ns" and axes.get_xlim() == (0, 500)
    assert "linear" in {text.get_text() for text in axes.texts}


# Growth


def peaks_file(tmp_path, **more):
    content = {
        "format": "pyprof peaks", "device": H200, "arch": "sm_90", "flop_per_s": {"fp32": 5e13}, "cache_bytes": 1 << 25,
        "lasting_flop_per_s": {"tc_bf16": 8e13},
        "curves": {
            "products_flop_per_s": {"fp32": [[256, 1e12], [512, 5e12]], "bf16": [[512, 9e13]], "fp64": []},
            "memory_byte_per_s": {"copy": [[65536, 1e11], [1 << 30, 4e12]]},
        },
        **more,
    }  # fmt: skip
    (tmp_path / "peaks.json").write_text(json.dumps(content))
    return tmp_path / "peaks.json"


def test_growth_has_the_files_curves_beside_the_data_sheet(tmp_path):
    found = growth.numbers(growth.read(peaks_file(tmp_path)))
    fp32, bf16 = found.products
    assert (fp32.name, fp32.points) == ("fp32", ((256, 1e12), (512, 5e12)))
    assert bf16.sheet == pytest.approx(989.4e12, rel=0.01)
    assert (fp32.lasting, bf16.lasting, bf16.best) == (None, 8e13, (512, 9e13))
    assert (found.memory[0].sheet, found.cache_bytes) == (4.8e12, 1 << 25)
    left, right = growth.draw(found, Look(dark=True)).axes
    assert left.lines[0].get_xydata().tolist() == [[256, 1e12], [512, 5e12]]
    assert right.lines[0].get_xydata().tolist() == [[65536, 1e11], [1 << 30, 4e12]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"curves": None}, "expected curves, found none"),
        (
            {"curves": {"memory_byte_per_s": {"copy": [[1, "x"]]}}},
            r"memory_byte_per_s: expected lists of \[size, rate\]",
        ),
        ({"curves": {"products_flop_per_s": [1]}}, "products_flop_per_s: expected lists"),
        ({"curves": {"memory_byte_per_s": {"copy": [[0, 1]]}}}, "positive numbers"),
        ({"curves": {}}, "found neither"),
        ({"lasting_flop_per_s": {"fp32": "fast"}}, "lasting_flop_per_s: expected rates by unit"),
        ({"format": "other"}, "pyprof peaks"),
    ],
)
def test_a_file_without_curves_is_refused(tmp_path, more, message):
    with pytest.raises(InputError, match=message):
        growth.read(peaks_file(tmp_path, **more))


def test_a_dtype_of_another_hand_has_a_curve_and_no_data_sheet(tmp_path):
    curves = {"products_flop_per_s": {"fp128": [[256, 1e9]]}}
    (curve,) = growth.numbers(growth.read(peaks_file(tmp_path, curves=curves))).products
    assert (curve.name, curve.sheet) == ("fp128", None)
