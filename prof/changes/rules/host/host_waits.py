"""What makes the host wait: values and sizes read from the GPU, memory given back to the driver."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.base_run import calls_of_memory
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.limits.occupancy import json_list
from pyprof.prof.timing.gpus import SMALL, TO_HOST, named_rows
from pyprof.quantities import rounded
from pyprof.table.api_kinds import GIVING
from pyprof.table.columns import NULL, Bools, Ints

LARGEST = 1 << 16  # bytes of sizes, indices and tables of which the GPU takes some values
COPYING = ("copy_", "_to_copy", "")  # the program's own copies; the ops around some are not known
BY_PROGRAM = (
    "Do not wait for small copies to the host within the step: copy with non_blocking=True to pinned memory and read "
    "the values a step later, or keep on the CPU what .cpu(), .tolist() and print need."
)
BY_SIZE = (
    "Avoid ops whose result's size depends on the data: torch.where in place of x[mask], one sort and batched products "
    "in place of a loop over masks; keep lengths that the program needs on the CPU."
)
LATER = "Do not read values from the GPU within the step: keep them there, and read them every few steps."
NO_CONDITION = (
    "Do not decide by values of the GPU within the step: in place of if mask.any(), do the work for all elements and "
    "choose with torch.where, which changes nothing where the mask is empty. A library's checks can be off, such as "
    "those of torch.distributions by validate_args=False."
)
END_OF_LOOP = (
    "Ask only every few iterations whether a loop is done: as long as the values stay on the GPU, the host launches "
    "ahead, and what the iterations after the end make is dropped."
)
# torch.cuda.empty_cache() frees all at one place. Without a pool, memory was freed between every fourth launch and the
# next (a residual network on an MI300X).
BETWEEN_LAUNCHES = 0.1
POOL = (
    "Let PyTorch's allocator keep its pool: unset PYTORCH_NO_CUDA_MEMORY_CACHING and PYTORCH_NO_HIP_MEMORY_CACHING, by "
    "which each tensor takes its memory from the driver."
)
KEEP = (
    "Leave memory to PyTorch's allocator: remove torch.cuda.empty_cache() from the step; where nothing calls it, "
    "memory is short, and the allocator frees blocks of other sizes (expandable_segments)."
)
WAITING = "the host waits until the GPU has done all that was launched, and the GPU then waits for the host"
NO_READS = "no value of the GPU is read within the steps (aten::_local_scalar_dense)"
BY_SCALER = (
    "only GradScaler reads values, to know whether gradients are finite: an optimizer with fused=True takes that on "
    "the GPU, and bfloat16 needs no GradScaler"
)
WAITS = ("stream sync", "event sync", "device sync")
READ, UNSCALE = "_local_scalar_dense", "_amp_foreach_non_finite_check_and_unscale_"
CONDITIONS = ("aten::is_nonzero", "aten::equal", "aten::allclose")  # ops by which a program decides
OF_PROGRAM = {*CONDITIONS, "aten::item", f"aten::{READ}"}  # ops around the reads that a program asks for
NEXT = 3  # launches by which an iteration of a loop is told from what follows its end


def copies(run: Run, *words: str) -> Bools:
    """A mask of the copies whose names have one of these words, such as those of their direction."""
    return run.table.coded("kind").among("memcpy") & named_rows(run.table, *words)


def single_values(run: Run) -> Bools:
    """A mask of the values that the program reads one by one; not those that PyTorch's ops read to know the size of
    their result, as unique and bincount do."""
    nodes = run.table.coded("nodes")
    by_op = nodes.where(lambda text: any(name[:6] == "aten::" for name in {*map(str, json_list(text))} - OF_PROGRAM))
    found: Bools = (run.aten == READ) & ~by_op
    return found


def _small_reads(scenario: Scenario, most: int, chosen: Bools) -> Ints:
    """Those of the chosen rows that are copies to the host of at most so many bytes, by a known call."""
    run, size = scenario.run, scenario.run.table.ints("bytes")
    rows = np.flatnonzero(chosen & copies(run, *TO_HOST) & (size != NULL) & (size <= most))
    return rows[scenario.calls(rows) >= 0]


@edit_rule("item")
def item(scenario: Scenario) -> Iterator[Proposal]:
    """Values read one by one: .item(), float(); or a condition on a tensor. Neither copy nor wait remains.

    Refuted by: reads of GradScaler's own, which is no code of the program's; reads of PyTorch's ops, which need sizes.
    """
    run = scenario.run
    rows = _small_reads(scenario, SMALL, single_values(run))
    own = np.setdiff1d(rows, reads_of_scaler(run))
    if not len(own):
        yield Abstained("item", BY_SCALER if len(rows) else NO_READS)
    asks = run.mentions("nodes", *CONDITIONS)[own]
    ends = asks & np.isin(own, _of_loops_ends(run, own[asks]))
    for change, what, read, cost in (
        (LATER, "(.item() or float())", own[~asks], "item"),
        (NO_CONDITION, "for conditions", own[asks & ~ends], "item of conditions"),
        (END_OF_LOOP, "to know whether a loop is done", own[ends], "item of conditions"),
    ):
        if len(read):
            why = f"{run.number(read, 'value is', 'values are')} read from the GPU {what}: {WAITING}"
            yield without_waits(scenario, "item", change, why, read, COSTS[cost])


def _of_loops_ends(run: Run, rows: Ints) -> Ints:
    """Those of the conditions that end a loop: in each step, a line's last one is followed by other ops than those
    before it, all of which the same ops follow."""
    lines: dict[str, dict[int, list[int]]] = {}
    for row, step in zip(rows.tolist(), run.table.ints("step")[rows].tolist(), strict=True):
        lines.setdefault(run.trace(row), {}).setdefault(step, []).append(row)
    found = []
    for steps in lines.values():
        after = [[tuple(run.aten[row + 1 : row + 1 + NEXT]) for row in asked] for asked in steps.values()]
        if all(len(set(each[:-1])) == 1 < len(each) - 1 and each[-1] != each[0][: len(each[-1])] for each in after):
            found += [row for asked in steps.values() for row in asked]
    return np.array(found, np.int64)


def reads_of_scaler(run: Run) -> Ints:
    """The values that torch.amp.GradScaler reads, to know whether to make the optimizer's step: after it has unscaled
    the gradients, the last read before the step's first launch (torch/amp/grad_scaler.py, ``_maybe_opt_step``)."""
    found, read, unscaled = [], -1, False
    for row in range(run.rows if bool((run.aten == UNSCALE).any()) else 0):
        if run.aten[row] == UNSCALE:
            read, unscaled = -1, True
        elif unscaled and run.aten[row] == READ:
            read = row
        elif unscaled and run.phase[row] == "optimizer" and read >= 0:
            found.append(read)
            unscaled = False
    return np.array(found, np.int64)


