"""pyprof.count: what counts, under which name, in which direction; and that it leaves the program alone."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import pyprof  # noqa: E402
from pyprof.counting.arguments import in_order  # noqa: E402
from pyprof.prof.ops.model import FAMILY, MODELS, Tensor, Work  # noqa: E402


def R(*shape: int, **more: Any) -> Any:
    return torch.randn(*shape, requires_grad=True, **more)


def test_a_call_and_its_gradients() -> None:
    work = pyprof.count(F.linear, R(4, 5), R(6, 5), R(6), backward=True)
    assert work.forward == Work(240, 224, 96)
    assert work.backward.flop == 498  # two products, and 3*6 sums of the bias
    assert (work.flops, work.bytes) == (738, 320 + 712)
    assert work.result.shape == (4, 6)


def test_gradients_that_exist_are_left_alone() -> None:
    x = R(4, 5)
    pyprof.count(F.relu, x, backward=True)
    assert x.grad is None


def test_a_block_counts_all_that_runs_in_it() -> None:
    x, w = R(4, 5), R(6, 5)
    with pyprof.count() as work:
        F.linear(x, w).sum().backward()
    assert work.ops["linear"].calls == 1
    assert work.ops["linear"].backward.flop == 480
    assert work.ops["sum"].forward.flop == 23
    assert not work.uncounted


def test_nothing_is_counted_after_the_block() -> None:
    with pyprof.count() as work:
        pass
    F.relu(R(3))
    torch.nn.utils.clip_grad_norm_([R(3)], 1.0)
    assert work.rows == []


def test_the_outermost_call_with_a_model_counts() -> None:
    # a broadcasting matmul copies its operands and runs a bmm; it counts as the products it means
    work = pyprof.count(torch.matmul, R(2, 1, 4, 5), R(3, 5, 6), backward=True)
    assert [row.model for row in work.rows] == ["matmul.backward", "matmul"]
    assert work.forward == Work(1440, 520, 576)


def test_attention_is_the_algorithm_on_every_device() -> None:
    q = R(2, 3, 4, 8)
    work = pyprof.count(F.scaled_dot_product_attention, q, q, q, is_causal=True)
    assert work.forward.flop == 1920  # 2*60 pairs*16
    assert work.forward.read == 768  # one tensor three times


def test_a_python_function_counts_by_what_it_calls() -> None:
    work = pyprof.count(F.cross_entropy, R(8, 10), torch.arange(8), backward=True)
    assert list(work.ops) == ["cross_entropy"]
    assert not work.uncounted


def test_operators_have_the_names_of_their_functions() -> None:
    with pyprof.count() as work:
        x = torch.ones(4)
        _ = (x + 1) * x / 2 - x**2
    assert set(work.ops) - {"ones"} == {"add", "mul", "div", "sub", "pow"}


def test_the_products_alone() -> None:
    work = pyprof.count(lambda: F.relu(F.linear(torch.ones(4, 5), torch.ones(6, 5))) * 2.0)
    assert (work.products.flop, work.flops) == (240, 264)


def test_what_a_reshape_does_is_for_the_dispatcher_to_say() -> None:
    x = torch.ones(4, 6)
    assert pyprof.count(x.reshape, 6, 4).bytes == 0
    assert pyprof.count(x.t().reshape, 4, 6).bytes == 192  # a copy


def test_gradients_nobody_wants_are_not_counted() -> None:
    work = pyprof.count(F.linear, torch.ones(4, 5), R(6, 5), backward=True)
    assert work.backward.flop == 240


def test_accumulation_is_neither_forward_nor_backward() -> None:
    x = R(4)
    with pyprof.count() as work:
        y = x * 2.0
        y.backward(torch.ones(4))
        z = x * 2.0
        z.backward(torch.ones(4))  # adds to the gradient that exists
    assert work.accumulate.flop == 4
    assert work.backward.flop == 8


def test_recomputation_is_backward_work() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    with pyprof.count() as work:
        checkpoint(net, R(2, 8), use_reentrant=False).sum().backward()
    assert work.ops["linear"].forward.flop == 2 * 256
    # two products and a bias' sum each; the first layer again (the checkpoint stops before the second runs)
    assert work.ops["linear"].backward.flop == 2 * (2 * 256 + 8) + 256


def test_a_graph_differentiated_twice_counts_twice() -> None:
    x, w = R(4, 5), R(6, 5)
    with pyprof.count() as work:
        y = F.linear(x, w).sum()
        y.backward(retain_graph=True)
        y.backward()
    assert work.ops["linear"].backward.flop == 960


def test_autocast_counts_in_the_type_that_runs_and_the_casts_apart() -> None:
    x, w = torch.ones(4, 5), torch.ones(6, 5)
    with torch.autocast("cpu", torch.bfloat16):
        work = pyprof.count(F.linear, x, w)
    assert work.ops["linear"].forward == Work(240, 100, 48)
    assert work.ops["_to_copy"].forward == Work(0, 200, 100)


def test_autocast_runs_a_loss_in_float32() -> None:
    logits = torch.randn(6, 32, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        work = pyprof.count(F.cross_entropy, logits, torch.arange(6), backward=True)
    loss, casts = work.ops["cross_entropy"], work.ops["_to_copy"]
    # log_softmax reads and writes 768 bytes; 6 gathered, 6 int64, the loss and the total weight
    assert loss.forward == Work(774, 768 + 24 + 48, 768 + 8)
    assert casts.forward == Work(0, 384, 768)
    # 768 + 48 + 8 of nll_loss, 3 * 768 of log_softmax; and the gradient's cast
    assert loss.backward.nbytes == 824 + 2304 + 1152


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_devices_agree(device: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).to(device)
    work = pyprof.count(net, torch.randn(2, 3, 8, 8, device=device), backward=True)
    # 2*2*4*36*27 and 2*2*5*144; the first layer's input wants no gradient; biases 288-4 and 10-5
    assert work.forward.flop == 15552 + 2880
    assert work.backward.flop == 15552 + 2 * 2880 + 284 + 5
    assert not work.uncounted


def test_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert pyprof.count(F.linear, torch.ones(4, 5), torch.ones(6, 5)).flops == 240


def test_memory_that_several_views_show_is_read_once() -> None:
    x = torch.randn(4, 5)  # 80 bytes
    assert pyprof.count(lambda: x @ x.t()).forward == Work(160, 80, 64)  # 2*4*4*5; 16 results
    assert pyprof.count(lambda: x.view(20) * x.reshape(2, 10).flatten()).forward == Work(20, 80, 80)
    assert pyprof.count(lambda: x + x[0]).forward == Work(20, 100, 80)  # parts of it are other memory
    assert pyprof.count(lambda: x[:2] + x[2:]).forward == Work(10, 80, 40)


def test_equal_shapes_of_other_memory_are_read_apart() -> None:
    a, b, c = ([torch.ones(4, 5)] for _ in range(3))
    assert pyprof.count(torch._foreach_addcmul, a, b, c).forward == Work(40, 240, 80)
    assert pyprof.count(torch._foreach_addcmul, a, b, b).forward == Work(40, 160, 80)


def test_an_element_wise_op_of_a_sparse_tensor_counts_its_stored_values() -> None:
    """Five float32 on a diagonal, 20 bytes, with two int64 each, 80 bytes: these are copied, but not in place."""
    sparse = torch.eye(5).to_sparse()
    assert pyprof.count(lambda: torch.tanh(sparse)).ops["tanh"].forward.nbytes == 100 + 100
    found = pyprof.count(sparse.sqrt_)
    assert (found.ops["sqrt_"].forward.flop, found.ops["sqrt_"].forward.nbytes) == (5, 20 + 20)
    assert pyprof.count(lambda: sparse + sparse).uncounted  # how many elements the sum stores is in the data


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_operand_counts_by_what_it_stores() -> None:
    dense = torch.zeros(8, 5)
    dense[::4] = 1  # 10 of 40 stored, each times a row of 3
    for sparse, places in ((dense.to_sparse(), 160), (dense.to_sparse_csr(), 72 + 80)):
        found = pyprof.count(lambda sparse=sparse: torch.sparse.mm(sparse, torch.ones(5, 3)))
        assert (found.flops, found.unknown) == (60, {})
        assert found.ops["_sparse_mm"].forward.nbytes == (10 + 15 + 24) * 4 + places


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="torch before 2.13")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_loss_in_parts_of_a_batch_counts_as_a_whole(reduction: str) -> None:
    x, weight, target = torch.randn(12, 8, requires_grad=True), torch.randn(20, 8), torch.randint(20, (12,))
    options = nn.LinearCrossEntropyOptions()
    work = pyprof.count(F.linear_cross_entropy, x, weight, target, reduction=reduction, options=options)
    # 240 logits: 2 * 240 * 8, sub, exp and sums 3 * 240 - 12, 12 logarithms, 12 differences
    loss = 3840 + 720 - 12 + 24
    # the mean: 11 sums, a division; dx is made in the same pass: softmax 240 + 24, the product
    flop, nbytes = (loss + 12 + 264 + 3840, 4 + 384) if reduction == "mean" else (loss, 48)
    assert (work.forward.flop, work.forward.nbytes) == (flop, 384 + 640 + 96 + nbytes)
    assert not work.unknown


def test_an_op_without_a_model_is_named() -> None:
    library = torch.library.Library("pyprof_test", "FRAGMENT")
    library.define("odd(Tensor x) -> Tensor")
    library.impl("odd", lambda x: x.clone(), "CompositeExplicitAutograd")
    work = pyprof.count(torch.ops.pyprof_test.odd, torch.ones(4))
    assert work.uncounted == work.unknown == {"pyprof_test::odd": 1}
    assert math.isnan(work.bytes) and "pyprof_test::odd" in str(work)


def test_an_op_of_your_own_can_be_given_a_model() -> None:
    library = torch.library.Library("pyprof_own", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.clone(), "CompositeExplicitAutograd")

    @pyprof.model("pyprof_own::twice")
    def twice(x: Tensor) -> Work:
        return Work(x.numel, x.nbytes, x.nbytes)

    try:
        work = pyprof.count(torch.ops.pyprof_own.twice, torch.ones(4))
        assert (work.flops, work.bytes, work.uncounted) == (4, 32, {})
    finally:
        del MODELS["pyprof_own::twice"], FAMILY["pyprof_own::twice"]


def test_packed_sequences_are_counted_by_their_lengths() -> None:
    work = pyprof.count(
        torch.ops.aten._flash_attention_forward,
        *[torch.empty(7, 3, 8, device="meta")] * 3,
        torch.tensor([0, 4, 7], dtype=torch.int32),
        torch.tensor([0, 4, 7], dtype=torch.int32),
        4,
        4,
        0.0,
        True,
        False,
    )
    assert work.forward.flop == 1536  # (10 + 6) pairs, 3 heads, 2*16


def test_lengths_that_decide_the_pairs_are_read_whatever_they_are_called() -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="torch before 2.10")
    q, ends = torch.zeros(7, 3, 8), torch.tensor([0, 4, 7], dtype=torch.int32)
    schema = varlen._varlen_attn._opoverload._schema
    arguments = in_order(schema, (q, q, q, ends, ends, 4, 4), {"seqused_k": torch.tensor([2, 3])})
    assert [a.values for a in arguments if isinstance(a, Tensor)] == [None] * 3 + [(0, 4, 7)] * 2 + [(2, 3)]


def test_a_generator_of_parameters_reaches_the_function() -> None:
    net = nn.Linear(4, 4)
    net(torch.ones(2, 4)).sum().backward()
    with pyprof.count() as work:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    norm = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-2)
    assert list(work.ops) == ["clip_grad_norm_"]
    # 20 gradients: 2 for each to the norm, 1 to scale it; 80 bytes read for the norm, read again and written
    assert [(row.model, row.flops, row.bytes) for row in work.rows] == [("clip_grad_norm_", 60, 240)]


def test_results_are_the_same_with_and_without() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    x = torch.randn(2, 5, 16)
    assert torch.equal(layer(x), pyprof.count(layer, x).result)


def test_an_error_leaves_nothing_behind() -> None:
    before = torch.nn.utils.clip_grad_norm_
    with pytest.raises(RuntimeError, match="shape"), pyprof.count():
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    assert torch.nn.utils.clip_grad_norm_ is before
    assert torch._C._len_torch_function_stack() == 0


def test_the_table_is_a_data_frame() -> None:
    table = pyprof.count(F.linear, R(4, 5), R(6, 5)).table()
    assert list(table.columns) == ["op", "model", "direction", "calls", "flops", "bytes"]
    assert table.flops.sum() == 240
