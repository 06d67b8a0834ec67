"""A softmax between two products: which product can take its result."""

import json

import pytest

from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.kinds import kinds
from pyprof.prof.work.unfused_attention import _takes, softmaxes_apart
from pyprof.table.columns import Coded
from tests.prof.changes.rules import advice_rows

SOFTMAX = json.dumps([[8, 16, 32], [], []])


@pytest.mark.parametrize(
    ("operands", "takes"),
    [
        ([[8, 16, 32], [8, 32, 64]], True),
        ([[128, 32], [32, 64]], True),  # the same rows in two dimensions
        ([[8, 32, 16], [8, 16, 64]], False),  # rows of another length
        ([[16, 32], [32, 64]], False),  # fewer elements
        ([["?"], []], True),  # no shape is known
        ([], True),
    ],
)
def test_a_product_of_a_softmax(operands: list[list[object]], takes: bool) -> None:
    assert _takes(json.dumps(operands), SOFTMAX) is takes


def test_without_the_softmaxs_shape_any_product_may_take_it() -> None:
    assert _takes(json.dumps([[16, 32]]), "") and _takes("", SOFTMAX)


@pytest.mark.parametrize(
    ("between", "after", "count"),
    [
        ((), "fprop", 1),
        ((), "bprop", 0),  # the softmax of a model's output: the next product is the backward pass's
        (("void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>()",), "", 0),  # a loss follows
        (("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()",), "", 0),  # a router's experts follow
    ],
)
def test_the_softmax_of_a_models_output_or_a_router_is_not_attentions(
    between: tuple[str, ...], after: str, count: int
) -> None:
    names = ("ampere_sgemm_128x64_tn", "softmax_warp_forward<float, float, float, 8, false, false>", *between)
    names = (*names, "ampere_sgemm_128x64_tn")
    made = advice_rows.table(
        *({"kShortName": name, "kLongName": name, "start": 10 * i, "ns": 10} for i, name in enumerate(names))
    )
    made = made.with_column("dir", Coded.of(["fprop"] * (len(names) - 1) + [after]))
    assert softmaxes_apart(made, kinds(made, annotate(made)))[0] == count


@pytest.mark.parametrize(
    "name", ["void vllm::moe::topkGatingSoftmax<8>()", "void moe::dev::routing::routingIndicesKernel<PostSoftmax>()"]
)
def test_a_router_in_one_kernel_is_not_attentions(name: str) -> None:
    """vLLM's, and TensorRT-LLM's: softmax and choice of experts in one."""
    names = ("ampere_sgemm_128x64_tn", name, "ampere_sgemm_128x64_tn")
    made = advice_rows.table(
        *({"kShortName": each, "kLongName": each, "start": 10 * i, "ns": 10} for i, each in enumerate(names))
    )
    assert softmaxes_apart(made, kinds(made, annotate(made)))[0] == 0


def between_products(before: list[list[int]], softmax: list[list[int]], after: list[list[int]], way: str = "fprop"):
    """A softmax between two products with these operands, all in one direction; those of bmm have three dimensions."""

    def product(shapes: list[list[int]]) -> dict[str, object]:
        return {"kShortName": GEMM, "aten": "aten::bmm" if len(shapes[0]) > 2 else "aten::mm", "sizes": shapes}

    name = "softmax_warp_forward" if way == "fprop" else "softmax_warp_backward"
    rows = (product(before), {"kShortName": name, "sizes": softmax}, product(after))
    return advice_rows.table(*({"kLongName": row["kShortName"], "ns": 10, "dir": way, **row} for row in rows))


def number_of(made) -> int:
    return softmaxes_apart(made, kinds(made, annotate(made)))[0]


GEMM = "ampere_sgemm_128x64_tn"
GATE = [[4096, 8], [4096, 8], [], []]  # the gradient of a gate's softmax, over 8 experts
SCORES = [[2, 4, 16, 32], [2, 4, 16, 32], [], []]  # 8 × 16 × 32 = 4096 scores
QUERIES = [[8, 16, 32], [8, 32, 64]]  # the product that takes the scores


@pytest.mark.parametrize(
    ("before", "softmax", "after", "way", "count"),
    [
        ([[8, 16, 64], [8, 64, 32]], SCORES[:1], QUERIES, "fprop", 1),  # the scores are its result
        ([[8, 16, 48], [8, 48, 32]], SCORES, QUERIES, "bprop", 1),
        ([[8, 32, 16], [8, 16, 48]], SCORES, QUERIES, "bprop", 1),  # the values' gradient takes the scores, transposed
        ([[1024, 4096], [4096, 512]], GATE, [[4096, 8], [8, 512]], "bprop", 0),  # an expert's gradient, 1024 × 512
        ([[4096, 1024], [1024, 512]], GATE[:1], [[4096, 8], [8, 512]], "fprop", 0),  # an expert's result
        ([[512, 512], [512, 8]], SCORES[:1], QUERIES, "fprop", 0),  # 4096 elements, in rows of 8 and not of 32
    ],
)
def test_the_product_before_has_the_scores_too(before, softmax, after, way, count):
    assert number_of(between_products(before, softmax, after, way)) == count


@pytest.mark.parametrize(("first", "count"), [([8], 0), ([4096, 8], 1)])
def test_a_gates_linear_layer_makes_no_scores(first, count):
    """x @ w + bias, softmax over 8 experts, and a product with their results. A sum with a mask may be attention's."""
    made = between_products([[4096, 64], [64, 8]], GATE[:1], [[4096, 8], [8, 512]])
    sizes = [[first, [4096, 64], [64, 8]], GATE[:1], [[4096, 8], [8, 512]]]
    made = made.with_column("aten", Coded.of(["aten::addmm", "aten::_softmax", "aten::mm"]))
    assert number_of(made.with_column("sizes", Coded.of(map(json.dumps, sizes)))) == count


def test_scores_may_be_a_sum_of_several_products():
    """Those of relative positions come last: 63 distances per query, of which each has 32."""
    query = {"kShortName": GEMM, "aten": "aten::bmm", "sizes": [[8, 16, 64], [8, 64, 32]]}
    distance = {**query, "sizes": [[8, 16, 64], [8, 64, 63]]}
    softmax = {"kShortName": "softmax_warp_forward", "sizes": SCORES[:1]}
    rows = (query, distance, softmax, {**query, "sizes": QUERIES})
    made = advice_rows.table(*({"kLongName": row["kShortName"], "ns": 10, "dir": "fprop", **row} for row in rows))
    assert number_of(made) == 1


def test_a_product_without_known_operands_may_have_made_the_scores():
    assert number_of(between_products([["?"], []], SCORES[:1], QUERIES)) == 1


def test_from_the_backward_pass_to_the_next_steps_forward_pass_is_no_attention():
    made = between_products([[8, 16, 64], [8, 64, 32]], SCORES[:1], QUERIES)
    made = made.with_column("dir", Coded.of(["bprop", "fprop", "fprop"]))
    assert number_of(made) == 0
