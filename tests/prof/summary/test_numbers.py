"""The summary: numbers worked out by hand on a small table, counted independently on captures, and its sentences."""

import gzip
import io
import json
import re
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings

from pyprof.command.envelope import envelope, plain, write_envelope
from pyprof.command.frame import Done
from pyprof.command.terminal_text import CONTROL
from pyprof.parse import cli as parse_cli
from pyprof.prof import cli, print_answers, print_table
from pyprof.prof.summary.capture_numbers import Summary, summarise
from pyprof.prof.summary.components import series
from pyprof.prof.summary.json_document import summary_of
from pyprof.prof.summary.sentences import headline, sentences
from pyprof.prof.summary.tables import summary_tables
from pyprof.prof.summary.terminal import write_summary
from pyprof.prof.summary.wording import amount
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.prof.work.kinds import kinds
from pyprof.quantities import ms, share
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.read_table import read_table
from tests.tables import tables

US = 1000
HTOD = "[CUDA memcpy Host-to-Device]"
GEMM = "nvjet_sm90_tst_192x128_64x5_bias_NNT"
SGEMM = "ampere_sgemm_128x64_tn"
SOFTMAX = "void softmax_warp_forward<float, float, float, 8, false, false>(float*)"
LOSS = "cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>"
H200, A100 = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"


def run_of(*rows: dict[str, object], gpu: str = H200) -> Table:
    """A table of rows: start and ns in microseconds; launched (the call's start) as well."""

    def text(key: str, empty: str = "") -> Coded:
        return Coded.of(str(row.get(key, empty)) for row in rows)

    def number(key: str, scale: int = 1) -> np.ndarray:
        return np.array([int(row[key] * scale) if key in row else NULL for row in rows], np.int64)

    names = text("name")
    columns = {
        "kShortName": names,
        "kLongName": names,
        "start": number("start", US),
        "kDuration": number("ns", US),
        "apiStart": number("launched", US),
        "kind": text("kind", "kernel"),
        "phase": text("phase"),
        "op": text("op"),
        "mod": text("op"),
        "aten": text("aten"),
        "sizes": text("sizes"),
        "dtypes": text("dtypes"),
        "layer": text("layer"),
        "reason": text("reason"),
        "bytes": number("bytes"),
        "step": number("step"),
        "gpu": Coded.of([gpu] * len(rows)),
        "device": np.zeros(len(rows), np.int64),
        "pid": np.ones(len(rows), np.int64),
        "stream": number("stream"),
        "opId": np.array([i if row.get("op") else NULL for i, row in enumerate(rows)], np.int64),
    }
    return Table(len(rows), columns)


def mm(start: int, ns: int, **more: object) -> dict[str, object]:
    """1024³: 2.147 GFLOP, 6 MiB in bf16; on an H200's 989.4 TFLOP/s 2.17 us, at 4.8 TB/s 1.31 us."""
    return {
        "name": GEMM,
        "start": start,
        "ns": ns,
        "op": '["linear"]',
        "aten": "aten::mm",
        "sizes": "[[1024, 1024], [1024, 1024]]",
        "dtypes": '["bfloat16", "bfloat16"]',
        **more,
    }


def summary(table: Table) -> Summary:
    return summarise(table, annotate(table))


def said(table: Table) -> str:
    found = summary(table)
    return "\n".join([headline(found), *sentences(found)])


def step() -> Table:
    """100 us: works 0-10, 10-30 (a second kernel within it), 50-90, 95-100; idle 30-50 and 90-95."""
    return run_of(
        mm(0, 10, phase="forward", step=0),
        mm(10, 20, phase="forward", step=0),
        mm(12, 8, phase="forward", step=0),  # beside the one before
        mm(50, 40, phase="backward", launched=42, step=0),  # 12 of the 20 us idle had passed when it was called for
        {
            "name": "multi_tensor_apply_kernel",
            "start": 95,
            "ns": 5,
            "phase": "optimizer",
            "op": '["step"]',
            "launched": 60,
            "step": 1,
            "aten": "my::adam",
        },
    )


