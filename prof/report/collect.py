"""Table, annotation and roofline -> what the page shows, as values that JSON holds. Formats nothing, draws nothing.

Rows of a run repeat: all that is equal in every step (names, op, layer, shapes, FLOPs, ...) is a *call*, held once in
``calls``; a row is the number of its call and its times. 100,000 kernels are some 3 MB so, where whole rows were 60.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pyprof._version import __version__
from pyprof.parse.attribute.reasons import remedy
from pyprof.prof.advice import Advice
from pyprof.prof.limits.devices import Device
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.report.headline import figures, sentences
from pyprof.prof.table.params import params
from pyprof.prof.timing.steps import PHASES, Step, owners, steps
from pyprof.prof.timing.usage import usage
from pyprof.prof.timing.waiting import CAUSES, WORDS, waiting
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import CLASSES, classes
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct
from pyprof.table.json_lists import first_text

__all__ = ["collect", "page_model"]

FORMAT = 2  # of the model; the page checks it

# Texts of a call: key in the model -> the table's column.
TEXTS = {
    "name": "kShortName", "long": "kLongName", "aten": "aten", "phase": "phase", "dir": "dir", "kind": "kind",
    "sizes": "sizes", "dtypes": "dtypes", "args": "args", "reason": "reason", "grid": "grid", "block": "block",
    "api": "api",
}  # fmt: skip
RISING = ("start", "instance")
LISTS = {"op": ("op", "."), "layer": ("layer", "\x1f"), "trace": ("trace", "\n")}  # column, and what joins its items


def page_model(
    table: Table, annotation: Annotation, peaks: Peaks | None, cards: Sequence[Advice], title: str = ""
) -> dict[str, Any]:
    """``collect`` with the limits, by ``peaks`` beside the data sheets where they are given."""
    found = roofline(table, annotation, peaks)
    sheets = roofline(table, annotation).devices if peaks else ()
    return collect(table, annotation, found, title, [asdict(card) for card in cards], sheets)


def collect(
    table: Table,
    annotation: Annotation,
    found: Roofline,
    title: str = "",
    advice: Sequence[Mapping[str, Any]] = (),
    sheets: Sequence[Device] = (),
) -> dict[str, Any]:
    """The page's model. ``advice``: the fields of ``pyprof.prof.advice.Advice`` records, the best first; ``sheets``: by
    their data sheets, the devices whose measured peaks ``found`` rests on."""
    order = np.argsort(
        np.where(table.ints("start") == NULL, np.iinfo(np.int64).max, table.ints("start")), kind="stable"
    )
    owner, names = owners(table)
    timed = steps(table, owner)
    used = usage(table, annotation, found)
    calls, call = _calls(table, annotation, found)
    rows, lanes, threads = _rows(table, owner, names, call)
    rows["instance"] = _instances(table, order)
    return {
        "format": FORMAT,
        "version": __version__,
        "title": title,
        "figures": [{"name": f.name, "value": f.value, "of": f.of} for f in figures(table, annotation, timed, used)],
        "sentences": sentences(table, annotation, timed, used),
        "advice": [dict(card) for card in advice],
        "owners": names,
        "phases": list(PHASES),
        "classes": list(CLASSES),
        "steps": [_step(step) for step in timed],
        "devices": [_device(device) for device in found.devices],
        "sheets": [_device(device) for device in sheets if device.known],
        "why": [{"name": name, "words": WORDS[name]} for name in CAUSES],
        "lanes": lanes,
        "threads": threads,
        "calls": calls,
        "rows": _listed(rows, order),
        "unattributed": _unattributed(table),
        "uncounted": [{"name": _first(name), "ns": ns} for name, ns in annotation.uncounted.items()],
        "notes": found.notes(),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "owner": step.owner,
        "step": step.number,
        "start": step.start_ns,
        "span": step.span_ns,
        "phases": step.phase_ns,
        "idle": step.idle_ns,
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "source": device.source,
        "byte_per_s": device.byte_per_s,
        "flop_per_s": dict(device.flop_per_s),
    }


# Calls: what is equal in every step


def _calls(table: Table, annotation: Annotation, found: Roofline) -> tuple[dict[str, Any], Ints]:
    """Columns with an entry a distinct call, and each row's call."""
    texts = _call_texts(table, annotation, found)
    numbers = {
        "flops": annotation.flops,
        "bytes": annotation.bytes,
        "sol_ns": _whole(found.sol_ns),
        "device": np.where(found.device < 0, NULL, found.device),
    }
    keys, call = distinct(*(column.codes for column in texts.values()), *numbers.values())
    columns = [list(column) for column in zip(*keys, strict=True)] or [[] for _ in (*texts, *numbers)]
    coded = {
        key: {"values": column.values, "codes": codes}
        for (key, column), codes in zip(texts.items(), columns, strict=False)
    }
    plain = dict(zip(numbers, ([_known(v) for v in column] for column in columns[len(texts) :]), strict=True))
    return {"texts": coded, "numbers": plain}, call


def _call_texts(table: Table, annotation: Annotation, found: Roofline) -> dict[str, Coded]:
    return {
        **{key: table.coded(column) for key, column in TEXTS.items()},
        **{key: _joined(table.coded(column), by) for key, (column, by) in LISTS.items()},
        "params": params(table),
        "class": classes(table, annotation),
        "family": annotation.family,
        "role": annotation.role,
        "tc": annotation.tc,
        "tcprec": annotation.tcprec,
        "unit": found.unit,
        "bound": found.bound,
    }


