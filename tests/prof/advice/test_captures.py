"""What is advised on real captures: each card was read and judged (docs/explanation/advice.md); some deserve none."""

import json
import time

import numpy as np
import pytest

from pyprof.command.envelope import plain
from pyprof.prof.advice import Run, advise
from pyprof.prof.advice.advised import advised_by_sums
from pyprof.prof.advice.json_document import advice_document
from pyprof.prof.edits.cards import advise_capture
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from tests.tables import parsed

EXPECTED = {  # capture -> its cards by the rules' own sums, best first
    "kineto/h200_gpt2_bf16.json.gz": ["fusion", "cross_entropy", "fusion"],
    "nsys/h200_gpt2_step.sqlite.gz": ["fusion", "cross_entropy", "fusion"],
    "kineto/h200_gpt2_compiled.json.gz": [],
    "nsys/h200_gpt2_cudagraph_node.sqlite.gz": [],
    "kineto/h200_resnet50_bf16.json.gz": [],
    "nsys/h200_resnet50_step_pytorch_flag.sqlite.gz": [],
    "kineto/h200_infer_fp8.json.gz": [],
    "kineto/h200_tutorial_encoder.json.gz": ["tf32", "amp"],
    "kineto/h200_lenet_fp32.json.gz": ["launch_bound"],
    "nsys/h200_lenet.sqlite.gz": ["launch_bound"],
    "kineto/h200x2_gpt2_ddp_rank0.json.gz": ["fusion", "cross_entropy", "optimizer", "communication"],
    "kineto/h200x2_gpt2_ddp_rank1.json.gz": ["fusion", "cross_entropy", "communication", "optimizer"],
    "nsys/h200x2_gpt2_ddp.sqlite.gz": ["fusion", "cross_entropy", "optimizer", "communication"],
    "kineto/AMD-AGI+TraceLens__tests__traces__h100__Qwen_Qwen1.5-0.5B-Chat__1016005_6f3f5884fc.json.gz":
        ["fusion", "attention_backend"],
    "kineto/AMD-AGI+TraceLens__tests__traces__h100__gaunernst_bert-small-uncased__1016001_737b43a141.json.gz":
        ["launch_bound"],
    "kineto/AMD-AGI+TraceLens__tests__traces__b200__eager_trace_e443f32f14.json.gz": ["launch_bound"],
    "kineto/facebookresearch+HolisticTraceAnalysis__tests__data__trace_diff__control__control_b1ceb4c081.json.gz":
        ["amp", "alignment", "alignment", "fusion", "alignment"],
    "kineto/pytorch+kineto__tb_plugin__samples__resnet50_autograd_api_num_workers_0__worker0.pt.trace_4a9c9ae521.json.gz":
        ["data_loader", "zero_grad"],  # of steps 1 to 5: step 0 takes 4.4 s
    "nsys/jsun-012+assignment2-systems__result.sqlite.gz": ["unfused_attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B.sqlite.gz": ["tf32", "unfused_attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B_clean.sqlite.gz": ["tf32", "unfused_attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B_compile_ro.sqlite.gz": [],
}  # fmt: skip


def read(data, name):
    table = parsed(data / name)
    return table, annotate(table)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_cards_of_a_capture(data, name):
    run = Run(*read(data, name))
    found = advise(run)
    assert [card.rule for card in found] == EXPECTED[name]
    assert all(0 < card.saved_ms < card.step_ms for card in found)
    json.dumps(plain(advice_document(advised_by_sums(run, ""))), allow_nan=False)


# Cards through the replay. The b200's ranks meet in collectives, which were not measured in graphs.
REPLAYED = {
    "kineto/h200_gpt2_bf16.json.gz": ["compile", "fusion", "cross_entropy"],
    "kineto/h200_lenet_fp32.json.gz": ["launch_bound"],
    "nsys/h200x2_gpt2_ddp.sqlite.gz": ["fusion", "cross_entropy", "optimizer", "communication"],
    "kineto/AMD-AGI+TraceLens__tests__traces__b200__eager_trace_e443f32f14.json.gz": [],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_cards_of_a_capture_through_the_replay(data, name):
    loaded = load_table(data / name, host=True)
    advised, _ = advise_capture(loaded.table, annotate(loaded.table), loaded.host)
    assert name not in REPLAYED or [card.rule for card in advised.cards] == REPLAYED[name]
    assert all(0 < card.saved_ms < card.step_ms for card in advised.cards)
    assert all(card.low_ms <= card.saved_ms <= card.high_ms for card in advised.cards if card.source == "replay")
    assert all(each.why for each in advised.abstained)
    json.dumps(plain(advice_document(advised)), allow_nan=False)


def test_fusion_of_the_tanh_gelu(data):
    """12 layers, 9 kernels forward and 14 backward; by hand, forward: 7 tensors of 12582912 × 4 bytes, at most."""
    card = advise(Run(*read(data, "kineto/h200_gpt2_bf16.json.gz")))[0]
    assert card.kernels == 276 and card.time_ms == pytest.approx(7.72, abs=0.01)
    assert 'approximate="tanh"' in card.change


def test_the_order_of_rows_does_not_matter(data):
    table, _ = read(data, "kineto/h200_gpt2_bf16.json.gz")
    mixed = table.take(np.random.default_rng(1).permutation(len(table)))
    one, other = (Run(t, annotate(t)) for t in (table, mixed))
    assert [card.saved_ms for card in advise(one)] == pytest.approx([card.saved_ms for card in advise(other)])


@pytest.mark.slow
def test_a_long_run_takes_seconds(data):
    """Sixty steps of GPT-2, one after the other: the same cards a step, at more than 20,000 rows a second."""
    table, _ = read(data, "kineto/h200_gpt2_bf16.json.gz")
    steps = []
    for step in range(60):
        part = table.with_column("step", np.full(len(table), step))
        for key, shift in (("start", step * 40_000_000), ("apiStart", step * 40_000_000), ("opId", step * 100_000)):
            values = table.ints(key)
            part = part.with_column(key, np.where(values == NULL, NULL, values + shift))
        steps.append(part)
    whole = Table.concat(steps)
    annotation = annotate(whole)
    begin = time.perf_counter()
    found = advise(Run(whole, annotation))
    assert time.perf_counter() - begin < len(whole) / 20_000 + 2
    assert [(card.rule, card.kernels) for card in found] == [("fusion", 276), ("cross_entropy", 6), ("fusion", 69)]
