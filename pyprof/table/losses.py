"""What a capture has lost: records whose absence makes idle time and advice false.

A kernel table carries it in its column ``incomplete``, the same text in each row of a capture, so that it survives any
selection of rows, any file and the merging of ranks. The text is a JSON list of pairs: what is lost, and how to record
it anew.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from pyprof.table.columns import Coded, Table

INCOMPLETE = "This is an incomplete capture"
# The remedy of a capture whose times cannot be true, by which such losses are known.
WRONG_TIMES = "record the program again, with another version of the profiler if the times are wrong again"
WITHHELD = "Idle time and advice would be false, and are withheld."


@dataclass(frozen=True, slots=True)
class Loss:
    """One way in which a capture is incomplete."""

    why: Annotated[str, Meta(description="what is lost")]
    remedy: Annotated[str, Meta(description="how to record it anew")]


def losses(table: Table) -> tuple[Loss, ...]:
    """What the captures of a table's rows have lost, each once; empty where no loss is known."""
    column = table.coded("incomplete")
    used = np.unique(column.codes[column.codes >= 0]).tolist()
    return tuple(dict.fromkeys(loss for code in used for loss in _of_cell(column.values[code])))


def times_are_wrong(found: Iterable[Loss]) -> bool:
    """Whether the times of a capture cannot be true, so that nothing that rests on times can be said."""
    return any(loss.remedy == WRONG_TIMES for loss in found)


def _of_cell(text: str) -> Iterator[Loss]:
    """The losses in a cell; what is no pair of texts is none (``check_cells`` refuses such a file)."""
    pairs = json.loads(text)
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair):
            yield Loss(*pair)


def losses_column(found: Iterable[Loss], rows: int) -> Coded:
    """The column ``incomplete`` of a capture with so many rows."""
    pairs = [[loss.why, loss.remedy] for loss in found]
    return Coded(np.full(rows, 0 if pairs else -1, np.int32), [json.dumps(pairs, ensure_ascii=False)] if pairs else [])


def incomplete_line(found: Iterable[Loss], withheld: bool = False) -> str:
    """The sentences that say that a capture is incomplete, why, and how to record it anew; empty without losses.

    ``withheld``: whether they also say that idle time and advice are not told.
    """
    each = tuple(found)
    if not each:
        return ""
    why = "; ".join(dict.fromkeys(loss.why for loss in each))
    remedies = "; ".join(dict.fromkeys(loss.remedy for loss in each))
    told = f" {WITHHELD}" if withheld else ""
    return f"{INCOMPLETE}: {why}.{told} To record it anew: {remedies}."
