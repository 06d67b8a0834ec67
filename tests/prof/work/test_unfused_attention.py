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
