"""The bound of every piece of advice that is a sum, from the raw file's rows; for ``audit.py``.

What a replay says has no such bound: a change may spare the host more than the idle time next to kernels. Of it, only
the order of its numbers is checked.

A change saves at most the time of the kernels that it concerns and the idle time next to them: the gaps that one of
them ends or begins. The column ``advice`` of pyprof's rows says which rows each rule concerns; their times and the gaps
come from the raw file.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tools.audit_raw import Operation

ROUNDING = 2e-6  # ms: pyprof prints six digits behind the point
WITHOUT_PROFILER = 0.95  # of the time in which the GPU works, at least: a first step that is cut does not count
Check = tuple[str, Any, Any]


class Scope(NamedTuple):
    """The operations that the advice is about, and for how many steps and GPUs its amounts per step are means."""

    operations: list[Operation]
    per: int
    marked: bool


def advice_checks(operations: Sequence[Operation], document: Mapping[str, Any]) -> tuple[int, list[Check]]:
    """How many numbers of the cards were compared, and those that are wrong: (name, what is right, printed)."""
    cards: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for card in document["advice"]:
        if card.get("source", "sum") == "sum":
            cards[card["rule"]].append(card)
    scope = scope_of(operations)
    steps = [step["ns"] for step in document["numbers"]["steps"]]
    found = [check for rule, of_rule in cards.items() for check in _of_rule(rule, of_rule, scope, steps)]
    found += [check for card in document["advice"] if card.get("source") == "replay" for check in _of_replay(card)]
    return len(found), [(name, right, printed) for name, right, printed, holds in found if not holds]


def _of_replay(card: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, bool]]:
    rule, low, saved, high = card["rule"], card["low_ms"], card["saved_ms"], card["high_ms"]
    yield f"{rule}: saved_ms", f"between {low} and {high}", saved, low <= saved <= high
    yield f"{rule}: saved_ms", f"at most {card['step_ms']}", saved, 0 < saved <= card["step_ms"]


def scope_of(operations: Sequence[Operation]) -> Scope:
    """The operations of the marked steps; without marks all of them, as one step."""
    marked = [row for row in operations if row.printed["Step"]]
    chosen = marked or list(operations)
    steps = len({row.printed["Step"] for row in marked}) or 1
    return Scope(chosen, steps * len({row.device for row in chosen}), bool(marked))


def _of_rule(
    rule: str, cards: Sequence[Mapping[str, Any]], scope: Scope, steps: Sequence[int]
) -> Iterator[tuple[str, Any, Any, bool]]:
    """For each number: its name, what is right, what is printed, and whether that holds."""
    rows = [row for row in scope.operations if rule in row.printed["Advice"].split(",")]
    took = sum(row.duration for row in rows) / scope.per / 1e6
    gaps = gaps_around(rows, scope) / scope.per / 1e6
    count = len(rows) / scope.per
    if len(cards) == 1:
        (card,) = cards
        yield f"{rule}: kernels", round(count, 3), card["kernels"], abs(card["kernels"] - count) < 1e-3
        yield f"{rule}: time_ms", round(took, 6), card["time_ms"], abs(card["time_ms"] - took) < ROUNDING
    else:  # several cards of one rule share its rows, or divide them
        together = sum(card["time_ms"] for card in cards)
        yield f"{rule}: time_ms of all", f"at least {took:.6f}", together, together > took - ROUNDING * len(cards)
    for card in cards:
        yield f"{rule}: kernels", f"at most {count:.3f}", card["kernels"], card["kernels"] < count + 1e-3
        yield f"{rule}: time_ms", f"at most {took:.6f}", card["time_ms"], card["time_ms"] < took + ROUNDING
        most = min(card["time_ms"] + gaps, card["step_ms"])
        savings = {key: card[key] for key in card if re.fullmatch(r"saved\w*_ms", key) and card[key] is not None}
        for key, saved in savings.items():
            yield f"{rule}: {key}", f"at most {most:.6f}", saved, saved < most + ROUNDING
        step = step_ms(scope, steps)
        if step is not None:
            # As captured, or as a replay says it is without the profiler, which delays the GPU's work and adds none.
            least = min(WITHOUT_PROFILER * busy_ms(scope), step - ROUNDING)
            right = f"between {least:.6f} and {step:.6f}"
            yield f"{rule}: step_ms", right, card["step_ms"], least <= card["step_ms"] < step + ROUNDING


def busy_ms(scope: Scope) -> float:
    """How long a GPU works per step."""
    busy = 0
    for mine in _devices(scope):
        end = mine[0].start
        for row in mine:
            busy += max(row.end - max(row.start, end), 0)
            end = max(end, row.end)
    return busy / scope.per / 1e6


def step_ms(scope: Scope, steps: Sequence[int]) -> float | None:
    """The mean of the summary's steps; without marked steps, of each GPU's time from its first operation to its last.

    None for marked steps on several GPUs, because the summary shows one time for all of them.
    """
    if scope.marked:
        return sum(steps) / len(steps) / 1e6 if len(_devices(scope)) == 1 else None
    spans = [max(row.end for row in rows) - min(row.start for row in rows) for rows in _devices(scope)]
    return sum(spans) / len(spans) / 1e6


def gaps_around(rows: Sequence[Operation], scope: Scope) -> float:
    """The idle ns of each GPU that one of the rows begins or ends, each gap once.

    The mean gap between two steps counts once more if one of these gaps belongs to the rows: a capture ends with its
    last step, and not with the pause after it, which the next step of the run would end. Advice about what holds up
    every step (a data loader, a copy) needs it: the loop of tests/prof/advice/test_measured.py saves 7.21 ms of each
    step, measured, where the gaps within the capture alone are 4.48.
    """
    chosen, whole = {id(row) for row in rows}, 0.0
    for mine in _devices(scope):
        last, between, counts = mine[0], [], False
        for before, row in pairwise(mine):
            gap = max(row.start - last.end, 0)
            ours = id(row) in chosen or id(last) in chosen
            if row.printed["Step"] != before.printed["Step"]:
                between.append(gap)
                counts |= ours
            whole += gap * ours
            last = row if row.end >= last.end else last
        whole += sum(between) / len(between) if counts else 0.0
    return whole


def _devices(scope: Scope) -> list[list[Operation]]:
    devices: dict[Any, list[Operation]] = defaultdict(list)
    for row in sorted(scope.operations, key=lambda row: row.start):
        devices[row.device].append(row)
    return list(devices.values())
