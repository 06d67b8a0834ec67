"""Compiled programs, recorded under pyprof on an H200 beside the eager ones: layers, lines and FLOPs of their kernels.

`tests/device/compiled_layers.py` is the program: one training step of a GPT-2 of two layers, and of a Llama block.
"""

import json
from collections import Counter

import numpy as np
import pytest

from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, Table
from tests.paths import GOLDEN, ROOT

GPT2, LLAMA = "h200_gpt2_training", "h200_llama_training"
# q, k, v = x: eager PyTorch stacks the parts' gradients; the compiled programs of these captures add them, in two adds.
# GPT-2: 2 layers of 3 * 4 * 12 * 1024 * 64 elements; Llama: one of 3 * 4 * 16 * 2048 * 128.
JOINED = {GPT2: 2 * 2 * 9_437_184, LLAMA: 2 * 50_331_648}
# The record of this GPT-2's compiled code does not say that GELU takes tanh, which the markers of the eager program do:
# 2 blocks of 4096 x 3072 numbers, 9 - 5 operations each forward and 18 - 11 backward.
TANH = {GPT2: 2 * 4096 * 3072 * (4 + 7)}


def parsed(name: str) -> Table:
    path = GOLDEN / name
    return correlate(reader(path)(path))


def of_kernels(name: str) -> tuple[Table, np.ndarray]:
    table = parsed(name)
    return table, annotate(table).flops


@pytest.mark.parametrize("program", [GPT2, LLAMA])
def test_every_kernel_of_the_model_has_its_layer(program: str) -> None:
    """The loss and the accumulation of gradients run outside of the model, in the eager program, too."""
    table = parsed(f"{program}_compiled.json.gz")
    layers, ops = table.coded("layer").texts(), table.coded("op").texts()
    without = {op for op, layer in zip(ops, layers, strict=True) if not layer}
    assert without <= {'["cross_entropy"]', '["AccumulateGrad"]', '["ones_like"]', '["sum"]'}


@pytest.mark.parametrize("program", [GPT2, LLAMA])
def test_layers_are_those_of_the_eager_program(program: str) -> None:
    eager, compiled = (
        set(parsed(f"{program}_{form}.json.gz").coded("layer").texts()) for form in ("eager", "compiled")
    )
    assert compiled <= eager


def test_products_belong_to_the_same_layers_and_directions() -> None:
    """Each of the 27 products of GPT-2's step, by its FLOPs: 9 linear layers, forward and twice backward."""
    found = []
    for form in ("eager", "compiled"):
        table, flops = of_kernels(f"{GPT2}_{form}.json.gz")
        columns = (table.coded(key).texts() for key in ("layer", "dir", "aten"))
        rows = zip(*columns, flops.tolist(), strict=True)
        found.append(Counter((layer, way, flop) for layer, way, aten, flop in rows if "mm" in aten and flop > 0))
    assert found[0] == found[1]
    assert sum(found[0].values()) == 27


@pytest.mark.parametrize("program", [GPT2, LLAMA])
def test_flops_are_those_of_the_eager_program(program: str) -> None:
    (_, eager), (_, compiled) = (of_kernels(f"{program}_{form}.json.gz") for form in ("eager", "compiled"))
    assert NULL not in eager and NULL not in compiled
    assert compiled.sum() == eager.sum() + JOINED[program] - TANH.get(program, 0)


def test_lines_are_the_users() -> None:
    """Of the block that calls gelu, and of the model that calls the block."""
    table = parsed(f"{GPT2}_compiled.json.gz")
    rows = zip(*(table.coded(key).texts() for key in ("kShortName", "trace", "layer")), strict=True)
    traces = {(trace, layer) for name, trace, layer in rows if name == "triton_poi_fused_gelu_view_10"}
    assert {layer for _, layer in traces} == {'["Gpt2", "blocks.0"]', '["Gpt2", "blocks.1"]'}
    source = (ROOT / "tests" / "device" / "gpt2.py").read_text(encoding="utf-8").splitlines()
    lines = [json.loads(trace) for trace, _ in traces]
    assert all(line.startswith("tests/device/gpt2.py:") for trace in lines for line in trace)
    called = [[source[int(line.rpartition(":")[2]) - 1] for line in trace] for trace in lines]
    assert all("gelu" in trace[-1] and "block(" in trace[-2] for trace in called)


def test_nsys_has_the_same_rows_as_kineto() -> None:
    """NVTX has neither dtypes nor values: those of Triton kernels, and the flags of attention, are the record's."""
    (traced, trace_flops), (table, flops) = (
        of_kernels(name) for name in (f"{LLAMA}_compiled.json.gz", "h200_llama_compiled.sqlite.gz")
    )
    sums = [
        Counter(dict.fromkeys(zip(one.coded("layer").texts(), one.coded("dir").texts(), strict=True), 0))
        for one in (traced, table)
    ]
    for total, one, amounts in zip(sums, (traced, table), (trace_flops, flops), strict=True):
        for layer, way, flop in zip(
            one.coded("layer").texts(), one.coded("dir").texts(), amounts.tolist(), strict=True
        ):
            total[layer, way] += flop
    assert sums[0] == sums[1]
    assert np.sum(flops) == np.sum(trace_flops) == 2_728_741_076_991 + JOINED[LLAMA]
