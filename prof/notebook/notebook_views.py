"""A profile and its summary in a notebook: compact, escaped HTML in its colours; the summary also as text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.changes.say import gain
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.sentences import assumptions, headline, sentences
from pyprof.prof.summary.tables import summary_tables
from pyprof.prof.summary.terminal import write_summary
from pyprof.prof.summary.wording import amount
from pyprof.quantities import ms, percent

if TYPE_CHECKING:
    from pyprof.prof.notebook.profiled import Profile

WIDTH = 100  # of a summary as text
SENTENCES = 5  # shown for a profile
OPS = 8
CARDS = 3
LONGEST = 60  # characters shown of a name
PARAGRAPH = 300  # characters shown of a cell that holds a sentence
# Sets no colours, so that the notebook's theme, light or dark, applies.
TABLE = "border-collapse:collapse;font-size:0.9em;margin:0.5em 0;color:inherit"
CAPTION = "text-align:left;white-space:nowrap;color:inherit"
DIM = "opacity:0.65"


def profile_html(profile: Profile) -> str:
    """The headline, the first sentences, the longest ops and the first advice."""
    where = "".join(f", where <code>{shown(text, 200)}</code>" for text in profile.conditions)
    profilers = ", ".join(dict.fromkeys(made for _, made in profile.inputs if made))
    recorded = f" · {shown(profilers)}" if profilers else ""
    parts = [f"<p><b>{shown(profile.name)}</b>{where}<span style='{DIM}'>{recorded}</span></p>"]
    if not len(profile):
        return box_html([*parts, "<p>No rows.</p>"])
    if profile.is_run:
        summary = profile.summary()
        parts += [f"<p>{shown(summary.headline, 900)}</p>", list_html(summary.sentences[:SENTENCES])]
    else:
        totals = profile.totals
        parts.append(f"<p>{totals.rows:,} rows, {ms(totals.time_ns)}.</p>")
    parts += [_ops(profile), _changes(profile)]
    if profile.warnings:
        parts.append(list_html([f"warning: {text}" for text in profile.warnings]))
    return box_html(parts)


def _ops(profile: Profile) -> str:
    """The longest ops, with the columns of ``Profile.ops``."""
    ops = profile.op_rows
    rows = [
        (
            row["op"] or "(no op)",
            row["dir"] or "",
            f"{row['count']:,}",
            ms(row["time"]),
            "" if row["share"] is None else percent(row["share"]),
            "" if row["flops"] is None else amount(row["flops"], "FLOP"),
            "" if row["sol"] is None else f"{row['sol']:.0f}%",
        )
        for row in ops[:OPS]
    ]
    title = f"Ops, the first {OPS} of {len(ops)}" if len(ops) > OPS else "Ops"
    return table_html(title, ("op", "direction", "rows", "time", "share", "FLOPs", "of limit"), rows, left=2)


def _changes(profile: Profile) -> str:
    changes, document = profile.cards, profile.found
    if not changes:
        return ""
    rows = [(change.title, gain(change, document), change.trace, change.rule) for change in changes[:CARDS]]
    title = f"What to change, the first {CARDS} of {len(changes)}" if len(changes) > CARDS else "What to change"
    return table_html(title, ("change", "brings", "line", "rule"), rows, left=4, longest=PARAGRAPH)


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

    def __repr__(self) -> str:  # __str__, too
        return self.text()

    def _repr_html_(self) -> str:
        """All sentences, the advice and the tables."""
        where = " and ".join(self.conditions)
        parts = [f"<p>Where <code>{shown(where, 400)}</code>:</p>"] if where else []
        parts += [f"<p><b>{shown(self.headline, 400)}</b></p>", list_html(self.sentences)]
        if self.advice:
            parts += [f"<p><b>{shown(self.advice[0], 400)}</b></p>", list_html(self.advice[1:])]
        parts += [table_html(table.title, table.head, table.rows) for table in summary_tables(self.numbers)]
        return box_html([*parts, f"<div style='{DIM}'>{list_html(self.assumptions)}</div>"])


def table_html(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, longest: int = LONGEST
) -> str:
    """A table whose first ``left`` columns are left-aligned."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag} style='text-align:{'left' if i < left else 'right'};padding:0.1em 0.6em'>"
            f"{shown(text, longest)}</{tag}>"
            for i, text in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head_row = f"<thead><tr>{cells('th', head)}</tr></thead>"
    caption = f"<caption style='{CAPTION}'><b>{shown(title, 200)}</b></caption>"
    return f"<table style='{TABLE}'>{caption}{head_row}<tbody>{body}</tbody></table>"


def list_html(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{shown(text, 600)}</li>' for text in texts)}</ul>"


def box_html(parts: Sequence[str]) -> str:
    return f"<div class='pyprof'>{''.join(parts)}</div>"


def shown(text: str, size: int = LONGEST) -> str:
    """Escape any text for HTML, so that it is not read as markup, control characters or a formula (MathJax)."""
    return escape(cut_to(safe(str(text)), size, "middle")).replace("$", "&#36;").replace("\\", "&#92;")
