"""Measurements and replayed calls as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyprof.benchmark.bench_document import Replays, Totals
from pyprof.benchmark.bench_result import Bench, Measured, time_text
from pyprof.benchmark.replay_calls import ReplayedCall, arguments_text
from pyprof.quantities import amount, counted
from pyprof.text import printable

WIDTH = 160  # of a table that is not printed on a terminal
GAP = 2  # characters between columns
SHORT = {"fprop": "fwd", "bprop": "bwd", "": ""}


def print_sweep(found: Sequence[tuple[Mapping[str, Any], Bench]]) -> None:
    """Print one line per point and direction."""
    from rich.table import Table

    names = list(found[0][0])
    table = Table(box=None, pad_edge=False)
    both = any(bench.backward for _, bench in found)
    warm = any(bench.forward.warm for _, bench in found)
    columns = [*names, *(["direction"] if both else []), "median", "quartiles", *(["warm"] if warm else [])]
    for column in (*columns, "FLOP/s", "B/s", "% of limit", "bound", "copies"):
        table.add_column(column, justify="left" if column in ("direction", "bound") else "right", no_wrap=True)
    for point, bench in found:
        for direction, measured in bench.directions().items():
            cells = [*(str(value) for value in point.values()), *([direction] if both else [])]
            table.add_row(*cells, *_measured(measured, warm), f"{bench.copies:,}{'' if bench.cold else ' warm'}")
    _console().print(table)


def _measured(measured: Measured, warm: bool) -> Iterator[str]:
    timing = measured.timing
    yield time_text(timing.seconds)
    yield f"{time_text(timing.low_s)} – {time_text(timing.high_s)}"
    if warm:
        yield time_text(measured.warm.seconds) if measured.warm else ""
    yield amount(measured.flop_per_s) if measured.flop_per_s else ""
    yield amount(measured.byte_per_s) if measured.byte_per_s else ""
    yield f"{measured.share:.3g}" if measured.share is not None else ""
    yield measured.bound


def print_replays(rows: Sequence[ReplayedCall], document: Replays) -> None:
    """Print one line per call, and the totals."""
    from rich.table import Table
    from rich.text import Text

    console, names = _console(), ("op", "", "calls", "capture", "alone", "warm", "ratio", "kernels", "arguments")
    cells = [[printable(cell) for cell in _replayed(row)] for row in rows]
    table = Table(box=None, pad_edge=False)
    left = console.width
    for name, *column in zip(names, *cells, strict=True):
        width = max(map(len, (name, *column)))
        is_text = name in ("op", "", "kernels", "arguments")
        most = max(left, 12) if name == "arguments" else None  # what the other columns leave
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True, max_width=most)
        left -= width + GAP
    for line in cells:
        table.add_row(*map(Text, line))  # not strings, in which rich reads [...] as markup
    console.print(table)
    for row in rows:
        if row.why:
            console.print(printable(f"{row.call.op}: not made again: {row.why}"), markup=False)
    shown = f"{100 * document.shown_s / document.total_s:.3g}%" if document.total_s else "0%"
    console.print(f"These are {shown} of {time_text(document.total_s)} in the capture.", markup=False)
    of_products = document.products if document.products != document.all else None
    for name, totals in (("distinct call", document.all), ("distinct matrix product", of_products)):
        if totals is not None and totals.calls:
            console.print(_sum(name, totals), markup=False)


def _sum(name: str, totals: Totals) -> str:
    share = f" ({100 * totals.alone_s / totals.capture_s - 100:+.1f}%)" if totals.capture_s else ""
    return (
        f"{counted(totals.calls, name)} took {time_text(totals.capture_s)} in the capture, "
        f"{time_text(totals.alone_s)} alone{share}, {time_text(totals.warm_s)} with inputs in the cache."
    )


def _replayed(row: ReplayedCall) -> Iterator[str]:
    yield row.call.op.removeprefix("aten::").removeprefix("torch.nn.functional.")[:40]
    yield SHORT.get(row.call.direction, "")
    yield f"{row.call.calls:,}"
    yield time_text(row.capture_s)
    yield time_text(row.timing.seconds) if row.timing else "–"
    yield time_text(row.warm.seconds) if row.warm else "–"
    yield f"{row.ratio:.2f}" if row.ratio is not None else "–"
    yield {True: "same", False: "others", None: ""}[row.same_kernels]
    yield arguments_text(row.call)


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)
