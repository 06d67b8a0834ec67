"""pyprof.count counts what other threads do for the program: those that it starts, pools that it gives work to, and
those that run already. A thread whose work it cannot count is named."""

import _thread
import concurrent.futures
import cProfile
import functools
import multiprocessing.pool
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import pyprof  # noqa: E402
from pyprof.capture import patch  # noqa: E402

needs_hook = pytest.mark.skipif(not patch.reaches_threads(), reason="this Python reaches no running thread")


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


def test_a_thread_that_python_s_threading_does_not_know() -> None:
    done = threading.Event()

    def work() -> None:
        product()
        done.set()

    with pyprof.count() as work_done:
        _thread.start_new_thread(work, ())
        assert done.wait(60)
    assert work_done.flops == 120


class Server:
    """A thread that takes calls from a queue of its own."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Any] = queue.Queue()
        self._results: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._serve, name="server")
        self._thread.start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._results.put(call())

    def ask(self, call: Callable[[], Any]) -> Any:
        self._calls.put(call)
        return self._results.get(timeout=60)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)
        self._thread.join()


def depths() -> tuple[int, int]:
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


@needs_hook
def test_a_thread_that_ran_before() -> None:
    with Server() as server:
        server.ask(product)
        for _ in range(3):
            counted_and_after(lambda: server.ask(product))
        server.ask(product)
        assert server.ask(depths) == (0, 0)


@needs_hook
def test_a_training_step_on_a_thread_that_ran_before() -> None:
    net = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))
    with Server() as server, pyprof.count() as work:
        server.ask(lambda: net(torch.ones(4, 8)).sum().backward())
        server.ask(lambda: net(torch.ones(4, 8)).sum().backward())
    assert work.ops["linear"].calls == 4
    assert work.ops["linear"].forward.flop == 2 * (512 + 128)  # 2*4*8*8 and 2*4*8*2, twice
    assert work.ops["linear"].backward.flop == 2 * (512 + 2 * 128)  # of both weights, and of the second's input
    assert not work.unknown


@needs_hook
def test_the_main_thread_and_several_servers_at_once() -> None:
    with Server() as first, Server() as second:
        with pyprof.count() as work:
            for _ in range(50):
                first.ask(product)
                second.ask(product)
                product()
        assert work.flops == 3 * 50 * 120
        assert not work.unknown


@needs_hook
def test_a_count_on_a_thread_beside_a_main_thread_that_works() -> None:
    begun, go_on = threading.Event(), threading.Event()
    found: list[Any] = []

    def count() -> None:
        with pyprof.count() as work:
            begun.set()
            assert go_on.wait(60)
        found.append(work)

    thread = threading.Thread(target=count)
    thread.start()
    assert begun.wait(60)
    product()
    go_on.set()
    thread.join()
    product()
    assert found[0].flops == 120 and not found[0].unknown
    torch.ones(1).relu()
    assert depths() == (0, 0)


def test_a_thread_that_waits_is_not_named() -> None:
    with Server() as server:
        server.ask(product)
        time.sleep(0.1)  # until it waits
        with pyprof.count() as work:
            product()
        assert work.flops == 120 and not work.unknown
        assert server.ask(depths) == (0, 0)


@needs_hook
def test_a_thread_with_a_profiler_of_python_is_named() -> None:
    profile = cProfile.Profile()
    with Server() as server:
        server.ask(profile.enable)
        with pyprof.count() as work:
            server.ask(product)
        server.ask(profile.disable)
    assert work.flops == 0 and work.unknown == {"thread server": 1}
    assert "not counted: thread server" in str(work) and "started before the count" in str(work)


def test_where_python_reaches_no_running_thread_those_that_worked_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "_thread_states", lambda: None)
    with Server() as server, Server() as idle:
        server.ask(product)
        idle.ask(product)
        time.sleep(0.1)  # until both wait
        with pyprof.count() as work:
            server.ask(product)
            product()
    assert work.flops == 120 and work.unknown == {"thread server": 1}


@needs_hook
def test_threads_that_end_hold_no_mode() -> None:
    class AtTheEnd:
        def __del__(self) -> None:
            left.append(depths())

    left: list[Any] = []
    local = threading.local()

    def keep() -> None:
        product()
        local.value = AtTheEnd()

    with pyprof.count() as work:
        pass
    server = Server()
    with pyprof.count() as work:
        server.ask(keep)
        server.__exit__()
    assert work.flops == 120 and left == [(0, 0)]


class Nested(torch.autograd.Function):
    """A function whose backward runs a forward and a backward pass of its own, ``levels`` deep. Each level is told
    first."""

    @staticmethod
    def forward(ctx: Any, x: Any, levels: int, tell: Callable[[int], None]) -> Any:
        ctx.levels, ctx.tell = levels, tell
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.tell(ctx.levels)
        if ctx.levels > 1:
            with torch.enable_grad():
                nested_passes(ctx.levels - 1, ctx.tell)
        return grad, None, None


def nested_passes(levels: int, tell: Callable[[int], None]) -> None:
    """At each level a product of 2*4*5*6 = 240 and its gradient, which is another 240."""
    x = torch.ones(4, 5, requires_grad=True)
    torch.autograd.backward(Nested.apply(x, levels, tell) @ torch.ones(5, 6), torch.ones(4, 6))


# Of backward passes in each other, PyTorch runs those below the 60th on threads that it starts itself and keeps
# (MAX_DEPTH in torch/csrc/autograd/engine.h).
LEVELS = 70


def test_backward_passes_on_threads_of_autograd_s_own() -> None:
    """Threads of Python's work meanwhile, one of them likewise."""

    def many() -> None:
        for _ in range(100):
            product()

    def tell(_: int) -> None:
        seen.append((threading.get_native_id(), depths()))

    seen: list[tuple[int, tuple[int, int]]] = []
    for _ in range(2):  # the second count finds autograd's threads running
        seen.clear()
        with Server() as server, pyprof.count() as work:
            calls = (many, many, functools.partial(nested_passes, LEVELS, tell))
            threads = [threading.Thread(target=call) for call in calls]
            for thread in threads:
                thread.start()
            for _ in range(50):
                server.ask(product)
            nested_passes(LEVELS, tell)
            for thread in threads:
                thread.join()
        products = 2 * 100 + (50 if patch.reaches_threads() else 0)
        assert work.ops["matmul"].forward.flop == products * 120 + 2 * 240
        assert work.ops["matmul"].backward.flop == 2 * (69 + 70) * 240  # backward passes run all products but the first
        assert work.flops == products * 120 + 2 * 140 * 240
        assert not work.unknown or not patch.reaches_threads()
        assert len(seen) == 2 * LEVELS and len({thread for thread, _ in seen}) > 2
        assert {modes for _, modes in seen} == {(1, 1)}
    seen.clear()
    nested_passes(LEVELS, tell)
    assert {modes for _, modes in seen} == {(0, 0)}


