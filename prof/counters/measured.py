"""What the hardware did for each row of a kernel table, beside what its algorithm needs.

    dram / bytes      measured / algorithmic bytes: above 1 the kernel moves more than it must, below 1 its inputs were
                      in the L2 cache, or its outputs stayed there
    exec_flops / flops   executed / algorithmic FLOPs: tiles that reach over an edge, work that is done twice

Counts are those of one launch in Nsight Compute's run, which empties the caches before each kernel unless it is told
not to. Unknown is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pyprof.parse.ncu.quantities import executed_flops, quantity
from pyprof.parse.ncu.reader import read
from pyprof.parse.ncu.stalls import stall_shares, top_texts
from pyprof.prof.counters.join import Join, Unmatched, join
from pyprof.prof.counters.sequence_alignment import KEY, ORDER
from pyprof.quantities import share
from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints, Table

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof.prof.work.annotate import Annotation

# Column of the table: quantity of pyprof.parse.ncu.quantities.
AMOUNTS = {"dram_rd": "dram_read_bytes", "dram_wr": "dram_write_bytes", "dram": "dram_bytes",
           "l2_rd": "l2_read_bytes", "l2_wr": "l2_write_bytes", "inst": "instructions"}  # fmt: skip
SHARES = {"tensor_pct": "tensor_pct", "dram_pct": "dram_pct", "occ_achieved": "occ_achieved_pct"}
REGISTERS = "regs"
EXECUTED = "exec_flops"
NAMED = 5  # unmatched kernels of each side that the notes name


@dataclass(frozen=True, slots=True)
class ReportFile:
    """What was joined of one report."""

    file: str
    launches: int
    failed: int  # launches whose measurement failed
    unmatched: tuple[Unmatched, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of each row. ``values`` and ``stalls`` are NaN where unknown; ``certainty`` is empty there."""

    values: Mapping[str, Floats]  # by column: AMOUNTS, SHARES, REGISTERS, EXECUTED
    stalls: Mapping[str, Floats]  # by reason: its share of the warps' time, in percent
    certainty: Coded  # "key", "order" or empty
    reason: Coded  # of kernels without counters
    reports: tuple[ReportFile, ...]

    def take(self, rows: Any) -> Counters:
        """The counters of some rows."""
        return replace(
            self,
            values={name: values[rows] for name, values in self.values.items()},
            stalls={name: values[rows] for name, values in self.stalls.items()},
            certainty=self.certainty.take(rows),
            reason=self.reason.take(rows),
        )

    @property
    def matched(self) -> Bools:
        """The rows that a report has."""
        found: Bools = self.certainty.codes >= 0
        return found

    def whole(self, name: str) -> Ints:
        """A column of counts as integers, NULL where unknown."""
        values = self.values[name]
        known = np.isfinite(values)
        return np.where(known, np.rint(np.where(known, values, 0)), NULL).astype(np.int64)

    def column(self, name: str, annotation: Annotation) -> Coded | Floats:
        """A column of prof.py that is no plain count: ratios and texts."""
        if name == "matched":
            return self.certainty
        if name == "unmatched":
            return self.reason
        if name == "stalls":
            return self.stall_texts()
        return self.bytes_ratio(annotation) if name == "bytes_ratio" else self.flops_ratio(annotation)

    def stall_texts(self) -> Coded:
        """Each row's longest stalls: "long_scoreboard 45%, wait 20%"."""
        return Coded.of(top_texts(self.stalls, len(self.certainty)))

    def bytes_ratio(self, annotation: Annotation) -> Floats:
        """Measured DRAM bytes / the algorithm's; NaN where either is unknown or the algorithm needs none."""
        return self.values["dram"] / _positive(annotation.bytes)

    def flops_ratio(self, annotation: Annotation) -> Floats:
        """Executed FLOPs / the algorithm's; NaN where either is unknown or the algorithm needs none."""
        return self.values[EXECUTED] / _positive(annotation.flops)


def _positive(amount: Ints) -> Floats:
    """Amounts as floats, NaN for unknown ones and zero."""
    return np.where((amount != NULL) & (amount > 0), amount, np.nan).astype(np.float64)


