"""The page's section about a job's ranks: heat maps of who was held up in which step, and of who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyprof.prof.ranks.pace_records import Pace
from pyprof.quantities import ms
from pyprof.table.columns import Floats

MOST = 96  # lines or columns of a heat map; more ranks or steps share one, which shows the longest of them


def ranks_section(pace: Pace | None) -> dict[str, Any] | None:
    """The section; None where the table has one rank, or does not say who waits for whom."""
    if pace is None or not pace.known:
        return None
    held = np.array([[np.nan if ns is None else ns for ns in line] for line in pace.waits.held_ns], float)
    place = {rank: number for number, rank in enumerate(pace.ranks)}
    pairs = np.zeros((len(place), len(place)))
    for pair in pace.pairs:
        pairs[place[pair.rank], place[pair.last]] = pair.held_ns
    steps = ["capture" if step is None else str(step) for step in pace.waits.steps]
    ranks = [str(rank) for rank in pace.ranks]
    unit = "per step" if pace.steps else "in the capture"
    return {
        "maps": [
            _heat_map(
                held, ranks, steps, ("rank", "step"), "Held up, by rank and step", lambda r, s: f"rank {r}, step {s}"
            ),
            _heat_map(
                pairs, ranks, ranks, ("rank", "waits for"), f"Who waits for whom, {unit}", lambda r, s: f"{r} for {s}"
            ),
        ]
    }


def _heat_map(
    values: Floats,
    lines: Sequence[str],
    columns: Sequence[str],
    axes: tuple[str, str],
    title: str,
    name: Callable[[str, str], str],
) -> dict[str, Any]:
    """Cells with their share of the longest time, in lines and columns of which each may stand for several."""
    low, left = _bins(len(lines)), _bins(len(columns))
    longest = float(np.nanmax(values, initial=0.0))
    rows = []
    for at, until in zip(low, [*low[1:], len(lines)], strict=True):
        line = _span(lines[at:until])
        cells = []
        for from_, to in zip(left, [*left[1:], len(columns)], strict=True):
            found = values[at:until, from_:to]
            ns = None if np.isnan(found).all() else float(np.nanmax(found))
            text = f"{name(line, _span(columns[from_:to]))}: {'not known' if ns is None else ms(ns)}"
            cells.append({"share": 0.0 if not ns or not longest else round(ns / longest, 3), "text": text})
        rows.append({"name": line, "cells": cells})
    head = [_span(columns[from_:to]) for from_, to in zip(left, [*left[1:], len(columns)], strict=True)]
    return {"title": title, "axes": axes, "head": _sparse(head), "rows": rows, "longest": ms(longest)}


def _bins(count: int) -> list[int]:
    return list(range(0, count, -(-count // MOST) or 1))


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _sparse(names: Sequence[str]) -> list[str]:
    """At most about 12 of the names, the others empty, so that they can be read."""
    every = -(-len(names) // 12)
    return [name if number % every == 0 else "" for number, name in enumerate(names)]
