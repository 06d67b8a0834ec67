"""Gradients filled with zeros, sparse ones, and dropout without gradients."""

import pytest

from tests.prof.changes.rules.advice_rows import changes, mm

N = 4096 * 4096
ADAM = {"phase": "optimizer", "aten": "aten::_fused_adam_"}


def busy(ns=20_000_000):
    """The GPU is the limit."""
    return mm(8192, 8192, 8192, ns, name="nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTT")


def zero(ns=20_000, shape=(4096, 4096), **more):
    return {"aten": "aten::zero_", "sizes": [list(shape)], "dtypes": ["float32"], "kShortName": "FillFunctor", "ns": ns,
            "phase": "optimizer", "nodes": ["aten::zero_"], **more}  # fmt: skip


def add(ns=50_000, shape=(4096, 4096), **more):
    return {"aten": "aten::add_", "sizes": [list(shape), list(shape), []], "dtypes": ["float32", "float32", ""],
            "args": ["", "", "1"], "kShortName": "CUDAFunctor_add", "ns": ns, "phase": "backward",
            "nodes": ["torch::autograd::AccumulateGrad", "aten::add_"], **more}  # fmt: skip


def test_zero_grad_by_hand():
    # both go: 8 × (20 + 50) µs
    (change,) = changes(*[zero() for _ in range(8)], busy(), *[add() for _ in range(8)], rule="zero_grad")
    assert change.gpu_ms == pytest.approx(0.560) and change.kernels == 16


def test_zero_grad_with_gradient_accumulation():
    # of four micro-batches' additions only the first falls away: 8 × 20 µs + 32 × 50 µs / 4
    rows = [zero() for _ in range(8)] + [busy()] + [add() for _ in range(32)]
    (change,) = changes(*rows, rule="zero_grad")
    assert change.gpu_ms == pytest.approx(0.560)


