"""The measured peaks as tables for a terminal, beside the GPU's data sheet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyprof.benchmark.sweeps import memory_rate
from pyprof.prof.limits.architectures import unit_of
from pyprof.prof.limits.devices import find_device
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.quantities import rounded

if TYPE_CHECKING:
    from rich.table import Table


def print_peaks(peaks: Mapping[str, Any]) -> None:
    """Print the content of a peaks file as tables on standard output."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_title(peaks))
    for table in _tables(peaks):
        console.print(table)
    for name, why in peaks["skipped"].items():
        console.print(f"{name}: not measured: {why}", markup=False)


def _title(peaks: Mapping[str, Any]) -> str:
    sms = f", {peaks['sms']} SMs" if "sms" in peaks else f", {peaks.get('threads', '?')} threads"
    cache = f", last cache {peaks['cache_bytes'] / 2**20:.0f} MiB"
    return f"{peaks['device']} ({peaks['arch']}{hardware_words(sms, [peaks['device']])}{cache}), torch {peaks['torch']}"


def _tables(peaks: Mapping[str, Any]) -> Iterator[Table]:
    sheet = _data_sheet(peaks)
    header: tuple[str, ...] = ("dtype", "unit", "TFLOP/s", "size", "lasting", "data sheet", "%")
    yield _table("Products of square matrices", header, _product_rows(peaks, sheet))
    header = ("op", "best GB/s", "bytes moved", "memory GB/s", "data sheet", "%")
    yield _table("Memory", header, _memory_rows(peaks, sheet))
    rates = peaks["curves"]["elementwise_byte_per_s"]
    ops: Mapping[str, float] = next(iter(rates.values()), {})
    rows = [(op, *(_gb(of_dtype[op]) for of_dtype in rates.values())) for op in ops]
    yield _table("Element-wise ops, GB/s", ("op", *rates), rows)
    if peaks["link_byte_per_s"]:
        links = [(name.replace("_", " "), _gb(rate)) for name, rate in peaks["link_byte_per_s"].items()]
        yield _table("Links", ("from, to", "GB/s"), links)


def _product_rows(peaks: Mapping[str, Any], sheet: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    for dtype, curve in peaks["curves"]["products_flop_per_s"].items():
        size, rate = max(curve, key=lambda point: point[1])
        unit = unit_of(dtype, peaks["arch"])
        lasting = peaks["lasting_flop_per_s"].get(unit)
        lasts = "" if lasting is None else rounded(lasting / 1e12)
        yield dtype, unit, rounded(rate / 1e12), f"{size:.0f}", lasts, *_against(rate, sheet.get(unit), 1e12)


def _memory_rows(peaks: Mapping[str, Any], sheet: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    for name, curve in peaks["curves"]["memory_byte_per_s"].items():
        if not curve:
            continue
        best_bytes, best = max(curve, key=lambda point: point[1])
        rate = memory_rate({name: [(int(n), r) for n, r in curve]}, peaks["cache_bytes"]) or 0.0
        yield name, _gb(best), _size(best_bytes), _gb(rate), *_against(rate, sheet.get("bytes"), 1e9)


def _data_sheet(peaks: Mapping[str, Any]) -> dict[str, float]:
    """This GPU's data sheet peaks by unit and for "bytes"; empty for a CPU or a GPU without a known data sheet."""
    device = find_device(peaks["device"]) if peaks["arch"] != "cpu" else None
    if device is None:
        return {}
    return {**device.flop_per_s, **({} if device.byte_per_s is None else {"bytes": device.byte_per_s})}


def _gb(rate: float) -> str:
    return rounded(rate / 1e9)


def _against(rate: float, sheet: float | None, scale: float) -> tuple[str, str]:
    return ("", "") if sheet is None else (rounded(sheet / scale), f"{100 * rate / sheet:.0f}")


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**20:.0f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.0f} KiB"


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 or name == "unit" else "right")
    for row in rows:
        table.add_row(*row)
    return table
