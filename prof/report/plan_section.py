"""The plan of changes on the page: a staircase, one bar per change, each as long as the step after it."""

from __future__ import annotations

from typing import Any

from pyprof.prof.advice.advised import StepTime
from pyprof.prof.planning.json_document import PlanDocument, PlannedChange
from pyprof.prof.planning.plan_sentences import head, interval, ms, others, result, titles, unit


def plan_section(document: PlanDocument) -> dict[str, Any]:
    """Sentences and stairs. Widths are in percent of the longest time that is drawn."""
    times = [document.now, *(change.step for change in document.changes)]
    longest = max([time.high_ms for time in times] + [1e-9])
    stairs = [_stair("As it is", document.now, document.now.ms, longest)]
    before = document.now.ms
    for change, title in titles(document):
        stairs.append({**_stair(title, change.step, before, longest), **_details(change)})
        before = change.step.ms
    return {
        "head": head(document),
        "result": result(document),
        "others": others(document),
        "unit": unit(document),
        "stairs": stairs if document.changes else [],
        "abstained": [{"rule": each.rule, "why": each.why} for each in document.abstained],
    }


def _stair(title: str, time: StepTime, before_ms: float, longest: float) -> dict[str, Any]:
    """A bar, what the change takes off it, and the interval of its end, in percent."""
    return {
        "title": title,
        "rule": "",
        "ms": f"{ms(time.ms)} ms",
        "interval": f"{interval(time)} ms in four of five cases" if interval(time) else "",
        "width": round(100 * time.ms / longest, 2),
        "saved": round(100 * max(before_ms - time.ms, 0.0) / longest, 2),
        "low": round(100 * time.low_ms / longest, 2),
        "spread": round(100 * (time.high_ms - time.low_ms) / longest, 2),
    }


def _details(change: PlannedChange) -> dict[str, Any]:
    code = change.code
    own_line = change.source if code is None or code.general else ""
    return {
        "rule": change.rule,
        "where": " · ".join(text for text in (str(change.place), change.op, change.layer) if text),
        "why": change.why,
        "how": _capital(change.change[len(change.title) :].lstrip(".;: ")),
        "cost": change.cost,
        "source": own_line,
        "code": None
        if code is None
        else {"place": code.place, "before": code.before, "after": code.after, "general": code.general},
    }


def _capital(text: str) -> str:
    """The text with a capital first letter, unless it begins with code."""
    first = text.partition(" ")[0]
    return first.capitalize() + text[len(first) :] if first.isalpha() else text
