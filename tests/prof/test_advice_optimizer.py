"""Adam by lists of tensors against one fused pass."""

from __future__ import annotations

import pytest

from tests.prof.advice_rows import cards

N = 100_000_000  # parameters, fp32


def foreach(name, lists, ns, **more):
    return {
        "aten": f"aten::_foreach_{name}_", "sizes": [[[N]]] * lists + [[]], "dtypes": [["float32"]] * lists + [""],
        "kShortName": "multi_tensor_apply_kernel", "phase": "optimizer", "ns": ns, **more,
    }  # fmt: skip


def adam(addcdiv_ns=500_000):
    """lerp 12 bytes a parameter, addcdiv 16, addcmul 12."""
    return [foreach("lerp", 2, 400_000), foreach("addcmul", 3, 500_000), foreach("addcdiv", 3, addcdiv_ns)]


def test_adam_by_hand():
    # 28 × 1e8 bytes at 0.72 × 4.8e12/s: 810.2 µs, now 1400
    (card,) = cards(*adam())
    assert (card.rule, card.kernels) == ("optimizer", 3)
    assert card.saved_ms == pytest.approx(1.4 - 0.8102, abs=0.0001)
    assert "fused=True" in card.change and "a fused one 28" in card.why


def test_single_ops_wait_for_their_launches():
    # 300 kernels, 20 µs apart, 3 µs each; 100 addcdiv_ of 10,000 parameters. Fused: 28e6 bytes at 3.456e12/s, 8.1 µs.
    # Of the bytes 900 - 8.1 µs, of the launches 300 × 5 - 900 = 600 µs; the step can't lose GPU time: 900 < 1500
    rows = []
    for i in range(100):
        for j, (name, tensors) in enumerate((("lerp", 2), ("addcmul", 3), ("addcdiv", 3))):
            rows.append({
                "aten": f"aten::{name}_", "sizes": [[10_000]] * tensors + [[]], "dtypes": ["float32"] * tensors + [""],
                "kShortName": "vectorized_elementwise_kernel", "phase": "optimizer", "ns": 3_000,
                "start": (3 * i + j) * 20_000,
            })  # fmt: skip
    (card,) = cards(*rows, rule="optimizer")
    assert card.kernels == 300 and "single ops" in card.why
    assert card.saved_ms == pytest.approx(0.6)


def idle(rows):
    """The same, each 2 ms after the other: the host is the limit."""
    return [{**row, "start": 2_000_000 * i} for i, row in enumerate(rows)]


SAYS_NOTHING = {
    "fused": [{**foreach("x", 4, 1_400_000), "aten": "aten::_fused_adamw_"}],
    "another optimizer": [foreach("add", 2, 500_000), foreach("mul", 1, 500_000)],
    "as fast as fused": adam(addcdiv_ns=1000),
    "the GPU waits for the host": idle(adam()),
    "sizes unknown": [{**row, "sizes": None, "dtypes": None} for row in adam()],
    "another phase": [{**row, "phase": "backward"} for row in adam()],
}


@pytest.mark.parametrize("why", SAYS_NOTHING)
def test_says_nothing(why):
    assert cards(*SAYS_NOTHING[why], rule="optimizer") == []
