"""The list of a capture without calls of the host: the work that each change removes; its text, its JSON, the rules."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.command.envelope import plain
from pyprof.errors import ModelError, PyprofError
from pyprof.prof import cli
from pyprof.prof.changes.effect.edit import first_sentence
from pyprof.prof.changes.effect.finding import rule
from pyprof.prof.changes.effect.run import NOT_PYTORCH, Run
from pyprof.prof.changes.find_changes import NO_HOST, find_changes, without_replay
from pyprof.prof.changes.rules import RULES
from pyprof.prof.changes.say import advice_lines, brief, how
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.table.columns import NULL, Coded
from pyprof.table.netdict import write_netdict
from tests.paths import GOLDEN
from tests.prof.changes.rules.advice_rows import changes, changes_of, mm, run, table
from tests.tables import annotated, tables


def rows():
    more = {"op": ["linear"], "layer": ["net", "head\x1b[31m"], "trace": ["train.py:3", "net.py:7"]}
    simt = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n"
    return table(mm(4096, 4096, 50257, 12_827_000, **more), mm(4096, 4096, 4096, 2_678_000, simt, "float32"))


def document(made):
    return find_changes(made, annotate(made), None).document


def words(made, width=80):
    return " ".join(" ".join(advice_lines(document(made), width)).split())


def test_the_document_of_a_kernel_table():
    """The first product, padded to 50264 columns, takes 2.084 ms (test_alignment), the second in TF32 0.344."""
    found = json.loads(json.dumps(plain(document(rows())), allow_nan=False))
    assert (found["steps"], found["unit"], found["now"], found["not_replayed"]) == (0, "capture", None, NO_HOST)
    assert found["captured_ms"] == pytest.approx(12.827 + 2.678 + 0.0011)  # 1.1 µs between the two
    assert [change["rule"] for change in found["changes"]] == ["alignment", "tf32"]
    first = found["changes"][0]
    assert (first["op"], first["layer"], first["trace"]) == ("linear", "net:head\x1b[31m", "net.py:7")
    assert (first["time_ms"], first["gpu_ms"]) == (12.827, pytest.approx(12.827 - 2.0839, abs=0.0002))
    assert [first[name] for name in ("host_ms", "saved_ms", "low_ms", "high_ms", "step", "alone_ms")] == [None] * 6
    said = {each["rule"] for each in found["changes"]} | {each["rule"] for each in found["abstained"]}
    assert said == set(RULES) and all(each["why"] for each in found["abstained"])


def test_the_summary_names_the_work_that_each_change_removes():
    title, first, second = brief(document(rows()))
    known = "only the GPU's work that each removes by itself is known, and no change for the host"
    assert title == f"What to change: {known}, since {NO_HOST}"
    assert first.startswith("Pad the ") and ": removes 10.7 ms of GPU work per capture [linear · " in first
    assert second.startswith("Allow TF32: removes 2.33 ms of GPU work per capture")  # 2.678 - 0.344


def test_the_summary_names_the_first_five_changes():
    found = document(rows())
    found.changes = found.changes * 3
    title, *five = brief(found)
    assert len(five) == 5 and title.endswith("; the first 5 (pyprof plan has all)")


def test_a_title_ends_at_a_stop_outside_of_parentheses():
    title = "Pad it (rows; no target names them) to 64"
    assert first_sentence(f"{title}: done. More.") == title
    (change,) = changes(mm(4096, 4096, 50257, 12_827_000))
    assert how(msgspec.structs.replace(change, title=title, change=f"{title}: done. More.")) == "done. More."


@pytest.mark.parametrize("width", [80, 60])
def test_the_cards_fit_the_terminal_and_cannot_drive_it(width):
    lines = list(advice_lines(document(rows()), width))
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)
    text = " ".join(" ".join(lines).split())
    assert "1. Pad the" in text and "removes 10.7 ms of GPU work per capture [alignment]" in text
    assert "It removes 10.7 ms of the GPU's work. Why: " in text
    assert "saves" not in text and "four of five" not in text  # what the step gains is not known


def test_a_capture_of_cpu_ops_is_not_judged_as_a_gpus():
    row = mm(4096, 4096, 4096, 180_000, "addmm") | {"kind": "cpu"}
    lacking = (
        "Nothing is said of threads, bf16 and data loading: the capture does not say what CPU it ran on; `pyprof run` "
        "records it"
    )
    assert words(table(row)) == (
        f"The capture takes 0.18 ms. No change was found that saves 1% of the capture. {lacking}."
    )
    assert brief(document(table(row))) == [
        f"What to change: no change was found that saves 1% of the capture. {lacking}"
    ]


def test_a_capture_that_no_rule_can_judge_is_not_one_without_changes():
    made = table({"kShortName": "saxpy", "ns": 5000})
    assert words(made).endswith(f"Nothing can be said of changes: {NOT_PYTORCH}.")
    assert brief(document(made)) == [f"What to change: nothing can be said: {NOT_PYTORCH}"]
    assert document(made).not_judged == NOT_PYTORCH


def test_a_run_without_advice_says_so():
    made = table(mm(4096, 4096, 4096, 180_000, "nvjet_sm90_tst_128x256"))
    assert words(made).endswith(f"No change was found that saves 1% of the capture ({NO_HOST}).")


def test_a_program_whose_steps_are_opaque_graphs_is_of_pytorch_by_its_other_ops():
    """The marked step replays a graph whose kernels the capture hides; an op of PyTorch ran before it."""
    graph = {"kShortName": "[CUDA graph 1]", "kind": "graph", "ns": 5000, "start": 20_000, "step": 1}
    before = {"kShortName": "copy", "ns": 1000, "start": 0, "op": ["index_select"], "aten": "aten::index_select"}
    assert run(before, graph).unfit == ""
    assert run({**before, "op": None, "aten": ""}, graph).unfit == NOT_PYTORCH


def test_an_empty_run():
    found = document(rows().take([]))
    assert found.changes == [] and found.captured_ms == 0


def test_amounts_are_those_of_a_step():
    one = mm(4096, 4096, 50257, 12_827_000)
    (change,) = changes(*({**one, "step": step} for step in (5, 6)), {**one, "step": None})
    assert change.kernels == 1  # of two steps; what no step holds is left out
    assert change.gpu_ms == pytest.approx(10.743, abs=0.001)


def test_a_table_without_times_runs_one_after_the_other():
    found = document(table(*({**mm(4096, 4096, 50257, 12_827_000), "start": None} for _ in range(2))))
    assert (found.captured_ms, found.changes[0].kernels) == (25.654, 2)


def test_two_gpus_run_side_by_side():
    one = mm(4096, 4096, 50257, 12_827_000, start=0)
    made = table(one, {**one, "device": 1})
    (change,) = document(made).changes
    assert change.kernels == 1 and change.gpu_ms == pytest.approx(10.743, abs=0.001)
    assert document(made).captured_ms == 12.827


def test_a_rule_is_registered_once():
    with pytest.raises(ModelError, match="alignment has two rules"):
        rule("alignment")(lambda run: [])
    assert "tf32" in RULES


def no_more_than_there_is(made):
    """The changes of a run, none of which removes more work than its kernels take."""
    found = changes_of(made)
    for change in found:
        assert 0 < change.gpu_ms <= change.time_ms + 2e-6 and change.gpu_ms >= 0.01 * made.step_ns / 1e6, change
    assert [change.gpu_ms for change in found] == sorted((change.gpu_ms for change in found), reverse=True)


@pytest.mark.parametrize(
    "name", sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.gz") if ".csv" not in path.name)
)
def test_no_change_removes_more_work_than_its_kernels_take(name):
    made = Run(*annotated(GOLDEN / name))
    if not made.on_cpu:  # there, threads shorten all ops, and pauses go as well (test_cpu)
        no_more_than_there_is(made)


def test_no_change_of_a_public_capture_removes_more_work_than_its_kernels_take(data):
    checked = 0
    for file in sorted(path for folder in ("kineto", "nsys", "round2") for path in (data / folder).glob("*.gz")):
        try:
            made = Run(*annotated(file))
        except PyprofError:  # not a capture of GPU work
            continue
        if not made.on_cpu:
            no_more_than_there_is(made)
            checked += 1
    assert checked > 40


@given(tables())
def test_no_table_stops_it(made):
    """Rows of a stranger's making: what cannot be understood is not advised on."""
    nothing = Coded.empty(len(made))
    unknown = np.full(len(made), NULL, np.int64)
    families = Coded.of(["gemm", "conv", "pointwise", "attention"][: len(made)])
    annotation = Annotation(unknown, unknown, nothing, nothing, nothing, families, {})
    plain(without_replay(Run(made, annotation), "").document)