def test_time_by_phase_counts_overlaps_once_and_gaps_before_the_phase():
    found = summary(step())
    assert (found.span_ns, found.busy_ns, found.idle_ns) == (100 * US, 75 * US, 25 * US)
    assert [(p.name, p.rows, p.ns, p.idle_ns) for p in found.phases] == [
        ("forward", 3, 30 * US, 0),
        ("backward", 1, 40 * US, 20 * US),
        ("optimizer", 1, 5 * US, 5 * US),
    ]
    assert found.total_ns == 83 * US
    assert [(p.name, p.ns) for p in found.steps] == [
        ("0", 95 * US),
        ("1", 5 * US),
    ]  # until step 1 begins; until its end


def test_sentences_of_the_step():
    words = said(step())
    assert "5 kernels on one NVIDIA H200. 100% of 0.0830 ms of GPU time is attributed to an op." in words
    # No mark says how long step 1 lasts, so step 0 is the one whose length is known: 95 us, of which 0-30 and 50-90.
    assert "The step takes 0.0950 ms as captured.\nNo mark says when the step begins, so it is taken to begin" in words
    assert (
        "It is not known what limits the step: the GPU works for 0.0700 ms of 0.0950 ms (73.7%); it is idle for "
        "0.0250 ms before work whose launch is not in the capture." in words
    )
    assert "The backward pass takes 1.33 times as long on the GPU as the forward pass (0.0400 ms and" in words
    assert "Most of GPU time is GEMM: 94.0% (0.0780 ms); then optimizer 6.0%." in words
    assert "takes 0.0780 ms (94.0% of GPU time), 100% of it on tensor cores: bf16 tensor cores 100%." in words
    # 4 × 2 × 1024³ in 95 us: 90.4 TFLOP/s, of 989.4 9.1%; 4 × 6 MiB in 95 us: 264.9 GB/s
    assert (
        "FLOPs are known for 94.0% of GPU time: at least 8.59 GFLOP, at least 90.42 TFLOP/s including idle time."
        in words
    )
    assert "Bytes are known for 94.0% of GPU time: at least 25.17 MB, at least 264.9 GB/s including idle time." in words
    assert "Model FLOPs utilisation (MFU) is at least 9.1% of 989.4 TFLOP/s (bf16 tensor cores, dense)." in words
    # 4 × 2.1705 us of 78
    assert "At the hardware's limits the kernels would need 0.0087 ms instead of 0.0780 ms (11.1%)" in words
    assert "Of the 0.0780 ms of kernels whose limit is known, 100% is compute-bound." in words
    assert (
        "6.0% of GPU time runs in ops without a FLOP model, or without the arguments that it needs: my::adam 6.0%."
        in words
    )


def test_loading_is_told_and_left_out():
    table = run_of(
        {"name": HTOD, "kind": "memcpy", "start": 0, "ns": 500, "bytes": 5_000_000},
        {"name": HTOD, "kind": "memcpy", "start": 600, "ns": 300, "bytes": 3_000_000},
        {"name": SGEMM, "start": 1000, "ns": 90, "reason": "no range"},
        {"name": "elementwise_kernel", "start": 1090, "ns": 10, "reason": "no range"},
        gpu=A100,
    )
    found = summary(table)
    assert (found.total_ns, found.span_ns, found.busy_ns) == (100 * US, 100 * US, 100 * US)
    words = said(table)
    assert words.startswith("2 copies and 2 kernels on one NVIDIA A100-SXM4-80GB. 0% of 0.1000 ms")
    assert (
        "2 host-to-device copies move 8 MB in 0.8000 ms, 10 GB/s. All of them ran before the first kernel; they count "
        "as loading and are left out of all other figures."
    ) in words
    assert "Most of GPU time is GEMM: 90.0% (0.0900 ms); then element-wise 10.0%." in words
    assert "(90.0% of GPU time), none of it on tensor cores: fp32 100%." in words
    assert (
        "The peak of this GPU's tensor cores, against that of fp32, is 8 times in tf32 and 16 times in bf16." in words
    )
    assert "100% of GPU time has no op: no range (100%, 2 operations)." in words
    assert "Without ops, FLOPs, their rates and MFU are unknown: capture with pyprof.init()" in words