NCCL = {"kShortName": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ns": 10_000, "phase": "backward"}


def test_zero_grad_under_ddp_saves_the_fills():
    (change,) = changes(
        *[zero() for _ in range(8)], busy(10_000_000), *[add() for _ in range(8)], NCCL, rule="zero_grad"
    )
    assert change.gpu_ms == pytest.approx(0.160) and change.kernels == 8


NO_ZEROS = {
    "gradients are None first": [busy(), *[zero(phase="forward", nodes=["aten::zeros", "aten::zero_"])] * 8],
    "nothing was added": [*[zero() for _ in range(8)], busy()],
    "other sizes: a buffer of the user's": [zero(shape=(65536, 4096)), busy(), add()],
    "a graph keeps its gradients": [*[zero(graphNode=1)] * 8, busy(), *[add(graphNode=2)] * 8],
    "the backward pass's own zeros": [*[zero(phase="backward")] * 8, busy(), *[add()] * 8],
}


@pytest.mark.parametrize("why", NO_ZEROS)
def test_no_zero_grad(why):
    assert changes(*NO_ZEROS[why], rule="zero_grad") == []


NODES = ["EmbeddingBackward0", "aten::embedding_backward", "aten::embedding_dense_backward"]


def table_gradient(entries=500_000, tokens=4096, fill=130_000):
    fills = {"aten": "aten::fill_", "sizes": [[entries, 256], []], "dtypes": ["float32", ""], "kShortName": "Fill",
             "ns": fill, "phase": "backward", "nodes": [*NODES, "aten::zeros", "aten::fill_"]}  # fmt: skip
    sums = {"aten": "aten::embedding_dense_backward", "sizes": [[tokens, 256], [tokens], [], [], []], "ns": 30_000,
            "dtypes": ["float32", "int64", "", "", ""], "args": ["", "", str(entries), "-1", ""],
            "kShortName": "embedding_backward_feature_kernel", "phase": "backward", "nodes": NODES}  # fmt: skip
    return [fills, sums]


def update(shapes, ns):
    sizes = [shapes] * 4
    return {**ADAM, "sizes": sizes, "dtypes": [["float32"] * len(shapes)] * 4, "ns": ns, "kShortName": "adam"}


def test_sparse_grad_by_hand():
    # 130 µs of zeros, 30 of sums, and of the update 128 of 144 M parameters
    rows = [busy(), *table_gradient(), update([[500_000, 256], [4000, 4000]], 1_440_000)]
    (change,) = changes(*rows, rule="sparse_grad")
    assert change.gpu_ms == pytest.approx(0.130 + 0.030 + 1.440 * 128 / 144)


def test_sparse_grad_of_bags_and_clipping():
    # the same of bags: 4096 indices in 512 bags. clip_grad_norm_ raises on a sparse gradient
    fills, sums = table_gradient()
    nodes = ["EmbeddingBagBackward0", "aten::_embedding_bag_backward", "aten::_embedding_bag_dense_backward"]
    fills["nodes"] = [*nodes, "aten::zeros", "aten::fill_"]
    sums.update(aten="aten::_embedding_bag_dense_backward", nodes=nodes, args=None,
                sizes=[[512, 256], [4096], [4096], [512], [0], *[[]] * 5], dtypes=None)  # fmt: skip
    rows = [busy(), fills, sums, update([[500_000, 256], [4000, 4000]], 1_440_000)]
    (change,) = changes(*rows, rule="sparse_grad")
    assert change.gpu_ms == pytest.approx(0.130 + 0.030 + 1.440 * 128 / 144)
    assert "nn.EmbeddingBag(..., sparse=True)" in change.change and "clip" not in change.change
    norm = {"aten": "aten::_foreach_norm", "phase": "optimizer", "kShortName": "norm", "ns": 1000}
    (change,) = changes(*rows, norm, rule="sparse_grad")
    assert "clip_grad_norm_ raises an error for a sparse gradient" in change.change
    sums.update(sizes=[[512, 256], [60_000], [60_000], [512], [0], *[[]] * 5])
    assert changes(*rows, rule="sparse_grad") == []  # 60,000 of 500,000 rows


def test_an_update_that_takes_no_time_is_none_of_the_kernels():
    rows = [busy(), *table_gradient(), update([[500_000, 256]], 1_000_000)]
    (change,) = changes(*rows, rule="sparse_grad")
    (same,) = changes(*rows, update([[500_000, 256]], 0), rule="sparse_grad")
    assert change.kernels == same.kernels == 3  # the zeros, the sums and the update


DENSE = {
    "a tied output layer": [mm(4096, 256, 500_000, 9_000_000), *table_gradient(), update([[500_000, 256]], 1_000_000)],
    "how many rows are touched is not told": [
        busy(),
        *table_gradient()[:1],
        update([[500_000, 256]], 1_000_000),
    ],
    "most rows are touched": [busy(), *table_gradient(entries=20_000), update([[20_000, 256]], 1_000_000)],
    "other ranks have other rows": [busy(), *table_gradient(), update([[500_000, 256]], 1_000_000), NCCL],
}


@pytest.mark.parametrize("why", DENSE)
def test_no_sparse_grad(why):
    assert changes(*DENSE[why], rule="sparse_grad") == []


ALL, PIECE = [64, 64, 4096], [64, 4096]  # fp32: 67.1 MB
BIG = {"kShortName": "kernel", "ns": 5_000_000, "phase": "forward"}


def indexed(summed=True, **more):
    """The gradient of x[:, i]: zeros, the piece's copy, and the sum with what came before."""
    under = {"phase": "backward", "kShortName": "elementwise_kernel", "trace": ["net.py:9"], **more}
    inside = ["SelectBackward0", "aten::select_backward"]
    return [
        {"aten": "aten::fill_", "sizes": [ALL, []], "dtypes": ["float32", ""], "ns": 16_000,
         "nodes": [*inside, "aten::zeros", "aten::zero_", "aten::fill_"], **under},
        {"aten": "aten::copy_", "sizes": [PIECE, PIECE, []], "dtypes": ["float32", "float32", ""], "ns": 3_000,
         "nodes": [*inside, "aten::copy_"], **under},
        *([{"aten": "aten::add_", "sizes": [ALL, ALL, []], "dtypes": ["float32", "float32", ""], "ns": 47_000,
            "nodes": ["aten::add_"], **under}] if summed else []),
    ]  # fmt: skip


def loop(count, **more):
    return [row for i in range(count) for row in indexed(i > 0, **more)]


def test_an_index_in_a_loop_by_hand():
    # 64 × 19 µs and 63 × 47: 4.177 ms in 191 kernels. One stack: 2 × 67.1e6 bytes at 0.12 × 4.8e12/s, and 5 µs: 238 µs
    (change,) = changes(BIG, *loop(64), rule="select_in_loop")
    assert (change.kernels, change.trace) == (191, "net.py:9")
    assert change.gpu_ms == pytest.approx(4.177 - 0.238, abs=0.001)
    assert "x.unbind(dim)" in change.change and "64 indices into tensors of [64, 64, 4096]" in change.why


def test_the_tensors_are_those_pieces_that_nothing_is_added_to():
    (change,) = changes(BIG, *loop(8), *loop(8), rule="select_in_loop")
    assert "One stack per tensor (2)" in change.why


def sliced(count, width):
    """The same of x[:, a:b], of so many of the 64 in each piece."""
    found = []
    for row in loop(count):
        nodes = [name.replace("Select", "Slice").replace("select", "slice") for name in row["nodes"]]
        piece = [[64, width, 4096]] * 2 if row["aten"] == "aten::copy_" else row["sizes"][:2]
        found.append({**row, "nodes": nodes, "sizes": [*piece, []][: len(row["sizes"])]})
    return found


def test_slices_that_cover_a_tensor():
    # 16 × 19 µs and 15 × 47: 1.009 ms; one stack as above, 238 µs
    (change,) = changes(BIG, *sliced(16, 4), rule="select_in_loop")
    assert change.gpu_ms == pytest.approx(1.009 - 0.238, abs=0.001)
    assert "x.split(size, dim)" in change.change and "16 slices into tensors" in change.why


SELECTED = {
    "one piece of each tensor": [BIG, *indexed(False), *indexed(False), *indexed(False)],
    "queries, keys and values": [BIG, *loop(3)],
    "seven pieces": [BIG, *loop(7)],
    "slices that omit elements": [BIG, *sliced(64, 2)],  # of 2 of 64 in each of 16, or overlapping ones of 32
    "no shapes": [BIG, *({**row, "sizes": None} for row in loop(64))],
    "the piece is written elsewhere": [BIG, *(row for row in loop(64) if row["aten"] != "aten::copy_")],
}


@pytest.mark.parametrize("why", SELECTED)
def test_no_word_on_indices(why):
    assert changes(*SELECTED[why], rule="select_in_loop") == []
