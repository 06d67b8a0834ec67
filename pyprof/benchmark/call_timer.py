"""How long one call takes by itself, in short bursts: from replays of a CUDA graph, from CUDA events, or on a CPU.

The calls of a list take turns; each works on inputs of its own (``rotation``).

* On a GPU, many calls are recorded into one CUDA graph, so that the host's launches do not limit small kernels. Some
  calls cannot be recorded because they wait for the GPU or do work that depends on values there. These run one after
  the other between two events, and the time of a launch is part of their time.
* A node of a graph takes longer than a profiler shows of its kernel, so the difference is subtracted
  (``EmptyNodes``; 0 to 0.20 µs on an H200). docs/explanation/performance.md derives it and compares with nsys.
* torch.profiler should not have run before in the process: CUPTI then stays attached, and an empty node takes 0.28 µs
  more. So what needs it (``kernels_of``) comes after all measurements.
* On a CPU, torch.utils.benchmark.Timer measures.
"""

import itertools
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from pyprof.benchmark.bench_result import CPU, EVENTS, GRAPH, Timing
from pyprof.benchmark.device_facts import cache_bytes, clock_mhz, free_bytes
from pyprof.benchmark.other_programs import OtherPrograms
from pyprof.benchmark.rotation import copies_needed
from pyprof.benchmark.timer import CPU_TRIAL_S, PATIENCE, SHORTEST_CALL_S, Effort

Call = Callable[[], object]
GRAPH_S = 1e-3  # a graph lasts about this long, so that the start of a replay does not count
MOST_CALLS = 4096  # in a graph
# What a profiler shows for a kernel that does nothing, on an H200: the median of 70 of torch.cuda._sleep(1) under
# torch.profiler (tests/golden/h200_backward_outputs.json.gz). In graphs, kernels that wait for 500 to 5,000 cycles take
# 0.66 to 0.68 µs longer than these cycles.
EMPTY_KERNEL_S = 0.672e-6
EMPTY_NODES = 4  # after each call, in the graph that shows what they take
SPACED_CALLS = 640  # at least so many in that graph
SPACED_ELEMENTS = 1 << 16  # of each input and each result of these calls, in half precision


def time_calls(
    prepare: Callable[[], Sequence[Call]], device: torch.device, effort: Effort, cold: bool = False
) -> Timing:
    """Time calls of the same work, which take turns. An exception of a call passes through.

    ``prepare`` makes the calls. On a GPU it runs on the stream that they will run on, as autograd requires.
    ``cold``: whether the memory of all calls together exceeds the last cache.
    """
    if device.type != "cuda":
        return _on_cpu(prepare(), effort)
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            calls = prepare()
            for _ in range(3):
                calls[0]()  # compiles, allocates and chooses algorithms
            torch.cuda.synchronize()
            why = _why_no_graph(calls[0])
            if not why:
                try:
                    return _by_graph(calls, stream, effort, cold)
                except RuntimeError as error:
                    torch.cuda.synchronize()
                    why = _first_line(error)
            return _by_events(calls, effort, why)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]


def _spread(trials: Sequence[float]) -> tuple[float, float, float, float]:
    """The median, the quartiles and the least.

    >>> _spread([1.0, 2.0, 3.0, 4.0, 9.0])
    (3.0, 2.0, 4.0, 1.0)
    """
    several = trials if len(trials) > 1 else [*trials, *trials]
    low, middle, high = statistics.quantiles(several, n=4, method="inclusive")
    return middle, low, high, min(trials)


# On a CPU


def _on_cpu(calls: Sequence[Call], effort: Effort) -> Timing:
    from torch.utils.benchmark import Timer

    turns = itertools.cycle(calls)
    run = Timer("next(turns)()", globals={"turns": turns}, num_threads=torch.get_num_threads())
    number, once = 1, run.timeit(1).median
    while once * number < CPU_TRIAL_S:
        number *= 2
        once = run.timeit(number).median
    for _ in range(PATIENCE):
        others, trials = OtherPrograms(), list[float]()
        while sum(trials) * number < effort.trials * effort.trial_s or len(trials) < effort.trials:
            trials.append(run.timeit(number).median)
        if not others.disturb:
            break
    return Timing(*_spread(trials), len(trials), CPU, number, other_cores=others.cores())


# On a GPU


