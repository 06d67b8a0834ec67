"""What a capture has lost, by its calls and its GPU operations: kernels, parts of CUDA graphs, and launches.

Profilers lose records without a word: where CUPTI's buffers run out it drops them, and PyTorch's profiler leaves out
kernels whose times lie outside of its window by an error of the clock (pytorch/pytorch#192021). In complete captures
every launch that ran has its kernel: none of 150,000 launches in 60 captures of five profilers lacks it, but for those
that a CUDA graph recorded and those that ran only after the capture had ended.

Nothing is called lost that may simply not have run before the capture ended, or may have been launched before it began.
That a launch's work was done is known in two ways: a call that waits for the whole device returned, or work that was
launched later has run on each stream that the launch's thread uses, as streams keep the order.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.parse.formats.cupti import Calls
from pyprof.parse.formats.impossible_times import impossible_times, waits_for_nothing
from pyprof.table.columns import NULL, Bools, Coded, Data, Ints, coded_of, distinct, ints_of, value_at
from pyprof.table.losses import Loss

_LAUNCH = re.compile(r"(?:cuda|cu|hip)(?!\w*(?:Host|Node))\w*Launch")
_GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)GraphLaunch")
_WAIT = re.compile(r"(?:cudaDevice|cuCtx|hipDevice)Synchronize")
_CAPTURE = re.compile(r"(?:cuda|cu|hip)Stream(Begin|End)Capture")
_CONDITIONAL = re.compile(r"(?:cuda|cu)GraphConditionalHandleCreate")
# What CUPTI, libkineto ("Dropped 12 activity records", "Exceeded max GPU buffer count") and nsys say of lost records of
# the GPU: a word of loss and what is lost. That "not all CUDA events might have been collected" stands in captures that
# lack none, and neither idle time nor advice rests on samples of the CPU.
_LOSS = re.compile(r"\b(?:dropped|lost|discarded|overflow(?:ed)?|exhausted|insufficient|exceeded max)\b", re.IGNORECASE)
_RECORDS = re.compile(r"\b(?:events?|records?|buffers?|activit(?:y|ies)|kernels?)\b", re.IGNORECASE)
_OTHER = re.compile(
    r"\b(?:might|may|no)\b|sampl|sched|switch|NVTX|OpenGL|Vulkan|OS runtime|backtrace|callchain|\bperf\b", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*")
MOST = 300  # characters of a profiler's message
_NONE = np.empty(0, np.int64)

# How to record a capture anew whose records the profiler lost, by profiler.
REMEDIES = {
    "kineto": "record fewer steps, end with torch.cuda.synchronize(), or give the profiler more room "
    "(ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB in the file that KINETO_CONFIG names)",
    "nsys": "record a shorter range (--capture-range=cudaProfilerApi), let the program end by itself, or have nsys "
    "save its buffers as the program runs (--cuda-flush-interval)",
    "": "record a shorter run, and let the program end by itself",
}


@dataclass(frozen=True, slots=True)
class Joined:
    """GPU operations and the calls that launched them."""

    calls: Calls
    call: Ints  # per operation: the index of its call; -1: none
    columns: Mapping[str, Data]  # of the kernel table, per operation
    last: Callable[[], int]  # the last time at which the profiler is known to have recorded, on the calls' clock
    failed: Callable[[], Bools] | None = None  # which calls returned an error, where that is on record
    captured: tuple[Ints, Ints] = _NONE, _NONE  # process and number of each graph node that a captured launch made

    def ints(self, key: str) -> Ints:
        return ints_of(self.columns, key, len(self.call))

    def coded(self, key: str) -> Coded:
        return coded_of(self.columns, key, len(self.call))


def reported_losses(messages: Sequence[str], profiler: str) -> list[Loss]:
    """What the profiler itself says that it lost, of its ``messages``."""
    texts = (" ".join(text.split()) for text in messages if _is_loss(text))
    remedy = REMEDIES.get(profiler.partition(" ")[0], REMEDIES[""])
    return [Loss(f"the profiler says: {text[:MOST].rstrip('.')}", remedy) for text in dict.fromkeys(texts)]


def _is_loss(message: str) -> bool:
    """Whether a profiler's message says that records of the GPU are lost; a count of 0 does not."""
    numbers = [int(text.replace(",", "")) for text in _NUMBER.findall(message[:MOST])]
    says_so = _LOSS.search(message) and _RECORDS.search(message) and not _OTHER.search(message)
    return bool(says_so) and (not numbers or any(numbers))


def untimed(rows: int) -> list[Loss]:
    """The loss of the times of so many GPU operations."""
    what = f"{rows:,} GPU operations have" if rows > 1 else "1 GPU operation has"
    return [Loss(f"{what} no possible time", REMEDIES[""])] if rows else []


