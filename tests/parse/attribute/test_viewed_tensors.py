"""An op that takes a layer's name has the tensors that its code views; on vLLM's decode they give its FLOPs."""

import json

from pyprof.parse.kineto.reader import read
from pyprof.parse.read import read_graphs, read_profile
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.kinds import kinds
from tests.parse.kineto.kineto_file import Event, begin, call, kernel, op, write


def view(ts: float, shape: list[int], dtype: str = "c10::BFloat16") -> Event:
    return op("aten::view", ts, 1, Input_Dims=[shape, []], Input_type=[dtype, "ScalarList"])


def layer(name: str, ts: float, corr: int) -> list[Event]:
    """4 tokens of 6 columns through 2 of 3 experts, up[3,10,6] and down[3,6,5]: 8 rows * 2 * 6 * (10 + 5) FLOPs."""
    args = {"Input_Dims": [[4, 6], [4, 3], []], "Input_type": ["c10::BFloat16", "c10::BFloat16", ""]}
    inside = [view(ts + 1, [3, 10, 6]), view(ts + 3, [24]), view(ts + 5, [8, 5]), view(ts + 7, [3, 6, 5])]
    return [op(name, ts, 50, **args), *inside, view(ts + 9, [8, 5]), call(ts + 20, corr), kernel(ts + 100, 9, corr)]


def test_the_distinct_tensors_of_the_call(tmp_path):
    events = [*layer("vllm::moe_forward", 1000, 1), *layer("aten::other", 2000, 2), view(1060, [9, 9])]
    found = correlate(read(write(tmp_path / "net.json", begin(900), *events)))
    views, other = found.coded("views").texts()
    assert json.loads(views) == [[[3, 10, 6], "bfloat16"], [[8, 5], "bfloat16"], [[3, 6, 5], "bfloat16"]]
    assert other == ""
    assert annotate(found).flops.tolist()[0] == 1440


def test_without_the_weights_its_kernels_are_what_their_names_say(tmp_path):
    """TensorRT-LLM's kernels in the op are routing, products and sums, each of a kind of its own."""
    args = {"Input_Dims": [[4, 6], [4, 3], []], "Input_type": ["c10::BFloat16", "c10::BFloat16", ""]}
    rows = [kernel(1100, 9, 1, "moe::dev::routing::routingIndicesHistogramKernel"), kernel(1200, 9, 2)]
    events = [op("vllm::moe_forward", 1000, 50, **args), call(1010, 1), call(1020, 2), *rows]
    found = correlate(read(write(tmp_path / "net.json", begin(900), *events)))
    notes = annotate(found)
    assert kinds(found, notes).texts() == ["indexing and sorting", "GEMM"]
    assert notes.flops.tolist()[1] < 0  # unknown


def test_a_decode_step_of_vllm(data):
    """24 layers of gpt-oss-20b, 32 tokens through 4 of 32 experts: its weights are viewed as [32,1536,5888] and
    [32,1472,3072] of two elements per byte, the rows between as [128,2944]."""
    folder = data / "round2"
    graphs = read_graphs([str(folder / "tracelens_vllm_capture.json.gz")])
    table = read_profile(folder / "tracelens_vllm_decode.json.gz", graphs=graphs).table
    rows = table.coded("aten").among("vllm::moe_forward")
    flops = annotate(table).flops[rows]
    assert int(flops.sum()) == 24 * 2 * 128 * 3072 * (5888 + 2944)