def _joined(column: Coded, by: str) -> Coded:
    return Coded(column.codes, [by.join(_items(text)) for text in column.values])


def _items(text: str) -> list[str]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    if not isinstance(items, list):
        return [text]
    return [item if isinstance(item, str) else json.dumps(item) for item in items]


def _first(name: str) -> str:
    return (first_text(name) if name.startswith('["') else name) or "(no name)"


def _whole(values: np.ndarray[Any, np.dtype[np.float64]]) -> Ints:
    known = np.isfinite(values) & (np.abs(values) < 2**62)
    return np.where(known, np.rint(np.where(known, values, 0)), NULL).astype(np.int64)


def _known(value: int) -> int | None:
    return None if value == NULL else int(value)


# Rows: a call and its times


def _rows(
    table: Table, owner: Ints, owners: Sequence[str], call: Ints
) -> tuple[dict[str, Ints], list[dict[str, Any]], list[str]]:
    """A row's numbers; the lanes that GPU operations ran in (owner, name) and the threads that launched them."""
    on_cpu = np.array([*(value == "cpu" for value in table.coded("kind").values), False])[table.coded("kind").codes]
    where = np.where(on_cpu, table.ints("tid"), table.ints("stream"))
    keys, lane = distinct(owner, on_cpu.astype(np.int64), where)
    lanes = [{"owner": int(o), "name": _lane_name(cpu, number, owners[o], len(owners))} for o, cpu, number in keys]
    pairs, thread = distinct(table.ints("rank"), table.ints("pid"), table.ints("tid"))
    start, api = table.ints("start"), table.ints("apiStart")
    both = (start != NULL) & (api != NULL)
    why = waiting(table).cause.codes.astype(np.int64)
    rows = {
        "call": call,
        "start": start,
        "dur": table.ints("kDuration"),
        "step": table.ints("step"),
        "lane": lane,
        "wait": np.where(both, start - np.where(both, api, 0), NULL),  # from the launch's start to the operation's
        "api_dur": table.ints("apiDuration"),
        "thread": np.where(api != NULL, thread, NULL),
        "why": np.where(why < 0, NULL, why),  # of the gap before it, an index into CAUSES
    }
    return rows, lanes, [_thread_name(key, len({pair[:2] for pair in pairs})) for key in pairs]


def _instances(table: Table, order: Ints) -> Ints:
    """The number of each row's call of an op, in the order of its first row. A row without an op stands alone."""
    op = table.ints("opId")
    replay = np.where(table.ints("graphNode") == NULL, 0, table.ints("corr"))
    alone = np.where(op == NULL, np.arange(len(table)), -1)
    _, number = distinct(table.ints("pid"), op, replay, alone)
    _, first, which = np.unique(number[order], return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    found = np.empty(len(table), np.int64)
    found[order] = place[which.reshape(-1)]
    return found


def _lane_name(cpu: int, number: int, owner: str, owners: int) -> str:
    what = "thread" if cpu else "stream"
    name = what if number == NULL else f"{what} {number}"
    return f"{name}, {owner}" if owners > 1 else name


def _thread_name(key: Sequence[int], processes: int) -> str:
    rank, pid, tid = key
    name = "thread" if tid == NULL else f"thread {tid}"
    if processes == 1:
        return name
    return f"{name}, rank {rank}" if rank != NULL else f"{name}, process {pid}" if pid != NULL else name


def _listed(rows: Mapping[str, Ints], order: Ints) -> dict[str, Any]:
    """The columns as lists: those of ``RISING`` as steps from one row to the next, one that is all alike as that
    value."""
    return {key: _column(values[order], key in RISING) for key, values in rows.items()}


def _column(values: Ints, rising: bool) -> Any:
    if len(values) and np.all(values == values[0]):
        return {"all": _known(int(values[0])), "count": len(values)}
    if not rising:
        return [_known(value) for value in values.tolist()]
    timed = values[values != NULL]
    return [*np.diff(timed, prepend=0).tolist(), *[None] * (len(values) - len(timed))]


# What is missing


def _unattributed(table: Table) -> list[dict[str, Any]]:
    """Rows without an op by their reason, the longest first, each with its rows by name."""
    rows = np.flatnonzero(table.coded("op").codes < 0)
    reason, name = (Coded.of(table.coded(key).take(rows).texts()) for key in ("reason", "kShortName"))
    keys, group = distinct(reason.codes, name.codes)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, group, table.ints("kDuration")[rows])
    counts = np.bincount(group, minlength=len(keys))
    found: dict[str, list[dict[str, Any]]] = {}
    for (r, n), count, ns in zip(keys, counts, sums, strict=True):
        each = {"name": [*name.values, ""][n], "rows": int(count), "ns": int(ns)}
        found.setdefault([*reason.values, ""][r], []).append(each)
    groups = [
        {
            "reason": text,
            "remedy": remedy(text),
            "rows": sum(each["rows"] for each in names),
            "ns": sum(each["ns"] for each in names),
            "names": sorted(names, key=lambda each: (-each["ns"], each["name"])),
        }
        for text, names in found.items()
    ]
    return sorted(groups, key=lambda each: (-each["ns"], each["reason"]))
