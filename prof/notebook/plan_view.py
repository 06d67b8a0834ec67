"""A plan of changes in a notebook: text, HTML, and a DataFrame."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyprof.errors import packages
from pyprof.prof.changes.code_change import CodeChange
from pyprof.prof.changes.say import interval, ms, others, result, title
from pyprof.prof.notebook.notebook_views import DIM, box_html, shown, table_html
from pyprof.prof.planning.json_document import PlanDocument
from pyprof.prof.planning.print_plan import WIDTH, head, plan_lines

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 400  # characters shown of a sentence or a piece of code
MEANINGS = {
    "title": ("", "the change, and what it saves after those before it"),
    "rule": ("", "the name of its rule"),
    "saved_ms": ("ms", "what the step gets shorter by it"),
    "ms": ("ms", "the step after it"),
    "low_ms": ("ms", "one case in ten is below"),
    "high_ms": ("ms", "one case in ten is above"),
    "op": ("", "what the user called, for the kernel that gains most"),
    "layer": ("", "its layer"),
    "trace": ("", "its line of code"),
    "source": ("", "the program's statement there; empty: not readable here"),
    "before": ("", "the code now"),
    "after": ("", "the code with the change"),
    "general": ("", "whether that code is a general form, with names of its own"),
    "cost": ("", "what it costs"),
    "why": ("", "the reason, in numbers"),
}


class PlanView:
    """The plan that ``pyprof plan`` prints. ``str()`` gives the text, ``changes`` a DataFrame, ``numbers`` all figures.

    ``numbers`` is the document of ``pyprof plan --json``: now, changes, not_chosen, abstained.
    """

    def __init__(self, numbers: PlanDocument) -> None:
        self.numbers = numbers

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict per change in order, as the rows of ``changes``; without pandas."""
        rows = []
        for change in self.numbers.changes:
            code, step = change.code, change.step
            fields = {
                "title": title(change, self.numbers),
                "ms": None if step is None else step.ms,
                "low_ms": None if step is None else step.low_ms,
                "high_ms": None if step is None else step.high_ms,
                "before": code.before if code else "",
                "after": code.after if code else "",
                "general": code.general if code else None,
            }
            rows.append({key: fields[key] if key in fields else getattr(change, key) for key in MEANINGS})
        return rows

    @cached_property
    def changes(self) -> pd.DataFrame:
        """One row per change in order; ``attrs["units"]`` and ``attrs["meanings"]`` describe the columns."""
        with packages():
            import pandas as pd
        made = pd.DataFrame(self.rows, columns=list(MEANINGS))
        made.attrs["units"] = {key: unit for key, (unit, _) in MEANINGS.items() if unit}
        made.attrs["meanings"] = {key: meaning for key, (_, meaning) in MEANINGS.items()}
        return made

    def text(self, width: int = WIDTH) -> str:
        """The plan in lines of at most ``width`` characters."""
        return "\n".join(plan_lines(self.numbers, width))

    def __repr__(self) -> str:  # __str__, too
        return self.text()

    def _repr_html_(self) -> str:
        """The steps as a table, and below it the code of each change."""
        document = self.numbers
        parts = [f"<p>{shown(head(document), LONGEST)}</p>"]
        if document.changes:
            rows = [] if document.now is None else [(ms(document.now.ms), interval(document.now), "As it is", "", "")]
            for change in document.changes:
                time = ("", "") if change.step is None else (ms(change.step.ms), interval(change.step))
                rows.append((*time, title(change, document), change.trace, change.cost))
            columns = ("ms", "80% interval", "change", "line", "costs")
            parts.append(table_html("Plan: what to change, in this order", columns, rows, left=5, longest=LONGEST))
            parts += [_code(title(change, document), change.source, change.code) for change in document.changes]
        parts.append(f"<p><b>{shown(result(document), LONGEST)}</b></p>")
        if left := others(document):
            parts.append(f"<p style='{DIM}'>{shown(left, LONGEST)}</p>")
        return box_html(parts)


def _code(title: str, source: str, code: CodeChange | None) -> str:
    """A change in code, folded; empty where it is known in words alone."""
    texts = [] if code is None or not code.general or not source else [("the line", source)]
    if code is not None:
        texts += [(word, text) for word, text in (("before", code.before), ("after", code.after)) if text]
    if not texts:
        return ""
    where = "in general form; the names are examples" if code is None or code.general else code.place
    lines = [(word, "\n".join(shown(line, LONGEST) for line in text.split("\n"))) for word, text in texts]
    blocks = "".join(f"<div>{word}<pre style='margin:0.2em 0'>{text}</pre></div>" for word, text in lines)
    return f"<details><summary>{shown(title, LONGEST)}: code, {shown(where, LONGEST)}</summary>{blocks}</details>"
