"""Why warps waited: the stall reasons of each launch, by their share of the warps' time.

Three forms are known: warps per issued instruction (the section Warp State Statistics), percent of the active warps,
and samples of the program counter. All are shares of the same whole: the time of the resident warps.
"""

import re
from collections.abc import Mapping

import numpy as np

from pyprof.parse.ncu.report import Floats, Report

FORMS = tuple(map(re.compile, (
    r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio",
    r"smsp__average_warp_latency_issue_stalled_(\w+)\.ratio",
    r"smsp__warp_issue_stalled_(\w+)_per_warp_active\.pct",
    r"smsp__warp_issue_stalled_(\w+)\.avg\.pct_of_peak_sustained_active",
    r"smsp__pcsamp_warps_issue_stalled_(\w+?)(?<!_not_issued)(?:\.sum)?",
)))  # fmt: skip
NO_STALL = frozenset(("selected",))  # the warp issued its instruction
MOST, NAMED = 3, 5  # reasons that a text has at most, and the smallest share that it names, in percent
SPELLING = {"no_instructions": "no_instruction", "dispatch": "dispatch_stall"}


def stall_shares(report: Report) -> dict[str, Floats]:
    """The share of the warps' time (0 to 100) that each reason took, for each launch; NaN where it is unknown.

    The reasons have ncu's names: ``long_scoreboard`` waits for data from L2 or DRAM, ``wait`` for a fixed latency.
    ``selected`` is no stall and is left out, though it is part of the whole. Empty if none were collected.
    """
    for form in FORMS:
        found = {match[1]: values for name, values in report.metrics.items() if (match := form.fullmatch(name))}
        if len(found) > 1:
            return _shares(found)
    return {}


def _shares(found: dict[str, Floats]) -> dict[str, Floats]:
    columns = list(found.values())
    whole = np.nansum(columns, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {SPELLING.get(name, name): 100 * values / whole for name, values in found.items()}
    return {
        name: np.where(np.isfinite(values), values, np.nan) for name, values in shares.items() if name not in NO_STALL
    }


def top_texts(shares: Mapping[str, Floats], rows: int) -> list[str]:
    """Shares by reason (``stall_shares``) as a text for each row, "long_scoreboard 45%, wait 20%"; empty if unknown."""
    texts = []
    for row in range(rows):
        ordered = sorted((-float(values[row]), name) for name, values in shares.items() if values[row] >= NAMED)
        texts.append(", ".join(f"{name} {-share:.0f}%" for share, name in ordered[:MOST]))
    return texts