def test_copies_among_the_kernels_stay():
    copy = {"name": HTOD, "kind": "memcpy", "start": 20, "ns": 30, "bytes": 300}
    found = summary(run_of(mm(0, 10), copy, mm(60, 10)))
    assert found.total_ns == 50 * US
    copies = "1 host-to-device copy moves 300 B in 0.0300 ms, 10 MB/s: 60.0% of GPU time."
    assert copies in sentences(found)


def test_dropout_where_autograd_numbers_no_op():
    """Autograd numbers an op that could record a gradient, so one number may be that of a training step's forward."""
    table = run_of(mm(0, 10), mm(10, 4, aten="aten::native_dropout"), mm(20, 6, aten="aten::native_dropout"))
    assert "Dropout runs although no gradient is recorded: 2 kernels, 0.0100 ms." in said(table)
    numbered = table.with_column("seqId", Ragged.of([[7], [], []]))
    assert "Dropout" not in said(numbered) and summary(numbered).dropout_without_gradients.rows == 0
    assert "Dropout" not in said(run_of(mm(0, 10)))


def test_attention_in_separate_kernels_is_seen_and_a_fused_one_is_not_taken_for_it():
    parts = (SGEMM, "MulFunctor", SOFTMAX, SGEMM, "MulFunctor", SGEMM, SOFTMAX, SGEMM, "softmax_after_the_last")
    table = run_of(*({"name": name, "start": 10 * i, "ns": 10, "stream": 7} for i, name in enumerate(parts)))
    attention = summary(table).attention
    assert (attention.fused_rows, attention.apart_rows, attention.apart_ns) == (0, 2, 30 * US)
    assert "No fused attention kernel runs: 2 times a softmax runs between two matrix products" in said(table)
    by_hand = ("MaxOps", "exp_kernel_cuda", "sum_functor", "DivFunctor")  # a softmax of one's own
    table = run_of(
        *(
            {"name": name, "start": 10 * i, "ns": 10, "stream": 7}
            for i, name in enumerate((SGEMM, *by_hand, SGEMM, *by_hand, SGEMM, "MaxOps", SGEMM))
        )
    )
    assert (summary(table).attention.apart_rows, summary(table).attention.apart_ns) == (2, 80 * US)
    loss = run_of(
        *({"name": name, "start": 10 * i, "ns": 10, "stream": 7} for i, name in enumerate((SGEMM, LOSS, SGEMM)))
    )
    assert summary(loss).attention.apart_rows == 0
    warp = "softmax_warp_forward<float, float, float, 10, {}, false>"
    for name, times in ((warp.format("true"), 0), (warp.format("false"), 1), ("void " + warp.format("(bool)1"), 0)):
        rows = [{"name": kernel, "start": 10 * i, "ns": 10} for i, kernel in enumerate((SGEMM, name, SGEMM))]
        assert summary(run_of(*rows)).attention.apart_rows == times
        rows[1] |= {"op": '["cross_entropy"]', "aten": "aten::_log_softmax"}
        assert summary(run_of(*rows)).attention.apart_rows == 0
    # a router's: 8192 tokens to 8 experts, then products of 1024 features; attention's: 128 heads of 64 by 64 scores
    scores = [128, 64, 64]
    for result, operands, times in (([8192, 8], "[[8192, 1024]]", 0), (scores, f"[{scores}]", 1), (scores, "", 1)):
        sizes = ("", f"[{result}, []]", operands)
        rows = [
            {"name": name, "start": 10 * i, "ns": 10, "sizes": sizes[i]}
            for i, name in enumerate((SGEMM, SOFTMAX, SGEMM))
        ]
        assert summary(run_of(*rows)).attention.apart_rows == times
    flash = run_of({"name": "flash_fwd_kernel<bfloat16>", "start": 0, "ns": 10})
    assert "Attention runs in 1 fused kernel (flash_fwd_kernel<bfloat16>), 0.0100 ms in all." in said(flash)


def test_communication_that_nothing_hides():
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    table = run_of(mm(0, 30, stream=7), {"name": nccl, "start": 20, "ns": 40, "stream": 9})
    found = summary(table)
    assert (found.communication_ns, found.exposed_ns, found.busy_ns) == (40 * US, 30 * US, 60 * US)
    words = (
        "Communication takes 0.0400 ms (57.1% of GPU time), 0.0300 ms of it (75.0%) while nothing else runs on the GPU."
    )
    assert words in said(table)  # 40 of 70


