"""The cards on a terminal and as JSON; the registry; ranking."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.command.envelope import plain
from pyprof.errors import ModelError
from pyprof.prof import cli
from pyprof.prof.advice import RULES, Run, advise, together_ms
from pyprof.prof.advice.advised import StepTime, UnsureChange, advised_by_sums
from pyprof.prof.advice.card import rule
from pyprof.prof.advice.json_document import advice_document
from pyprof.prof.advice.rank import limited
from pyprof.prof.advice.report import _limit, brief, cards, host_ms, write_advice
from pyprof.prof.advice.run import NOT_PYTORCH
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.table.columns import NULL, Coded
from pyprof.table.measured_steps import MeasuredStep
from pyprof.table.netdict import write_netdict
from tests.prof.advice.advice_rows import cards as cards_of
from tests.prof.advice.advice_rows import mm, run, table
from tests.tables import tables

FIELDS = {"rule", "saved_ms", "step_ms", "kernels", "op", "layer", "trace", "why", "change", "confidence"}


def rows():
    more = {"op": ["linear"], "layer": ["net", "head\x1b[31m"], "trace": ["train.py:3", "net.py:7"]}
    simt = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n"
    return table(mm(4096, 4096, 50257, 12_827_000, **more), mm(4096, 4096, 4096, 2_678_000, simt, "float32"))


def written(as_json, made=None, width=0):
    made = made if made is not None else rows()
    out = io.BytesIO()
    run_ = Run(made, annotate(made))
    if as_json:
        return json.dumps(plain(advice_document(advised_by_sums(run_, ""))), allow_nan=False)
    write_advice(advised_by_sums(run_, ""), out, width)
    return out.getvalue().decode()


def test_json_has_the_fields():
    found = json.loads(written(True))
    assert found["steps"] == 0
    assert found["step_ms"] == pytest.approx(15.505 + 0.0011)
    assert [card["rule"] for card in found["advice"]] == ["alignment", "tf32"]
    assert all(card.keys() >= FIELDS for card in found["advice"])
    first = found["advice"][0]
    assert (first["op"], first["layer"], first["trace"]) == ("linear", "net:head\x1b[31m", "net.py:7")


def test_the_summary_names_the_first_five():
    made = rows()
    found = Run(made, annotate(made))
    pieces = advise(found)
    advised = advised_by_sums(found, "")
    title, first, second = brief(advised)
    assert title.startswith("What to change: 2 pieces of advice together save at most ")
    assert title.endswith(" of 15.51 ms per capture")  # 12.827 + 2.678
    assert first.startswith("Pad the ") and first.endswith("[linear · net:head\x1b[31m · net.py:7]")
    assert second.startswith("Allow TF32: saves ")
    title, *five = brief(replace(advised, cards=pieces * 3))
    assert "6 pieces" in title and title.endswith(" (the first 5 are shown)") and len(five) == 5
    inside = replace(pieces[0], change="Pad it (rows; no target names them) to 64: done. More.")
    assert "Pad it (rows; no target names them) to 64: saves " in brief(replace(advised, cards=[inside]))[1]
    assert brief(replace(advised, cards=[])) == [
        "What to change: nothing was found that saves more than 0.5% of the capture"
    ]


@pytest.mark.parametrize("width", [0, 60])
def test_the_cards_fit_the_terminal_and_cannot_drive_it(width):
    lines = written(False, width=width).splitlines()
    assert max(map(len, lines)) <= (width or 80)
    assert "\x1b" not in "".join(lines)
    text = " ".join(" ".join(lines).split())
    assert "1. Pad the" in text and ": saves 10.7 ms per capture (" in text and "Rule alignment, confidence " in text


def test_a_capture_of_cpu_ops_is_not_judged_as_a_gpus():
    row = mm(4096, 4096, 4096, 180_000, "addmm") | {"kind": "cpu"}
    words = " ".join(written(False, table(row)).split())
    assert words == (
        "The capture (no steps marked) takes 0.18 ms as captured; ops run 0.18 ms of it. There is no advice. The "
        "capture does not say what CPU it ran on, so nothing is said about threads, bf16 and data loading: `pyprof "
        "run` records it."
    )


def test_the_summary_of_cpu_ops_says_what_to_change_or_what_it_cannot_know():
    made = table(mm(4096, 4096, 4096, 180_000, "addmm") | {"kind": "cpu"})
    assert brief(advised_by_sums(Run(made, annotate(made)), "")) == [
        "What to change: nothing was found that saves more than 0.5% of the capture. The capture does not say what CPU "
        "it ran on, so nothing is said about threads, bf16 and data loading: `pyprof run` records it."
    ]


LIKELY = UnsureChange("tf32", "Allow TF32", 0.2957, "")
SECOND = UnsureChange("launch_bound", "Launch the step as a CUDA graph", 1.002, "Do not read values: keep them")


def test_what_is_less_sure_is_not_said_to_be_nothing():
    """A change that saves 0.3 ms on average, and in one case of ten nothing, has no card and is in the plan."""
    made = rows()
    found = replace(advised_by_sums(Run(made, annotate(made)), ""), cards=[], unsure=[LIKELY])
    assert brief(found) == [
        "What to change: no change alone saves 0.5% of the capture in nine of ten cases. Less sure, or only with "
        "another change (pyprof plan weighs these): Allow TF32 (about 0.3 ms, or nothing)."
    ]
    out = io.BytesIO()
    write_advice(found, out, 400)
    assert "Allow TF32 (about 0.3 ms, or nothing)." in out.getvalue().decode()


def test_what_saves_more_after_another_change_is_named_beside_the_cards():
    made = rows()
    found = advised_by_sums(Run(made, annotate(made)), "")
    (little,) = (replace(card, saved_ms=0.5) for card in found.cards[:1])
    title, _ = brief(replace(found, cards=[little], unsure=[SECOND, LIKELY]))
    assert title.endswith(
        ": Launch the step as a CUDA graph (about 1 ms with this before it: Do not read values)."
    )  # and not TF32, which saves less than the card
    text = " ".join(" ".join(cards(replace(found, cards=[little], unsure=[SECOND, LIKELY]))).split())
    assert "Launch the step as a CUDA graph (about 1 ms with this before it: Do not read values)." in text


def test_a_run_without_advice_says_so():
    words = written(False, table(mm(4096, 4096, 4096, 180_000, "nvjet_sm90_tst_128x256"))).split()
    assert " ".join(words).endswith("There is no advice.")


def steady(ns, more=None, ahead=5_000):
    """100 kernels of so many ns, one each 30 µs, each launched 5 µs before it. In a capture with PyTorch's ranges, 35%
    of the host's 2.975 ms are its own: 1.04 ms."""
    return [
        {"kShortName": "kernel", "aten": "aten::relu", "sizes": [[4]], "start": i * 30_000, "ns": ns,
         "phase": "forward", "apiStart": i * 30_000 - ahead, "apiDuration": 5_000, **(more or {})} for i in range(100)
    ]  # fmt: skip


