"""What a second capture's kernels say of changes: the GPU's time at the places that each change concerns.

Places are layers, or ops where that does not lead to the same places in both captures, or else whole phases. Where
several changes concern a place, what is found there is said of the one that was to save most in it. A change is not
measured if its places are not in the second capture, or if it has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import Texts
from pyprof.table.columns import Floats


class Concerned(NamedTuple):
    """A change and the run that it was proposed for."""

    run: Run
    edit: Edit


Names = Callable[[Run], Texts]


def _by_layer(run: Run) -> Texts:
    names: Texts = np.where(run.texts("layer") == "", "", run.texts("layer") + "\n" + run.phase)
    return names


def _by_op(run: Run) -> Texts:
    names: Texts = np.where(run.texts("op") == "", "", run.texts("op") + "\n" + run.phase)
    return names


def _by_phase(run: Run) -> Texts:
    return run.phase


LEVELS: tuple[Names, ...] = (_by_layer, _by_op, _by_phase)


def found_durations(changes: Sequence[Concerned], second: Run) -> list[Callable[[Run, Edit], Edit] | None]:
    """Per change, a function that gives its edit the second capture's durations; None where they do not show it."""
    found: list[Callable[[Run, Edit], Edit] | None] = [None] * len(changes)
    for names in LEVELS:
        time = _time(names(second), second.dur / second.steps / second.lanes)
        saved = [_saved(names, each) for each in changes]
        for number in (number for number, known in enumerate(found) if known is None):
            mine = saved[number]
            own = {place for place, ns in mine.items() if all(ns >= each.get(place, 0.0) for each in saved)}
            alone = names is not _by_phase or all(
                place not in each for each in saved if each is not mine for place in mine
            )
            if own and alone and all(place in time or not _remains(names, changes[number], place) for place in mine):
                found[number] = partial(_retimed, names, {place: time.get(place, 0.0) for place in own})
    return found


def _time(places: Texts, ns: Floats) -> dict[str, float]:
    sums: dict[str, float] = {}
    for place, each in zip(places.tolist(), ns.tolist(), strict=True):
        sums[place] = sums.get(place, 0.0) + each
    return sums


def _saved(names: Names, change: Concerned) -> dict[str, float]:
    """What a change saves at each place, in ns; empty for one that cannot be told by places, such as a graph."""
    run, edit = change
    less = run.dur[edit.rows] - edit.ns
    places = names(run)[edit.rows]
    if edit.graph or bool((places[less > 0] == "").any()):
        return {}
    return _time(places[less > 0], less[less > 0])


def _remains(names: Names, change: Concerned, place: str) -> bool:
    """Whether a change leaves anything at a place."""
    run, edit = change
    after = run.dur.copy()
    after[edit.rows] = edit.ns
    return bool((after[names(run) == place] > 0).any())


def _retimed(names: Names, time: dict[str, float], run: Run, edit: Edit) -> Edit:
    """The edit with these times per step of all that is at each place; rows that it does not change keep theirs."""
    places, ns, after = names(run), edit.ns.copy(), run.dur.copy()
    after[edit.rows] = edit.ns
    at = places[edit.rows]
    for place, each in time.items():
        theirs = at == place
        said = float(edit.ns[theirs].sum())
        wanted = max(each * run.steps * run.lanes - float(after[places == place].sum()) + said, 0.0)
        ns[theirs] = edit.ns[theirs] * (wanted / said) if said else wanted / max(int(theirs.sum()), 1)
    return replace(edit, ns=ns)