def test_several_gpus_stand_beside_each_other():
    table = run_of(mm(0, 50, stream=7), mm(0, 10, stream=7), mm(90, 10, stream=7))
    table = table.with_column("device", np.array([0, 1, 1]))
    found = summary(table)
    assert (found.span_ns, found.busy_ns) == (150 * US, 70 * US)  # 50 and 100; 50 and 20
    # 50 and 20 of the 100 us from the first operation to the last
    assert "the GPU works for 0.0350 ms of 0.1000 ms (35.0%)" in said(table)
    assert "Of the 2 GPUs, the steps' limits differ: 1 × host and 1 × unknown." in said(table)
    assert headline(found).startswith("3 kernels on 2 × NVIDIA H200.")
    # 2 × 2.147 GFLOP in 100 us
    lines = [" ".join(line.split()) for line in shown(table).splitlines()]
    assert "process 1, device 0 1 0.0500 ms 100% 100% 42.95" in lines
    assert "process 1, device 1 2 0.1000 ms 20.0% 20.0% 42.95" in lines


def test_graph_launches_say_how_to_see_inside():
    words = said(run_of({"name": "graph", "kind": "graph", "start": 0, "ns": 500}))
    assert words.startswith("1 graph launch on one NVIDIA H200.")
    assert (
        "The kernels of 1 graph launch (0.5000 ms) are not in the capture: nsys profile --cuda-graph-trace=node"
        in words
    )


def test_the_loss_is_what_a_loss_calls_and_not_the_model_that_has_one():
    """Outside of any layer: softmax and casts of a cross entropy. Inside of a model whose class has a loss's name: its
    own cross entropy, but not its blocks."""
    entropy = {"op": '["cross_entropy"]', "aten": "aten::_log_softmax", "name": SOFTMAX}
    rows = [
        {**entropy, "start": 0, "ns": 300},
        {**entropy, "start": 1000, "ns": 200, "layer": '["GPT2WithLoss"]'},
        {
            "name": "add",
            "aten": "aten::add",
            "op": '["add"]',
            "start": 2000,
            "ns": 100,
            "layer": '["GPT2WithLoss", "h.0"]',
        },
        {"name": "add", "aten": "aten::add", "op": '["add"]', "start": 3000, "ns": 50, "layer": '["Loss", "norm"]'},
    ]
    found = {(part.name, part.ns) for part in summary(run_of(*rows)).components}
    assert found == {("loss", 500 * US), ("other", 100 * US), ("norm", 50 * US)}


def test_a_layer_that_takes_next_to_nothing_does_not_take_nothing():
    """0.3 of 131 µs is 0.0023 times as long."""
    times = [131.0, 159.0, 0.3]
    table = run_of(*(mm(1000 * i, ns, layer=f'["Linear_{i}"]') for i, ns in enumerate(times)))
    assert "layer 2 takes <0.01 times as long" in said(table)


def test_a_layer_that_is_no_equal_of_the_others():
    layers = [f'["GPT", "h.{i}", "h.{i}.attn"]' for i in range(5)]
    times = [200, 100, 100, 101, 99]
    table = run_of(*(mm(1000 * i, ns, layer=layer) for i, (layer, ns) in enumerate(zip(layers, times, strict=True))))
    assert "The 5 layers GPT:h.* take 0.1000 ms each (median); layer 0 takes 2.00 times as long." in said(table)
    assert [(p.name, p.ns) for p in summary(table).components] == [("attention", 600 * US)]


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["DecoderLayer_0", "DecoderLayer_1", "DecoderLayer_2"], "DecoderLayer_*"),
        (["h.0", "h.1"], None),  # too few
        (["fc1", "fc2", "fc3"], None),  # a name, not a count
        (["a", "b", "c"], None),
    ],
)
def test_what_makes_a_series(names, name):
    found = series(Coded.of(json.dumps([n]) for n in names), np.full(len(names), 10))
    assert (found and found.name) == name