def _why_no_graph(call: Call) -> str:
    """Why a call cannot be recorded: it makes the host wait for the GPU. Empty if it does not."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        except RuntimeError as error:
            if "synchroniz" not in str(error):
                raise
            return "the call waits for the GPU"
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return ""


def _by_graph(calls: Sequence[Call], stream: torch.cuda.Stream, effort: Effort, cold: bool) -> Timing:
    once = min(_between_events(calls[0], 1) for _ in range(3))
    rounds = max(1, int(min(GRAPH_S / max(once, SHORTEST_CALL_S), MOST_CALLS) / len(calls)))
    graph = recorded(calls, rounds, stream)
    number = rounds * len(calls)
    nodes = EmptyNodes(torch.cuda.current_device(), cold, stream)
    trials, clock = _bursts(graph.replay, effort, nodes.compare)
    empty = nodes.seconds()
    middle, low, high, best = (max(seconds / number - empty, 0.0) for seconds in _spread(trials))
    return Timing(middle, low, high, best, len(trials), GRAPH, number, empty, clock_mhz=clock)


def recorded(calls: Sequence[Call], rounds: int, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """A graph in which the calls take turns. Each call's results stay in memory until its next turn.

    So results do not overwrite each other in the cache, either.
    """
    graph = torch.cuda.CUDAGraph()
    results: deque[object] = deque(maxlen=len(calls))
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(rounds):
            results.extend(call() for call in calls)
    return graph


def _bursts(run: Call, effort: Effort, after_each: Call) -> tuple[list[float], int | None]:
    """Seconds per run in short bursts with pauses between them, and the clock during the last one."""
    once = min(_between_events(run, 1) for _ in range(2))
    times = max(1, round(effort.burst_s / max(once, SHORTEST_CALL_S)))
    trials = []
    for _ in range(effort.bursts):
        time.sleep(effort.pause_s)
        run()  # lets the GPU leave its idle clock
        trials.append(_between_events(run, times) / times)
        after_each()
    run()
    return trials, clock_mhz()


def _by_events(calls: Sequence[Call], effort: Effort, why: str) -> Timing:
    def run() -> None:
        for call in calls:
            call()

    once = _between_events(run, 1)
    times = max(1, round(effort.burst_s / max(once, SHORTEST_CALL_S)))
    hosts: list[float] = []
    trials = [_between_events(run, times, hosts) / times / len(calls) for _ in range(effort.bursts)]
    host, number = statistics.median(hosts) / times / len(calls), times * len(calls)
    return Timing(*_spread(trials), len(trials), EVENTS, number, host_s=host, why=why, clock_mhz=clock_mhz())


def _between_events(run: Call, times: int, hosts: list[float] | None = None) -> float:
    """The seconds that ``times`` runs take on the GPU. ``hosts`` receives the host's seconds to launch them."""
    new_event: Any = torch.cuda.Event
    begin, end = new_event(enable_timing=True), new_event(enable_timing=True)
    torch.cuda.synchronize()
    began = time.perf_counter()
    begin.record()
    for _ in range(times):
        run()
    end.record()
    if hosts is not None:
        hosts.append(time.perf_counter() - began)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


# What the GPU reports


class EmptyNodes:
    """The seconds by which a node of a graph takes longer than a profiler shows of its kernel.

    Each further node whose kernel does nothing takes as long as it is shown to take, and this difference. In a graph
    whose calls move more memory than the cache holds (``cold``), the descriptions of the nodes have to be read from
    memory again, too. All of this changes within a process: at first, each node took 0.18 µs less on an H200, 0.34
    beyond the cache, and after some graphs it did not. So this is measured in turns with the calls from which it is
    subtracted.
    """

    def __init__(self, device: int, cold: bool, stream: torch.cuda.Stream) -> None:
        calls = _small_calls(torch.device("cuda", device), cold)
        rounds = -(-SPACED_CALLS // len(calls))
        self._number = rounds * len(calls) * EMPTY_NODES
        self._graphs = [recorded(each, rounds, stream) for each in (calls, [_spaced(call) for call in calls])]
        self._found: list[float] = []

    def compare(self) -> None:
        """Measure once. The GPU's clock must have risen."""
        without, with_empty = (_between_events(graph.replay, 1) for graph in self._graphs)
        self._found.append((with_empty - without) / self._number - EMPTY_KERNEL_S)

    def seconds(self) -> float:
        """The median; 0 where such a node is shorter than the kernel that a profiler shows."""
        return max(statistics.median(self._found), 0.0)


def _small_calls(device: torch.device, cold: bool) -> list[Call]:
    """Calls of a small kernel on the same memory; ``cold``: on memory that exceeds the cache together."""
    nbytes = 2 * SPACED_ELEMENTS * torch.bfloat16.itemsize
    count = copies_needed(nbytes, cache_bytes(device), free_bytes(device)) if cold else 1
    memory = torch.zeros(count, 2, SPACED_ELEMENTS, dtype=torch.bfloat16, device=device)
    return [partial(torch.clamp_min, source, 0, out=result) for source, result in memory.unbind()]


def _spaced(call: Call) -> Call:
    def run() -> None:
        call()
        for _ in range(EMPTY_NODES):
            torch.cuda._sleep(0)

    return run


def kernels_of(run: Call) -> tuple[str, ...]:
    """The names of the kernels that a run launches, without duplicates, as torch.profiler shows them.

    Nothing can be measured in the process afterwards; see above.
    """
    from torch.profiler import ProfilerActivity, profile

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Profiler clears events")
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            run()
            torch.cuda.synchronize()
        events = profiled.events() or ()
    on_gpu = torch.autograd.DeviceType.CUDA
    return tuple(dict.fromkeys(str(event.name) for event in events if event.device_type == on_gpu))
