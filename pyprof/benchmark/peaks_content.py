"""The content of a peaks file, which ``pyprof peaks -o`` writes and ``--peaks`` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from pyprof.benchmark.sweeps import Curve, ProductRates, memory_rate
from pyprof.command.envelope import plain
from pyprof.command.json_schema import Record, doc
from pyprof.prof.limits.architectures import unit_of

Points = list[Annotated[tuple[float, float], doc("size, rate")]]
Rates = dict[str, float]


class Curves(Record):
    products_flop_per_s: Annotated[dict[str, Points], doc("by dtype: rows of the square matrices, FLOP/s")]
    memory_byte_per_s: Annotated[dict[str, Points], doc("by op: bytes moved, bytes/s")]
    elementwise_byte_per_s: Annotated[dict[str, Rates], doc("by dtype: bytes/s of each op")]


class Peaks(Record, kw_only=True):
    """The rates that this machine reaches. The option --peaks reads this record."""

    format: Annotated[Literal["pyprof peaks"], doc("by which --peaks recognizes the file")] = "pyprof peaks"
    version: Annotated[Literal[1], doc("of the file's form")] = 1
    device: Annotated[str, doc("its name")]
    arch: Annotated[str, doc("sm_90, gfx942, cpu")]
    torch: Annotated[str, doc("its version")]
    sms: Annotated[int, doc("multiprocessors; GPUs only")] | UnsetType = UNSET
    memory_bytes: Annotated[int, doc("of the GPU", "bytes")] | UnsetType = UNSET
    threads: Annotated[int, doc("that torch uses; CPUs only")] | UnsetType = UNSET
    cache_bytes: Annotated[int, doc("of the last cache before memory", "bytes")]
    flop_per_s: Annotated[Rates, doc("the best of each unit, FLOP/s")]
    lasting_flop_per_s: Annotated[Rates, doc("of products under a lasting load, by unit, FLOP/s")]
    byte_per_s: Annotated[float, doc("of the memory, beyond the caches", "bytes/s")] | UnsetType = UNSET
    link_byte_per_s: Annotated[Rates, doc("of copies, by where from and to, bytes/s")]
    curves: Annotated[Curves, doc("each rate by size")]
    skipped: Annotated[dict[str, Annotated[str, doc("why")]], doc("products that could not be measured")]


def peaks_content(
    facts: Mapping[str, Any],
    products: Sequence[ProductRates],
    memory: Mapping[str, Curve],
    elementwise: Mapping[str, Mapping[str, float]],
    links: Mapping[str, float],
) -> dict[str, Any]:
    """The content of a peaks file. ``--peaks`` reads ``flop_per_s`` by unit and ``byte_per_s``.

    ``lasting_flop_per_s``: the products' rates after half a second of uninterrupted products.
    """
    arch = str(facts["arch"])
    curves = {rates.product.name: rates.curve for rates in products if rates.curve}
    lasting = {rates.product.name: rates.lasting for rates in products if rates.lasting is not None}
    best = {name: max(rate for _, rate in curve) for name, curve in curves.items()}
    memory_peak = memory_rate(dict(memory), int(facts["cache_bytes"]))
    peaks = Peaks(
        **facts,
        flop_per_s=_by_unit(best, arch),
        lasting_flop_per_s=_by_unit(lasting, arch),
        byte_per_s=UNSET if memory_peak is None else _rounded(memory_peak),
        link_byte_per_s=_rates(links),
        curves=Curves(
            products_flop_per_s={name: _points(curve) for name, curve in curves.items()},
            memory_byte_per_s={name: _points(curve) for name, curve in memory.items()},
            elementwise_byte_per_s={dtype: _rates(rates) for dtype, rates in elementwise.items()},
        ),
        skipped={rates.product.name: rates.why for rates in products if rates.why},
    )
    content: dict[str, Any] = plain(peaks)
    return content


def _by_unit(rates: Mapping[str, float], arch: str) -> dict[str, float]:
    """The product rates by hardware unit, for the products that a unit of this architecture computes."""
    units = ((unit_of(name, arch), rate) for name, rate in rates.items())
    return {unit: _rounded(rate) for unit, rate in units if unit}


def _rates(rates: Mapping[str, float]) -> Rates:
    return {name: _rounded(rate) for name, rate in rates.items()}


def _rounded(rate: float) -> float:
    """The rate rounded to four digits, since repeated measurements differ by more than that."""
    return float(f"{rate:.4g}")


def _points(curve: Curve) -> Points:
    return [(size, _rounded(rate)) for size, rate in curve]