def test_layers_of_unequal_work_are_no_series():
    assert series(Coded.of(f'["features.{i}"]' for i in range(6)), np.array([1, 100, 5, 900, 30, 4000])) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (SGEMM, "GEMM"),
        (GEMM, "GEMM"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64_4x1x1", "attention"),
        ("at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<MulFunctor>>", "element-wise"),
        ("void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>", "copies and casts"),
        ("at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>", "reductions"),
        ("void (anonymous)::elementwise_kernel_with_index<int, arange_cuda_out>", "fills"),
        ("void at::native::index_elementwise_kernel<128, 4>", "indexing and sorting"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "communication"),
        ("triton_poi_fused_add_mul_0", "element-wise"),
        ("triton_red_fused_native_layer_norm_1", "normalisation"),
        (SOFTMAX, "softmax"),
        ("who_knows", "other"),
    ],
)
def test_kinds_by_kernel_name(name, kind):
    table = run_of({"name": name, "start": 0, "ns": 1})
    assert kinds(table, annotate(table)).texts() == [kind]


def test_the_host_limits_and_the_profiler_slows_it():
    """Of 310 µs the GPU is idle from 10 to 155 and from 160 to 300, until 5 µs after each launch."""
    table = run_of(mm(0, 10, launched=0), mm(155, 5, launched=150), mm(300, 10, launched=295))
    words = said(table.with_column("apiDuration", np.full(len(table), 5 * US)))
    assert (
        "The host limits the capture: the GPU works for 0.0250 ms of 0.3100 ms (8.1%); it is idle for 0.2850 ms while "
        "the host has not launched the next operation. The profiler slows the host" in words
    )


def test_a_cpu_is_not_called_idle_outside_of_ops():
    """Between 10 and 20 µs no op runs; what the CPU did then, Python for example, is not on record."""
    table = run_of(mm(0, 10, kind="cpu", phase="forward"), mm(20, 30, kind="cpu", phase="backward"), gpu="")
    phases = next(each for each in summary_tables(summary(table)) if each.key == "phases")
    assert phases.head == ("phase", "rows", "in ops", "", "outside", "") and "idle" not in phases.title
    assert phases.rows[-1] == ("all", "2", "0.0400 ms", "80.0%", "0.0100 ms", "20.0%")


def test_a_capture_of_a_cpu_speaks_of_cpu_time():
    table = run_of(mm(0, 10, kind="cpu", phase="forward"), mm(20, 30, kind="cpu", phase="backward"), gpu="")
    words = said(table)
    assert words.startswith("2 CPU ops on the CPU. 100% of 0.0400 ms of CPU time is attributed to an op.")
    assert "Most of CPU time is GEMM: 100% (0.0400 ms)." in words
    assert "GPU" not in words
    assert "MFU" not in words


def test_an_empty_table_and_one_without_times():
    assert "0 rows" not in said(run_of())
    assert said(Table(1, {"kShortName": Coded.of(["k"]), "kDuration": np.array([0])}))


@settings(max_examples=100)
@given(tables())
def test_any_table_has_a_summary(table):
    """Whatever the texts and numbers; what the models say of them is not the matter here."""
    nothing, none = np.full(len(table), NULL, np.int64), Coded.empty(len(table))
    found = summarise(table, Annotation(nothing, nothing, none, none, none, none, {}))
    json.dumps(plain(summary_of(found)), allow_nan=False)
    out = io.BytesIO()
    write_summary(found, out, 80, False)
    assert not CONTROL.search(out.getvalue().decode().replace("\n", ""))


def shown(table: Table, width: int = 80, terminal: bool = False) -> str:
    out = io.BytesIO()
    write_summary(summary(table), out, width, terminal)
    return out.getvalue().decode()


