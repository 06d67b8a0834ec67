"""What a device really reaches: matrix products, memory, element-wise ops, links. Needs torch.

Data are random: a GPU that multiplies zeros draws less power and clocks higher. Clocks are left as they are. Figures
are medians of several trials of many calls each, timed by CUDA events (on a CPU the best, by the clock). Products are
the exception: they draw so much power that a GPU slows down within tens of milliseconds. A step's products come between
other work, so the figure is the best of short bursts; what is left under a lasting load is a second one.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

Curve = list[tuple[int, float]]  # (size, rate)
Say = Callable[[str], None]

GAIN = 1.01  # a size that brings less than 1% more than the best before it is on the plateau
PATIENCE = 2  # sizes without a gain before the sweep ends
SHORT_S = 1e-4  # a trial on a CPU: long against reading the clock
ELEMENTS, ON_CPU_ELEMENTS = 1 << 26, 1 << 24  # of an element-wise op's operands, more than caches hold


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure, and how far."""

    trial_s: float = 0.03
    trials: int = 7
    slowest_s: float = 0.7  # a call that would take longer is not made
    burst_s: float = 0.004  # of products, with a pause before each
    pause_s: float = 0.03
    bursts: int = 15
    lasting_s: float = 0.6
    gemm: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)
    most_bytes: int = 4 << 30  # of one array of the memory sweep


