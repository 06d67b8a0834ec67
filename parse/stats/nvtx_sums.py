"""nvtx_*: time in ranges on the CPU, the kernels launched in them, and ranges projected onto the GPU's timeline.

A range in which GPU operations (kernels, copies, memsets) were launched is projected to the time from the start of the
first operation to the end of the last, including idle time in between. Start/end ranges count only if they began and
ended on the same thread. Levels, children and parents consider only projected ranges, so all children that NumChild
counts are in the table. Ids are the row numbers in nsys's table of NVTX events.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.parse.attribute.nesting import innermost, nest
from pyprof.parse.stats import group_statistics as grouped
from pyprof.parse.stats.cuda_sums import kernel_names
from pyprof.parse.stats.group_statistics import Cells, Columns, Rows, by_text, statistics
from pyprof.parse.stats.recording import KERNEL, Calls, Recording, Spans
from pyprof.table.columns import NULL, Ints, distinct, numbered

STYLES = ("PushPop", "StartEnd")  # indexed by Spans.startend
OUTSIDE = -1  # stands for the missing range and its style


def nvtx_sum(recording: Recording, _: str = "") -> Rows:
    texts, styles, code = _by_text_and_style(recording.spans)
    return grouped.group_rows(code, recording.spans.durations(), texts, [styles, texts])


def _by_text_and_style(spans: Spans) -> tuple[list[str], list[str], Ints]:
    """The texts and styles of the distinct pairs of both, and each range's number among them."""
    names = by_text(spans.name)
    first, code = numbered(names.codes, spans.startend.astype(np.int64))
    texts = [names.values[name] for name in names.codes[first].tolist()]
    return texts, [STYLES[style] for style in spans.startend[first].tolist()], code


def nvtx_pushpop_sum(recording: Recording, _: str = "") -> Rows:
    spans = recording.spans.take(~recording.spans.startend)
    return grouped.time_rows(spans.name, spans.durations())


def nvtx_startend_sum(recording: Recording, _: str = "") -> Rows:
    spans = recording.spans.take(recording.spans.startend)
    return grouped.time_rows(spans.name, spans.durations())


def nvtx_kern_sum(recording: Recording, variant: str = "") -> Rows:
    """The kernels launched inside each range; a kernel in nested ranges counts in each of them.

    Kernels launched outside all ranges come first, without a range. Rows are sorted by range, style, process and
    thread, and only then by total time.
    """
    if not len(recording.spans):
        return []
    gpu, spans = recording.gpu.of(KERNEL), recording.spans.of_one_thread()
    row, span = enclosing(spans, gpu.launch)
    outside = np.setdiff1d(np.arange(len(gpu)), row)
    row, span = np.concatenate([row, outside]), np.concatenate([span, np.full(len(outside), OUTSIDE)])
    ranges, kernels = by_text(spans.name), kernel_names(gpu, variant)
    # span -1 finds the last, which is OUTSIDE
    name, style = (np.append(column.astype(np.int64), OUTSIDE)[span] for column in (ranges.codes, spans.startend))
    keys = (name, style, gpu.launch.pid[row], gpu.launch.tid[row], kernels.codes[row])
    first, code = numbered(*keys)
    name, style, pid, tid, kernel = (key[first].astype(np.int64) for key in keys)
    inside, around = code[span >= 0], span[span >= 0]
    instances = np.bincount(inside[numbered(inside, around)[0]], minlength=len(first))  # different ranges in each group
    found = statistics(code, gpu.durations()[row])
    by_name = _ranks(kernels.values, kernel), -found.total, tid, pid, style, _ranks([*ranges.values, ""], name)
    order = np.lexsort(by_name)
    found = found.take(order)
    heads = [Cells([*ranges.values, None], name[order]), Cells([*STYLES, None], style[order])]
    owners = [Cells.of_known(pid[order]), Cells.of_known(tid[order])]
    counts = [Cells.of(instances[order]), Cells.of(found.rows), Cells.of(found.total)]
    return Columns([*heads, *owners, *counts, *found.times(), Cells(kernels.values, kernel[order])])


