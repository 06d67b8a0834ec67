"""nn.TransformerEncoder runs its fast path while it is counted, as it does without us."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.profiler import profile  # noqa: E402

import pyprof  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about the prototype of nested tensors
PADDED = torch.tensor([[False] * 10, [False] * 6 + [True] * 4])  # 16 rows of 20 are data


def encoder(**options: Any) -> Any:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, **options), 2).eval()


def test_a_padded_batch_counts_its_rows() -> None:
    net, x = encoder(), torch.randn(2, 10, 64)
    with torch.no_grad():
        work = pyprof.count(net, x, src_key_padding_mask=PADDED)
        assert torch.equal(work.result, net(x, src_key_padding_mask=PADDED))
    # Of each of two layers: 2*16*64*(192 + 64 + 128 + 128) of 16 rows; attention pads to 10: 2 * 2*8*10*10*16
    assert work.products.flop == 2 * (1_048_576 + 51_200) == 2_199_552
    # Each layer has two norms of 16 rows of 64 (7 for each number and 2 for each row), two sums, the bias of Q, K and V
    # and the scale of Q, and softmax of 4*10*10 and 4*6*6 numbers in 40 and 24 rows: 4 for each, less 1 a row.
    norms, sums, biases, softmax = 4 * (7 * 1024 + 32), 4 * 1024, 2 * (3072 + 1024), 2 * (4 * 544 - 64)
    assert work.flops == 2_199_552 + norms + sums + biases + softmax
    assert not work.unknown


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}])
@pytest.mark.parametrize("mask", [None, PADDED])
def test_the_same_ops_run_as_without_us(options: Any, mask: Any) -> None:
    net, x = encoder(**options), torch.randn(2, 10, 64)

    def ops(call: Any) -> set[str]:  # a dispatch mode makes some ops appear twice
        with torch.no_grad(), profile() as profiled:
            call(net, x, src_key_padding_mask=mask)
        return {e.name for e in profiled.events()} & {"aten::_transformer_encoder_layer_fwd", "aten::linear"}

    assert ops(pyprof.count) == ops(lambda net, x, **more: net(x, **more))


def test_a_question_for_modes_of_the_program_is_answered() -> None:
    class Other(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **kwargs or {})

    x = torch.ones(2)
    with pyprof.count():
        assert not torch.overrides.has_torch_function((x,))
        with Other():
            assert torch.overrides.has_torch_function((x,))
        assert torch._C._len_torch_function_stack() == 1