def read_counters(files: Sequence[Path], table: Table) -> Counters:
    """Read reports and join each to the table; of several the first one's known values count.

    Raises InputError as ``pyprof.parse.ncu.reader.read`` does.
    """
    return counters_of([join(read(file), table) for file in files])


def counters_of(joins: Sequence[Join]) -> Counters:
    """The counters of each row from reports that have been joined to one table."""
    found = [_of_one(each) for each in joins]
    merged = found[0]
    for other in found[1:]:
        merged = _first_known(merged, other)
    return merged


def _of_one(joined: Join) -> Counters:
    report = joined.report
    values = {name: quantity(report, key) for name, key in (AMOUNTS | SHARES | {REGISTERS: "registers"}).items()}
    values[EXECUTED] = executed_flops(report)
    file = ReportFile(
        report.file,
        len(report),
        int(np.count_nonzero(report.failed)),
        joined.unmatched,
    )
    return Counters(
        values={name: _of_rows(column, joined) for name, column in values.items()},
        stalls={name: _of_rows(column, joined) for name, column in stall_shares(report).items()},
        certainty=joined.certainty,
        reason=joined.reason,
        reports=(file,),
    )


def _of_rows(column: Floats, joined: Join) -> Floats:
    """A metric of the launches as a column of the table: of each row the first of its launches that has it."""
    found = np.full(len(joined.launches[0]), np.nan)
    for launches in joined.launches:
        wanted = np.isnan(found) & (launches >= 0)
        found[wanted] = column[launches[wanted]]
    return found


def _first_known(one: Counters, other: Counters) -> Counters:
    def both(mine: Mapping[str, Floats], others: Mapping[str, Floats]) -> dict[str, Floats]:
        nowhere = np.full(len(one.certainty), np.nan)
        names = dict.fromkeys((*mine, *others))
        pairs = ((name, mine.get(name, nowhere), others.get(name, nowhere)) for name in names)
        return {name: np.where(np.isnan(first), second, first) for name, first, second in pairs}

    certainty = [a or b for a, b in zip(one.certainty.texts(), other.certainty.texts(), strict=True)]
    reasons = [a and b and a for a, b in zip(one.reason.texts(), other.reason.texts(), strict=True)]
    return Counters(
        both(one.values, other.values),
        both(one.stalls, other.stalls),
        Coded.of(certainty),
        Coded.of(reasons),
        (*one.reports, *other.reports),
    )


# ----- in words -----


def notes(counters: Counters, table: Table) -> list[str]:
    """What was matched, and what was not and why: lines for standard error and assumptions for JSON."""
    kernels = table.coded("kind").among("kernel")
    duration = table.ints("kDuration")
    matched = counters.matched
    by = {how: int(np.count_nonzero(counters.certainty.among(how))) for how in (KEY, ORDER)}
    hows = " and ".join(f"{count:,} by {how}" for how, count in by.items() if count)
    files = ", ".join(f"{each.file} ({each.launches:,} launches)" for each in counters.reports)
    of_time = share(int(duration[matched].sum()), int(duration.sum()))
    said = (
        f"{np.count_nonzero(matched):,} of {np.count_nonzero(kernels):,} kernels matched{f' ({hows})' if hows else ''}"
    )
    nothing = "" if matched.any() else " (is the report one of this program?)"
    lines = [f"ncu: {files}: {said}, {of_time} of the time{nothing}"]
    for each in counters.reports:
        if each.failed:
            launches = f"{each.failed:,} {'launch has' if each.failed == 1 else 'launches have'}"
            lines.append(f"ncu: {each.file}: {launches} no values, because the replay failed")
        for in_report, where in ((True, f"only in {each.file}"), (False, "only in the capture")):
            some = [one for one in each.unmatched if one.in_report == in_report]
            lines += [f"ncu: {where}: {one.count:,} × {one.name}: {one.reason}" for one in some[:NAMED]]
            more = sum(one.count for one in some[NAMED:])
            lines += [f"ncu: {where}: {more:,} more kernels"] if more else []
    return lines
