"""The summary as an object: printed it is the terminal's text, in a notebook sentences and tables."""

from __future__ import annotations

import io
from collections.abc import Sequence

from pyprof.prof.notebook.cell_html import summary_html
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.sentences import assumptions, headline, sentences
from pyprof.prof.summary.terminal import write_summary

WIDTH = 100


class SummaryText:
    """What ``pyprof prof --summary`` says. ``str()`` is its text; ``numbers`` has all figures behind it."""

    def __init__(self, numbers: Summary, conditions: tuple[str, ...] = (), advice: Sequence[str] = ()) -> None:
        self.numbers = numbers
        self.conditions = conditions
        self.advice = tuple(advice)  # what all pieces are worth, then a line for each of the first

    @property
    def headline(self) -> str:
        """What ran, where, for how long, and how much of it is attributed."""
        return headline(self.numbers)

    @property
    def sentences(self) -> list[str]:
        """The run in words, the most important first."""
        return sentences(self.numbers)

    @property
    def assumptions(self) -> list[str]:
        """What the figures rest on."""
        return assumptions(self.numbers)

    def text(self, width: int = WIDTH) -> str:
        """Everything, in lines of at most ``width`` characters."""
        out = io.BytesIO()
        write_summary(self.numbers, out, width, terminal=False, advice=self.advice)
        where = f"Where {' and '.join(self.conditions)}:\n" if self.conditions else ""
        return where + out.getvalue().decode("utf-8")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return summary_html(self)