def test_why_a_step_gets_shorter_by_less_does_not_contradict_what_is_the_limit():
    reasons = {
        5_000: "the host is the limit",
        9_900: "the host may be the limit",
        15_000: "the GPU would then wait longer for the host",
    }
    for ns, why in reasons.items():
        assert limited(run(*steady(ns)), 2.0, 1.0).endswith(f"but the step by less, because {why}")
        assert limited(run(*steady(ns)), 1.0, 1.0) == ""


LIMITS = {  # what the kernels take -> the verdict; the GPU takes 1.1 µs more for each, 0.61, 1.10 and 1.61 ms
    5_000: "the host is the limit",
    9_900: "neither is clearly the limit",
    15_000: "the GPU is the limit",
}


@pytest.mark.parametrize("ns", LIMITS)
def test_the_summary_says_what_is_the_limit_without_a_profiler(ns):
    made = run(*steady(ns))
    title, *_ = brief(advised_by_sums(made, ""))
    told = {5_000: "0.5", 9_900: "0.99", 15_000: "1.5"}[ns]
    assert title.endswith(
        f". Without a profiler the host needs about 1 ms (0.69 to 1.3) per capture and the GPU {told} ms: {LIMITS[ns]}."
    )


def test_a_host_that_is_the_limit_needs_the_step_s_time():
    """The GPU works 0.5 of 1.9 ms and 100 launches take the host 1 ms by their sum; by a replay the step takes 1.4."""
    made = run(*steady(5_000))
    assert host_ms(made, None)[0] == pytest.approx(1.0, abs=0.05)
    found = replace(advised_by_sums(made, ""), cards=[], now=StepTime(1.4, 1.2, 1.7))
    assert host_ms(made, found.now) == (1.4, 1.2, 1.7)
    assert advice_document(found).host_ms == 1.4
    assert "Without a profiler the host needs about 1.4 ms per capture." in " ".join(" ".join(cards(found)).split())
    title, *_ = brief(found)
    assert "Without a profiler the host needs about 1.4 ms (1.2 to 1.7) per capture" in title


def test_a_host_that_was_measured_is_not_about():
    """A step timed before the profiler started: 2.0 ms, of which the GPU works 0.5, so the host takes 2.0."""
    made = run(*[{**row, "step": 1, "markStart": 0, "markEnd": 3_000_000} for row in steady(5_000)])
    made.table.measured = (MeasuredStep(1, 2_000_000, 2_000_000),)
    title, *_ = brief(advised_by_sums(made, ""))
    assert ". Without a profiler the host needs 2 ms (measured) per step and the GPU 0.5 ms" in title


