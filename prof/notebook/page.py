"""What a notebook shows of a profile and of its summary: small HTML in the notebook's own colours, all escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.summary.sentences import amount, ms, share, worker

if TYPE_CHECKING:
    from pyprof.prof.notebook.profiled import Profile
    from pyprof.prof.notebook.summary_view import SummaryText
    from pyprof.prof.summary.capture_numbers import Part

__all__ = ["profile_html", "summary_html"]

SAID = 5  # sentences of a profile
OPS = 8
CARDS = 3
MOST = 14  # rows of a table of the summary
LONGEST = 60  # characters of a name
# Without colours of its own: the notebook's theme, light or dark, shows through.
TABLE = "border-collapse:collapse;font-size:0.9em;margin:0.5em 0;color:inherit"
CAPTION = "text-align:left;white-space:nowrap;color:inherit"
DIM = "opacity:0.65"


def profile_html(profile: Profile) -> str:
    """The headline, the first sentences, the longest ops and the first advice."""
    where = "".join(f", where <code>{_shown(text, 200)}</code>" for text in profile.conditions)
    profilers = ", ".join(dict.fromkeys(made for _, made in profile.inputs if made))
    head = f"<b>{_shown(profile.name)}</b>{where}"
    parts = [f"<p>{head}<span style='{DIM}'>{f' · {_shown(profilers)}' if profilers else ''}</span></p>"]
    if not len(profile):
        return _box([*parts, "<p>No rows.</p>"])
    if profile.is_run:
        said = profile.summary()
        parts += [f"<p>{_shown(said.headline, 400)}</p>", _listed(said.sentences[:SAID])]
    else:
        totals = profile.totals
        parts.append(f"<p>{totals.rows:,} rows, {ms(totals.time_ns)}.</p>")
    parts += [_ops(profile), _cards(profile)]
    parts += [_listed([f"warning: {text}" for text in profile.warnings])] if profile.warnings else []
    return _box(parts)


def _ops(profile: Profile) -> str:
    """The longest ops, by the columns of ``Profile.ops``."""
    ops = profile.op_rows
    rows = [
        (row["op"] or "(no op)", row["dir"] or "", f"{row['count']:,}", ms(row["time"]), _percent(row["share"], 1),
         "" if row["flops"] is None else amount(row["flops"], "FLOP"),
         _percent(row["sol"], 0))
        for row in ops[:OPS]
    ]  # fmt: skip
    title = f"Ops, the first {OPS} of {len(ops)}" if len(ops) > OPS else "Ops"
    return _table(title, ("op", "direction", "rows", "time", "share", "FLOPs", "of limit"), rows, left=2)


def _percent(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}%"


def _cards(profile: Profile) -> str:
    cards = profile.cards
    if not cards:
        return ""
    rows = [(card.rule, f"{card.saved_ms:.3g} ms", card.confidence, card.change) for card in cards[:CARDS]]
    title = f"Advice, the first {CARDS} of {len(cards)}" if len(cards) > CARDS else "Advice"
    return _table(title, ("rule", "saves a step", "confidence", "change"), rows, left=1, longest=300)


def summary_html(said: SummaryText) -> str:
    """All sentences; time by phase, by part of the model and by kind of work."""
    found = said.numbers
    where = " and ".join(said.conditions)
    parts = [f"<p>Where <code>{_shown(where, 400)}</code>:</p>"] if where else []
    parts += [f"<p><b>{_shown(said.headline, 400)}</b></p>", _listed(said.sentences)]
    if said.advice:
        parts += [f"<p><b>{_shown(said.advice[0], 400)}</b></p>", _listed(said.advice[1:])]
    if len(found.phases) > 1:
        rows = [(part.name, f"{part.rows:,}", ms(part.ns), ms(part.idle_ns)) for part in found.phases]
        parts.append(_table(f"By phase, of {ms(found.span_ns)}", ("phase", "rows", "works", "idle"), rows))
    for title, each in (("By part of the model", found.components), ("By kind of work", found.kinds)):
        if len(each) > 1:
            parts.append(_parts(f"{title}, of {ms(found.total_ns)} of {worker(found)} time", each, found.total_ns))
    return _box([*parts, f"<div style='{DIM}'>{_listed(said.assumptions)}</div>"])


def _parts(title: str, parts: Sequence[Part], whole: int) -> str:
    rows = [(part.name, f"{part.rows:,}", ms(part.ns), share(part.ns, whole)) for part in parts[:MOST]]
    rest = parts[MOST:]
    if rest:
        ns = sum(part.ns for part in rest)
        rows.append((f"{len(rest)} more", f"{sum(part.rows for part in rest):,}", ms(ns), share(ns, whole)))
    return _table(title, ("", "rows", "time", "share"), rows)


def _table(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, longest: int = LONGEST
) -> str:
    """A table; the first ``left`` columns, and long texts, begin at the left."""

    def cells(tag: str, row: Sequence[str]) -> str:
        sides = ["left" if i < left or longest > LONGEST else "right" for i in range(len(row))]
        each = zip(sides, row, strict=True)
        return "".join(
            f"<{tag} style='text-align:{side};padding:0.1em 0.6em'>{_shown(text, longest)}</{tag}>"
            for side, text in each
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head_row = f"<thead><tr>{cells('th', head)}</tr></thead>"
    caption = f"<caption style='{CAPTION}'><b>{_shown(title, 200)}</b></caption>"
    return f"<table style='{TABLE}'>{caption}{head_row}<tbody>{body}</tbody></table>"


def _listed(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_shown(text, 600)}</li>' for text in texts)}</ul>"


def _box(parts: Sequence[Any]) -> str:
    return f"<div class='pyprof'>{''.join(parts)}</div>"


def _shown(text: str, size: int = LONGEST) -> str:
    """A text of anybody's as HTML that shows it: no markup, no control characters, and no formula (MathJax)."""
    return escape(cut_to(safe(str(text)), size, "middle")).replace("$", "&#36;").replace("\\", "&#92;")
