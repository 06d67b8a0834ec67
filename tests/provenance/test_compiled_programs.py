"""Programs that inductor compiles for the CPU under pyprof: the record says what the eager program does.

All that the record says of a CPU's compiled kernels is the same as on a GPU.
"""

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pyprof  # noqa: E402
from pyprof.compiled_record import CompiledRecord, Operation  # noqa: E402
from pyprof.prof.ops.fused_operations import recorded_flop  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from tests.tables import parsed  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler"),
]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(x).view(2, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(2, 8, 32))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(32), Attention()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(autouse=True)
def _without_cached_graphs() -> Any:
    """Inductor makes each graph anew; what the C++ compiler made of the same code it may take from its cache."""
    from torch._inductor import config

    torch._dynamo.reset()
    pyprof.init()
    with config.patch(fx_graph_cache=False):
        yield
    pyprof.deinit()
    torch._dynamo.reset()


def recorded(file: Path, step: Callable[[], Any], warm_up: int = 1) -> list[CompiledRecord]:
    for _ in range(warm_up):
        step()
    with pyprof.profile(str(file), force=True):
        step()
    own = json.loads(file.read_text(encoding="utf-8")).get("pyprof", {}).get("compiled", {"graphs": {}})
    return [msgspec.json.decode(text, type=CompiledRecord) for text in own["graphs"].values()]


def done(records: list[CompiledRecord]) -> list[Operation]:
    found = [record.operations[number] for record in records for call in record.calls for number in call.done]
    return [operation for operation in found if not operation.again]


def flops_of(file: Path) -> Counter[str]:
    table = parsed(file)
    flops = annotate(table).flops.tolist()
    sums: Counter[str] = Counter()
    for aten, flop in zip(table.coded("aten").texts(), flops, strict=True):
        sums[aten.rstrip("_")] += flop
    return +sums


def test_operations_are_the_eager_programs_with_their_flops(tmp_path: Path) -> None:
    """Also those that inductor decomposes (norm, gelu), computes twice, and an unpacked tensor's gradient."""
    x = torch.randn(2, 8, 32)
    net = Net()
    compiled = torch.compile(net)
    recorded(tmp_path / "eager.json", lambda: net(x).square().sum().backward())
    records = recorded(tmp_path / "compiled.json", lambda: compiled(x).square().sum().backward())
    sums: Counter[str] = Counter()
    for operation in done(records):
        cell = json.dumps([{"aten": operation.aten, "args": operation.args, "done": True}])
        sums[operation.aten] += recorded_flop(cell, True, {}.get) or 0
    eager = flops_of(tmp_path / "eager.json")
    outside = {"aten::add": 0, "aten::pow": 0, "aten::mul": 0, "aten::sum": 0}  # the loss, and accumulated gradients
    for aten in outside:
        outside[aten] = eager.pop(aten, 0)
        sums.pop(aten, 0)
    assert +sums == eager
    # 4 residuals, and 3 sums of their gradients: the input needs none
    adds = [operation for operation in done(records) if operation.aten == "aten::add"]
    assert [op.args for op in adds] == [tuple([{"dtype": "float32", "shape": [2, 8, 32]}] * 2)] * 7


class LanguageModel(nn.Module):
    """With what a whole model has around its blocks: positions made of constants, `1 / x`, `x ** 2`, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.block, self.head = nn.Embedding(50, 32), Block(), nn.Linear(32, 50)

    def forward(self, ids: Any, labels: Any) -> Any:
        rate = 1 / 100.0 ** (torch.arange(16) / 16)
        angle = torch.outer(torch.arange(ids.shape[1]), torch.cat((rate, rate)))
        x = self.block(self.tokens(ids) * angle.cos() + angle.sin() ** 2)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


@pytest.fixture
def _online_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor's pattern for a softmax in one pass, which it has for GPUs only, with a lowering that C++ can have."""
    from torch._inductor import inductor_prims, lowering
    from torch._inductor.fx_passes import post_grad

    def lowered(x: Any, dim: int) -> tuple[Any, Any]:
        largest = lowering.reduce_amax(x, dim, keepdims=True)
        exp = lowering.lowerings[torch.ops.aten.exp](lowering.sub(x, largest))
        return largest, lowering.sum_(exp, dim, keepdims=True)

    op = inductor_prims.prepare_softmax_online
    monkeypatch.setattr(post_grad, "prepare_softmax_extra_check", lambda _: True)
    monkeypatch.setitem(lowering.lowerings, op, lowering.lowerings[op])
    lowering.register_lowering(op, type_promotion_kind=None)(lowered)


