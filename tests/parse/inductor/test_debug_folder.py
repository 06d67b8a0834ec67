"""Inductor's debug folder: its files' texts, and a capture that was recorded without pyprof."""

import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from pyprof.compiled_record import op_name
from pyprof.errors import InputError
from pyprof.parse import cli
from pyprof.parse.attribute.unrecorded_code import _triton
from pyprof.parse.inductor.debug_folder import CODE, LISTING, MAPPING, debug_graphs
from pyprof.parse.inductor.graph_listing import nodes_of
from pyprof.parse.inductor.output_code import calls_of, kernels_of
from pyprof.parse.read import read_inductor, read_profile
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

# As 2.11 and 2.13 write them
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[8, 4]", primals_2: "bf16[4, s0]"):
        # File: /home/me/net.py:7 in forward, code: return F.layer_norm(self.up(x), (4,)).relu()
        mm: "f32[8, 4]" = torch.ops.aten.mm.default(primals_1, primals_2);  primals_2 = None
        var_mean = torch.ops.aten.var_mean.correction(mm, [1], correction = 0, keepdim = True)
        getitem: "f32[8, 1]" = var_mean[0]

        # File: /usr/lib/python3/site-packages/torch/nn/functional.py:12 in relu, code: result = torch.relu(input)
        relu: "f32[8, 4]" = torch.ops.aten.relu.default(mm);  mm = None

        # No stacktrace found for following nodes
        mul: "f32[8, 4]" = torch.ops.aten.mul.Tensor(relu, -0.5)
        return (mul,)
"""
OUTPUT = """
# kernel path: /tmp/x.py
# Topologically Sorted Source Nodes: [layer_norm], Original ATen: [aten.native_layer_norm, aten.relu]
# Source node to ATen node mapping:
#   layer_norm => getitem, var_mean
#   relu => relu
# Graph fragment:
#   %mm : Tensor "f32[8, 4][4, 1]cuda:0" = PlaceHolder[target=mm]
#   %var_mean : [num_users=2] = call_function[target=torch.ops.aten.var_mean.correction](args = (%mm, [1]), kwargs = {})
#   %relu : Tensor "f32[8, 4][4, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.relu.default](args = ..
#   return %relu
triton_per_fused_native_layer_norm_relu_0 = async_compile.triton('triton_per_fused_native_layer_norm_relu_0', '''
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*bf16', 'pair': ('i32', 'i32'), 'XBLOCK': 'constexpr'}},
''', device_str='cuda')

def call(args):
    primals_1, primals_2 = args
    with torch.cuda._DeviceGuard(0):
        # Topologically Sorted Source Nodes: [x, linear], Original ATen: [aten.t, aten.mm]
        # [Provenance debug handles] extern_kernels.mm:1
        extern_kernels.mm(primals_1, reinterpret_tensor(primals_2, (4, 4), (1, 4), 0), out=buf0)
        triton_per_fused_native_layer_norm_relu_0.run(buf0, buf1, 8, 4, stream=stream0)
        buf6 = workspace_0[0 * 512 * 2048 : (0 + 1) * 512 * 2048].view(512, 2048).sum(dim=0)
        buf2 = torch.ops.aten.sort.default(buf1)
    return (buf1, )

def benchmark_compiled_module(times=10):
    extern_kernels.mm(a, b, out=c)