def lost_records(joined: Joined, uncalled: Bools, profiler: str) -> list[Loss]:
    """What is lost. ``uncalled``: the operations whose call should be in the capture, and is not."""
    if not len(joined.call):  # the GPU was not recorded at all, as with ProfilerActivity.CPU alone
        return []
    remedy = REMEDIES.get(profiler, REMEDIES[""])
    launching = joined.calls.name.where(_LAUNCH.match)
    ran = np.zeros(len(joined.calls.start), bool)
    ran[joined.call[joined.call >= 0]] = True
    silent = np.flatnonzero(launching & ~ran)
    texts = []
    if len(silent):
        if joined.failed is not None:
            silent = silent[~joined.failed()[silent]]
        silent = silent[_finished(joined, silent)]
        silent = silent[~(_captured(joined.calls, silent) | _counted_twice(joined.calls, launching, silent))]
        graphs = joined.calls.name.take(silent).where(_GRAPH_LAUNCH.match)
        texts += _without(int(np.count_nonzero(~graphs)), int(launching.sum()), "kernel launches", "kernel")
        replays = int(joined.calls.name.where(_GRAPH_LAUNCH.match).sum())
        texts += _without(int(np.count_nonzero(graphs)), replays, "launches of CUDA graphs", "operation")
    texts += _partial_graphs(joined)
    lost = _uncalled(joined, uncalled)
    if lost:
        have = "kernels have" if lost > 1 else "kernel has"
        texts.append(f"{lost:,} {have} no record of the launch, though other launches of the same kernels have one")
    found = [Loss(text, remedy) for text in texts]
    return [*found, *impossible_times(joined), *([] if found else waits_for_nothing(joined))]


def _without(count: int, total: int, launches: str, work: str) -> list[str]:
    have = "has" if count == 1 else "have"
    return [f"{count:,} of {total:,} {launches} {have} no {work} in the capture"] if count else []


def _finished(joined: Joined, chosen: Ints) -> Bools:
    """Whether the work of each of the ``chosen`` launches is known to have run before the capture ended."""
    calls, call = joined.calls, joined.call
    done = np.zeros(len(chosen), bool)
    device, stream, row_pid = joined.ints("device"), joined.ints("stream"), joined.ints("pid")
    launched = value_at(calls.start, call)
    row_thread = value_at(calls.tid, call)
    waits = np.flatnonzero(calls.name.where(_WAIT.match) & (calls.end <= joined.last()) & (calls.end >= calls.start))
    for pid in np.unique(calls.pid[chosen]).tolist():
        mine = calls.pid[chosen] == pid
        rows = (row_pid == pid) & (call >= 0)
        if len(np.unique(device[rows])) <= 1:  # the call waits for one device
            until = calls.start[waits[calls.pid[waits] == pid]].max(initial=NULL)
            done |= mine & (calls.end[chosen] <= until)
        for thread in np.unique(calls.tid[chosen[mine]]).tolist():
            streams, number = distinct(device[rows], stream[rows])
            times = np.full(len(streams), NULL, np.int64)
            np.maximum.at(times, number, launched[rows])
            used = np.unique(number[row_thread[rows] == thread])
            if len(used) and all(NULL not in streams[place] for place in used.tolist()):
                done |= mine & (calls.tid[chosen] == thread) & (calls.end[chosen] <= times[used].min())
    return done


def _captured(calls: Calls, chosen: Ints) -> Bools:
    """Whether each of the ``chosen`` launches was, or may have been, recorded into a CUDA graph.

    A thread that ends a capture which it never began did so before the profiler began; one that it never ends goes on.
    Launches of all threads of the process count, because others may join in.
    """
    marks = np.flatnonzero(calls.name.where(_CAPTURE.match))
    inside = np.zeros(len(chosen), bool)
    if not len(marks):
        return inside
    begins = calls.name.where(lambda name: "BeginCapture" in name)
    for pid, tid in {(int(calls.pid[i]), int(calls.tid[i])) for i in marks.tolist()}:
        mine = marks[(calls.pid[marks] == pid) & (calls.tid[marks] == tid)]
        mine = mine[np.argsort(calls.start[mine], kind="stable")]
        depth = np.cumsum(np.where(begins[mine], 1, -1))
        before = -min(int(depth.min()), 0)  # captures that were open at the begin
        opened = np.append(before, depth + before) > 0
        of_pid = np.flatnonzero(calls.pid[chosen] == pid)
        inside[of_pid] |= opened[np.searchsorted(calls.start[mine], calls.start[chosen[of_pid]], "right")]
    return inside


def _counted_twice(calls: Calls, launching: Bools, chosen: Ints) -> Bools:
    """Whether each of the ``chosen`` launches makes, or is made by, another launch: of the two, one has the kernel."""
    others = np.flatnonzero(launching)
    order = others[np.lexsort((-calls.end[others], calls.start[others], calls.tid[others], calls.pid[others]))]
    nested = np.zeros(len(calls.start), bool)
    first, second = order[:-1], order[1:]
    same = (calls.pid[first] == calls.pid[second]) & (calls.tid[first] == calls.tid[second])
    within = same & (calls.start[second] < calls.end[first]) & (calls.end[second] <= calls.end[first])
    nested[first[within]] = nested[second[within]] = True
    return nested[chosen]