@edit_rule("size_sync")
def size_sync(scenario: Scenario) -> Iterator[Proposal]:
    """Small copies to the host that are no single values: counts, sizes and indices that an op or the program asks for.

    x[mask], nonzero and unique ask for the size of their result; .tolist() and .cpu() for the values. Only the waits
    go: what sorting once and batched products in place of a loop over masks bring besides is not counted.

    Refuted by: copies for which the host does not wait.
    """
    run = scenario.run
    rows = _small_reads(scenario, LARGEST, ~single_values(run))
    rows = rows[~scenario.released[scenario.calls(rows)]]
    if not len(rows):
        yield Abstained("size_sync", "no sizes, indices or small tensors are copied to the host within the steps")
        return
    ops = ", ".join(dict.fromkeys(run.op(row) for row in rows.tolist()))
    why = f"{run.number(rows, 'small copy', 'small copies')} to the host ({ops}): {WAITING}"
    by_program = bool(np.isin(run.aten[rows], COPYING).all())
    change, cost = (BY_PROGRAM, "size_sync of copies") if by_program else (BY_SIZE, "size_sync")
    yield without_waits(scenario, "size_sync", change, why, rows, COSTS[cost])


def without_waits(scenario: Scenario, rule: str, change: str, why: str, rows: Ints, cost: str) -> Edit:
    """The edit by which these copies go, and the waits for them."""
    gone = np.zeros(len(rows))
    return Edit(rule, change, why, cost, rows, ns=gone, left=gone, released=released_by(scenario, rows))


def released_by(scenario: Scenario, rows: Ints) -> Ints:
    """The calls that launch these rows, and the synchronisations that directly follow them on their threads, as those
    of copies to pageable memory: if the rows go, the host waits in none of them.
    """
    calls, every = scenario.calls(rows), scenario.base.recorded.calls
    calls = calls[calls >= 0]
    return np.concatenate([calls, np.flatnonzero(np.isin(every.before, calls) & every.among(*WAITS))])


@edit_rule("allocator")
def allocator(scenario: Scenario) -> Iterator[Proposal]:
    """Memory that is given back to the driver and taken from it again in each step: by emptying the pool, or tensor by
    tensor, where PyTorch's allocator keeps none.

    Refuted by: no marked steps, for a program also takes memory for the first time, and cuDNN's autotuning gives some
    back, before the steps that repeat.
    """
    run, calls = scenario.run, scenario.base.recorded.calls
    if not run.marked:
        yield Abstained("allocator", "without marked steps, memory that is taken once looks like that of each step")
        return
    freed, taken = calls_for_memory(scenario)
    if not len(freed) or not len(taken):
        yield Abstained("allocator", "no step both frees memory of the driver and allocates it")
        return
    found = np.concatenate([freed, taken])
    spent = run.ms(float((calls.end - calls.start)[found].sum()))
    launches = np.sort(calls.start[within_run(scenario) & calls.among(*GIVING)])
    places = len(np.unique(np.searchsorted(launches, calls.start[freed])))
    no_pool = places > BETWEEN_LAUNCHES * len(launches)
    before = calls.before[freed]  # PyTorch waits before it gives memory back
    yield Edit(
        rule="allocator",
        change=POOL if no_pool else KEEP,
        why=(
            f"{rounded(run.count(len(freed)))} times per {run.unit} memory is given back to the driver"
            f"{f', at {rounded(run.count(places))} places between launches' if no_pool else ''}, for which the host "
            f"waits for the GPU, and {rounded(run.count(len(taken)))} times taken again: {rounded(spent)} ms of the "
            f"host's time{'. So it goes where tensors come and go without a pool' if no_pool else ''}"
        ),
        cost=COSTS["allocator"],
        released=np.concatenate([found, np.unique(before[(before >= 0) & calls.among(*WAITS)[before]])]),
    )


def within_run(scenario: Scenario) -> Bools:
    """Per call: whether it begins between the run's first operation and the end of its last one."""
    run, start = scenario.run, scenario.base.recorded.calls.start
    begin, end = (int(run.start.min()), int(run.end.max())) if run.rows else (0, 0)
    return (start >= begin) & (start < end)


def calls_for_memory(scenario: Scenario) -> tuple[Ints, Ints]:
    """The run's calls that give memory back to the driver, and those that take it from there."""
    base = scenario.base
    chosen = calls_of_memory(base) & within_run(scenario) & ~scenario.released
    frees = base.recorded.calls.among("free")
    return np.flatnonzero(chosen & frees), np.flatnonzero(chosen & ~frees)
