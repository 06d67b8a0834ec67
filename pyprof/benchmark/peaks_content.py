"""The content of a peaks file, which ``pyprof peaks -o`` writes and ``--peaks`` reads, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyprof.benchmark.sweeps import Curve, ProductRates, memory_rate
from pyprof.command.json_schema import Schema, integer, listing, mapping, number, record, text
from pyprof.prof.limits.architectures import unit_of

__all__ = ["SCHEMAS", "peaks_content"]

FORMAT, VERSION = "pyprof peaks", 1


def peaks_content(
    facts: Mapping[str, Any],
    products: Iterable[ProductRates],
    memory: Mapping[str, Curve],
    elementwise: Mapping[str, Mapping[str, float]],
    links: Mapping[str, float],
) -> dict[str, Any]:
    """The content of a peaks file. ``--peaks`` reads ``flop_per_s`` by unit and ``byte_per_s``.

    ``lasting_flop_per_s``: the products' rates after half a second of nothing else.
    """
    arch = str(facts["arch"])
    products = list(products)
    curves = {rates.product.name: rates.curve for rates in products if rates.curve}
    lasting = {rates.product.name: rates.lasting for rates in products if rates.lasting is not None}
    best = {name: max(rate for _, rate in curve) for name, curve in curves.items()}
    memory_peak = memory_rate(dict(memory), int(facts["cache_bytes"]))
    return {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "flop_per_s": _by_unit(best, arch),
        "lasting_flop_per_s": _by_unit(lasting, arch),
        **({} if memory_peak is None else {"byte_per_s": _rounded(memory_peak)}),
        "link_byte_per_s": {name: _rounded(rate) for name, rate in links.items()},
        "curves": {
            "products_flop_per_s": {name: _points(curve) for name, curve in curves.items()},
            "memory_byte_per_s": {name: _points(curve) for name, curve in memory.items()},
            "elementwise_byte_per_s": {
                dtype: {op: _rounded(rate) for op, rate in rates.items()} for dtype, rates in elementwise.items()
            },
        },
        "skipped": {rates.product.name: rates.why for rates in products if rates.why},
    }


def _by_unit(rates: Mapping[str, float], arch: str) -> dict[str, float]:
    """The rates of the products that a unit of this architecture computes, by unit."""
    units = ((unit_of(name, arch), rate) for name, rate in rates.items())
    return {unit: _rounded(rate) for unit, rate in units if unit}


def _rounded(rate: float) -> float:
    """Four digits: measurements differ by more."""
    return float(f"{rate:.4g}")


def _points(curve: Curve) -> list[list[float]]:
    return [[size, _rounded(rate)] for size, rate in curve]


def _schema() -> Schema:
    rate = number("of a peak")
    pair: list[Schema] = [number("size"), number("rate")]
    point: Schema = {"type": "array", "description": "size, rate", "prefixItems": pair, "items": False}
    points = listing(point, "rising sizes")
    curves = {
        "products_flop_per_s": mapping(points, "by dtype: rows of the square matrices, FLOP/s"),
        "memory_byte_per_s": mapping(points, "by op: bytes moved, bytes/s"),
        "elementwise_byte_per_s": mapping(mapping(rate, "by op"), "by dtype: bytes/s of each op"),
    }
    return record(
        {
            "format": {"const": FORMAT, "description": "by which --peaks recognizes the file"},
            "version": {"const": VERSION, "description": "of the file's form"},
            "device": text("its name"),
            "arch": text("sm_90, gfx942, cpu"),
            "torch": text("its version"),
            "sms": integer("multiprocessors; GPUs only"),
            "memory_bytes": integer("of the GPU", "bytes"),
            "threads": integer("that torch uses; CPUs only"),
            "cache_bytes": integer("of the last cache before memory", "bytes"),
            "flop_per_s": mapping(rate, "the best of each unit, FLOP/s"),
            "byte_per_s": number("of the memory, beyond the caches", "bytes/s"),
            "lasting_flop_per_s": mapping(rate, "of products under a lasting load, by unit, FLOP/s"),
            "link_byte_per_s": mapping(rate, "of copies, by where from and to, bytes/s"),
            "curves": record(curves, "each figure by size"),
            "skipped": mapping(text("why"), "products that could not be measured"),
        },
        "peaks",
        optional=("sms", "memory_bytes", "threads", "byte_per_s"),
    )


SCHEMAS = {"peaks": _schema}