def test_idle_time_in_front_of_launched_work_is_explained_by_neither():
    """Each kernel is launched 25 µs before it starts: of the gaps of 15 µs, all but the usual 1.1 are such a wait."""
    made = run(*steady(15_000, ahead=25_000))
    title, *_ = brief(advised_by_sums(made, ""))
    assert title.endswith(
        "and the GPU 1.5 ms: neither explains 1.4 ms per capture in which the GPU is idle though work is launched."
    )


def test_without_launch_times_nothing_is_said_of_the_host():
    made = table(*steady(15_000, {"apiStart": None, "apiDuration": None}))
    title, *_ = brief(advised_by_sums(Run(made, annotate(made)), ""))
    assert title == "What to change: nothing was found that saves more than 0.5% of the capture"
    assert "Without a profiler" not in written(False, made)


def test_nothing_to_advise_says_why():
    """Near each other neither's time is to be saved; 20 launches are too few for a CUDA graph."""

    def told(*rows):
        made = table(*rows)
        return " ".join(written(False, made).split())

    assert told(*steady(9_900)[:20]).endswith(
        "There is no advice: host and GPU take about as long, so a change to one of them alone saves little."
    )
    assert told(*steady(15_000)[:20]).endswith("ms per capture. There is no advice.")
    assert "There is no advice: the host is the limit" in told(*steady(2_000)[:20])


def test_the_cards_say_that_the_host_is_the_limit():
    assert "The host is the limit: faster kernels alone do not shorten the step." in " ".join(
        written(False, table(*steady(1_900))).split()
    )


def test_a_program_whose_steps_are_opaque_graphs_is_of_pytorch_by_its_other_ops():
    """The marked step replays a graph whose kernels the capture hides; an op of PyTorch ran before it."""
    graph = {"kShortName": "[CUDA graph 1]", "kind": "graph", "ns": 5000, "start": 20_000, "step": 1}
    before = {"kShortName": "copy", "ns": 1000, "start": 0, "op": ["index_select"], "aten": "aten::index_select"}
    assert run(before, graph).unfit == ""
    assert run({**before, "op": None, "aten": ""}, graph).unfit == NOT_PYTORCH


def test_an_empty_run():
    made = rows().take([])
    assert advise(Run(made, annotate(made))) == []
    assert json.loads(written(True, made))["advice"] == []


def test_savings_are_a_step():
    one = mm(4096, 4096, 50257, 12_827_000)
    (card,) = advise(run(*({**one, "step": step} for step in (5, 6)), {**one, "step": None}))
    assert card.kernels == 1  # of two steps; what no step holds is left out
    assert card.saved_ms == pytest.approx(10.743, abs=0.001)


def test_a_table_without_times_runs_one_after_the_other():
    made = table(*({**mm(4096, 4096, 50257, 12_827_000), "start": None} for _ in range(2)))
    found = json.loads(written(True, made))
    assert (found["step_ms"], found["advice"][0]["kernels"]) == (25.654, 2)


def test_two_gpus_run_side_by_side():
    one = mm(4096, 4096, 50257, 12_827_000, start=0)
    (card,) = advise(run(one, {**one, "device": 1}))
    assert (card.kernels, card.step_ms) == (1, 12.827)
    assert card.saved_ms == pytest.approx(10.743, abs=0.001)


