"""What must come out of real captures: rows, attribution, direction and FLOPs, end to end.

Expected numbers were counted in the files themselves with SQL or worked out by hand, never taken from our own output.
"""

import json
import sqlite3
from collections import Counter
from functools import cache

import numpy as np
import pytest

from pyprof.files import open_output
from pyprof.parse.databases.unpacked_file import unpacked
from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.netdict import write_netdict
from pyprof.table.parquet import write_parquet
from pyprof.table.read_table import read_table
from pyprof.table.schema import KERNELS
from tests.paths import GOLDEN, ROOT


@cache
def parsed(name: str) -> Table:
    path = GOLDEN / name
    return correlate(reader(path)(path))


@cache
def annotated(name: str) -> Annotation:
    return annotate(parsed(name))


def lists(table: Table, key: str) -> list[list[str]]:
    return [json.loads(text) if text else [] for text in table.coded(key).texts()]


def matrix_flops(name: str) -> int:
    """FLOPs of the rows whose op has a matrix product."""
    notes = annotated(name)
    rows = np.array([tc in ("0", "1") for tc in notes.tc.texts()])
    assert not np.any(notes.flops[rows] == NULL)
    return int(notes.flops[rows].sum())


@pytest.mark.parametrize(
    ("name", "kernels", "memsets", "copies"),
    [
        ("h200_lenet.sqlite.gz", 52, 5, 0),
        ("h200_lenet_init.sqlite.gz", 54, 5, 0),
        ("h200_gpt2_step.sqlite.gz", 1106, 108, 0),
        ("h200_resnet50_step_pytorch_flag.sqlite.gz", 875, 24, 1),
        ("h200_gpt2_cudagraph_node.sqlite.gz", 139, 10, 5),
        ("h200_lenet_fp32.json.gz", 52, 5, 0),
        ("h200_resnet50_bf16.json.gz", 875, 24, 1),
    ],
)
def test_every_gpu_operation_is_a_row_and_has_an_op(name, kernels, memsets, copies):
    table = parsed(name)
    kinds = Counter(table.coded("kind").texts())
    assert (kinds["kernel"], kinds["memset"], kinds["memcpy"]) == (kernels, memsets, copies)
    assert table.rows == kernels + memsets + copies
    assert table.coded("op").codes.min() >= 0


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.sqlite.gz")))
def test_silicon_time_equals_the_databases(name):
    table = parsed(name)
    with unpacked(GOLDEN / name) as (plain, _):
        connection = sqlite3.connect(plain)
        (total,) = connection.execute("SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        connection.close()
    kernels = np.array(table.coded("kind").texts()) == "kernel"
    assert int(table.ints("kDuration")[kernels].sum()) == total


def test_lenets_ops_in_both_directions():
    table = parsed("h200_lenet.sqlite.gz")
    kernels = np.array(table.coded("kind").texts()) == "kernel"
    pairs = Counter(
        (op[0], direction)
        for op, direction, kernel in zip(lists(table, "op"), table.coded("dir").texts(), kernels, strict=True)
        if kernel
    )
    # 2 convolutions: one kernel and a bias add each; 3 linears: scale, product, epilogue; backward: 4 kernels a linear
    # (product, split-K sum, product, bias sum), conv2 5 less a memset, conv1 2
    assert pairs == {
        ("conv2d", "fprop"): 4,
        ("relu", "fprop"): 4,
        ("max_pool2d", "fprop"): 2,
        ("linear", "fprop"): 9,
        ("cross_entropy", "fprop"): 2,
        ("ones_like", "fprop"): 1,
        ("cross_entropy", "bprop"): 3,
        ("linear", "bprop"): 12,
        ("relu", "bprop"): 4,
        ("max_pool2d", "bprop"): 4,
        ("conv2d", "bprop"): 6,
        ("SGD.step", ""): 1,
    }
    assert [phase for phase in table.coded("phase").texts() if phase == "optimizer"] == ["optimizer"]


@pytest.mark.parametrize("name", ["h200_gpt2_step.sqlite.gz", "h200_resnet50_step_pytorch_flag.sqlite.gz"])
def test_backward_finds_its_forward_op(name):
    table = parsed(name)
    ops, nodes = lists(table, "op"), lists(table, "nodes")
    direction = table.coded("dir").texts()
    backward = [i for i in range(table.rows) if direction[i] == "bprop"]
    assert len(backward) > table.rows // 3
    orphans = {ops[i][0] for i in backward if any("Backward" in node for node in nodes[i]) and ops[i][0] not in FORWARD}
    assert not orphans


# forward ops of the two models, as their ranges on the forward thread name them
FORWARD = {
    "embedding", "add", "add_", "layer_norm", "addmm", "split", "view", "reshape", "transpose", "contiguous", "dropout",
    "scaled_dot_product_attention", "mul", "pow", "tanh", "linear", "cross_entropy", "to", "slice", "conv2d",
    "batch_norm", "relu_", "max_pool2d", "adaptive_avg_pool2d", "flatten", "cat", "pad", "relu", "float", "unsqueeze",
}  # fmt: skip


def test_pyprofs_markers_give_layer_and_line_to_every_row_but_the_optimizers():
    table = parsed("h200_lenet_init.sqlite.gz")
    trace = lists(table, "trace")
    phase = table.coded("phase").texts()
    modules = lists(table, "layer")
    source = (ROOT / "examples" / "lenet.py").read_text().splitlines()
    convolutions = [i for i, op in enumerate(lists(table, "op")) if op == ["conv2d"]]
    assert {tuple(modules[i]) for i in convolutions} == {("LeNet", "conv1"), ("LeNet", "conv2")}
    for i in convolutions:
        file, _, line = trace[i][-1].partition(":")
        assert file == "examples/lenet.py"
        assert modules[i][-1] in source[int(line) - 1]
    assert all(trace[i] for i in range(table.rows) if phase[i] != "optimizer")


def test_resnet50_flops_are_exact_from_kineto_and_from_nsys():
    # 8,178,368,512 FLOP forward an image (torchvision's 4.089 GMAC), 32 images; backward twice that, less the data
    # gradient of the first convolution: 2 * 64*112*112 * 3*7*7 an image. nsys has no strides: outputs come from the
    # data flow.
    forward, first = 8_178_368_512 * 32, 2 * 64 * 112 * 112 * 3 * 49 * 32
    assert 3 * forward - first == 777_570_484_224
    assert matrix_flops("h200_resnet50_bf16.json.gz") == 777_570_484_224
    assert matrix_flops("h200_resnet50_step_pytorch_flag.sqlite.gz") == 777_570_484_224


def test_lenet_flops_are_exact_from_kineto_and_from_nsys():
    # a batch of 32: conv1 2*6*28*28*25, conv2 2*16*10*10*6*25, fc 2*400*120, 2*120*84, 2*84*10; backward twice, less
    # conv1's data gradient
    forward = 32 * (2 * 6 * 28 * 28 * 25 + 2 * 16 * 10 * 10 * 6 * 25 + 2 * (400 * 120 + 120 * 84 + 84 * 10))
    assert 3 * forward - 32 * 2 * 6 * 28 * 28 * 25 == 72_445_440
    assert matrix_flops("h200_lenet_fp32.json.gz") == 72_445_440
    assert matrix_flops("h200_lenet_init.sqlite.gz") == 72_445_440


def test_tensor_cores_of_the_bf16_runs_and_none_in_fp32():
    for name, precision in (("h200_resnet50_bf16.json.gz", {"bf16"}), ("h200_lenet_fp32.json.gz", set())):
        notes = annotated(name)
        assert {p for p in notes.tcprec.texts() if p} == precision
    lenet = annotated("h200_lenet.sqlite.gz")
    assert set(lenet.tc.texts()) == {"0", "-"}


def test_graph_nodes_carry_ops():
    table = parsed("h200_gpt2_cudagraph_node.sqlite.gz")
    assert int((table.ints("graphNode") != NULL).sum()) >= 124
    assert "op of the graph's launch, not of its capture" in table.coded("reason").values


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.gz")))
@pytest.mark.parametrize("form", ["net.dict", "net.parquet"])
def test_a_written_table_reads_back_the_same(name, form, tmp_path):
    table = parsed(name)
    path = tmp_path / form
    if form == "net.dict":
        with open_output(str(path)) as out:
            write_netdict(table, out)
    else:
        write_parquet(table, path)
    again = read_table(str(path))
    for column in KERNELS:
        mine, read = (t.columns[column.key] for t in (table, again))
        if isinstance(mine, Coded):
            assert isinstance(read, Coded)
            if column.kind in ("json", "triple"):  # spaces in lists are the writer's own
                mine_lists, read_lists = ([json.loads(t) if t else "" for t in c.texts()] for c in (mine, read))
                assert read_lists == mine_lists
            else:
                assert read.texts() == mine.texts(), column.key
        elif isinstance(mine, Ragged):
            assert isinstance(read, Ragged)
            assert read.lists() == mine.lists()
        else:
            assert isinstance(read, np.ndarray)
            assert np.array_equal(read, mine, equal_nan=mine.dtype.kind == "f"), column.key


def test_replays_of_a_cuda_graph_are_calls_of_the_ops_that_were_captured():
    # tests/device/graph_program.py under nsys: a step, then Linear 512 > 512 twice captured and replayed twice. Each
    # replay multiplies 256 x 512 by 512 x 512 twice: 2 * 256 * 512 * 512 FLOP a product
    table, notes = parsed("h200_graph_init.sqlite.gz"), annotated("h200_graph_init.sqlite.gz")
    nodes = table.ints("graphNode") != NULL
    names = ["linear", "relu", "linear", "gelu", "double"]  # double: a Triton kernel, marked by pyprof.wrap
    assert [op[0] for op, node in zip(lists(table, "op"), nodes, strict=True) if node] == names * 2
    products = [i for i, op in enumerate(lists(table, "op")) if op == ["linear"] and nodes[i]]
    assert notes.flops[products].tolist() == [2 * 256 * 512 * 512] * 4
    assert [lists(table, "layer")[i] for i in products] == [["Net", "a"], ["Net", "b"]] * 2
    assert {lists(table, "trace")[i][0] for i in products} == {"graph_program.py:40"}
