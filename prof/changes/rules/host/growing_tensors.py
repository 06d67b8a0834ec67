"""Tensors that grow by concatenation, as a cache of keys and values while a model generates word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.quantities import rounded
from pyprof.table.columns import Coded

NUMBER = re.compile(r"\d+")
LINKS = 4  # concatenations, each of the last one's result, at least
PIECE_NS = 2000.0  # of a copy of the new piece, besides moving it
Shape = tuple[int, ...]


class _Link(NamedTuple):
    """A concatenation that is one of a growing tensor's."""

    row: int
    piece: int  # elements that it adds
    lengths: set[int]  # of what grows, before and after, in the dimension in which it does


@edit_rule("static_cache")
def static_cache(scenario: Scenario) -> Iterator[Proposal]:
    """Each concatenation copies all that there is; into memory allocated once, only the new piece is written.

    What other kernels take because they then read masked places of the cache, too, is not counted. Neither is that a
    step, or its part for each word, can become a CUDA graph: these rules need this change, even if it saves nothing.

    Refuted by: a concatenation that does not take the last one's result.
    """
    run = scenario.run
    grown = sorted(_grown(run))
    if not grown:
        why = f"no tensor grows by {LINKS} concatenations or more, each of the last one's result"
        yield Abstained("static_cache", why)
        return
    rows = np.array([each.row for each in grown], np.int64)
    moved = np.array([2.0 * each.piece * ITEM_BYTES.get(str(run.dtype[each.row]), 4.0) for each in grown])
    ns = np.fmin(run.dur[rows], PIECE_NS + 1e9 * moved / run.bandwidth)  # the bandwidth may be unknown
    yield Edit(
        rule="static_cache",
        change=(
            "Allocate the cache once, in its greatest size, and write each new piece into it (index_copy_, or a static "
            "cache of the library) in place of torch.cat."
        ),
        why=(
            f"{run.number(rows, 'concatenation copies', 'concatenations copy')} all that a tensor holds to add a "
            f"piece: {rounded(run.ms_of(rows))} ms; the pieces alone take {rounded(run.ms(float(ns.sum())))} ms"
        ),
        cost=COSTS["static_cache"],
        rows=rows,
        ns=ns,
        left=np.ones(len(rows)),
        deviation=0.2,
    )


def tensors_grow(scenario: Scenario) -> bool:
    """Whether a tensor still grows by concatenation."""
    static = any(edit.rule == "static_cache" for edit in scenario.edits)
    return not static and any(True for _ in _grown(scenario.run))


def sizes_of(scenario: Scenario) -> Coded:
    """The sizes of all ops; where the plan has made tensors static that grew, as they are then.

    Each length that such a tensor has had is the greatest one.
    """
    run, sizes = scenario.run, scenario.run.table.coded("sizes")
    if not any(edit.rule == "static_cache" for edit in scenario.edits):
        return sizes
    lengths = {length for each in _grown(run) for length in each.lengths}
    longest = dict.fromkeys(map(str, lengths), str(max(lengths, default=0)))
    texts = Coded.of(NUMBER.sub(lambda each: longest.get(each[0], each[0]), text) for text in [*sizes.values, ""])
    return texts.take(sizes.codes)  # code -1 selects the last item


def _grown(run: Run) -> Iterator[_Link]:
    """The concatenations that belong to a growing tensor."""
    open_: dict[tuple[int, str, Shape], list[list[_Link]]] = {}
    chains: list[list[_Link]] = []
    for row in np.flatnonzero((run.aten == "cat") & (run.phase != "backward") & (run.role != "aux")).tolist():
        shapes = _operands(run, row)
        result = _joined(shapes)
        if result is None:
            continue
        lane, place = int(run.lane[row]), f"{run.layer(row)} {run.trace(row)}"
        waiting = open_.get((lane, place, shapes[0]), [])
        if not waiting:
            chains.append([])
        chain = waiting.pop(0) if waiting else chains[-1]
        lengths = {length for pair in zip(shapes[0], result, strict=True) if pair[0] != pair[1] for length in pair}
        chain.append(_Link(row, numel(list(shapes[1])), lengths))
        open_.setdefault((lane, place, result), []).append(chain)
    yield from (link for chain in chains if len(chain) >= LINKS for link in chain)


def _operands(run: Run, row: int) -> list[Shape]:
    """The shapes of the tensors that a concatenation joins; empty if they are not known."""
    first = (run.listed("sizes", row) or [[]])[0]
    listed = isinstance(first, list) and len(first) == 2 and all(isinstance(each, list) for each in first)
    return [tuple(each) for each in first] if listed else []


def _joined(shapes: list[Shape]) -> Shape | None:
    """The shape of two tensors joined in the one dimension in which they differ; None if there is no such one.

    >>> _joined([(2, 7, 8), (2, 1, 8)])
    (2, 8, 8)
    """
    differ = [at for at, (a, b) in enumerate(zip(*shapes, strict=False)) if a != b]
    if len(set(map(len, shapes))) != 1 or len(differ) != 1 or shapes[1][differ[0]] >= shapes[0][differ[0]]:
        return None
    at = differ[0]
    return (*shapes[0][:at], shapes[0][at] + shapes[1][at], *shapes[0][at + 1 :])