def test_together_counts_a_kernel_once():
    both = run(mm(4096, 4096, 4096, 2_678_000, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n", "float32"))
    assert together_ms(both) == pytest.approx(max(card.saved_ms for card in advise(both)))


def test_a_rule_is_registered_once():
    with pytest.raises(ModelError, match="alignment has two rules"):
        rule("alignment")(lambda run: [])
    assert "tf32" in RULES


@given(tables())
def test_no_table_stops_it(made):
    """Rows of a stranger's making: what cannot be understood is not advised on."""
    nothing = Coded.empty(len(made))
    unknown = np.full(len(made), NULL, np.int64)
    families = Coded.of(["gemm", "conv", "pointwise", "attention"][: len(made)])
    annotation = Annotation(unknown, unknown, nothing, nothing, nothing, families, {})
    advice_document(advised_by_sums(Run(made, annotation), ""))


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
    json.dumps(plain(advice_document(advised_by_sums(run_, ""))), allow_nan=False)


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
    assert [card["rule"] for card in found["advice"]] == ["alignment", "tf32"]
    assert cli.main(["--advise", str(tmp_path / "net.dict")]) == 0
    assert b": saves 10.7 ms per capture" in capsysbinary.readouterr().out


def test_a_host_that_needs_the_whole_step_explains_it():
    """Kernels of 5 µs, each launched 25 µs before it starts: the host needs 2.5 ms, as long as the step."""
    advised = advised_by_sums(run(*steady(5_000, ahead=25_000)), "")
    assert "neither explains" in brief(advised)[0]
    title, *_ = brief(replace(advised, now=StepTime(ms=2.5, low_ms=2.0, high_ms=3.0)))
    assert title.endswith("the host needs about 2.5 ms (2 to 3) per capture and the GPU 0.5 ms: the host is the limit.")


def test_rules_that_lack_shapes_are_not_rules_that_find_nothing():
    made = table(*[{**row, "sizes": None} for row in steady(15_000)])
    lacking = "Most rules need the shapes of aten ops, which the capture does not have"
    assert brief(advised_by_sums(Run(made, annotate(made)), ""))[0].endswith(f". {lacking}.")
    assert " ".join(written(False, made).split()).endswith(f"There is no advice. {lacking}.")


def turns(copy="Memcpy DtoH (Device -> Pinned)", **more):
    """20 times: a kernel of 500 µs, a copy of 1, and 400 µs without a launch. All is launched 5 µs before it starts,
    but the copy at once after its kernel's launch."""
    made = []
    for i in range(20):
        at = i * 901_000
        made += [
            {"kShortName": "kernel", "aten": "aten::mm", "sizes": [[2, 2], [2, 2]], "start": at, "ns": 500_000,
             "apiStart": at - 9_000, "apiDuration": 4_000},
            {"kShortName": copy, "kind": "memcpy", "bytes": 4, "start": at + 500_000, "ns": 1_000,
             "apiStart": at - 4_000, "apiDuration": 504_000, **more},
        ]  # fmt: skip
    return made


def test_a_host_that_waits_for_each_result_takes_turns_with_the_gpu():
    """The GPU works 10 of 17.6 ms, and the rest is the host's; with more of either, the whole takes longer."""
    title, *_ = brief(replace(advised_by_sums(run(*turns()), ""), cards=[]))
    assert title.endswith(": they take turns, so neither alone is the limit.")


@pytest.mark.parametrize(
    ("sync", "data", "host", "gpu", "limit"),
    [  # µs of a step of 1000, of which 250 are much; the host is surely the limit at 1.29 times the GPU's time
        (260, 0, 900, 100, "turns"), (150, 140, 100, 100, "turns"), (150, 140, 900, 100, "host"),
        (100, 100, 900, 100, "host"), (0, 260, 900, 100, "host"), (0, 0, 100, 900, "GPU"), (0, 0, 500, 450, "near"),
        (150, 90, 450, 500, "near"),
    ],
)  # fmt: skip
def test_what_limits_a_step(sync, data, host, gpu, limit):
    idle = {"sync": 1e3 * sync, "data": 1e3 * data}
    made = SimpleNamespace(step_ns=1e6, host_ns=1e3 * host, queued_ns=1e3 * gpu, idle_by_cause_ns=idle)
    assert _limit(made) == limit


@pytest.mark.parametrize(
    ("step", "limit"),
    [  # ms without the profiler, of a host that needs 86 ms and a GPU that needs 101 ms: 187 ms one after the other
        (105, "near"), (143, "near"), (145, "turns"), (187, "turns"),
    ],
)  # fmt: skip
def test_turns_that_only_the_profiler_causes_are_none(step, limit):
    """A V100's step of 178 ms, 48 ms of them idle for data: without the profiler the host is ahead of the GPU."""
    made = SimpleNamespace(
        step_ns=178e6, host_ns=86e6, queued_ns=101e6, idle_by_cause_ns={"sync": 0.0, "data": 48e6}
    )  # fmt: skip
    assert _limit(made, StepTime(step, step, step)) == limit


def test_nothing_is_said_of_a_step_that_the_capture_does_not_explain():
    """Two kernels of 5 µs in a step that lasts 33 ms from mark to mark: what the host did is not in the capture."""
    step = {"step": 1, "markStart": 0, "markEnd": 33_000_000, "stepStart": 0, "stepEnd": 33_000_000}
    made = run(*({**row, **step} for row in steady(5_000)[:2]))
    assert made.step_ns == 33_000_000
    title, *_ = brief(replace(advised_by_sums(made, ""), cards=[]))
    assert "Without a profiler" not in title


@pytest.mark.parametrize(
    ("rows", "steps", "said"),
    [(5, 5, "1 copy"), (10, 5, "2 copies"), (4, 5, "on average 0.8 copies"), (907, 6, "on average 151 copies")],
)
def test_numbers_per_step_are_english(rows, steps, said):
    made = run(*steady(5_000)[:1])
    made.steps = steps
    assert made.number(rows, "copy", "copies") == said


def test_a_long_capture_s_times_have_no_exponents():
    """1,000 products of 15 ms are 15 s, of a capture without steps."""
    (card,) = cards_of(*[mm(4096, 4096, 4097, 15_000_000)] * 1000, rule="alignment")
    assert "It takes 15,000 ms" in card.why