@pytest.mark.usefixtures("_online_softmax")
def test_nodes_in_the_place_of_a_calls_nodes_belong_to_the_call(tmp_path: Path) -> None:
    """The softmax in one pass, and the loss's gradient without a scatter. Every op of the model, constants too, counts
    as in the eager program, and none is inductor's own."""
    torch.manual_seed(0)
    model, text = LanguageModel(), torch.randint(50, (2, 9))
    compiled = torch.compile(model, fullgraph=True)

    def step(run: Any) -> None:
        run(text[:, :-1], text[:, 1:]).backward()
        model.zero_grad(set_to_none=True)

    recorded(tmp_path / "eager.json", lambda: step(model))
    operations = done(recorded(tmp_path / "compiled.json", lambda: step(compiled)))
    assert not {"prims::prepare_softmax_online", "aten::eq", "aten::amax"} & {one.aten for one in operations}
    sums: Counter[str] = Counter()
    for one in operations:
        cell = json.dumps([{"aten": one.aten, "args": one.args, "done": True}])
        sums[one.aten] += recorded_flop(cell, True, {"arange": 0}.get) or 0
    assert +sums == flops_of(tmp_path / "eager.json")


def test_a_kernel_that_reduces_in_two_orders_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor writes it, and the sums of its partial results, without telling; only for GPUs."""
    from types import SimpleNamespace

    from torch._inductor.codegen.triton import TritonScheduling

    from pyprof.provenance import graph_calls, mixed_reductions

    rows, columns = object(), object()
    graph = SimpleNamespace(get_buffer=lambda name: SimpleNamespace(origins=[columns]) if name == "buf6" else None)
    monkeypatch.setattr(mixed_reductions, "V", SimpleNamespace(graph=graph))

    class Scheduling:
        def _codegen_mix_order_reduction(self, first: Any, second: Any) -> str:
            kernel = SimpleNamespace(
                saved_partial_accumulate=[SimpleNamespace(buffer_name="buf6", reduction_type="max")]
            )
            return self.define_kernel("code", [first, second], kernel)

        def define_kernel(self, code: str, schedule: Any, kernel: Any) -> str:
            return "triton_per_fused_0"

    wrapped = {name: made for _, name, made in mixed_reductions.replacements(lambda: True, contextlib.nullcontext)}
    assert set(wrapped) == {"_codegen_mix_order_reduction", "define_kernel"} and hasattr(
        TritonScheduling, "define_kernel"
    )
    monkeypatch.setattr(mixed_reductions, "TritonScheduling", Scheduling)
    for _, name, made in list(mixed_reductions.replacements(lambda: True, contextlib.nullcontext)):
        monkeypatch.setattr(Scheduling, name, made)
    items = [SimpleNamespace(node=SimpleNamespace(origins=[node]), group=None) for node in (rows, columns)]
    Scheduling()._codegen_mix_order_reduction(*items)
    Scheduling().define_kernel("code", items, None)  # another kernel, of which inductor tells
    assert vars(graph)[graph_calls._ATTRIBUTE] == [
        ("triton_per_fused_0", [rows, columns], ()),
        ("torch.ops.aten.amax", [columns], ()),
    ]


def test_layers_and_lines(tmp_path: Path) -> None:
    compiled = torch.compile(Net())
    records = recorded(tmp_path / "net.json", lambda: compiled(torch.randn(2, 8, 32)).sum().backward())
    products = [op for op in done(records) if op.aten in ("aten::mm", "aten::addmm")]
    layers = Counter((op.layer[-1], op.backward) for op in products)
    names = [f"blocks.{i}.{name}" for i in range(2) for name in ("attention.qkv", "attention.out", "up", "down")]
    # the gradient of the first layer's input is needed by its norm, so each layer has two products backward
    assert layers == Counter({**{(name, False): 1 for name in names}, **{(name, True): 2 for name in names}})
    assert {op.op for op in products} == {"linear"}
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    gelu = next(op for op in done(records) if op.aten == "aten::gelu")
    assert "F.gelu" in source[int(gelu.trace[-1].rpartition(":")[2]) - 1]
    assert not any("pyprof" in line and "provenance" not in line for op in done(records) for line in op.trace)


def test_rows_of_a_compiled_block_are_named_from_the_root(tmp_path: Path) -> None:
    net = Net()
    for i, block in enumerate(net.blocks):
        net.blocks[i] = torch.compile(block)
    recorded(tmp_path / "net.json", lambda: net(torch.randn(2, 8, 32)).sum().backward())
    table = parsed(tmp_path / "net.json")
    rows = zip(*(table.coded(key).texts() for key in ("aten", "dir", "layer")), strict=True)
    layers = Counter((json.loads(layer)[-1], way) for aten, way, layer in rows if aten in ("aten::mm", "aten::addmm"))
    names = [f"blocks.{i}.{name}" for i in range(2) for name in ("attention.qkv", "attention.out", "up", "down")]
    assert {name for name, _ in layers} == set(names)
    assert all(layers[name, "fprop"] == 1 and layers[name, "bprop"] == 2 for name in names if name != "blocks.0.x")


def test_sizes_that_vary_are_those_of_each_call(tmp_path: Path) -> None:
    linear = nn.Linear(4, 8)
    compiled = torch.compile(lambda x: F.relu(linear(x)) * 2, dynamic=True)

    def step() -> None:
        for rows in (3, 5):
            compiled(torch.randn(rows, 4))

    records = recorded(tmp_path / "net.json", step)
    shapes = {op.args[0]["shape"][0] for op in done(records) if op.aten == "aten::relu" and op.args}
    assert shapes == {3, 5}
    assert not any(record.symbols for record in records)


def test_after_many_sizes_they_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.provenance import inductor_hooks

    monkeypatch.setattr(inductor_hooks, "_SIZES_MOST", 2)
    linear = nn.Linear(4, 8)
    compiled = torch.compile(lambda x: F.relu(linear(x)) * 2, dynamic=True)

    def step() -> None:
        for rows in (3, 5, 6, 7, 3):
            compiled(torch.randn(rows, 4))

    shapes = [op.args[0]["shape"][0] for op in done(recorded(tmp_path / "net.json", step)) if op.aten == "aten::relu"]
    assert sorted(shapes) == [-1, 3, 5]


def test_code_from_inductors_cache_has_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(config, "fx_graph_cache", True)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.GELU()), torch.randn(2, 4)
    compiled = torch.compile(net)
    first = recorded(tmp_path / "first.json", lambda: compiled(x))
    torch._dynamo.reset()
    second = recorded(tmp_path / "second.json", lambda: compiled(x))
    assert first and [op.aten for op in done(first)] == [op.aten for op in done(second)]


def test_a_graph_that_cannot_be_recorded_compiles_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyprof.capture import session
    from pyprof.provenance import graph_calls

    def broken(*_args: Any) -> Any:
        raise ValueError("another release of inductor")

    monkeypatch.setattr(graph_calls, "record_of", broken)
    monkeypatch.setattr(graph_calls, "note_call", broken)
    pyprof.deinit()
    pyprof.init()
    net, x = nn.Sequential(nn.Linear(4, 8), nn.GELU()), torch.randn(2, 4)
    expected = net(x)
    compiled = torch.compile(net)
    assert recorded(tmp_path / "net.json", lambda: torch.testing.assert_close(compiled(x), expected)) == []
    active = session.current()
    assert active is not None and any("another release" in failure for failure in active.mode.failures)


def test_everything_is_put_back() -> None:
    import torch._inductor.debug as debug
    from torch._inductor.codecache import FxGraphHashDetails
    from torch._inductor.compile_fx import CompiledFxGraph
    from torch.fx.experimental import proxy_tensor

    def names() -> list[Any]:
        return [
            debug.set_kernel_post_grad_provenance_tracing,
            proxy_tensor.maybe_handle_decomp,
            CompiledFxGraph.__init__,
            CompiledFxGraph.__call__,
            FxGraphHashDetails.__init__,
        ]

    pyprof.deinit()
    before = names()
    pyprof.init()
    torch.compile(lambda x: x.sin() + 1)(torch.ones(3))
    assert all(now is not then for now, then in zip(names(), before, strict=True))
    pyprof.deinit()
    assert names() == before


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.down(torch.tanh(self.up(x)))


def rows_of(file: Path) -> list[tuple[str, str, str, str, int]]:
    """(op of aten or kernel, function, innermost layer, direction, FLOPs) of each row with FLOPs."""
    table = parsed(file)
    columns = [table.coded(key).texts() for key in ("aten", "op", "layer", "dir")]
    flops = annotate(table).flops.tolist()
    rows = zip(*columns, flops, strict=True)
    inner = lambda text: json.loads(text)[-1] if text else ""  # noqa: E731
    return [(aten, inner(op), inner(layer), way, int(flop)) for aten, op, layer, way, flop in rows if flop > 0]


# Linear(8, 16), tanh, Linear(16, 4), square and sum of 6 rows: 2*6*8*16 = 1536, 6*16 = 96, 2*6*16*4 = 768, 24 + 23
FORWARD = [("linear", "up", 1536), ("tanh", "MLP", 96), ("linear", "down", 768), ("sum", "", 47)]
# Gradients: two of 24 multiplications each, of weight and input (768 each) and bias (5 sums of 4 numbers), of tanh
# (3 each), of the first weight and bias (5 sums of 16); the input needs none.
SQUARE, DOWN, TANH, UP = ("pow", "", 48), ("linear", "down", 20), ("tanh", "MLP", 288), ("linear", "up", 80)
PRODUCTS = [("linear", "down", 768), ("linear", "down", 768), ("linear", "up", 1536)]


def test_compiled_autograd_has_the_layers_of_the_forward(tmp_path: Path) -> None:
    torch._dynamo.config.compiled_autograd = True
    try:
        net, x = MLP(), torch.randn(6, 8)

        @torch.compile
        def step() -> None:
            net(x).pow(2).sum().backward()

        def run() -> None:
            net.zero_grad()
            step()

        recorded(tmp_path / "net.json", run)
    finally:
        torch._dynamo.config.compiled_autograd = False
    rows = rows_of(tmp_path / "net.json")
    assert [row[1:3] + row[4:] for row in rows if row[3] == "fprop"] == FORWARD
    backward = [row[1:3] + row[4:] for row in rows if row[3] == "bprop"]
    assert sorted(backward) == sorted([SQUARE, DOWN, TANH, UP, *PRODUCTS])


class KeysFirst(nn.Module):
    """Its forward pass computes k before q, and the compiled backward pass, too: not in the opposite order."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        k, q, v = self.k(x), self.q(x), self.v(x)
        return (q @ k.t()).softmax(-1) @ v


