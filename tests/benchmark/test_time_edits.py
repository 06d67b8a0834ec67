"""Calls that edits ask for, timed on the CPU; the ops of a chain, and which reads which result."""

import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from pyprof.benchmark import timed_functions, timer  # noqa: E402
from pyprof.benchmark.bench_result import Timing  # noqa: E402
from pyprof.benchmark.time_edits import _less, _prepared, time_edits  # noqa: E402
from pyprof.benchmark.timed_chain import Chain  # noqa: E402
from pyprof.benchmark.timed_functions import timeable  # noqa: E402
from pyprof.prof.changes.measured.timed_call import TimedCall, channels_last  # noqa: E402
from pyprof.prof.ops.model import Tensor  # noqa: E402
from pyprof.rerun.new_inputs import NewInputs, NotRecreated  # noqa: E402
from pyprof.rerun.recreate import refusals  # noqa: E402

CPU = torch.device("cpu")
ROOM = 1 << 28


def f32(*shape, **more):
    return Tensor(shape, "float32", **more)


def call(op, *arguments, **more):
    return TimedCall(op, arguments, **more)


X, ROWS = f32(16, 32), f32(16, 1)
HEADS = f32(2, 4, 8, 16)
IMAGE, KERNEL = (2, 8, 6, 6), (8, 1, 3, 3)


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr(timed_functions, "_compiled", lambda function: function)


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr("pyprof.benchmark.time_edits.EFFORT", timer.Effort(trial_s=1e-4, trials=1, bursts=1))


CALLS = [
    call("aten::mm", X, f32(32, 8, strides=(1, 32))),
    call("aten::mm", X, f32(32, 8), mode="tf32"),
    call("attention", HEADS, HEADS, HEADS, None, 0.0, True),
    call("attention", HEADS, HEADS, HEADS, f32(1, 4, 8, 8, needs_grad=False), 0.0, False, direction="bprop"),
    call("attention", HEADS, HEADS, HEADS, None, 0.1, False, direction="bprop"),
    call("cross_entropy", Tensor((16, 100), "bfloat16"), True, mode="compiled"),
    call("cross_entropy", f32(16, 100), False, mode="compiled", direction="bprop"),
    call("adam", (X, X)),
    call("sgd", (X,)),
    call("sgd with momentum", (X,)),
    call("copy of pinned memory", 4096),
    call("aten::stack", (X, X, X), 1),
    call(
        "aten::convolution",
        f32(*IMAGE, strides=channels_last(IMAGE)),
        f32(*KERNEL, strides=channels_last(KERNEL)),
        *(None, (1, 1), (1, 1), (1, 1), False, (0, 0), 8),
    ),
    call("aten::_foreach_mul_", (X, X), 0.9),
    call(
        "chain", parts=(call("aten::tanh", X), call("aten::add_", X, X, 1), call("aten::native_dropout", X, 0.1, True))
    ),
]


@pytest.mark.usefixtures("uncompiled", "hasty")
@pytest.mark.parametrize("each", CALLS, ids=lambda each: each.text[:50])
def test_a_call_is_timed(each):
    (found,) = time_edits([each], CPU, time.monotonic() + 60, lambda _: None)
    assert found.why == "" and 0 < found.seconds < 10 and found.method == "cpu timer" and found.call == each.text


@pytest.mark.parametrize(
    ("each", "why"),
    [
        (call("aten::system", X), "no op of this torch"),
        (call("aten::mm", X, X), "must have same reduction dim|shapes cannot be multiplied"),
        (call("aten::mm", f32(1 << 20, 1 << 20), f32(1 << 20, 8)), "GiB of memory"),
        (call("attention", f32(1, 1, 1 << 30, 8), HEADS, HEADS, None, 0.0, False), "GiB of memory"),
        (call("attention", HEADS, HEADS, HEADS, None, 0.0, False, flop=10**18), "FLOPs"),
        (call("cross_entropy", f32(16), False, mode="compiled"), "logits of shape"),
        (call("copy of pinned memory", 1 << 60), "GiB of memory"),
        (call("chain", parts=(call("aten::copy_", X),), mode="compiled"), "not recorded"),
    ],
)
def test_what_cannot_be_timed_says_why(each, why):
    with pytest.raises(NotRecreated, match=why), refusals():
        timeable(each, CPU, ROOM)


def test_a_backward_timed_with_its_forward_is_what_the_forward_leaves():
    """10 to 12 µs together, 4 to 5 of them forward: 7 left of 11, at least 5, at most 8."""
    whole = Timing(11e-6, 10e-6, 12e-6, 10e-6, 5, "cuda graph", 100)
    part = Timing(4e-6, 4e-6, 5e-6, 4e-6, 5, "cuda graph", 100)
    found = _less(whole, part)
    assert (found.seconds, found.low_s, found.high_s) == pytest.approx((7e-6, 5e-6, 8e-6))


def test_forward_and_backward_in_one_call():
    ready = replace(timeable(CALLS[3], CPU, ROOM), whole=True)
    calls = _prepared(ready, CPU)
    gradients = calls[0]()
    assert [tuple(each.shape) for each in gradients] == [(2, 4, 8, 16)] * 3


def test_the_budget_ends_measuring():
    assert time_edits(CALLS, CPU, time.monotonic() - 1, lambda _: None) == []


@pytest.mark.usefixtures("uncompiled", "hasty")
def test_what_compiles_comes_last():
    said = []
    time_edits([CALLS[5], CALLS[0]], CPU, time.monotonic() + 60, said.append)
    assert [text.partition("(")[0] for text in said] == ["aten::mm", "cross_entropy"]


MISH = (
    call("aten::softplus", X, 1, 20),
    call("aten::tanh", X),
    call("aten::mul", X, X),
    call("aten::clamp_", X, -1, 6),
)


def test_a_chain_computes_what_its_ops_do():
    """The second operand of mul has no result left to read, and is the chain's input."""
    chain = Chain(MISH, NewInputs(CPU, ROOM))
    (x,) = chain.given
    assert torch.allclose(chain.module(x), (torch.nn.functional.softplus(x).tanh() * x).clamp(-1, 6))


def test_a_norm_by_hand_reads_its_mean_and_its_input():
    parts = (
        call("aten::mean", X, (-1,), True, None),
        call("aten::sub", X, ROWS, 1),
        call("aten::copy_", Tensor((16, 32), "bfloat16"), X, False),
    )
    chain = Chain(parts, NewInputs(CPU, ROOM))
    (x,) = chain.given
    assert torch.equal(chain.module(x), (x - x.mean(-1, keepdim=True)).to(torch.bfloat16))


def test_two_operands_without_a_source_are_two_inputs():
    chain = Chain((call("aten::add", X, X, 1), call("aten::relu", X)), NewInputs(CPU, ROOM))
    assert len(chain.given) == 2


def test_flags_of_tf32_are_put_back():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with timeable(CALLS[1], CPU, ROOM).around():
        assert torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
