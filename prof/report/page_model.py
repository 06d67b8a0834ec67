"""The page's model: table, annotation and roofline as JSON-compatible values, without formatting or drawing.

Rows repeat from step to step. The fields that stay the same (names, op, layer, shapes, FLOPs, ...) form a *call*,
stored once in ``calls``; a row has the number of its call and its times. So 100,000 kernels take about 2 MB instead of
60.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pyprof._version import __version__
from pyprof.parse.attribute.reasons import remedy
from pyprof.prof.advice import Advice
from pyprof.prof.advice.report import how, sentence, sure
from pyprof.prof.advice.report import title as title_of_card
from pyprof.prof.kernels.precision import UNITS, unit_name
from pyprof.prof.limits.devices import Device
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.planning.json_document import PlanDocument
from pyprof.prof.ranks.pace_records import JobPath
from pyprof.prof.report.definitions import column_meanings
from pyprof.prof.report.distinct_calls import call_columns
from pyprof.prof.report.memory_section import memory_section
from pyprof.prof.report.operations import operation_columns
from pyprof.prof.report.plan_section import plan_section
from pyprof.prof.report.ranks_section import ranks_section
from pyprof.prof.summary.capture_numbers import Summary, summarise
from pyprof.prof.summary.sentences import assumptions, figures, headline, sentences
from pyprof.prof.summary.tables import summary_tables
from pyprof.prof.timing.steps import PHASES, Step, owners, steps
from pyprof.prof.timing.waiting import CAUSES, WORDS
from pyprof.prof.work.annotate import Annotation, uncounted_of
from pyprof.prof.work.kinds import CLASSES
from pyprof.table.attribution import LAUNCH_ALONE, attributed_rows
from pyprof.table.columns import NULL, Coded, MemoryTable, Table, distinct_texts
from pyprof.table.schema import outermost

FORMAT = 3  # of the model; the page checks it
# Key in the model -> field of the record.
STEP = {"step": "number", "start": "start_ns", "span": "span_ns", "phases": "phase_ns", "idle": "idle_ns"}
DEVICE = {key: key for key in ("name", "source", "byte_per_s", "flop_per_s")}


def page_model(
    table: Table,
    annotation: Annotation,
    peaks: Peaks | None = None,
    cards: Sequence[Advice] = (),
    title: str = "",
    summary: Summary | None = None,
    memory: MemoryTable | None = None,
    plan: PlanDocument | None = None,
    path: JobPath | None = None,
) -> dict[str, Any]:
    """The page's model. Its limits use ``peaks``, if given, and the data sheets' are shown for comparison.

    ``cards``: the best first. ``summary``: the capture's, where it has been computed already. ``memory``: the capture's
    allocations. ``plan``: of its changes. ``path``: across the ranks of a job.
    """
    summary = summary or summarise(table, annotation, peaks, memory=memory, path=path)
    limits = roofline(table, annotation, peaks)
    sheets = roofline(table, annotation).devices if peaks else ()
    unit = "step" if bool((table.ints("step") != NULL).any()) else "capture"
    owner, names = owners(table)
    calls, call = call_columns(table, annotation, limits)
    return {
        **_vocabulary(summary),
        "title": title,
        "summary": _summary(summary),
        "ranks": ranks_section(summary.pace),
        "memory": None if memory is None else memory_section(memory, summary.memory),
        "plan": None if plan is None else plan_section(plan),
        "advice": [_card(card, unit) for card in cards],
        "owners": names,
        "gap": "outside ops" if summary.on_cpu else "idle",  # what a time is called in which nothing recorded ran
        "incomplete": bool(summary.incomplete),
        "steps": [_step(step, bool(summary.incomplete)) for step in steps(table, owner)],
        "devices": [_fields(device, DEVICE) for device in limits.devices],
        "sheets": [_fields(device, DEVICE) for device in sheets if device.known],
        "calls": calls,
        **operation_columns(table, owner, names, call),
        "unattributed": _unattributed(table),
        "uncounted": _uncounted(annotation.uncounted),
        "bytes_uncounted": _uncounted(uncounted_of(table, annotation.bytes)),
    }


def _card(card: Advice, unit: str) -> dict[str, Any]:
    """A card's fields, with its title; numbers that are not known are None."""
    fields = {key: None if value != value else value for key, value in asdict(card).items()}
    words = {
        "title": title_of_card(card, unit),
        "trace": str(card.place),
        "why": sentence(card.why),
        "how": sentence(how(card)),
    }
    return {**fields, **words, "sure": sure(card)}


def _vocabulary(summary: Summary) -> dict[str, Any]:
    """The names and meanings that the page's code looks up: the same on every page of the same maker's GPUs."""
    return {
        "format": FORMAT,
        "version": __version__,
        "unit_names": {name: summary.in_makers_words(unit_name(name)) for name in UNITS},
        "phases": list(PHASES),
        "classes": list(CLASSES),
        "why": [{"name": name, "words": WORDS[name]} for name in CAUSES],
        "meanings": {key: summary.in_makers_words(text) for key, text in column_meanings().items()},
        "launching": LAUNCH_ALONE,  # the reason of rows whose time gives no rates
    }


def _step(step: Step, incomplete: bool) -> dict[str, Any]:
    """A step's fields; its idle time is unknown in an incomplete capture."""
    unknown = {"idle": None} if incomplete else {}
    return {"owner": step.owner, **_fields(step, STEP), **unknown}


def _uncounted(ops: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": outermost(name) or "(no name)", "ns": ns} for name, ns in ops.items()]


def _summary(summary: Summary) -> dict[str, Any]:
    left_out = [summary.warm_up is not None, summary.copies is not None and summary.copies.apart]
    return {
        "headline": headline(summary),
        "figures": [asdict(figure) for figure in figures(summary)],
        "sentences": sentences(summary),
        "tables": [asdict(table) for table in summary_tables(summary)],
        "assumptions": assumptions(summary),
        "all_rows": not any(left_out),  # False: the charts show rows that the summary leaves out
    }


def _fields(record: Step | Device, keys: Mapping[str, str]) -> dict[str, Any]:
    return {key: getattr(record, name) for key, name in keys.items()}


def _unattributed(table: Table) -> list[dict[str, Any]]:
    """Rows without an op, grouped by reason, longest time first, and within each group by name."""
    rows = np.flatnonzero(~attributed_rows(table.coded("op")))
    reason, name = (Coded.of(table.coded(key).take(rows).texts()) for key in ("reason", "kShortName"))
    keys, group = distinct_texts(reason, name)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, group, table.ints("kDuration")[rows])
    counts = np.bincount(group, minlength=len(keys))
    kernels_by_reason: dict[str, list[dict[str, Any]]] = {}
    for (why, text), count, ns in zip(keys, counts, sums, strict=True):
        kernels_by_reason.setdefault(why, []).append({"name": text, "rows": int(count), "ns": int(ns)})
    groups = [
        {
            "reason": text,
            "remedy": remedy(text),
            "rows": sum(kernel["rows"] for kernel in kernels),
            "ns": sum(kernel["ns"] for kernel in kernels),
            "names": sorted(kernels, key=lambda kernel: (-kernel["ns"], kernel["name"])),
        }
        for text, kernels in kernels_by_reason.items()
    ]
    return sorted(groups, key=lambda group: (-group["ns"], group["reason"]))
