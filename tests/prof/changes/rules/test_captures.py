"""What is to be changed in real captures: each change was read and judged (docs/explanation/advice.md)."""

import json
import time

import numpy as np
import pytest

from pyprof.command.envelope import plain
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.find_changes import find_changes
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from tests.prof.changes.rules.advice_rows import changes_of
from tests.tables import parsed

# Capture -> the rules of its kernel table, in order of the GPU's work that they remove, 1% of the step or more
EXPECTED = {
    "kineto/h200_gpt2_bf16.json.gz": ["fusion", "cross_entropy"],
    "nsys/h200_gpt2_step.sqlite.gz": ["fusion", "cross_entropy"],
    "kineto/h200_gpt2_compiled.json.gz": [],
    "nsys/h200_gpt2_cudagraph_node.sqlite.gz": [],
    "kineto/h200_resnet50_bf16.json.gz": [],
    "nsys/h200_resnet50_step_pytorch_flag.sqlite.gz": [],
    "kineto/h200_infer_fp8.json.gz": [],
    "kineto/h200_tutorial_encoder.json.gz": ["amp", "tf32"],
    "kineto/h200_lenet_fp32.json.gz": [],
    "nsys/h200_lenet.sqlite.gz": [],
    "kineto/h200x2_gpt2_ddp_rank0.json.gz": ["fusion", "cross_entropy", "optimizer"],
    "kineto/h200x2_gpt2_ddp_rank1.json.gz": ["fusion", "cross_entropy", "communication", "optimizer"],
    "nsys/h200x2_gpt2_ddp.sqlite.gz": ["fusion", "cross_entropy", "optimizer"],
    "kineto/AMD-AGI+TraceLens__tests__traces__h100__Qwen_Qwen1.5-0.5B-Chat__1016005_6f3f5884fc.json.gz":
        ["fusion", "attention_backend"],
    "kineto/AMD-AGI+TraceLens__tests__traces__h100__gaunernst_bert-small-uncased__1016001_737b43a141.json.gz": [],
    "kineto/AMD-AGI+TraceLens__tests__traces__b200__eager_trace_e443f32f14.json.gz": [],
    "kineto/facebookresearch+HolisticTraceAnalysis__tests__data__trace_diff__control__control_b1ceb4c081.json.gz": [],
    # The gradients' zeros are 1.3 of 154 ms
    "kineto/pytorch+kineto__tb_plugin__samples__resnet50_autograd_api_num_workers_0__worker0.pt.trace_4a9c9ae521.json.gz":
        [],
    "nsys/jsun-012+assignment2-systems__result.sqlite.gz": ["attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B.sqlite.gz": ["tf32", "attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B_clean.sqlite.gz": ["tf32", "attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B_compile_ro.sqlite.gz": [],
}  # fmt: skip
# The first changes of the replayed captures: of the formula of GELU by a compiler, of the loss, of launches where the
# host limits the step, of Adam. The b200's ranks meet in collectives, which were not measured in graphs.
FIRST = {
    "kineto/h200_gpt2_bf16.json.gz": ["compile", "cross_entropy"],
    "nsys/h200_gpt2_step.sqlite.gz": ["compile", "cross_entropy"],
    "kineto/h200_lenet_fp32.json.gz": ["cuda_graph"],
    "nsys/h200_lenet.sqlite.gz": ["cuda_graph"],
    "nsys/h200x2_gpt2_ddp.sqlite.gz": ["fusion", "cross_entropy", "optimizer"],
    "nsys/jsun-012+assignment2-systems__result.sqlite.gz": ["attention"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B.sqlite.gz": ["tf32"],
    "nsys/zx3xyy+assignment2-systems__result_2_7B_clean.sqlite.gz": ["tf32", "attention"],
}
NOTHING = (
    "kineto/h200_gpt2_compiled.json.gz",
    "nsys/h200_gpt2_cudagraph_node.sqlite.gz",
    "kineto/h200_infer_fp8.json.gz",
    "kineto/AMD-AGI+TraceLens__tests__traces__b200__eager_trace_e443f32f14.json.gz",
    "nsys/zx3xyy+assignment2-systems__result_2_7B_compile_ro.sqlite.gz",
)


def read(data, name):
    table = parsed(data / name)
    return table, annotate(table)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_changes_of_a_kernel_table(data, name):
    found = find_changes(*read(data, name), None).document
    assert [change.rule for change in found.changes] == EXPECTED[name]
    assert all(0 < change.gpu_ms < found.captured_ms for change in found.changes)
    json.dumps(plain(found), allow_nan=False)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_changes_of_a_capture(data, name):
    loaded = load_table(data / name, host=True)
    found = find_changes(loaded.table, annotate(loaded.table), loaded.host).document
    rules, first = [change.rule for change in found.changes], FIRST.get(name, [])
    assert rules[: len(first)] == first and (name not in NOTHING or not rules)
    if found.now is not None:
        assert found.now.ms <= found.captured_ms * 1.001
        assert all(change.saved_ms < found.now.ms for change in found.changes)
        assert all(change.low_ms <= change.saved_ms <= change.high_ms for change in found.changes)
    assert all(each.why for each in found.abstained)
    json.dumps(plain(found), allow_nan=False)


def test_fusion_of_the_tanh_gelu(data):
    """12 layers, 9 kernels forward and 14 backward; by hand, forward: 7 tensors of 12582912 × 4 bytes, at most."""
    change = changes_of(Run(*read(data, "kineto/h200_gpt2_bf16.json.gz")))[0]
    assert change.kernels == 276 and change.time_ms == pytest.approx(7.72, abs=0.01)
    assert 'approximate="tanh"' in change.change


def test_the_order_of_rows_does_not_matter(data):
    table, _ = read(data, "kineto/h200_gpt2_bf16.json.gz")
    mixed = table.take(np.random.default_rng(1).permutation(len(table)))
    one, other = (Run(t, annotate(t)) for t in (table, mixed))
    assert [c.gpu_ms for c in changes_of(one)] == pytest.approx([c.gpu_ms for c in changes_of(other)])


@pytest.mark.slow
def test_a_long_run_takes_seconds(data):
    """Sixty steps of GPT-2, one after the other: the same changes per step, at more than 20,000 rows a second."""
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
    found = changes_of(Run(whole, annotation))
    assert time.perf_counter() - begin < len(whole) / 20_000 + 2
    assert [(change.rule, change.kernels) for change in found] == [("fusion", 276), ("cross_entropy", 6)]
