"""What a count costs: time beside the plain call, and memory over many steps."""

import gc
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import pyprof  # noqa: E402


def training(optimizer: Any = torch.optim.SGD) -> Callable[[], None]:
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
    adjust, x = optimizer(net.parameters(), lr=0.01), torch.ones(8, 64)

    def step() -> None:
        net(x).sum().backward()
        adjust.step()
        adjust.zero_grad()

    return step


def element_wise() -> None:
    x = torch.ones(4, 4)
    for _ in range(50):
        x = x * 1.01 + x


def penalty() -> Callable[[], None]:
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    x = torch.ones(8, 64, requires_grad=True)

    def step() -> None:
        (force,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        force.pow(2).sum().backward()

    return step


def shortest(call: Callable[[], Any], times: int = 30) -> float:
    """Seconds of this thread, which runs the backward pass on a CPU, too: other processes do not count."""
    found = []
    for _ in range(times):
        begin = time.thread_time()
        call()
        found.append(time.thread_time() - begin)
    return min(found[1:])


@pytest.mark.parametrize(
    "call", [training(), training(torch.optim.AdamW), element_wise, penalty()], ids=["SGD", "AdamW", "ops", "penalty"]
)
def test_a_count_costs_at_most_ten_times_the_plain_call(call: Callable[[], Any]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ratio = min(shortest(lambda: pyprof.count(call)) / shortest(call) for _ in range(3))
    finally:
        torch.set_num_threads(threads)
    assert ratio < 12  # 7 to 10 were measured; the limit leaves room for noise


def test_the_memory_of_a_long_count_is_bounded() -> None:
    """AdamW's factors change with every step, and must not be kept."""
    step = training(torch.optim.AdamW)
    with pyprof.count():
        for _ in range(20):
            step()
        gc.collect()
        tracemalloc.start()
        try:
            for _ in range(100):
                step()
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert grown < 200_000  # bytes; 33 MB in 600 steps were 55,000 in each