SHAPES = st.sampled_from(["[]", "[3, 4]", "[[3, 4], [4]]", "[[-1, 4], [4, 4]]", '["a"]', "{}", "null",
                          "[[[2, 2]], [1]]", "[[1000000000000, 1000000000000], [1000000000000, 5]]", "[[0, 4], [4, 4]]",
                          "7"])  # fmt: skip
OPS = st.sampled_from(["mm", "bmm", "addmm", "_softmax", "_softmax_backward_data", "_log_softmax", "add_", "copy_",
                       "sum", "_efficient_attention_forward", "_flash_attention_backward", "cudnn_convolution",
                       "native_batch_norm", "mul", "fill_", "embedding_dense_backward", "native_dropout", "mean",
                       "convolution_backward", "record_param_comms", "_foreach_addcdiv_"])  # fmt: skip
NAMES = st.sampled_from(["vectorized_elementwise_kernel", "batch_norm_backward_kernel", "nhwcAddPaddingKernel",
                         "conv_depthwise2d_backward_kernel", "ncclDevKernel_AllReduce_RING_LL", "nchwToNhwcKernel",
                         "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_NNT"])  # fmt: skip
FAMILY = {"mm": "gemm", "bmm": "gemm", "copy_": "copy", "cudnn_convolution": "conv", "convolution_backward": "conv",
          "native_batch_norm": "norm", "mean": "reduction", "sum": "reduction"}  # fmt: skip


