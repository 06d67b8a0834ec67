"""The least time that a device needs for a call's FLOPs and bytes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pyprof.benchmark.device_facts import facts
from pyprof.counting.counts import ACCUMULATE, Counts
from pyprof.prof.kernels.precision import HOST_PRECISION, PRECISION_OF_DTYPE
from pyprof.prof.limits.architectures import unit_of
from pyprof.prof.limits.devices import Device, find_device
from pyprof.prof.limits.peaks_file import Peaks, load_peaks, with_peaks
from pyprof.prof.ops.model import FAMILY, MATRIX


@dataclass(frozen=True, slots=True)
class DirectionWork:
    """The FLOPs of matrix products and of all other ops, and the bytes, in one direction."""

    products: int
    others: int
    nbytes: float
    has_convolutions: bool = False


def work_of(counts: Counts, direction: str) -> DirectionWork:
    """The work of one direction; that of adding to gradients belongs to none."""
    products, others, nbytes, convolutions = 0, 0, 0.0, False
    for row in counts.rows:
        if row.direction != direction or row.direction == ACCUMULATE:
            continue
        family = FAMILY.get(row.model.removesuffix(".backward"), "")
        convolutions |= family == "conv"
        products += row.flops if family in MATRIX else 0
        others += 0 if family in MATRIX else row.flops
        nbytes += row.bytes
    return DirectionWork(products, others, nbytes, convolutions)


def device_of(device: torch.device, peaks: str | Peaks | None) -> Device | None:
    """The figures of a device: its data sheet's, replaced by those of a peaks file. None if none are known."""
    found = facts(device)
    given = load_peaks(peaks) if isinstance(peaks, str) else peaks
    if found["arch"] == "cpu":
        return with_peaks(None, given) if given is not None and given.arch == "cpu" else None
    listed = find_device(found["device"], {"smCount": found["sms"], "totalMemory": found["memory_bytes"]})
    return listed if given is None or given.arch == "cpu" else with_peaks(listed, given, found["device"])


def limit(work: DirectionWork, device: Device | None, precision: str) -> tuple[float | None, str]:
    """(seconds, "compute" or "memory"): the greatest of the times for products, other arithmetic and memory.

    Products run on the unit for ``precision``, all other arithmetic on the vector unit. (None, "") if a peak that is
    needed is unknown.
    """
    if device is None:
        return None, ""
    products = _seconds(work.products, device.peak(unit_of(precision, device.arch)))
    vector = "fp64" if precision == "fp64" else "fp32"
    compute = max(products, _seconds(work.others, device.peak(vector)), key=_nan_first)
    memory = _seconds(work.nbytes, device.bandwidth)
    if math.isnan(compute) or math.isnan(memory):
        return None, ""
    return (compute, "compute") if compute >= memory else (memory, "memory")


def _seconds(work: float, rate: float) -> float:
    return work / rate if work else 0.0


def _nan_first(value: float) -> float:
    return math.inf if math.isnan(value) else value


def precision_of(tensors: Iterable[Any], has_convolutions: bool) -> str:
    """The precision in which products of these tensors run: that of the narrowest type among inputs and results.

    Autocast's results are narrower than its inputs. Products of float32 on a GPU are rounded to tf32 where torch's
    settings say so, for convolutions by their own setting.
    """
    found = [t for t in tensors if isinstance(t, torch.Tensor)]
    floats = {t.dtype: t.element_size() for t in found if t.dtype.is_floating_point}
    names = {t.dtype: t.element_size() for t in found if t.dtype in (torch.int8, torch.uint8)}
    kinds = floats or names
    if not kinds:
        return "fp32"
    name = str(min(kinds, key=lambda dtype: kinds[dtype])).removeprefix("torch.")
    if not any(t.is_cuda for t in found):
        return HOST_PRECISION.get(name, "fp32")
    return PRECISION_OF_DTYPE.get(name) or ("tf32" if _rounds(has_convolutions) else "fp32")


def _rounds(convolutions: bool) -> bool:
    """Whether torch lets products of float32 be rounded to tf32."""
    return bool(torch.backends.cudnn.allow_tf32 if convolutions else torch.backends.cuda.matmul.allow_tf32)
