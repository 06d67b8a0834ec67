"""The report as text: the table of kernels, the sums by kind and by phase, and the sentences, in a given width."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.command.terminal_text import WIDEST, cut_to, safe, shown_width
from pyprof.prof.ncu.report_rows import Kernels, Sums
from pyprof.table.columns import Floats
from pyprof.table.kernel_names import narrow_name

NARROWEST = 16  # characters of a kernel's name
Prefixes = Sequence[tuple[float, str]]
DECIMAL: Prefixes = ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
BINARY: Prefixes = ((1, ""), (2**10, "Ki"), (2**20, "Mi"), (2**30, "Gi"), (2**40, "Ti"))
SECONDS: Prefixes = ((1e-6, "µ"), (1e-3, "m"), (1, ""))
SHORT_PASS = {"forward": "fwd", "backward": "bwd", "optimizer": "opt", "other": "-", "": "-"}


class Column(NamedTuple):
    """A column. Where the lines are too narrow for all, those with the highest ``rank`` are left out first."""

    above: str  # the first line of the head, which several columns may share
    name: str
    cells: Sequence[str]
    rank: int = 0  # 0: never left out
    right: bool = True
    bends: bool = False  # whether its texts may be cut

    @property
    def width(self) -> int:
        return max(map(shown_width, (self.name, *self.cells)), default=0)


def kernel_table(found: Kernels, rows: Sequence[int], width: int) -> Iterator[str]:
    """The lines of the table of kernels."""

    def texts(values: Sequence[str]) -> list[str]:
        return [safe(values[row]) or "-" for row in rows]

    def numbers(values: Floats) -> list[float]:
        return [float(values[row]) for row in rows]

    phases = texts(found.phases) if any(found.phases[row] for row in rows) else []
    counts = [f"{found.counts[row]}x" for row in rows] if (found.counts > 1).any() else []
    time = scaled(numbers(found.time_ns / 1e9), SECONDS)
    columns = [
        Column("", "#", [str(found.ids[row]) for row in rows]),
        Column("", "pass", [SHORT_PASS[found.passes[row]] for row in rows], right=False) if phases else None,
        Column("", "phase", phases, 2, right=False) if phases else None,
        Column("", "n", counts) if counts else None,
        Column("", f"time {time.prefix}s", time.cells),
        *_amounts({key: numbers(values) for key, values in found.amounts.items()}, DECIMAL),
        *_percents("tensor", "%", numbers(found.tensor_pct)),
        Column("", "kind", texts(found.kinds), right=False, bends=True),
        Column("", "kernel", texts([narrow_name(name) for name in found.names]), 1, right=False, bends=True),
        Column("", "op", texts(found.ops), 3, right=False, bends=True) if any(found.ops) else None,
        Column("", "layer", texts(found.layers), 4, right=False, bends=True) if any(found.layers) else None,
    ]
    yield from lines([column for column in columns if column is not None], width)


def sum_table(title: str, groups: Sequence[Sums], whole: Sums, width: int) -> Iterator[str]:
    """The lines of a table of sums, with the total below."""
    rows = [*groups, whole]
    time = scaled([each.time_ns / 1e9 for each in rows], SECONDS)
    columns = [
        Column("", title, [safe(each.name) or "-" for each in rows], right=False, bends=True),
        Column("", "kernels", [f"{each.kernels:,}" for each in rows]),
        Column("", f"time {time.prefix}s", time.cells),
        Column("", "%", [percent(100 * each.time_ns / whole.time_ns) for each in rows]),
        *_amounts({key: [each.amounts[key] for each in rows] for key in whole.amounts}, BINARY, rank_of_l2=2),
        *_rates(rows),
        *_percents("tensor", "%", [each.tensor_pct for each in rows], 1),
        *_percents("effi-", "ciency", [each.efficiency_pct for each in rows]),
    ]
    yield from lines(columns, width)


def _amounts(values: Mapping[str, Sequence[float]], prefixes: Prefixes, rank_of_l2: int = 0) -> Iterator[Column]:
    """Columns of bytes and instructions; none for an amount that is unknown of all."""
    for place, above, rank in (("dram", "DRAM", 0), ("l2", "L2", rank_of_l2)):
        of_place = {key: column for key, column in values.items() if key.startswith(place)}
        unit = fitting([value for column in of_place.values() for value in column], prefixes)
        for key, column in of_place.items():
            if not all(map(math.isnan, column)):
                cells = [_number(value / unit.size, unit.digits) for value in column]
                yield Column(f"{above} {unit.prefix}B", "read" if "read" in key else "write", cells, rank)
    if not all(map(math.isnan, values["instructions"])):
        instructions = scaled(values["instructions"], DECIMAL)
        yield Column("inst", instructions.prefix or "1", instructions.cells)


def _percents(above: str, name: str, values: Sequence[float], rank: int = 0) -> Iterator[Column]:
    if not all(map(math.isnan, values)):
        yield Column(above, name, [percent(value) for value in values], rank)


def _rates(rows: Sequence[Sums]) -> Iterator[Column]:
    for key, name in (("dram_read_bytes", "read"), ("dram_write_bytes", "write")):
        column = [each.rates[key] for each in rows]
        if not all(map(math.isnan, column)):
            yield Column("DRAM GB/s", name, [_number(value / 1e9, 0) for value in column])


# Numbers


class Unit(NamedTuple):
    """A multiple of a unit, and how many digits behind the point are shown in it."""

    size: float
    prefix: str
    digits: int


class Scaled(NamedTuple):
    prefix: str
    cells: list[str]


def scaled(values: Sequence[float], prefixes: Prefixes) -> Scaled:
    """Numbers in one unit, in which the greatest has at most four digits before the point.

    >>> scaled([3.3434e-3, 1.7e-6, float("nan")], SECONDS), scaled([5e8, 4.0, 0.0], DECIMAL)
    (Scaled(prefix='µ', cells=['3343.4', '1.7', '-']), Scaled(prefix='M', cells=['500.0', '<0.1', '0']))
    """
    unit = fitting(values, prefixes)
    return Scaled(unit.prefix, [_number(value / unit.size, unit.digits) for value in values])


def fitting(values: Sequence[float], prefixes: Prefixes) -> Unit:
    greatest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    size, prefix = next(((size, prefix) for size, prefix in prefixes if greatest < 1e4 * size), prefixes[-1])
    return Unit(size, prefix, 1 if greatest >= 100 * size else 2)


def _number(value: float, digits: int) -> str:
    """Only exactly 0 is shown as 0."""
    if math.isnan(value):
        return "-"
    least = 10.0**-digits
    if 0 < value < least / 2:
        return f"<{least:.{digits}f}"
    return f"{value:.{digits}f}" if value else "0"


def percent(value: float) -> str:
    return _number(value, 1)


# Lines


def lines(columns: Sequence[Column], width: int) -> Iterator[str]:
    """The head and the rows, in at most ``width`` characters unless the columns of rank 0 need more."""
    blank = "  " if len(_that_fit(columns, width, 2)) == len(columns) else " "
    shown = _that_fit(columns, width, len(blank))
    sizes = _fitted(shown, width - len(blank) * (len(shown) - 1))
    yield _above(shown, sizes, blank)
    yield blank.join(map(_padded, (column.name for column in shown), sizes, shown)).rstrip()
    for row in range(len(shown[0].cells)):
        cells = (
            cut_to(column.cells[row], size, "middle") if column.bends else column.cells[row]
            for column, size in zip(shown, sizes, strict=True)
        )
        yield blank.join(map(_padded, cells, sizes, shown)).rstrip()


def _that_fit(columns: Sequence[Column], width: int, blank: int) -> list[Column]:
    shown = list(columns)
    while sum(least + blank for _, least in _needs(shown)) - blank > width:
        last = max(column.rank for column in shown)
        if not last:
            break
        shown = [column for column in shown if column.rank < last]
    return shown


def _fitted(columns: Sequence[Column], room: int) -> list[int]:
    """The columns' widths; the widest text is cut until all fit, or no text may be cut further."""
    needs = _needs(columns)
    sizes = [size for size, _ in needs]
    while sum(sizes) > room:
        able = [at for at, (_, least) in enumerate(needs) if sizes[at] > least]
        if not able:
            break
        sizes[max(able, key=lambda at: sizes[at])] -= 1
    return sizes