"""


def test_nodes_have_op_arguments_and_the_programs_line() -> None:
    nodes = nodes_of(GRAPH)
    x, line = {"dtype": "float32", "shape": [8, 4]}, "/home/me/net.py:7"
    assert nodes["mm"] == ("aten::mm", (x, {"dtype": "bfloat16", "shape": [4, -1]}), line, "forward")
    assert nodes["var_mean"] == ("aten::var_mean", (x, [1]), line, "forward")
    assert nodes["relu"] == ("aten::relu", (x,), "", "")  # a place in PyTorch is not the program's
    assert nodes["mul"] == ("aten::mul", (x, -0.5), "", "")


@pytest.mark.parametrize(
    "line",
    [
        "mm: 'f32[8' = torch.ops.aten.mm.default((((",
        "x = torch.ops.",
        "torch.ops.aten.mm(x)",
        "\0 = torch.ops.a.b.c(x)",
    ],
)
def test_lines_that_are_no_calls_are_passed_over(line: str) -> None:
    assert nodes_of(line) == {}
    assert nodes_of("x = torch.ops.aten.mm.default(" + "(" * 5000 + ")" * 5000 + ")") == {}


def test_calls_of_the_code() -> None:
    """Not those of the functions beside it. The partial sums' op is that of the tensor's method."""
    calls = calls_of(OUTPUT)
    kernels = ["extern_kernels.mm", "triton_per_fused_native_layer_norm_relu_0", "torch.ops.aten.sum"]
    assert [call.kernel for call in calls] == [*kernels, "torch.ops.aten.sort.default"]
    assert [op_name(call.kernel) for call in calls[2:]] == ["aten::sum", "aten::sort"]
    assert (calls[0].handle, calls[0].buffer, calls[0].originals) == ("extern_kernels.mm:1", 0, ("aten::t", "aten::mm"))
    assert [call.partial for call in calls] == [False, False, True, False]


def test_kernels_of_the_code() -> None:
    (kernel,) = kernels_of(OUTPUT).values()
    assert kernel.nodes == ["var_mean", "relu"]
    assert kernel.originals == ("aten::native_layer_norm", "aten::relu")
    assert kernel.sources["layer_norm"] == ["getitem", "var_mean"]


def folder(tmp_path: Path, **files: str) -> Path:
    graph = tmp_path / "torch_compile_debug" / "run" / "torchinductor" / "model__0_forward_1.0"
    graph.mkdir(parents=True)
    for name, text in {CODE: OUTPUT, LISTING: GRAPH, **files}.items():
        (graph / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_graph_becomes_a_record(tmp_path: Path) -> None:
    (graph,) = debug_graphs(folder(tmp_path))
    record = graph.record
    atens = [[record.operations[number].aten for number in call.operations] for call in record.calls]
    norm = ["aten::native_layer_norm", "aten::relu"]  # var_mean is a part of the norm
    assert atens == [["aten::mm"], norm, norm, []]
    assert [call.done for call in record.calls] == [(0,), (1, 2), (), ()]
    assert record.operations[1].args is None and record.operations[1].trace == ("/home/me/net.py:7",)
    assert record.dtypes == {"triton_per_fused_native_layer_norm_relu_0": ("float32", "bfloat16", "")}


def test_inductors_mapping_goes_before_the_comments(tmp_path: Path) -> None:
    mapping = json.dumps({"cppCodeToPost": {"extern_kernels.mm:1": ["relu", "nothing"]}, "version": 2.0})
    (graph,) = debug_graphs(folder(tmp_path, **{MAPPING: mapping}))
    assert graph.record.operations[graph.record.calls[0].operations[0]].aten == "aten::relu"


@pytest.mark.parametrize("mapping", ["", "[]", '{"cppCodeToPost": 3}', "[" * 9999])
def test_a_damaged_mapping_is_an_error(tmp_path: Path, mapping: str) -> None:
    with pytest.raises(InputError, match="expected inductor's mapping of kernels to nodes"):
        debug_graphs(folder(tmp_path, **{MAPPING: mapping}))


def test_a_folder_without_graphs_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = GOLDEN / "h200_lenet_fp32.json.gz"
    assert cli.main([str(trace), "--inductor", str(tmp_path), "-o", str(tmp_path / "net.dict")]) == 1
    assert "expected inductor's debug folder" in capfd.readouterr().err
    assert not (tmp_path / "net.dict").exists()


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs of `tests/device/compiled_layers.py --plain`, on an H200 with PyTorch 2.11."""
    path = tmp_path_factory.mktemp("inductor")
    with tarfile.open(GOLDEN / "compiled" / "inductor_folder.tgz") as archive:
        archive.extractall(path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return path


def rows(h200: Path, name: str, *columns: str) -> list[tuple[object, ...]]:
    records = read_inductor([str(h200 / "torch_compile_debug")])
    table = read_profile(h200 / f"{name}.json.gz", inductor=records).table
    return list(zip(*(table.coded(key).texts() for key in columns), strict=True))


def test_kernels_of_a_capture_without_pyprof_get_ops_and_lines(h200: Path) -> None:
    """`user_kernels.py`: a kernel launched directly (line 24), one in an op (42), a linear layer between (53)."""
    found = [
        (name, op, json.loads(trace)[-1].rpartition("/")[2])
        for name, op, trace in rows(h200, "user_kernels", "aten", "op", "trace")
    ]
    assert found == [
        ("scaled_add_kernel_0", '["triton_kernel_wrapper_mutation"]', "user_kernels.py:24"),
        ("triton_poi_fused_relu_0", '["relu"]', "user_kernels.py:53"),
        ("aten::addmm", '["addmm"]', "user_kernels.py:53"),
        ("scaled_add_kernel_0", '["triton_kernel_wrapper_mutation"]', "user_kernels.py:42"),
        ("triton_red_fused_sum_1", '["sum"]', "user_kernels.py:53"),
        ("triton_per_fused_sum_2", '["sum"]', "user_kernels.py:53"),
    ]


def test_products_of_a_backward_graph_have_their_layers_lines(h200: Path) -> None:
    """Llama's block multiplies in lines 38, 41 and 43 of compiled.py; its head is in line 41 of compiled_models.py."""
    products = [
        (way, json.loads(trace)[-1].rpartition("/")[2])
        for aten, way, trace in set(rows(h200, "llama", "aten", "dir", "trace"))
        if aten == "aten::mm"
    ]
    places = ["compiled.py:38", "compiled.py:41", "compiled.py:43", "compiled_models.py:41"]
    assert sorted(products) == sorted((way, place) for way in ("fprop", "bprop") for place in places)


def test_flops_of_products_are_exact_and_each_sum_counts_once(h200: Path) -> None:
    records = read_inductor([str(h200 / "torch_compile_debug")])
    table = read_profile(h200 / "user_kernels.json.gz", inductor=records).table
    flops = dict(zip(table.coded("aten").texts(), annotate(table).flops.tolist(), strict=True))
    assert flops["aten::addmm"] == 2 * 8192 * 1024 * 1024 + 0 * 8192
    assert flops["triton_red_fused_sum_1"] + flops["triton_per_fused_sum_2"] == 8192 * 1024 - 1


def test_a_graph_that_is_not_in_the_folder_stays_as_it_is(h200: Path) -> None:
    records = read_inductor([str(h200 / "torch_compile_debug" / "model__1_inference_4.2")])
    capture = read_profile(h200 / "llama.json.gz", inductor=records).capture
    assert capture.warnings == ["2 compiled graphs that ran are not in inductor's folder"]


def test_kernels_of_the_users_own_and_of_inductor_are_triton_kernels() -> None:
    """A call that the graph lists with its types is a Triton kernel, whatever its name; a library's call is not."""
    calls = Counter({"my_kernel": 2, "triton_poi_fused_add_0": 1, "aten::mm": 3})
    assert _triton(calls, {"my_kernel": ()}) == {"my_kernel": 2, "triton_poi_fused_add_0": 1}
