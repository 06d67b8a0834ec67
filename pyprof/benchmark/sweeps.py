"""Measure the rates that a device really reaches: matrix products, memory, element-wise ops, links. Needs torch.

The operands are random, because a GPU that multiplies zeros draws less power and so runs at a higher clock.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyprof.benchmark.device_facts import free_bytes
from pyprof.benchmark.timer import Effort, Timer

Curve = list[tuple[int, float]]  # (size, rate), by rising size
Say = Callable[[str], None]

GAIN = 1.01  # a size that brings less than 1% more than the best before it is on the plateau
PATIENCE = 2  # sizes without a gain before the sweep ends
ELEMENTS, ON_CPU_ELEMENTS = 1 << 26, 1 << 24  # operand size of the element-wise ops: more than the caches hold


@dataclass(frozen=True, slots=True)
class Product:
    """A kind of matrix product to measure."""

    name: str
    dtype: str  # torch's name of it
    precision: str = "highest"  # torch.set_float32_matmul_precision
    how: str = "matmul"  # or "int8" (torch._int_mm) or "scaled" (torch._scaled_mm)


@dataclass(frozen=True, slots=True)
class ProductRates:
    """The measured FLOP/s of one product."""

    product: Product
    curve: Curve = field(default_factory=list)  # the rate by the number of rows of the square matrices
    lasting: float | None = None  # the rate under a lasting load at the best size; None if not measured
    why: str = ""  # why there is no curve


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


class Sweeps:
    """Measures a device through torch. Before each measurement, ``say`` is called with its name."""

    def __init__(self, device: str, effort: Effort, say: Say = lambda _: None) -> None:
        import torch

        self.torch: Any = torch
        self.timer = Timer(device, effort)
        self.device: Any = self.timer.device
        self.effort, self.say = effort, say

    def _fits(self, nbytes: int) -> bool:
        """Whether this many bytes fit into half of the free memory."""
        return nbytes <= free_bytes(self.device) // 2

    # Products

    def products(self) -> Iterator[ProductRates]:
        """The FLOP/s of square matrix products, for each kind of product that the device supports."""
        before = self.torch.get_float32_matmul_precision()
        try:
            for product in PRODUCTS:
                if self.timer.on_gpu or product.name in ON_CPU:
                    self.torch.set_float32_matmul_precision(product.precision)
                    yield self._product(product)
        finally:
            self.torch.set_float32_matmul_precision(before)

    def _product(self, product: Product) -> ProductRates:
        curve: Curve = []
        lasting = None
        try:
            for size in self.effort.gemm:
                too_slow = curve and 2 * size**3 / curve[-1][1] > self.effort.slowest_s
                if too_slow or not self._fits(3 * 8 * size * size):
                    break
                self.say(f"{product.name} {size}×{size}")
                curve.append((size, 2 * size**3 / self.timer.burst_seconds(self._multiply(product, size))))
                if on_plateau(curve):
                    break
            if curve and self.timer.on_gpu:
                size = max(curve, key=lambda point: point[1])[0]
                lasting = 2 * size**3 / self.timer.lasting_seconds(self._multiply(product, size))
        except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
            if not curve:
                first_line = (str(error).splitlines() or [type(error).__name__])[0]
                return ProductRates(product, why=first_line[:120])
        return ProductRates(product, curve, lasting)

    def _multiply(self, product: Product, size: int) -> Callable[[], object]:
        """A call that multiplies two random matrices."""
        torch, on = self.torch, {"device": self.device}
        if product.how == "int8":
            a, b = (torch.randint(-128, 128, (size, size), dtype=torch.int8, **on) for _ in range(2))
            return lambda: torch._int_mm(a, b.t())
        a, b = (torch.randn(size, size, **on).to(getattr(torch, product.dtype)) for _ in range(2))
        if product.how == "scaled":
            one = torch.ones((), **on)
            return lambda: torch._scaled_mm(
                a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)

    # Memory

    def memory(self) -> dict[str, Curve]:
        """Bytes/s of copy, read and triad by the bytes that a call moves. The smallest sizes fit into the caches."""
        curves: dict[str, Curve] = {"copy": [], "read": [], "triad": []}
        size = 1 << 16
        while size <= self.effort.most_bytes and self._fits(3 * size):
            self.say(f"memory, arrays of {size >> 10:,} KiB")
            for name, (call, nbytes) in self._moves(size).items():
                curves[name].append((nbytes, nbytes / self.timer.seconds(call)))
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
        """Bytes/s by dtype and op, on arrays too large for every cache. Much arithmetic makes an op slower."""
        torch = self.torch
        count = ELEMENTS if self.timer.on_gpu else ON_CPU_ELEMENTS
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
            rates[name] = {op: arrays * nbytes / self.timer.seconds(call) for op, (arrays, call) in calls.items()}
        return rates

    # Links

    def links(self) -> dict[str, float]:
        """Bytes/s between host and GPU (pinned memory), and to the next GPU if there is one."""
        if not self.timer.on_gpu:
            return {}
        torch, size = self.torch, 1 << 28
        self.say("links")
        here = torch.randint(0, 256, (size,), dtype=torch.uint8, device=self.device)
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        rates = {
            "host_to_device": size / self.timer.seconds(lambda: here.copy_(host, non_blocking=True)),
            "device_to_host": size / self.timer.seconds(lambda: host.copy_(here, non_blocking=True)),
        }
        this = self.device.index or 0
        others = (n for n in range(torch.cuda.device_count()) if n != this)
        neighbour = next((n for n in others if torch.cuda.can_device_access_peer(this, n)), None)
        if neighbour is not None:
            there = torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", neighbour))
            rates["device_to_device"] = size / self.timer.seconds(lambda: there.copy_(here, non_blocking=True))
        return rates


def on_plateau(curve: Curve) -> bool:
    """Whether the last sizes brought no more than the best before them.

    >>> on_plateau([(1, 10.0), (2, 90.0), (4, 99.0)]), on_plateau([(1, 99.0), (2, 99.5), (4, 98.0)])
    (False, True)
    """
    rates = [rate for _, rate in curve]
    if len(rates) <= PATIENCE:
        return False
    return max(rates[-PATIENCE:]) < GAIN * max(rates[:-PATIENCE])


def memory_rate(curves: dict[str, Curve], cache_bytes: int) -> float | None:
    """Bytes/s of memory: the best rate of the calls that move at least four times the last cache's size.

    If no call was that large, this is the best rate of the largest calls. None if there were no calls.

    >>> memory_rate({"copy": [(10, 9e12), (400, 4e12), (800, 4.2e12)]}, 100)
    4200000000000.0
    """
    large = [rate for curve in curves.values() for nbytes, rate in curve if nbytes >= 4 * cache_bytes]
    return max(large or [curve[-1][1] for curve in curves.values() if curve], default=None)
