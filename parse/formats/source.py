"""A table of a profiler's database, described once: what PyProf calls its columns, and what the profiler calls them.

Every SELECT is made of such descriptions, which are PyProf's own text: nothing that a file contains becomes SQL.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A table and those of its columns that are read, as pairs of PyProf's name and the profiler's."""

    table: str
    columns: tuple[tuple[str, str], ...]
    required: tuple[str, ...] = ()  # PyProf's names of the columns that nothing can replace
    order: tuple[str, ...] = ()  # PyProf's names of the columns that sort the rows; empty: the table's own order
    only: tuple[str, tuple[int, ...]] | None = None  # a column and its values in the rows that count, if it is there

    @property
    def names(self) -> tuple[str, ...]:
        """PyProf's names of the columns."""
        return tuple(name for name, _ in self.columns)

    def column(self, name: str) -> str:
        """The profiler's name of a column."""
        return dict(self.columns)[name]


def named(text: str) -> tuple[tuple[str, str], ...]:
    """Columns as pairs of names, from a text: PyProf's, and the profiler's where that is another.

    >>> named("start_ns=start, device")
    (('start_ns', 'start'), ('device', 'device'))
    """
    pairs = (pair.partition("=") for pair in text.split(", "))
    return tuple((name, column or name) for name, _, column in pairs)