@needs_hook
@pytest.mark.parametrize("level", [4, 40], ids=["autograd's thread", "Python's thread"])
def test_a_count_that_begins_while_nested_backward_passes_run(level: int) -> None:
    reached, go_on, modes = threading.Event(), threading.Event(), set()

    def tell(at: int) -> None:
        if at == level:
            reached.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=nested_passes, args=(LEVELS, tell))
    thread.start()
    assert reached.wait(60)
    with pyprof.count() as work:
        go_on.set()
        thread.join()
    assert work.flops == work.ops["matmul"].backward.flop == 2 * (level - 1) * 240  # of the levels below
    assert not work.unknown
    nested_passes(LEVELS, lambda _: modes.add(depths()))
    assert modes == {(0, 0)}


def test_names_are_put_back() -> None:
    names = [
        (threading.Thread, "_bootstrap_inner"),
        (_thread, "start_new_thread"),
        (concurrent.futures.ThreadPoolExecutor, "submit"),
    ]
    names += [(multiprocessing.pool.ThreadPool, "imap"), (torch.autograd, "_engine_run_backward")]
    names += [(torch.overrides, "has_torch_function")]
    before = [getattr(*name) for name in names]
    with pyprof.count():
        pass
    assert [getattr(*name) for name in names] == before
    assert "imap" not in vars(multiprocessing.pool.ThreadPool)  # inherited
