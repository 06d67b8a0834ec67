"""The bounds of the list of changes, from the raw file's rows; for ``audit.py``.

Without a replay, a change removes at most the time of the kernels that it concerns; on a CPU, whose ops take the step's
time, also the idle time next to them: the gaps that one of them ends or begins. The column ``advice`` of pyprof's rows
says which rows each rule concerns; their times and the gaps come from the raw file.

What a replay says has no such bound, because a change may spare the host more than the idle time next to kernels. Of it
the sums are checked: each saving is the difference of two steps' times, within its interval.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tools.audit_raw import Operation

ROUNDING = 2e-6  # ms: pyprof prints six digits behind the point
Check = tuple[str, Any, Any]
Judged = tuple[str, Any, Any, bool]  # the number's name, what is right, what is printed, and whether that holds


class Scope(NamedTuple):
    """The operations that the changes are about, and for how many steps and GPUs their amounts per step are means."""

    operations: list[Operation]
    per: int
    marked: bool


def advice_checks(operations: Sequence[Operation], document: Mapping[str, Any]) -> tuple[int, list[Check]]:
    """How many numbers of the list were compared, and those that are wrong: (name, what is right, printed)."""
    found = document["changes"]
    judged = [*_of_work(found, scope_of(operations))] if found["now"] is None else [*_of_replay(found)]
    judged += [_within_kernels(change) for change in found["changes"] if not found["on_cpu"]]
    return len(judged), [(name, right, printed) for name, right, printed, holds in judged if not holds]


def _within_kernels(change: Mapping[str, Any]) -> Judged:
    """The work of a change's kernels is all that it can remove."""
    removed, took = change["gpu_ms"], change["time_ms"]
    return f"{change['rule']}: gpu_ms", f"at most {took}", removed, removed < took + ROUNDING


def _of_replay(found: Mapping[str, Any]) -> Iterator[Judged]:
    before = found["now"]["ms"]
    for change in found["changes"]:
        rule, saved, step = change["rule"], change["saved_ms"], change["step"]
        right = before - step["ms"]
        yield f"{rule}: saved_ms", round(right, 6), saved, abs(saved - right) < ROUNDING
        yield f"{rule}: low_ms", f"at most {saved}", change["low_ms"], change["low_ms"] <= saved
        yield f"{rule}: high_ms", f"at least {saved}", change["high_ms"], saved <= change["high_ms"]
        yield f"{rule}: step", "not negative", step["low_ms"], 0 <= step["low_ms"] <= step["ms"] <= step["high_ms"]
        before = step["ms"]


def _of_work(found: Mapping[str, Any], scope: Scope) -> Iterator[Judged]:
    changes: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for change in found["changes"]:
        changes[change["rule"]].append(change)
    for rule, of_rule in changes.items():
        yield from _of_rule(rule, of_rule, scope, bool(found["on_cpu"]))


def scope_of(operations: Sequence[Operation]) -> Scope:
    """The operations of the marked steps; without marks all of them, as one step."""
    marked = [row for row in operations if row.printed["Step"]]
    chosen = marked or list(operations)
    steps = len({row.printed["Step"] for row in marked}) or 1
    return Scope(chosen, steps * len({row.device for row in chosen}), bool(marked))


def _of_rule(rule: str, changes: Sequence[Mapping[str, Any]], scope: Scope, on_cpu: bool) -> Iterator[Judged]:
    rows = [row for row in scope.operations if rule in row.printed["Advice"].split(",")]
    took = sum(row.duration for row in rows) / scope.per / 1e6
    gaps = gaps_around(rows, scope) / scope.per / 1e6 if on_cpu else 0.0
    count = len(rows) / scope.per
    if len(changes) == 1:
        (change,) = changes
        yield f"{rule}: kernels", round(count, 3), change["kernels"], abs(change["kernels"] - count) < 1e-3
        yield f"{rule}: time_ms", round(took, 6), change["time_ms"], abs(change["time_ms"] - took) < ROUNDING
    else:  # several changes of one rule share its rows, or divide them
        together = sum(change["time_ms"] for change in changes)
        yield f"{rule}: time_ms of all", f"at least {took:.6f}", together, together > took - ROUNDING * len(changes)
    for change in changes:
        yield f"{rule}: kernels", f"at most {count:.3f}", change["kernels"], change["kernels"] < count + 1e-3
        yield f"{rule}: time_ms", f"at most {took:.6f}", change["time_ms"], change["time_ms"] < took + ROUNDING
        most, removed = change["time_ms"] + gaps, change["gpu_ms"]
        yield f"{rule}: gpu_ms", f"at most {most:.6f}", removed, removed < most + ROUNDING
        saved = removed if on_cpu else None
        yield f"{rule}: saved_ms", saved, change["saved_ms"], change["saved_ms"] == saved


def gaps_around(rows: Sequence[Operation], scope: Scope) -> float:
    """The idle ns of each GPU that one of the rows begins or ends, each gap once.

    The mean gap between two steps counts once more if one of these gaps belongs to the rows: a capture ends with its
    last step, and not with the pause after it, which the next step of the run would end.
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
