"""What makes the host wait: values read from the GPU, copies of pageable memory, memory given back, late batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.base_run import calls_of_memory
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import RANGES, Scenario
from pyprof.prof.changes.rules.host.batch_makers import FOR_LOADER, made_by
from pyprof.prof.changes.rules.host.copies import LARGE
from pyprof.prof.limits.architectures import PCIE_3, PCIE_5, PINNED, PINNED_PCIE_5
from pyprof.prof.timing.gpus import SMALL, TO_DEVICE, TO_HOST, named_rows
from pyprof.prof.timing.input_data import BATCH
from pyprof.quantities import amount, rounded
from pyprof.table.api_kinds import GIVING
from pyprof.table.columns import NULL, Bools, Floats, Ints

LARGEST = 1 << 16  # bytes of sizes, indices and tables of which the GPU takes some values
LARGEST_MADE = 1 << 20  # bytes of what a layer copies from the CPU without ops there that make it
COPY_NS = 2000.0  # of a copy besides moving its bytes
PIECES = 4  # small copies of one line and step that one copy can do
COPYING = ("copy_", "_to_copy", "")  # the program's own copies; the ops around some are not known
PICKS = ("index", "index_select", "gather", "take", "embedding")  # ops that take some values of a tensor
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
    "choose with torch.where, which changes nothing where the mask is empty."
)
WORKERS = (
    "Load data in the background: DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=...). As many "
    "workers as it takes to make a batch within a step."
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


@edit_rule("item")
def item(scenario: Scenario) -> Iterator[Proposal]:
    """Values read one by one: .item(), float(); or a condition on a tensor. Neither copy nor wait remains.

    Refuted by: reads of GradScaler's own, which is no code of the program's.
    """
    run = scenario.run
    rows = np.flatnonzero(_copies_to_host(run, SMALL) & (run.aten == READ))
    rows = rows[scenario.calls(rows) >= 0]
    own = np.setdiff1d(rows, reads_of_scaler(run))
    if not len(own):
        yield Abstained("item", BY_SCALER if len(rows) else NO_READS)
    asks = run.mentions("nodes", "aten::is_nonzero")[own]
    for change, what, read in (
        (LATER, "(.item() or float())", own[~asks]),
        (NO_CONDITION, "for conditions", own[asks]),
    ):
        if len(read):
            yield Edit(
                rule="item",
                change=change,
                why=f"{run.number(read, 'value is', 'values are')} read from the GPU {what}: {WAITING}",
                cost=COSTS["item" if change == LATER else "item of conditions"],
                rows=read,
                ns=np.zeros(len(read)),
                left=np.zeros(len(read)),
                released=released_by(scenario, read),
            )


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


def _copies_to_host(run: Run, most: int) -> Bools:
    """The copies to the host of at most so many bytes."""
    size = run.table.ints("bytes")
    found: Bools = (run.texts("kind") == "memcpy") & named_rows(run.table, *TO_HOST) & (size != NULL) & (size <= most)
    return found


def _after_joining(run: Run, rows: Ints) -> Floats:
    """Per copy, the share of its launch that remains where those of one line, many and small, become one."""
    share = np.ones(len(rows))
    lines = np.array([run.trace(row) for row in rows.tolist()])
    for line in np.unique(lines).tolist():
        mine = lines == line
        each = run.count(int(mine.sum()))
        if each >= PIECES and run.table.ints("bytes")[rows[mine]].mean() < LARGE:
            share[mine] = 1 / each
    return share


@edit_rule("size_sync")
def size_sync(scenario: Scenario) -> Iterator[Proposal]:
    """Small copies to the host that are no single values: counts, sizes and indices that an op or the program asks for.

    x[mask], nonzero and unique ask for the size of their result; .tolist() and .cpu() for the values. Only the waits
    go: what sorting once and batched products in place of a loop over masks bring besides is not counted.

    Refuted by: copies for which the host does not wait.
    """
    run = scenario.run
    rows = np.flatnonzero(_copies_to_host(run, LARGEST) & (run.aten != READ))
    calls = scenario.calls(rows)
    rows = rows[(calls >= 0) & ~scenario.released[calls]]
    if not len(rows):
        yield Abstained("size_sync", "no sizes, indices or small tensors are copied to the host within the steps")
        return
    ops = ", ".join(dict.fromkeys(run.op(row) for row in rows.tolist()))
    by_program = bool(np.isin(run.aten[rows], COPYING).all())
    yield Edit(
        rule="size_sync",
        change=BY_PROGRAM if by_program else BY_SIZE,
        why=f"{run.number(rows, 'small copy', 'small copies')} to the host ({ops}): {WAITING}",
        cost=COSTS["size_sync of copies" if by_program else "size_sync"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
        released=released_by(scenario, rows),
    )


def released_by(scenario: Scenario, rows: Ints) -> Ints:
    """The calls that launch these rows, and the synchronisations that directly follow them on their threads, as those
    of copies to pageable memory: if the rows go, the host waits in none of them.
    """
    calls, every = scenario.calls(rows), scenario.base.recorded.calls
    calls = calls[calls >= 0]
    return np.concatenate([calls, np.flatnonzero(np.isin(every.before, calls) & every.among(*WAITS))])


SMALL_BYTES = 64 << 10  # of values that a program makes one by one; a batch is larger, or has a few such tensors
OF_BATCH = 8  # copies of one line in a step, at most, as of a batch's tensors
FROM_PINNED = (
    "Copy from pinned memory: DataLoader(pin_memory=True) or tensor.pin_memory(), then .to(device, non_blocking=True); "
    "one copy for many small ones."
)
ON_GPU = (
    "Make small tensors on the GPU: torch.full, torch.arange and the like with device=, those that never change once; "
    "of what only the host knows, one copy of pinned memory for all values of a step."
)


@edit_rule("pageable_copy")
def pageable_copy(scenario: Scenario) -> Iterator[Proposal]:
    """Copies of pageable memory to the GPU: pinned, they are faster, and the host goes on at once.

    Refuted by: pinned memory, by the copies' names.
    """
    run = scenario.run
    size = run.table.ints("bytes")
    chosen = _pageable(run) & np.isin(run.phase, ("data", "forward", "other", "")) & (run.aten == "copy_")
    chosen[made_on_host(scenario)] = False
    rows = np.flatnonzero(chosen)
    rows = rows[scenario.calls(rows) >= 0]
    if not len(rows) or run.device is None or run.device.arch in PCIE_3:
        yield Abstained("pageable_copy", "no copy of pageable memory to the GPU within the steps, or an unknown GPU")
        return
    small = small_made_often(run, rows)
    rate = PINNED_PCIE_5 if run.device.arch in PCIE_5 else PINNED
    for chosen, change in ((rows[~small], FROM_PINNED), (rows[small], ON_GPU)):
        if not len(chosen):
            continue
        share = _after_joining(run, chosen)
        moved = amount(1e6 * run.ms(float(size[chosen].sum())), "B")
        yield Edit(
            rule="pageable_copy",
            change=change,
            why=(
                f"{run.number(chosen, 'copy moves', 'copies move')} {moved} of pageable memory to the "
                "GPU, and the host waits for each"
            ),
            cost=COSTS["pageable_copy"] if change == FROM_PINNED else COSTS["pageable_copy of values"],
            rows=chosen,
            ns=np.minimum(run.dur[chosen], COPY_NS * share + 1e9 * size[chosen] / rate),
            left=share,
            deviation=0.2,
            released=released_by(scenario, chosen),
        )


def small_made_often(run: Run, rows: Ints) -> Bools:
    """A mask of the small copies of lines that make several in a step: no batch, whose tensors are copied once each."""
    lines = Counter(run.trace(row) for row in rows.tolist())
    often = np.array([run.count(lines[run.trace(row)]) > OF_BATCH for row in rows.tolist()], bool)
    found: Bools = often & (run.table.ints("bytes")[rows] < SMALL_BYTES)
    return found


@edit_rule("copy_to_host")
def copy_to_host(scenario: Scenario) -> Iterator[Proposal]:
    """Large copies to pageable memory of the host, which is mostly new to the process: it is mapped page by page.

    What pinned memory that is kept brings is counted; the wait stays, and so does what the host does with the values.

    Refuted by: pinned memory, by the copies' names.
    """
    run = scenario.run
    size = run.table.ints("bytes")
    to_host = (run.texts("kind") == "memcpy") & named_rows(run.table, *TO_HOST) & named_rows(run.table, "Pageable")
    rows = np.flatnonzero(to_host & (size != NULL) & (size >= LARGE))
    if not len(rows) or run.device is None or run.device.arch in PCIE_3:
        yield Abstained("copy_to_host", "no large copy to pageable memory of the host, or an unknown GPU")
        return
    pinned = COPY_NS + 1e9 * size[rows] / (PINNED_PCIE_5 if run.device.arch in PCIE_5 else PINNED)
    total, took = float(size[rows].sum()), float(run.dur[rows].sum())
    moved = amount(1e6 * run.ms(total), "B")
    yield Edit(
        rule="copy_to_host",
        change=(
            "Copy less to the host: choose, sum or round on the GPU and copy the result. What is needed whole goes to "
            "pinned memory that is kept."
        ),
        why=(
            f"{run.number(rows, 'copy moves', 'copies move')} {moved} to pageable memory of the "
            f"host at {rounded(total / max(took, 1.0), 3)} GB/s: {rounded(run.ms(took))} ms. Counted is pinned memory"
        ),
        cost=COSTS["copy_to_host"],
        rows=rows,
        ns=np.minimum(run.dur[rows], pinned),
        left=np.ones(len(rows)),
        deviation=0.3,
    )


def _pageable(run: Run) -> Bools:
    """Copies of pageable memory to the GPU, of known sizes."""
    to_device = (run.texts("kind") == "memcpy") & named_rows(run.table, *TO_DEVICE)
    found: Bools = to_device & named_rows(run.table, "Pageable") & (run.table.ints("bytes") != NULL)
    return found


def made_on_host(scenario: Scenario) -> Ints:
    """Copies of pageable memory to the GPU of what the program makes on the CPU, of the same sizes in each step."""
    run, base = scenario.run, scenario.base
    rows = np.flatnonzero(_pageable(run) & (run.phase != "backward"))
    rows = rows[scenario.calls(rows) >= 0]
    unit, known = base.unit[scenario.calls(rows)], base.unit >= 0
    ranges: Floats = np.bincount(base.unit[known], base.ranges[known], len(base.unit)).astype(np.float64)[unit]
    return _made(run, rows, ranges, np.isin(unit, base.unit[base.pauses]))


def _made(run: Run, rows: Ints, ranges: Floats, paused: Bools) -> Ints:
    """Of these copies, those of what the program makes on the CPU; ``ranges``, ``paused``: what the host does before.

    That is what a layer copies, if it is small or ops on the CPU made it; and after a step's first layer, as for a
    loss, what the host makes for so long that it pauses. Batches are copied before, and labels are not made. Anywhere
    it is a table of which only some values are read.
    """
    size, steps, within = run.table.ints("bytes"), run.table.ints("step"), run.names("layer")[rows]
    by_layer = within & ((size[rows] <= LARGEST_MADE) | (ranges > RANGES))
    looked_up = np.array([_is_looked_up(run, row) for row in rows.tolist()], bool)
    rows = rows[by_layer | (~within & paused & ~before_layers(run)[rows]) | looked_up]
    each = {tuple(size[rows[steps[rows] == step]].tolist()) for step in np.unique(steps).tolist()}
    return rows if len(each) == 1 else rows[:0]


def _is_looked_up(run: Run, row: int) -> bool:
    """Whether the copy is of a small table of numbers, of which the next op takes values by indices that the GPU has.

    As of a schedule of noise by time. Labels are integers; a mask of them comes between, as do indices of the CPU. The
    table may become another type before.
    """
    shape, dtype = run.first_shape(row), str([*run.listed("dtypes", row), ""][0])
    if not shape or run.table.ints("bytes")[row] > LARGEST or not dtype.startswith(("float", "bfloat")):
        return False
    steps = run.table.ints("step")
    for at in range(row + 1, min(row + 3, run.rows)):
        if run.lane[at] != run.lane[row] or steps[at] != steps[row] or run.first_shape(at) != shape:
            return False
        if run.aten[at] != "copy_":
            return str(run.aten[at]) in PICKS
    return False


def before_layers(run: Run) -> Bools:
    """A mask of the rows before the first layer of their step; of a step without layers, all of them."""
    steps, inside = run.table.ints("step"), run.names("layer")
    found = ~np.isin(steps, steps[inside])
    for step in np.unique(steps[inside]).tolist():
        mine = np.flatnonzero(steps == step)
        found[mine[: int(np.argmax(inside[mine]))]] = True
    return found


@edit_rule("allocator")
def allocator(scenario: Scenario) -> Iterator[Proposal]:
    """Memory that is given back to the driver and taken from it again in each step: by emptying the pool, or tensor by
    tensor, where PyTorch's allocator keeps none.

    Refuted by: no marked steps, for a program also takes memory for the first time, and cuDNN's autotuning gives some
    back, before the steps that repeat.
    """
    base, run = scenario.base, scenario.run
    if not run.marked:
        yield Abstained("allocator", "without marked steps, memory that is taken once looks like that of each step")
        return
    calls = base.recorded.calls
    begin, end = (int(run.start.min()), int(run.end.max())) if run.rows else (0, 0)
    inside = (calls.start >= begin) & (calls.start < end)
    within = calls_of_memory(base) & inside & ~scenario.released
    freed, taken = np.flatnonzero(within & calls.among("free")), np.flatnonzero(within & ~calls.among("free"))
    if not len(freed) or not len(taken):
        yield Abstained("allocator", "no step both frees memory of the driver and allocates it")
        return
    found = np.concatenate([freed, taken])
    spent = run.ms(float((calls.end - calls.start)[found].sum()))
    launches = np.sort(calls.start[inside & calls.among(*GIVING)])
    places = len(np.unique(np.searchsorted(launches, calls.start[freed])))
    no_pool = places > BETWEEN_LAUNCHES * len(launches)
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
        released=np.concatenate([found, _syncs_before(scenario, freed)]),
    )


def _syncs_before(scenario: Scenario, calls: Ints) -> Ints:
    """Synchronisations directly before these calls on their threads: PyTorch waits before it gives memory back."""
    every = scenario.base.recorded.calls
    before = every.before[calls]
    before = before[before >= 0]
    return np.unique(before[every.among(*WAITS)[before]])


@edit_rule("data_loader")
def data_loader(scenario: Scenario) -> Iterator[Proposal]:
    """Pauses of the host in a DataLoader's calls, and in training before the copies of a batch, which is then made
    while nothing else goes on.

    Refuted by: worker processes, by the loader's own marks; then they are too few, and it is this that is said.
    """
    run, base = scenario.run, scenario.base
    copies = (run.texts("kind") == "memcpy") & named_rows(run.table, *TO_DEVICE)
    large = (run.phase == "data") & (run.table.ints("bytes") >= BATCH)
    early = np.isin(run.phase, ("data", "forward", "other", "")) & before_layers(run) & run.names("layer").any()
    rows = np.setdiff1d(np.flatnonzero(copies & (large | early)), made_on_host(scenario))
    trains = bool(np.isin(run.phase, ("backward", "optimizer")).any())
    calls = scenario.calls(rows)
    paused = np.union1d(segments_of(scenario, calls[calls >= 0]) if trains else [], np.flatnonzero(base.loading > 0))
    paused = paused.astype(np.int64)
    paused = paused[base.pauses[paused] & ~scenario.prompt[paused]]
    if not len(paused):
        yield Abstained("data_loader", "the host does not pause before copies of input data, or nothing is trained")
        return
    spent = run.ms(float(base.segment[paused].sum()))
    does = {
        "workers": "waits for a batch from worker processes",
        "itself": "makes the next batch itself",
        "besides": "works on the next batch beside the DataLoader's workers",
        "": "pauses before copies of input data",
    }
    loader = made_by(base.run, spent)  # a change may have taken rows with the loader's marks
    yield Edit(
        rule="data_loader",
        change=FOR_LOADER.get(loader, WORKERS),
        why=f"The host {does[loader]}, for {rounded(spent)} ms per {run.unit} as captured, and launches nothing then",
        cost=COSTS["data_loader"],
        prompt=paused,
        loads=True,
    )


def segments_of(scenario: Scenario, calls: Ints) -> Ints:
    """These calls, and those before them that the host makes for the same copy."""
    unit = scenario.base.unit
    return np.flatnonzero(np.isin(unit, unit[calls]))