def _ranks(texts: Sequence[str], used: Ints) -> Ints:
    """The place of each used text among them in alphabetical order. ``used``: indices of texts; -1: the last one."""
    codes, number = np.unique(used, return_inverse=True)
    names = [texts[code] for code in codes.tolist()]
    rank = np.empty(len(codes), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return rank[number.reshape(-1)]


def enclosing(spans: Spans, launch: Calls) -> tuple[Ints, Ints]:
    """Every pair of a launch and a range that contains the whole call: (rows of ``launch``, rows of ``spans``)."""
    pid, tid = np.concatenate([spans.pid, launch.pid]), np.concatenate([spans.tid, launch.tid])
    _, thread = distinct(pid, tid)
    of_span, of_call = thread[: len(spans)], np.where(launch.start != NULL, thread[len(spans) :], -1)
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for style in (False, True):  # separately, since start/end ranges may overlap: ranges that do not nest take long
        styled = np.flatnonzero(spans.startend == style)
        nesting = nest(of_span[styled], spans.start[styled], spans.end[styled])
        around = innermost(nesting, of_call, launch.start)
        while len(rows := np.flatnonzero(around >= 0)):  # all launches together, from the innermost range outwards
            pairs.append((rows, styled[nesting.source[around[rows]]]))
            around[rows] = nesting.parent[around[rows]]
    row, span = (np.concatenate(column) for column in zip(*pairs, strict=True))
    whole = launch.end[row] <= spans.end[span]
    return row[whole], span[whole]


@dataclass(slots=True)
class _Projected:
    """The ranges with GPU operations, and their times on the GPU in ns."""

    spans: Spans  # sorted by start, an outer range before the inner ones
    start: Ints
    end: Ints
    operations: Ints  # per range: the number of operations launched inside
    parent: Ints  # per range: the index of its parent among these ranges; -1 for none
    level: Ints  # per range: the number of ranges around it
    children: Ints  # per range: the number of ranges whose parent it is


def nvtx_gpu_proj_sum(recording: Recording, _: str = "") -> Rows:
    projected = _project(recording)
    texts, styles, code = _by_text_and_style(projected.spans)
    found = statistics(code, projected.end - projected.start).largest_first(texts)
    lengths, operations, levels, children = (
        statistics(code, column).take(found.group)
        for column in (projected.spans.durations(), projected.operations, projected.level, projected.children)
    )
    means = [Cells.of(column.mean, grouped.TENTH) for column in (operations, levels, children)]
    names = [Cells(column, found.group) for column in (texts, styles)]
    totals = [Cells.of(column) for column in (found.total, lengths.total, found.rows)]
    return Columns([*names, *totals, *found.times(), Cells.of(operations.total), *means])


def nvtx_gpu_proj_trace(recording: Recording, _: str = "") -> Rows:
    projected = _project(recording)
    spans, parents = projected.spans, projected.parent.tolist()
    numbers = spans.id.tolist()
    stack: list[str] = []
    for number, parent in zip(numbers, parents, strict=True):
        stack.append(f"{stack[parent] if parent >= 0 else ''}:{number}")
    parent_ids = [numbers[parent] if parent >= 0 else None for parent in parents]
    styles = [STYLES[style] for style in spans.startend.tolist()]
    times = (projected.start, projected.end - projected.start, spans.start, spans.durations())
    counts = (spans.pid, spans.tid, projected.operations, projected.level, projected.children)
    before, after = ([column.tolist() for column in columns] for columns in (times, counts))
    rows = list(zip(spans.name.texts(), *before, styles, *after, numbers, parent_ids, stack, strict=True))
    return [list(rows[i]) for i in np.argsort(spans.id, kind="stable").tolist()]


def _project(recording: Recording) -> _Projected:
    spans, gpu = recording.spans.of_one_thread(), recording.gpu
    spans = spans.take(np.lexsort((-spans.end, spans.start)))
    row, span = enclosing(spans, gpu.launch)
    start, end = np.full(len(spans), np.iinfo(np.int64).max), np.full(len(spans), np.iinfo(np.int64).min)
    np.minimum.at(start, span, gpu.start[row])
    np.maximum.at(end, span, gpu.end[row])
    operations = np.bincount(span, minlength=len(spans))
    used = np.flatnonzero(operations)
    spans = spans.take(used)
    parent = _parents(spans)
    children = np.bincount(parent[parent >= 0], minlength=len(spans))
    return _Projected(spans, start[used], end[used], operations[used], parent, _levels(parent), children)


def _parents(spans: Spans) -> Ints:
    """The innermost range of the same thread that contains each range entirely; -1 for none."""
    if not len(spans):
        return np.zeros(0, np.int64)
    _, thread = distinct(spans.pid, spans.tid)
    nesting = nest(thread, spans.start, spans.end)
    _, first = np.unique(nesting.source, return_index=True)  # the first piece of each range
    around = nesting.parent[first]
    while True:
        source = nesting.source[around]
        outlived = (around >= 0) & (spans.end[source] < spans.end)
        if not outlived.any():
            return np.where(around >= 0, source, -1)
        around[outlived] = nesting.parent[around[outlived]]


def _levels(parent: Ints) -> Ints:
    """The number of ranges around each range."""
    level, above = np.zeros(len(parent), np.int64), parent.copy()
    while len(inside := np.flatnonzero(above >= 0)):
        level[inside] += 1
        above[inside] = parent[above[inside]]
    return level
