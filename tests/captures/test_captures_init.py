"""What must come out of captures made with pyprof.init(trace=True) and emit_nvtx(record_shapes=True) on a GPU.

Expected numbers were counted in the files with SQL, in the programs' source, or by hand.
"""

import json
import sqlite3
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from pyprof.marker import parse_marker
from pyprof.parse.databases.unpacked_file import unpacked
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL
from tests.paths import ROOT
from tests.tables import parsed

GPT2, RESNET = "h200_gpt2_init.sqlite.gz", "h200_resnet50_init.sqlite.gz"
BOTH = pytest.mark.parametrize("name", [GPT2, RESNET])
WORK = {  # what nsys wrote; it leaves out tables without rows
    GPT2: ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMSET"),
    RESNET: ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_MEMCPY"),
}
TOKENS, WIDTH, VOCABULARY = 4 * 1024, 768, 50257


@cache
def rows(name: str) -> list[dict[str, Any]]:
    """The kernel table with what prof finds, as dictionaries."""
    path = ROOT / "tests" / "golden" / name
    table = parsed(path)
    notes = annotate(table)
    found: dict[str, list[Any]] = {"flops": [None if f == NULL else int(f) for f in notes.flops]}
    found |= {"tc": notes.tc.texts(), "tcprec": notes.tcprec.texts()}
    for key in ("op", "layer", "trace", "marker"):
        found[key] = [json.loads(text) if text else [] for text in table.coded(key).texts()]
    for key in ("kind", "dir", "phase", "reason", "kShortName"):
        found[key] = table.coded(key).texts()
    for key in ("kDuration", "corr"):
        found[key] = [int(value) for value in table.ints(key)]
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


def ask(name: str, query: str) -> list[Any]:
    with unpacked(ROOT / "tests" / "golden" / name) as (plain, _):
        connection = sqlite3.connect(plain)
        answer = connection.execute(query).fetchall()
        connection.close()
    return answer


def source_line(row: dict[str, Any]) -> str:
    """The line of our own file that the row's trace ends in."""
    file, _, line = row["trace"][-1].partition(":")
    return (ROOT / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]


@BOTH
def test_every_row_has_an_op_and_a_line(name: str) -> None:
    operations = sum(ask(name, f"SELECT count(*) FROM {table}")[0][0] for table in WORK[name])
    assert len(rows(name)) == operations
    assert all(row["op"] and row["trace"] and not row["reason"] for row in rows(name))


@BOTH
def test_every_row_of_the_model_has_its_layer(name: str) -> None:
    without = Counter((row["op"][0], row["dir"]) for row in rows(name) if not row["layer"])
    optimizer = ("AdamW.step", 4) if name == GPT2 else ("SGD.step", 9)
    # the loss is taken outside the model: log-softmax, a cast and the mean forward, the seed's 1, four kernels backward
    assert without == {
        ("cross_entropy", "fprop"): 3,
        ("ones_like", "fprop"): 1,
        ("cross_entropy", "bprop"): 4,
        (optimizer[0], ""): optimizer[1],
    }


@BOTH
def test_backward_rows_are_those_that_autograds_thread_launched(name: str) -> None:
    launched = """SELECT count(*) FROM {} AS work JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS api USING (correlationId)
        WHERE api.globalTid <> (SELECT globalTid FROM NVTX_EVENTS WHERE text LIKE 'Optimizer.step#%')"""
    expected = sum(ask(name, launched.format(table))[0][0] for table in WORK[name])
    assert expected > 100
    assert sum(row["dir"] == "bprop" for row in rows(name)) == expected


@BOTH
def test_the_optimizers_rows(name: str) -> None:
    found = [row for row in rows(name) if row["phase"] == "optimizer"]
    assert found == rows(name)[-len(found) :]
    assert all(row["op"][0].endswith(".step") and row["dir"] == "" for row in found)
    assert all("optimizer.step()" in source_line(row) for row in found)