@given(st.lists(st.tuples(OPS, SHAPES, SHAPES, NAMES), min_size=1, max_size=6))
def test_no_shapes_stop_it(found):
    told = [{"aten": f"aten::{op}", "sizes": sizes, "strides": strides, "dtypes": '["bfloat16", "float32"]',
             "ns": 900_000, "kShortName": name, "phase": "backward", "args": strides,
             "nodes": '["aten::_to_copy", "aten::embedding_dense_backward", "AccumulateGrad"]',
             "op": sizes, "layer": strides, "trace": sizes, "grid": "[1, 1, 1]"}
            for op, sizes, strides, name in found]  # fmt: skip
    made = table(*told)
    roles = Coded.of(["main"] * len(made))
    families = Coded.of([FAMILY.get(op, "pointwise") for op, *_ in found])
    amounts = np.full(len(made), 1000, np.int64)
    ones = Coded.of(["1"] * len(made))
    run_ = Run(made, Annotation(amounts, amounts, ones, Coded.of(["bf16"] * len(made)), roles, families, {}))
    json.dumps(plain(without_replay(run_, "").document), allow_nan=False)


def test_the_column_names_the_rules_of_each_row():
    made = rows()
    assert COLUMN["advice"].get(made, annotate(made)).texts() == ["alignment", "tf32"]
    last_first = made.take([1, 0])
    assert COLUMN["advice"].get(last_first, annotate(last_first)).texts() == ["tf32", "alignment"]


def test_the_command(tmp_path, capsysbinary):
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(rows(), out)
    assert cli.main(["--advise", "--json", str(tmp_path / "net.dict")]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert found["schema"] == "pyprof/advice/2"
    assert [change["rule"] for change in found["changes"]] == ["alignment", "tf32"]
    assert cli.main(["--advise", str(tmp_path / "net.dict")]) == 0
    assert b"removes 10.7 ms of GPU work per" in capsysbinary.readouterr().out


def test_rules_that_lack_shapes_are_not_rules_that_find_nothing():
    made = table({"kShortName": "kernel", "aten": "aten::relu", "ns": 15_000, "phase": "forward"})
    lacking = "Most rules need the shapes of aten ops, which the capture does not have"
    assert brief(document(made))[0].endswith(f". {lacking}")
    assert words(made).endswith(f"No change was found that saves 1% of the capture ({NO_HOST}). {lacking}.")


@pytest.mark.parametrize(
    ("rows", "steps", "said"),
    [(5, 5, "1 copy"), (10, 5, "2 copies"), (4, 5, "on average 0.8 copies"), (907, 6, "on average 151 copies")],
)
def test_numbers_per_step_are_english(rows, steps, said):
    made = run({"kShortName": "kernel", "ns": 5_000})
    made.steps = steps
    assert made.number(rows, "copy", "copies") == said


def test_a_long_capture_s_times_have_no_exponents():
    """1,000 products of 15 ms are 15 s, of a capture without steps."""
    (change,) = changes(*[mm(4096, 4096, 4097, 15_000_000)] * 1000, rule="alignment")
    assert "It takes 15,000 ms" in change.why