def test_the_first_five_pieces_of_advice_stand_below_the_sentences():
    pieces = ["What to change: 7 pieces", *(f"{rule}: 1.00 ms a step: turn it \x1b[1m" for rule in "abcde")]
    out = io.BytesIO()
    write_summary(summary(step()), out, 60, False, pieces)
    lines = out.getvalue().decode().splitlines()
    at = lines.index("What to change: 7 pieces")
    assert [line[:2] for line in lines[at + 1 : at + 6]] == ["1.", "2.", "3.", "4.", "5."]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_lines_fit_the_width_and_a_pipe_has_no_colour(width):
    text = shown(step(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "forward" in text
    assert "\x1b[1m" in shown(step(), width, terminal=True)


def test_hostile_names_neither_drive_the_terminal_nor_are_read_as_markup():
    name = "[red]x\x1b[31m\u202e\n[/red][link=file:///etc]"
    table = run_of({"name": name, "start": 0, "ns": 10, "reason": name, "layer": json.dumps([name])})
    text = shown(table)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]x?[31m??[/red]" in text


def test_json_is_one_object_without_nan(tmp_path):
    out = io.BytesIO()
    write_envelope(envelope("summary", summary_of(summary(step()))), out)
    found = json.loads(out.getvalue(), parse_constant=pytest.fail)
    assert found["schema"] == "pyprof/summary/2"
    assert found["numbers"]["span_ns"] == 100 * US
    assert found["numbers"]["phases"][1] == {"name": "backward", "rows": 1, "ns": 40 * US, "idle_ns": 20 * US}
    assert found["sentences"]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ms"),
        (123_456, "0.1235 ms"),
        (1_234_567, "1.235 ms"),
        (123_456_789, "123.5 ms"),
        (12_345_678_901, "12,346 ms"),
    ],
)
def test_times_have_four_digits(ns, text):
    assert ms(ns) == text


def test_shares_that_are_neither_none_nor_all_do_not_look_so():
    assert [share(part, 100_000) for part in (0, 1, 50_000, 99_999, 100_000)] == [
        "0%",
        "<0.1%",
        "50.0%",
        ">99.9%",
        "100%",
    ]
    assert share(1, 0) == "0%"
    assert amount(1234, "B") == "1.234 kB"


@pytest.fixture(scope="module")
def captures(root, tmp_path_factory):
    """Golden captures, parsed once each."""
    folder = tmp_path_factory.mktemp("summary")

    def get(name: str, form: str = ".sqlite") -> str:
        path = folder / f"{name}.dict"
        if not path.exists():
            source = root / "tests" / "golden" / f"{name}{form}.gz"
            assert parse_cli.main(["-q", "-o", str(path), str(source)]) == 0
        return str(path)

    return get


@pytest.mark.parametrize("name", ["h200_gpt2_step", "h200_lenet", "h200_resnet50_step_pytorch_flag"])
def test_times_of_a_capture_are_those_of_its_database(root, tmp_path, captures, name):
    """Span, busy time and kernels, by plain Python from the profiler's own tables."""
    (tmp_path / "net.sqlite").write_bytes(
        gzip.decompress((root / "tests" / "golden" / f"{name}.sqlite.gz").read_bytes())
    )
    base = sqlite3.connect(tmp_path / "net.sqlite")
    tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master")}
    kinds_of = [t for t in ("KERNEL", "MEMCPY", "MEMSET") if f"CUPTI_ACTIVITY_KIND_{t}" in tables]
    spans = sorted(row for t in kinds_of for row in base.execute(f'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_{t}'))
    base.close()
    busy, until = 0, spans[0][0]
    for begin, end in spans:
        busy += max(0, end - max(begin, until))
        until = max(until, end)
    table = read_table(captures(name))
    found = summarise(table, annotate(table))
    assert found.span_ns == until - spans[0][0]
    assert found.busy_ns == busy
    assert found.idle_ns == found.span_ns - busy
    assert sum(part.rows for part in found.kinds_of_rows) == len(spans)
    for parts in (found.kinds, found.components, found.kinds_of_rows):
        assert sum(part.ns for part in parts) == found.total_ns == sum(end - begin for begin, end in spans)
    assert sum(part.ns + part.idle_ns for part in found.phases) == found.span_ns


def test_the_2_7b_run_says_by_itself_what_is_wrong_with_it(data, tmp_path, capfdbinary):
    source = data / "nsys" / "zx3xyy+assignment2-systems__result_2_7B.sqlite.gz"
    assert parse_cli.main(["-q", "-o", str(tmp_path / "net.dict"), str(source)]) == 0
    assert cli.main(["--summary", "-w", "200", str(tmp_path / "net.dict")]) == 0
    words = " ".join(capfdbinary.readouterr().out.decode().split())
    assert (
        "294 host-to-device copies move 13.63 GB in 4,460 ms, 3.055 GB/s. All of them ran before the first kernel"
        in words
    )
    assert "Most of GPU time is GEMM: 91.3% (3,096 ms)" in words
    assert "none of it on tensor cores: fp32 100%" in words
    assert "No fused attention kernel runs: 128 times a softmax runs between two matrix products" in words
    assert "What to change: " in words
    assert re.search(r"1\. Allow TF32: removes 2,\d{3} ms of GPU work per capture", words)
    assert "2. Use fused attention: removes " in words and "for 3,389 ms of 3,929 ms" in words  # without the loading