# what an op that no module of its own makes looks like in the source
IN_SOURCE = {
    "add": "+",
    "arange": "torch.arange(",
    "cross_entropy": "F.cross_entropy(",
    "gelu": "F.gelu(",
    "ones_like": "loss.backward()",
    "reshape": ".reshape(",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(",
    "unbind": "q, k, v = ",
    "view": ".view(",
}


def test_gpt2s_traces_end_in_the_line_that_makes_the_op() -> None:
    modules = set()
    for row in rows(GPT2):
        op = row["op"][0]
        if op in ("linear", "layer_norm", "embedding"):
            last = row["layer"][-1].rpartition(".")[2]
            assert f"self.{last}(" in source_line(row)
            modules.add(row["layer"][-1])
        elif row["phase"] != "optimizer":
            assert IN_SOURCE[op] in source_line(row), op
    block = ("norm1", "attention.qkv", "attention.out", "norm2", "up", "down")
    blocks = {f"blocks.{number}.{part}" for number in (0, 1) for part in block}
    assert modules == blocks | {"tokens", "places", "norm", "head"}


# torchvision 0.26.0, models/resnet.py: the lines that call a module of this name
TORCHVISION = {
    "conv1": {146, 268}, "bn1": {147, 269}, "relu": {148, 152, 161, 270}, "conv2": {150}, "bn2": {151},
    "conv3": {154}, "bn3": {155}, "maxpool": {271}, "avgpool": {278}, "fc": {280},
}  # fmt: skip


def test_resnets_traces_end_in_the_line_that_calls_the_module() -> None:
    additions = set()
    for row in rows(RESNET):
        if not row["layer"]:
            continue
        file, _, line = row["trace"][-1].partition(":")
        assert file == "torchvision/models/resnet.py"
        last = row["layer"][-1].rpartition(".")[2]
        if "downsample" in row["layer"][-1]:
            assert line == "158"
        elif last in TORCHVISION:
            assert int(line) in TORCHVISION[last], row
        else:
            assert (row["op"][0], line) in {("add_", "160"), ("flatten", "279")}
            additions.add(row["layer"][-1])
    assert len(additions & {f"layer{stage}.0" for stage in (1, 2, 3, 4)}) == 4


def test_resnets_downsampling_names_its_parts() -> None:
    parts = {row["layer"][-1] for row in rows(RESNET) if row["layer"] and ".downsample." in row["layer"][-1]}
    assert parts == {f"layer{stage}.0.downsample.{part}" for stage in (1, 2, 3, 4) for part in (0, 1)}


def test_attention_is_counted_without_the_masked_pairs() -> None:
    # 48 heads of 1024 queries, of which query i sees i + 1 keys: 524,800 pairs; forward 2 products of 64, backward 5
    pairs = 1024 * 1025 // 2 * 48
    found = [row for row in rows(GPT2) if row["op"] == ["scaled_dot_product_attention"] and row["flops"]]
    assert [(row["dir"], row["flops"]) for row in found] == [
        ("fprop", 2 * 2 * pairs * 64),
        ("fprop", 2 * 2 * pairs * 64),
        ("bprop", 5 * 2 * pairs * 64),
        ("bprop", 5 * 2 * pairs * 64),
    ]
    for row in found:
        marker = parse_marker(row["marker"][0])
        assert marker is not None
        assert '"is_causal","type":"bool","value":true' in row["marker"][0]
        assert (marker.mod, marker.op) == ("torch.nn.functional", "scaled_dot_product_attention")


def test_the_longest_kernels_are_the_misaligned_head() -> None:
    query = 'SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY "end" - start DESC LIMIT 3'
    longest = [row for row in rows(GPT2) if row["corr"] in {corr for (corr,) in ask(GPT2, query)}]
    assert [(row["layer"], row["dir"]) for row in longest] == [
        (["Gpt2", "head"], "fprop"),
        (["Gpt2", "head"], "bprop"),
        (["Gpt2", "head"], "bprop"),
    ]
    for row in longest:
        assert row["flops"] == 2 * TOKENS * WIDTH * VOCABULARY
        assert (row["tc"], row["tcprec"]) == ("1", "bf16")
        assert f'"shape":[{VOCABULARY},{WIDTH}]' in row["marker"][0]


def test_matrix_flops_are_those_of_the_models() -> None:
    def total(name: str) -> int:
        return sum(row["flops"] for row in rows(name) if row["tc"] in ("0", "1"))

    # GPT-2: a block's four linears, two blocks, and the head, forward and twice that backward; attention as above
    linears = 2 * TOKENS * WIDTH * (2 * (3 + 1 + 4 + 4) * WIDTH + VOCABULARY)
    attention = 2 * (2 + 5) * 2 * (1024 * 1025 // 2 * 48) * 64
    assert 3 * linears + attention == 1_341_602_660_352
    assert total(GPT2) == 1_341_602_660_352
    assert total(RESNET) == 777_570_484_224  # test_captures.py has its arithmetic


@BOTH
def test_ops_under_autocast_say_so_and_run_in_bf16(name: str) -> None:
    products = [row for row in rows(name) if row["op"][0] in ("linear", "conv2d")]
    assert len(products) > 30
    for row in products:
        marker = parse_marker(row["marker"][0])
        assert marker is not None and marker.autocast == "bfloat16"
        assert row["tcprec"] in ("bf16", "") or not row["flops"]


@BOTH
def test_casts_of_autocast_belong_to_the_op_and_count_nothing(name: str) -> None:
    # each weight and bias of a product is cast once; the float32 inputs, too: of qkv, up and head, and ResNet's images
    weights = 2 * 4 * 2 + 1 if name == GPT2 else 53 + 2
    inputs = 2 * 2 + 1 if name == GPT2 else 1
    casts = [row for row in rows(name) if row["op"][0] in ("linear", "conv2d") and row["dir"] == "fprop"]
    casts = [row for row in casts if row["kShortName"] == "vectorized_elementwise_kernel"]
    assert len(casts) == weights + inputs
    assert {row["flops"] for row in casts} == {0}


@BOTH
def test_silicon_time_is_the_databases(name: str) -> None:
    kernels = np.array([row["kDuration"] for row in rows(name) if row["kind"] == "kernel"])
    assert int(kernels.sum()) == ask(name, 'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL')[0][0]