def test_compiled_autograd_over_an_eager_forward_has_its_layers(tmp_path: Path) -> None:
    """Of a product of 6 rows of 8 with 8 columns, 2*6*8*8 = 768; of one with 4 columns, 384; of 6 x 6 and 8, 576."""
    compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")
    net, x = nn.Sequential(nn.Linear(8, 8), KeysFirst(), nn.Linear(8, 4)), torch.randn(6, 8)

    def step() -> None:
        net.zero_grad()
        loss = net(x).pow(2).sum()
        with compiled_autograd._enable(torch.compile):
            loss.backward()

    recorded(tmp_path / "net.json", step)
    rows = [row for row in rows_of(tmp_path / "net.json") if row[0] in ("aten::mm", "aten::addmm")]
    forward = [("0", 768), ("1.k", 768), ("1.q", 768), ("1.v", 768), ("1", 576), ("1", 576), ("2", 384)]
    named = [("matmul" if layer == "1" else "linear", layer, flop) for layer, flop in forward]
    assert sorted(row[1:3] + row[4:] for row in rows if row[3] == "fprop") == sorted(named)
    # Two of each product, but for the first layer, whose input needs no gradient.
    backward = sorted((2 * named)[1:])
    assert sorted(row[1:3] + row[4:] for row in rows if row[3] == "bprop") == backward


def test_kernels_that_inductor_makes_for_a_cpu_are_rows(tmp_path: Path) -> None:
    """With the layer of their main operation, and the FLOPs of all of them; compilation has no rows."""
    net, x = MLP(), torch.randn(6, 8)
    compiled = torch.compile(net)
    recorded(tmp_path / "net.json", lambda: compiled(x).backward(torch.ones(6, 4)), warm_up=0)
    rows = rows_of(tmp_path / "net.json")
    assert [row[1:3] + row[4:] for row in rows if row[3] == "fprop"] == FORWARD[:3]
    kernels = sorted(row[4] for row in rows if row[3] == "bprop" and "cpp_fused" in row[0])
    assert sum(kernels) == DOWN[2] + TANH[2] + UP[2]
    assert sorted(row[4] for row in rows if row[3] == "bprop" and "mm" in row[0]) == [768, 768, 1536]