def test_the_command_prints_it_plain_in_a_pipe_and_nothing_else(captures):
    done = subprocess.run(
        [sys.executable, "-m", "pyprof.prof", "--summary", captures("h200_lenet")], capture_output=True, check=True
    )
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout
    assert done.stdout.startswith(b"52 kernels and 5 memsets on one NVIDIA H200.")


def test_on_a_terminal_the_summary_is_what_comes_without_options(captures, monkeypatch):
    asked = []
    monkeypatch.setattr(print_answers, "print_summary", lambda args: asked.append("summary") or Done())
    monkeypatch.setattr(print_table, "print_table", lambda args: asked.append("rows") or Done())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for argv in ([], ["-w", "0"], ["--csv"], ["-c", "op"], ["--top", "3"], ["-o", "x"], ["--json"], ["--summary"]):
        assert cli.main([*argv, "net.dict"]) == 0
    assert asked == ["summary", *["rows"] * 6, "summary"]


def test_unknown_sizes_of_copies_are_not_0_bytes():
    """AMD's traces of PyTorch 2.4 give no bytes."""
    copies = [{"name": "Memcpy HtoD (Pageable -> Device)", "kind": "memcpy", "start": i, "ns": 1} for i in (0, 10)]
    words = said(run_of({"name": SGEMM, "start": -5, "ns": 4, "reason": "no range"}, *copies))
    assert "2 host-to-device copies take 0.0020 ms: 33.3% of GPU time." in words
    assert "2 copies from or to pageable memory take 0.0020 ms; pinned memory is faster." in words
    assert " 0 B" not in words


def test_gpus_of_amd_have_matrix_cores_and_compute_units():
    """The kernel's name has a matrix instruction, MI16x16x1."""
    words = {}
    for gpu in ("AMD Instinct MI300X", H200):
        name = "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1"
        found = summary(run_of({"name": name, "start": 0, "ns": 9, "grid": (8, 1, 1), "block": (256, 1, 1)}, gpu=gpu))
        words[gpu] = "\n".join(sentences(found))
    assert "100% of it on matrix cores: bf16 matrix cores 100%" in words["AMD Instinct MI300X"]
    assert "tensor cores" not in words["AMD Instinct MI300X"] and "SM efficiency" not in words["AMD Instinct MI300X"]
    assert "100% of it on tensor cores: bf16 tensor cores 100%" in words[H200]


def test_kernels_of_no_known_kind_are_no_kind():
    words = said(run_of({"name": "step_of_my_solver", "start": 0, "ns": 9, "reason": "no range"}))
    assert "Most of GPU time is in kernels of no known kind: 100% (0.0090 ms)." in words


def test_gpus_without_a_name_are_counted():
    table = run_of(mm(0, 50), mm(0, 10), gpu="").with_column("device", np.array([0, 1]))
    assert headline(summary(table)).startswith("2 kernels on 2 GPUs.")


def test_the_causes_of_idle_time_and_what_has_none_add_up():
    """µs: kernels of 10 begin at 0, 50, 100 and 150, so the GPU is idle for 3 × 40. The second is launched at 40,
    30 after its gap begins, and the third at 65, 5 after; the launch of the fourth is not in the capture."""
    rows = [mm(start, 10, launched=at) for start, at in ((0, 0), (50, 40), (100, 65))]
    table = run_of(*rows, mm(150, 10)).with_column("apiDuration", np.array([2 * US] * 3 + [NULL]))
    assert (
        "The host limits the capture: the GPU works for 0.0400 ms of 0.1600 ms (25.0%); it is idle for 0.0800 ms while "
        "the host has not launched the next operation and 0.0400 ms before work whose launch is not in the capture."
    ) in said(table)
