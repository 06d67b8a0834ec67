"""The tables of a device's memory as texts: by step, category, layer, line, and what checkpointing would change."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pyprof.prof.memory.checkpointing import AddedTime
from pyprof.prof.memory.memory_numbers import DeviceMemory
from pyprof.prof.memory.peak_content import LayerShare, Share
from pyprof.prof.summary.tables import SummaryTable
from pyprof.prof.summary.wording import amount
from pyprof.quantities import ms, share

T = TypeVar("T")
TOP = 10  # rows per table


def memory_tables(device: DeviceMemory, top: int = TOP) -> list[SummaryTable]:
    """The tables that are not empty, with at most ``top`` rows each."""
    return [
        *_steps(device, top),
        *_categories(device),
        *_layers(device, top),
        *_lines(device, top),
        *_saved(device, top),
        *_checkpointing(device, top),
    ]


def _steps(device: DeviceMemory, top: int) -> Iterator[SummaryTable]:
    if len(device.steps) < 2:
        return
    shown = sorted(device.steps, key=lambda each: -each.peak_bytes)[:top] if len(device.steps) > top else device.steps
    title = "Peak of each step" + _of(len(shown), len(device.steps), "highest")
    if all(each.reserved_bytes is None for each in shown):
        few = tuple((f"step {each.step}", size(each.peak_bytes)) for each in shown)
        yield SummaryTable("memory-steps", title, ("", _word(device)), few)
        return
    rows = tuple((f"step {each.step}", size(each.peak_bytes), _known(each.reserved_bytes, size)) for each in shown)
    yield SummaryTable("memory-steps", title, ("", _word(device), "reserved"), rows)


def _word(device: DeviceMemory) -> str:
    """What the total counts: blocks in use, or what the driver has given."""
    return "allocated" if device.level == "driver" else "in use"


def _categories(device: DeviceMemory) -> Iterator[SummaryTable]:
    if device.level == "driver" or not device.content.categories:
        return
    what = "In use at the peak" if device.exact else "Allocated since the capture began and in use at the peak"
    title = f"{what}, {size(_at_peak(device))}, by category"
    yield _shares("memory-categories", title, device.content.categories, _at_peak(device))


def _at_peak(device: DeviceMemory) -> int:
    """What the shares at the peak are shares of: without recorded totals, the blocks that the capture allocated.

    Freeing blocks that were there before makes the growth smaller than the sum of these.
    """
    return device.peak_bytes if device.exact else sum(each.nbytes for each in device.content.categories)


def _shares(key: str, title: str, shares: Sequence[Share], whole: int, unknown: str = "") -> SummaryTable:
    rows = tuple(
        (each.name or unknown, size(each.nbytes), share(each.nbytes, whole), _known(each.blocks, "{:,}".format))
        for each in shares
    )
    longest = max((each.nbytes for each in shares), default=0)
    bars = tuple(max(each.nbytes, 0) / longest for each in shares) if longest > 0 else ()
    return SummaryTable(key, title, ("", "bytes", "", "blocks"), rows, bars)


def _layers(device: DeviceMemory, top: int) -> Iterator[SummaryTable]:
    if any(each.name for each in device.content.layers):
        title = f"{_word(device).capitalize()} at the peak, by layer" + _of(top, len(device.content.layers), "largest")
        yield _by_layer("memory-layers", title, device.content.layers[:top], _at_peak(device))


def _by_layer(key: str, title: str, shares: Sequence[LayerShare], whole: int) -> SummaryTable:
    rows = tuple(
        (
            each.name or "(no layer)",
            str(each.layers or ""),
            size(each.nbytes),
            share(each.nbytes, whole),
            max(each.categories, key=lambda name: each.categories[name], default=""),
        )
        for each in shares
    )
    return SummaryTable(key, title, ("", "layers", "bytes", "", "most of it"), rows)


def _lines(device: DeviceMemory, top: int) -> Iterator[SummaryTable]:
    if any(each.name for each in device.content.lines):
        what = f"{_word(device).capitalize()} at the peak, by the line that allocated it"
        title = what + _of(top, len(device.content.lines), "largest")
        shares = device.content.lines[:top]
        yield _shares("memory-lines", title, shares, _at_peak(device), "(no line)")


def _saved(device: DeviceMemory, top: int) -> Iterator[SummaryTable]:
    if not device.saved:
        return
    whole = sum(each.nbytes for each in device.saved)
    title = f"Activations saved for the backward pass, {size(whole)}" + _of(top, len(device.saved), "largest")
    rows = tuple(
        (each.name or "(no layer)", str(each.layers or ""), size(each.nbytes), share(each.nbytes, whole))
        for each in device.saved[:top]
    )
    yield SummaryTable("memory-saved", title, ("", "layers", "bytes", ""), rows)


def _checkpointing(device: DeviceMemory, top: int) -> Iterator[SummaryTable]:
    if not device.checkpointing:
        return
    head: tuple[str, ...] = ("", "layers", "frees", "peak", "repeats")
    rows: tuple[tuple[str, ...], ...] = tuple(
        (each.layers, str(len(each.names)), size(each.freed_bytes), size(each.new_peak_bytes), _known(each.cost_ns, ms))
        for each in device.checkpointing[:top]
    )
    if any(each.added is not None for each in device.checkpointing):
        head = (*head, "step longer by")
        rows = tuple((*row, _known(each.added, _added)) for row, each in zip(rows, device.checkpointing, strict=False))
    title = "With activation checkpointing of these layers" + _of(top, len(device.checkpointing), "most effective")
    yield SummaryTable("memory-checkpointing", title, head, rows)


def _known(value: T | None, shown: Callable[[T], str]) -> str:
    return "unknown" if value is None else shown(value)


def _added(time: AddedTime) -> str:
    return f"{ms(time.ns)} ({time.low_ns / 1e6:.3g} – {time.high_ns / 1e6:.3g})"


def size(nbytes: int) -> str:
    """Bytes as text, with a minus sign where more were freed than allocated.

    >>> size(6907360256)
    '6.907 GB'
    """
    return amount(nbytes, "B")


def _of(shown: int, there: int, which: str) -> str:
    return f", the {shown} {which} of {there}" if shown < there else ""
