"""Attention is counted by the batch that the server's annotation describes, for kernels that graphs replay, too."""

import json
from collections import Counter

import numpy as np
import pytest

from pyprof.parse.read import read_graphs, read_profile
from pyprof.prof.ops.paged_attention import WINDOW
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.batches import cache_dtype
from pyprof.prof.work.calls import op_calls
from pyprof.table.columns import NULL, Coded, Table

ATTENTION = "vllm::unified_attention_with_output"
WRITE = "_C_cache_ops::reshape_and_cache_flash"
DECODE = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk30sqsq2sqsk30)"


def table_of(calls, kernel="kernel_unified_attention_2d"):
    """A table of calls: (op, shapes, dtypes, the server's annotation), one kernel each."""
    atens, sizes, dtypes, serving = zip(*calls, strict=True)
    count = len(calls)
    return Table(
        count,
        {
            "aten": Coded.of(atens),
            "sizes": Coded.of(map(json.dumps, sizes)),
            "dtypes": Coded.of(map(json.dumps, dtypes)),
            "args": Coded.of(json.dumps([""] * len(shapes)) for shapes in sizes),
            "serving": Coded.of(serving),
            "kShortName": Coded.of([kernel] * count),
            "kind": Coded.of(["kernel"] * count),
            "kDuration": np.full(count, 1000, np.int64),
            "opId": np.arange(count),
        },
    )


def call(text, rows=2):
    return ATTENTION, [[rows, 4, 8], [rows, 2, 8], [rows, 2, 8], [rows, 4, 8]], ["bfloat16"] * 4, text


def write(dtype, rows=2):
    shapes = [[rows, 2, 8], [rows, 2, 8], [10, 16, 2, 8], [10, 16, 2, 8], [rows]]
    return WRITE, shapes, ["bfloat16", "bfloat16", dtype, dtype, "int64"], DECODE


def test_calls_with_the_same_shapes_have_the_work_of_their_own_batch():
    """30 and 300 pairs, of 4 heads of 8: 2 products of 2 FLOPs."""
    later = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk300sqsq2sqsk300)"
    table = table_of([call(DECODE), call(later), call("")])
    assert annotate(table).flops.tolist() == [30 * 128, 300 * 128, NULL]
    assert "no server's annotation" in op_calls(table).of(2).why


def test_the_width_of_the_cache_is_that_of_the_ops_that_write_it():
    """Q and O: 2 * 2 * 32 elements of 2 bytes; the cache: 2 * 30 keys of 16 elements of 1 byte."""
    table = table_of([call(DECODE), write("uint8")])
    assert cache_dtype(table) == "uint8"
    assert annotate(table).bytes.tolist()[0] == 2 * 2 * 64 + 2 * 30 * 16
    several = table_of([call(DECODE), write("uint8"), write("bfloat16")])
    assert cache_dtype(several) == "" and annotate(several).bytes.tolist()[0] == NULL


def test_a_kernel_whose_name_tells_of_a_window_is_not_counted_as_one_without():
    kernel = "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128PersistentContext"
    assert annotate(table_of([call(DECODE)], kernel)).flops.tolist() == [NULL]


@pytest.mark.parametrize(
    ("name", "layers", "flop", "windowed", "share"),
    [
        # gpt-oss-20b: of its 24 layers, every other one attends to all keys: 2 products * 2 * 64 heads * 64 * Σq·k =
        # 55,086 of 32 requests. The others attend to the last keys only; neither how many nor how long each of the 32
        # requests is stands in the capture. Routing of experts has no model, either.
        ("vllm", 12, 902_529_024, 12, 0.926),
        # Qwen3-8B: 36 layers, 2 products * 2 * 32 heads * 128 * Σq·k = 32,785 of 32 requests
        ("sglang", 36, 537_149_440, 0, 0.998),
    ],
)
def test_the_attention_of_a_replayed_decode_step(data, name, layers, flop, windowed, share):
    """The shapes are those of the capture of the graph, the sums those of the annotation around its replay."""
    folder = data / "round2"
    graphs = read_graphs([str(folder / f"tracelens_{name}_capture.json.gz")])
    table = read_profile(folder / f"tracelens_{name}_decode.json.gz", graphs=graphs).table
    flops, time = annotate(table).flops, table.ints("kDuration")
    assert time[flops != NULL].sum() / time.sum() == pytest.approx(share, abs=0.001)
    attention = np.flatnonzero(table.coded("aten").where(lambda text: "attention" in text))
    assert Counter(flops[attention].tolist()) == Counter(
        {flop: layers, 0: layers, **({NULL: windowed} if windowed else {})}  # 0: the kernel that adds up the parts
    )
    whys = {op_calls(table).of(row).why for row in attention[flops[attention] == NULL].tolist()}
    assert whys == ({WINDOW} if windowed else set())


def flops_beside(kernels, texts):
    table = table_of([call(text) for text in texts])
    table.columns["kShortName"] = Coded.of(kernels)
    return annotate(table).flops.tolist()


def test_layers_with_a_window_run_another_kernel_than_those_without():
    """AITER's use_2d_kernel: all else that it looks at is the same for a batch's layers. 30 pairs, 4 heads of 8."""
    two, three = "kernel_unified_attention_2d", "kernel_unified_attention_3d"
    whole = 2 * 30 * (32 + 32)
    assert flops_beside([two, three, two], [DECODE] * 3) == [NULL, whole, NULL]
    assert flops_beside([two, two], [DECODE] * 2) == [whole] * 2  # short requests run the first kernel in any case
    other = DECODE.replace("sk30", "sk40")
    assert flops_beside([two, three], [DECODE, other])[0] == whole  # of another batch
