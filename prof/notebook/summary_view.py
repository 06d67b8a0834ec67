"""The summary as an object: ``print`` gives the terminal's text, a notebook shows sentences and tables."""

import io
from collections.abc import Sequence

from pyprof.prof.notebook.cell_html import summary_html
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.sentences import assumptions, headline, sentences
from pyprof.prof.summary.terminal import write_summary

WIDTH = 100


class SummaryText:
    """The summary that ``pyprof prof --summary`` prints. ``str()`` gives the text, ``numbers`` all its figures."""

    def __init__(self, numbers: Summary, conditions: tuple[str, ...] = (), advice: Sequence[str] = ()) -> None:
        self.numbers = numbers
        self.conditions = conditions
        self.advice = tuple(advice)  # the total saving, then one line per piece of advice

    @property
    def headline(self) -> str:
        """What ran, where, for how long, and how much of it is attributed."""
        return headline(self.numbers)

    @property
    def sentences(self) -> list[str]:
        """The sentences that describe the run, the most important first."""
        return sentences(self.numbers)

    @property
    def assumptions(self) -> list[str]:
        """The assumptions behind the figures."""
        return assumptions(self.numbers)

    def text(self, width: int = WIDTH) -> str:
        """The whole summary, in lines of at most ``width`` characters."""
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