def _needs(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """Each column's width and its least one. A column that is alone below a name of the first line has room for it."""
    above = [column.above for column in columns]
    sizes = [max(c.width, len(c.above) if above.count(c.above) == 1 else 0) for c in columns]
    return [(size, min(size, NARROWEST) if c.bends else size) for size, c in zip(sizes, columns, strict=True)]


def _above(columns: Sequence[Column], sizes: Sequence[int], blank: str) -> str:
    """The first line of the head: a name over neighbours that share it, ending where they end."""
    line, at = "", 0
    for index, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        at += size
        following = columns[index + 1].above if index + 1 < len(columns) else ""
        if column.above and column.above != following:
            line = line.ljust(at - len(column.above)) + column.above
        at += len(blank)
    return line.rstrip()


def _padded(text: str, size: int, column: Column) -> str:
    pad = " " * (size - shown_width(text))
    return pad + text if column.right else text + pad


def paragraphs(said: Sequence[str], width: int, mark: str = "") -> Iterator[str]:
    """Sentences, each in lines of at most ``width`` characters. ``mark``: a beginning of each, such as "* "."""
    for sentence in said:
        yield from textwrap.wrap(
            safe(sentence),
            min(width, WIDEST),
            initial_indent=mark,
            subsequent_indent=" " * len(mark),
            break_on_hyphens=False,
        )


SORT_BY: dict[str, Callable[[Kernels], Floats]] = {
    "time": lambda found: found.time_ns * found.counts,
    "dram": lambda found: found.amounts["dram_read_bytes"] + found.amounts["dram_write_bytes"],
    "l2": lambda found: found.amounts["l2_read_bytes"] + found.amounts["l2_write_bytes"],
    "tensor": lambda found: found.tensor_pct,
    "instructions": lambda found: found.amounts["instructions"],
    "efficiency": lambda found: found.efficiency_pct,
}


def order(found: Kernels, by: str | None, top: int | None) -> list[int]:
    """The rows to show: in the order of the report, or the greatest first; unknown ones last."""
    rows = list(range(len(found)))
    if by is not None:
        values = np.nan_to_num(SORT_BY[by](found), nan=-math.inf)
        rows.sort(key=lambda row: -values[row])
    return rows[:top]
