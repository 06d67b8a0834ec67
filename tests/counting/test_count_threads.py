"""pyprof.count counts what other threads do for the program: those that it starts, and pools that it gives work to."""

import concurrent.futures
import multiprocessing.pool
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import pyprof  # noqa: E402


def product() -> Any:
    return torch.ones(3, 4) @ torch.ones(4, 5)  # 2*3*4*5 = 120


def test_a_thread_that_the_code_starts() -> None:
    with pyprof.count() as work:
        thread = threading.Thread(target=product)
        thread.start()
        thread.join()
    assert work.flops == 120


def test_a_pool_that_the_code_opens() -> None:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def serve(i: int) -> float:
        with torch.no_grad():
            return float(net(torch.full((32, 64), float(i))).sum())

    with pyprof.count() as work, concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, range(100)))
    # two products of 2*32*64*256 and a sum of 2048, a hundred times
    assert work.flops == 100 * (2 * 1_048_576 + 2047) == 209_919_900
    assert work.ops["linear"].calls == 200
    assert not work.unknown


@pytest.mark.parametrize("way", ["executor", "thread pool"])
def test_a_pool_that_was_open_before(way: str) -> None:
    if way == "executor":
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            counted_and_after(lambda: executor.submit(product).result())
    else:
        with multiprocessing.pool.ThreadPool(2) as pool:
            counted_and_after(lambda: pool.apply(product))
            counted_and_after(lambda: pool.map(lambda _: product(), [0])[0])


def counted_and_after(call: Callable[[], Any]) -> None:
    """The work of each call is counted, and none after the block."""
    call()
    with pyprof.count() as work:
        call()
        call()
    call()
    assert work.flops == 240


def test_a_backward_of_what_threads_computed() -> None:
    nets = [nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU()) for _ in range(2)]
    out: list[Any] = [None, None]

    def run(i: int) -> None:
        out[i] = nets[i](torch.ones(4 + i, 8)).sum()

    with pyprof.count() as work:
        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (out[0] + out[1]).backward()
    assert work.ops["linear"].forward.flop == 512 + 640  # 2*4*8*8 and 2*5*8*8
    assert work.ops["linear"].backward.flop == 512 + 640  # of the weights alone
    assert not work.unknown


def test_threads_do_not_lose_each_others_work() -> None:
    def many() -> None:
        for _ in range(200):
            product()

    with pyprof.count() as work:
        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert work.flops == 4 * 200 * 120


def test_a_thread_that_outlives_the_count_is_left_alone() -> None:
    ended, depths = threading.Event(), []

    def work_on() -> None:
        product()
        ended.wait()
        product()
        product()
        depths.append((torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()))

    thread = threading.Thread(target=work_on)
    with pyprof.count() as work:
        thread.start()
        while not work.flops:
            pass
    ended.set()
    thread.join()
    assert work.flops == 120
    assert depths == [(0, 0)]


def test_names_are_put_back() -> None:
    names = [(threading.Thread, "_bootstrap_inner"), (concurrent.futures.ThreadPoolExecutor, "submit")]
    names += [(multiprocessing.pool.ThreadPool, "imap"), (torch.autograd, "_engine_run_backward")]
    names += [(torch.overrides, "has_torch_function")]
    before = [getattr(*name) for name in names]
    with pyprof.count():
        pass
    assert [getattr(*name) for name in names] == before
    assert "imap" not in vars(multiprocessing.pool.ThreadPool)  # inherited