FULL = Effort()
QUICK = Effort(
    trial_s=0.01, trials=3, slowest_s=0.3, bursts=6, lasting_s=0.3, gemm=(512, 1024, 2048, 4096, 8192),
    most_bytes=1 << 29,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Product:
    """A dtype of the sweep of products: its name, torch's dtype, and how one is made."""

    name: str
    dtype: str
    precision: str = "highest"  # torch.set_float32_matmul_precision
    how: str = "matmul"


@dataclass(frozen=True, slots=True)
class Multiplied:
    """FLOP/s by size; under a lasting load at the best size, None where that was not measured; or why there is none."""

    product: Product
    curve: Curve = field(default_factory=list)
    lasting: float | None = None
    why: str = ""


PRODUCTS = (
    Product("bf16", "bfloat16"),
    Product("fp16", "float16"),
    Product("tf32", "float32", "high"),
    Product("fp32", "float32"),
    Product("fp64", "float64"),
    Product("fp8", "float8_e4m3fn", how="scaled"),
    Product("int8", "int8", how="int8"),
)
ON_CPU = ("bf16", "fp32", "fp64")


class Bench:
    """A device to measure, through torch."""

    def __init__(self, device: str, effort: Effort, say: Say = lambda _: None) -> None:
        import torch

        self.torch: Any = torch
        self.device: Any = torch.device(device)
        self.effort, self.say = effort, say
        self.on_gpu = self.device.type == "cuda"

    # Time

    def seconds(self, call: Callable[[], object]) -> float:
        """How long a call takes: the median of the trials; on a CPU, which others use too, the best."""
        self._run(call, 1)  # compiles, allocates, chooses an algorithm
        once = min(self._run(call, 1) for _ in range(3))
        if not self.on_gpu:
            return self._best(call, once)
        times = max(1, min(10_000, math.ceil(self.effort.trial_s / max(once, 1e-9))))
        self._run(call, times)  # to the clock of a device at work
        return statistics.median(self._run(call, times) / times for _ in range(self.effort.trials))

    def burst_seconds(self, call: Callable[[], object]) -> float:
        """How long a call takes while the GPU's power allows its full clock: the best of short bursts."""
        self._run(call, 1)
        once = min(self._run(call, 1) for _ in range(3))
        if not self.on_gpu:
            return self._best(call, once)
        times = max(1, min(1_000, math.ceil(self.effort.burst_s / max(once, 1e-9))))
        trials = []
        for _ in range(self.effort.bursts):
            time.sleep(self.effort.pause_s)
            self._run(call, 1)  # out of the idle clock
            trials.append(self._run(call, times) / times)
        return min(trials)

    def lasting_seconds(self, call: Callable[[], object]) -> float:
        """How long a call takes under a lasting load: the mean of its second half."""
        once = self._run(call, 1)
        times = max(1, math.ceil(self.effort.lasting_s / 2 / max(once, 1e-9)))
        self._run(call, times)
        return self._run(call, times) / times

    def _best(self, call: Callable[[], object], best: float) -> float:
        """Many short trials: where threads wait for a core that is taken, most of them take milliseconds too long."""
        spent, trials = 0.0, 0
        while spent < self.effort.trials * self.effort.trial_s or trials < self.effort.trials:
            times = max(1, math.ceil(SHORT_S / max(best, 1e-9)))
            took = self._run(call, times)
            best = min(best, took / times)
            spent, trials = spent + took, trials + 1
        return best

    def _run(self, call: Callable[[], object], times: int) -> float:
        if not self.on_gpu:
            begin = time.perf_counter()
            for _ in range(times):
                call()
            return time.perf_counter() - begin
        cuda = self.torch.cuda
        with cuda.device(self.device):
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    # Facts

    def facts(self) -> dict[str, Any]:
        """What torch says of the device, in the words of a peaks file."""
        told: dict[str, Any] = {"device": cpu_name(), "arch": "cpu", "torch": self.torch.__version__}
        if self.on_gpu:
            gpu = self.torch.cuda.get_device_properties(self.device)
            arch = str(getattr(gpu, "gcnArchName", "")).split(":")[0] if self.torch.version.hip else ""
            told.update(device=gpu.name, arch=arch or f"sm_{gpu.major}{gpu.minor}", sms=gpu.multi_processor_count)
            told["memory_bytes"] = gpu.total_memory
        else:
            told["threads"] = self.torch.get_num_threads()
        return {**told, "cache_bytes": self.cache_bytes()}

    def cache_bytes(self) -> int:
        """The last cache before memory, as far as it is told; 64 MiB where it is not."""
        if self.on_gpu:
            gpu = self.torch.cuda.get_device_properties(self.device)
            return int(getattr(gpu, "L2_cache_size", 0) or 64 << 20)
        return cpu_cache_bytes()

    def room(self) -> int:
        """Bytes that may be allocated: half of what is free."""
        if self.on_gpu:
            self.torch.cuda.empty_cache()
            return int(self.torch.cuda.mem_get_info(self.device)[0] // 2)
        return free_bytes() // 2

    # Products

    def products(self) -> Iterator[Multiplied]:
        """The FLOP/s of square products per dtype."""
        before = self.torch.get_float32_matmul_precision()
        try:
            for product in PRODUCTS:
                if self.on_gpu or product.name in ON_CPU:
                    self.torch.set_float32_matmul_precision(product.precision)
                    yield self._product(product)
        finally:
            self.torch.set_float32_matmul_precision(before)

    def _product(self, product: Product) -> Multiplied:
        curve: Curve = []
        lasting = None
        try:
            for size in self.effort.gemm:
                if curve and 2 * size**3 / curve[-1][1] > self.effort.slowest_s:
                    break
                if 3 * 8 * size * size > self.room():
                    break
                self.say(f"{product.name} {size}×{size}")
                curve.append((size, 2 * size**3 / self.burst_seconds(self._multiply(product, size))))
                if on_plateau(curve):
                    break
            if curve and self.on_gpu:
                size = max(curve, key=lambda point: point[1])[0]
                lasting = 2 * size**3 / self.lasting_seconds(self._multiply(product, size))
        except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
            if not curve:
                return Multiplied(product, why=_first_line(error))
        return Multiplied(product, curve, lasting)

    def _multiply(self, product: Product, size: int) -> Callable[[], object]:
        """A call that multiplies two random matrices."""
        torch, on = self.torch, {"device": self.device}
        if product.how == "int8":
            a, b = (torch.randint(-128, 128, (size, size), dtype=torch.int8, **on) for _ in range(2))
            return lambda: torch._int_mm(a, b.t())
        if product.how == "scaled":
            a, b = (torch.randn(size, size, **on).to(getattr(torch, product.dtype)) for _ in range(2))
            one = torch.ones((), **on)
            return lambda: torch._scaled_mm(
                a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        a, b = (torch.randn(size, size, **on).to(getattr(torch, product.dtype)) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    # Memory

    def memory(self) -> dict[str, Curve]:
        """Bytes/s of copy, read and triad by the bytes that a call moves, from the caches to memory."""
        curves: dict[str, Curve] = {"copy": [], "read": [], "triad": []}
        size = 1 << 16
        while size <= self.effort.most_bytes and 3 * size <= self.room():
            self.say(f"memory, arrays of {size >> 10:,} KiB")
            for name, (call, nbytes) in self._moves(size).items():
                curves[name].append((nbytes, nbytes / self.seconds(call)))
            size *= 2
        return curves

    def _moves(self, size: int) -> dict[str, tuple[Callable[[], object], int]]:
        torch = self.torch
        a, b, c = (torch.randn(size // 4, device=self.device) for _ in range(3))
        total = torch.zeros((), device=self.device)
        return {
            "copy": (lambda: b.copy_(a), 2 * size),
            "read": (lambda: torch.sum(a, 0, out=total), size),
            "triad": (lambda: torch.add(a, b, alpha=3.0, out=c), 3 * size),
        }

    # Element-wise ops

    def elementwise(self) -> dict[str, dict[str, float]]:
        """Bytes/s of element-wise ops on arrays that no cache holds, per dtype: the costly ones fall behind copy."""
        torch = self.torch
        count = ELEMENTS if self.on_gpu else ON_CPU_ELEMENTS
        rates: dict[str, dict[str, float]] = {}
        for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
            self.say(f"element-wise ops, {name}")
            a, b = (torch.randn(count, device=self.device).to(dtype) for _ in range(2))
            out = torch.empty_like(a)
            calls: dict[str, tuple[int, Callable[[], object]]] = {
                "add": (3, partial(torch.add, a, b, out=out)),
                "mul": (3, partial(torch.mul, a, b, out=out)),
                "relu": (2, partial(torch.clamp_min, a, 0, out=out)),
                "exp": (2, partial(torch.exp, a, out=out)),
                "sigmoid": (2, partial(torch.sigmoid, a, out=out)),
                "tanh": (2, partial(torch.tanh, a, out=out)),
                "gelu": (2, partial(torch.nn.functional.gelu, a)),
            }
            nbytes = count * a.element_size()
            rates[name] = {op: arrays * nbytes / self.seconds(call) for op, (arrays, call) in calls.items()}
        return rates

    # Links

    def links(self) -> dict[str, float]:
        """Bytes/s between host and GPU (pinned memory), and to the next GPU where there is one."""
        if not self.on_gpu:
            return {}
        torch, size = self.torch, 1 << 28
        self.say("links")
        here = torch.randint(0, 256, (size,), dtype=torch.uint8, device=self.device)
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        rates = {
            "host_to_device": size / self.seconds(lambda: here.copy_(host, non_blocking=True)),
            "device_to_host": size / self.seconds(lambda: host.copy_(here, non_blocking=True)),
        }
        other = self._neighbour()
        if other is not None:
            there = torch.empty(size, dtype=torch.uint8, device=other)
            rates["device_to_device"] = size / self.seconds(lambda: there.copy_(here, non_blocking=True))
        return rates

    def _neighbour(self) -> Any:
        cuda = self.torch.cuda
        mine = self.device.index or 0
        reached = (n for n in range(cuda.device_count()) if n != mine and cuda.can_device_access_peer(mine, n))
        number = next(reached, None)
        return None if number is None else self.torch.device("cuda", number)


def on_plateau(curve: Curve) -> bool:
    """Did the last sizes bring no more than the best before them?

    >>> on_plateau([(1, 10.0), (2, 90.0), (4, 99.0)]), on_plateau([(1, 99.0), (2, 99.5), (4, 98.0)])
    (False, True)
    """
    rates = [rate for _, rate in curve]
    if len(rates) <= PATIENCE:
        return False
    return max(rates[-PATIENCE:]) < GAIN * max(rates[:-PATIENCE])


def memory_rate(curves: dict[str, Curve], cache_bytes: int) -> float | None:
    """Bytes/s of memory: the best of calls that move at least four times what the last cache holds.

    Where no call was so large, the best of the largest ones.

    >>> memory_rate({"copy": [(10, 9e12), (400, 4e12), (800, 4.2e12)]}, 100)
    4200000000000.0
    """
    large = [rate for curve in curves.values() for nbytes, rate in curve if nbytes >= 4 * cache_bytes]
    return max(large or [curve[-1][1] for curve in curves.values() if curve], default=None)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


# The CPU


def cpu_name() -> str:
    """The CPU's model, "CPU" where nothing tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), "CPU")


def cpu_cache_bytes() -> int:
    """The largest cache of the first core (Linux), else 64 MiB."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [_kib(file) for file in folder.glob("index*/size")] if folder.is_dir() else []
    return max(sizes, default=0) or 64 << 20


def _kib(file: Path) -> int:
    text = file.read_text(encoding="ascii", errors="replace").strip()
    return int(text[:-1]) << 10 if text.endswith("K") and text[:-1].isdigit() else 0


def free_bytes() -> int:
    """Memory that the system has free (Linux), else 4 GiB."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 4 << 30
    free = next((line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")), "")
    return int(free) << 10 if free.isdigit() else 4 << 30