def _partial_graphs(joined: Joined) -> list[str]:
    """Launches of CUDA graphs that have fewer nodes than another launch of the same graph, or than its capture made.

    Graphs are the same if one launch has all nodes of the other one, by CUPTI's numbers. A graph with conditional nodes
    may run fewer of them, or some of them several times.
    """
    calls, node, pid = joined.calls, joined.ints("graphNode"), joined.ints("pid")
    if joined.calls.name.where(_CONDITIONAL.match).any():
        return []
    of_graph = calls.name.where(_GRAPH_LAUNCH.match)
    rows = np.flatnonzero((joined.call >= 0) & (node != NULL))
    rows = rows[of_graph[joined.call[rows]]]
    if not len(rows):
        return []
    keys, number = distinct(*map(np.concatenate, zip((pid[rows], node[rows]), joined.captured, strict=True)))
    launches: dict[int, list[int]] = {}
    for call, own in zip(joined.call[rows].tolist(), number[: len(rows)].tolist(), strict=True):
        launches.setdefault(call, []).append(own)
    if any(len(set(nodes)) < len(nodes) for nodes in launches.values()):
        return []
    sets: dict[frozenset[int], list[int]] = {}
    for call, nodes in launches.items():
        sets.setdefault(frozenset(nodes), []).append(call)
    for whole_graph in _captured_graphs(keys, number[: len(rows)], number[len(rows) :]):
        sets.setdefault(whole_graph, [])
    return _lacking(joined, sets, len(launches))


def _lacking(joined: Joined, sets: dict[frozenset[int], list[int]], launches: int) -> list[str]:
    """What is said of launches that lack nodes. ``sets``: the launches by their nodes; none of what a capture made."""
    whole = {each: nodes for nodes in sorted(sets, key=len) for each in nodes}  # a node's largest set
    lacking = {
        call: full - nodes
        for nodes, found in sets.items()
        if nodes < (full := whole[next(iter(nodes))])
        for call in found
    }
    chosen = np.array([*lacking], np.int64)
    partial = chosen[_finished(joined, chosen)].tolist() if len(chosen) else []
    if not partial:
        return []
    lost = sum(len(lacking[call]) for call in partial)
    lack = "lacks" if len(partial) == 1 else "lack"
    shown = all(sets[whole[next(iter(lacking[call]))]] for call in partial)
    which = "that other launches of the same graph have" if shown else "that the graphs captured"
    return [f"{len(partial):,} of {launches:,} launches of CUDA graphs {lack} {lost:,} operations {which}"]


def _captured_graphs(keys: Sequence[tuple[int, ...]], ran: Ints, captured: Ints) -> Iterator[frozenset[int]]:
    """The nodes of each graph of which some ran: those that ran, and those that its captured launches made.

    ``keys``: process and number of each node. The upper half of a number is that of the node's graph.
    """
    of_graph: dict[tuple[int, int], set[int]] = {}
    for each in ran.tolist():
        pid, node = keys[each]
        of_graph.setdefault((pid, node >> 32), set()).add(each)
    for each in captured.tolist():
        pid, node = keys[each]
        if (pid, node >> 32) in of_graph:
            of_graph[pid, node >> 32].add(each)
    return (frozenset(nodes) for nodes in of_graph.values()) if len(captured) else iter(())


def _uncalled(joined: Joined, uncalled: Bools) -> int:
    """The number of kernels without a call, in processes where kernels of the same name have one.

    Some profilers record only some calls, so that all launches of a kernel may lack a record: PyTorch's did not record
    those of the driver before 2022. A call at the edge of the capture may have begun before it, or end after it: so one
    with a smaller and one with a larger correlation id must be on record.
    """
    if not uncalled.any():
        return 0
    calls, corr = joined.calls, joined.ints("corr")
    name, pid = joined.coded("kLongName").codes, joined.ints("pid")
    kernel = joined.coded("kind").among("kernel") & (name >= 0)
    known = kernel & (joined.call >= 0)
    named = set(zip(pid[known].tolist(), name[known].tolist(), strict=True))
    lost = 0
    for process in np.unique(pid[kernel & uncalled]).tolist():
        ids = calls.corr[(calls.pid == process) & (calls.corr > 0)]
        rows = np.flatnonzero(kernel & uncalled & (pid == process))
        if np.all(corr[rows] != NULL) and len(ids):
            rows = rows[(corr[rows] > ids.min()) & (corr[rows] < ids.max())]
        lost += sum((process, code) in named for code in name[rows].tolist())
    return lost
