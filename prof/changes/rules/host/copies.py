"""Copies between the GPU and pageable memory of the host, and what the host makes for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import RANGES, Scenario
from pyprof.prof.changes.rules.host.host_waits import LARGEST, copies, released_by, without_waits
from pyprof.prof.limits.architectures import PCIE_3, PCIE_5, PINNED, PINNED_PCIE_5
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST
from pyprof.quantities import amount, rounded
from pyprof.table.columns import NULL, Bools, Floats, Ints

LARGE = 1 << 20  # bytes; small copies go through the launch itself
LARGEST_MADE = 1 << 20  # bytes of what a layer copies from the CPU without ops there that make it
COPY_NS = 2000.0  # of a copy besides moving its bytes
PIECES = 4  # small copies of one line and step that one copy can do
PICKS = ("index", "index_select", "gather", "take", "embedding")  # ops that take some values of a tensor
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


def _pinned(run: Run) -> float:
    """The bytes/s of copies from or to pinned memory; 0 over PCIe 3 and on an unknown GPU, where nothing is said."""
    arch = run.device.arch if run.device else ""
    return 0.0 if arch in ("", *PCIE_3) else PINNED_PCIE_5 if arch in PCIE_5 else PINNED


@rule("pageable_copy")
def large_copies(run: Run) -> Iterator[Finding]:
    """Large copies from or to pageable memory, which the driver moves through a buffer of its own while the call waits.

    The name of a copy tells the kinds of memory. Abstains on GPUs before compute capability 8.0 (PCIe 3).

    Refuted by: pinned memory, by the copies' names.
    """
    size, pinned = run.table.ints("bytes"), _pinned(run)
    rows = np.flatnonzero(copies(run, "Pageable") & (size >= LARGE))
    rows = rows[run.dur[rows] * pinned > 1e9 * size[rows]]
    if not len(rows):
        return
    total = float(size[rows].sum())
    why = (
        f"{run.number(rows, 'copy moves', 'copies move')} {rounded(run.ms(total))} MB from or to pageable memory at "
        f"{rounded(total / float(run.dur[rows].sum()), 3)} GB/s. Pinned memory gives {pinned / 1e9:.0f} GB/s or more, "
        "and its copies run beside kernels"
    )
    change = (
        "Copy from pinned memory: DataLoader(pin_memory=True) or tensor.pin_memory(), then .to(device, "
        "non_blocking=True)."
    )
    yield Finding(rows, run.dur[rows] - 1e9 * size[rows] / pinned, why, change)


@edit_rule("pageable_copy")
def pageable_copy(scenario: Scenario) -> Iterator[Proposal]:
    """Copies of pageable memory to the GPU: pinned, they are faster, and the host goes on at once.

    Refuted by: pinned memory, by the copies' names.
    """
    run = scenario.run
    chosen = _to_gpu(run) & np.isin(run.phase, ("data", "forward", "other", "")) & (run.aten == "copy_")
    chosen[made_on_host(scenario)] = False
    rows, pinned = np.flatnonzero(chosen), _pinned(run)
    rows = rows[scenario.calls(rows) >= 0]
    if not len(rows) or not pinned:
        yield Abstained("pageable_copy", "no copy of pageable memory to the GPU within the steps, or an unknown GPU")
        return
    small = small_made_often(run, rows)
    for some, change, cost in (
        (rows[~small], FROM_PINNED, "pageable_copy"),
        (rows[small], ON_GPU, "pageable_copy of values"),
    ):
        if not len(some):
            continue
        size = run.table.ints("bytes")[some]
        share = _after_joining(run, some)
        yield Edit(
            rule="pageable_copy",
            change=change,
            why=(
                f"{run.number(some, 'copy moves', 'copies move')} {_moved(run, some)} of pageable memory to the "
                "GPU, and the host waits for each"
            ),
            cost=COSTS[cost],
            rows=some,
            ns=np.minimum(run.dur[some], COPY_NS * share + 1e9 * size / pinned),
            left=share,
            deviation=0.2,
            released=released_by(scenario, some),
        )


def _moved(run: Run, rows: Ints) -> str:
    return amount(1e6 * run.ms(float(run.table.ints("bytes")[rows].sum())), "B")


def _of_lines(run: Run, rows: Ints) -> tuple[Floats, Floats]:
    """Of each copy's line: the number of its copies per step, and their mean size in bytes."""
    lines, line, often = np.unique([run.trace(row) for row in rows.tolist()], return_inverse=True, return_counts=True)
    size = np.bincount(line, run.table.ints("bytes")[rows], len(lines)) / often
    return (often / run.steps / run.lanes)[line], size[line]


def _after_joining(run: Run, rows: Ints) -> Floats:
    """Per copy, the share of its launch that remains where those of one line, many and small, become one."""
    often, size = _of_lines(run, rows)
    return np.where((often >= PIECES) & (size < LARGE), 1 / often, 1.0)


def small_made_often(run: Run, rows: Ints) -> Bools:
    """A mask of the small copies of lines that make several in a step: no batch, whose tensors are copied once each."""
    return (_of_lines(run, rows)[0] > OF_BATCH) & (run.table.ints("bytes")[rows] < SMALL_BYTES)


@edit_rule("copy_to_host")
def copy_to_host(scenario: Scenario) -> Iterator[Proposal]:
    """Large copies to pageable memory of the host, which is mostly new to the process: it is mapped page by page.

    What pinned memory that is kept brings is counted; the wait stays, and so does what the host does with the values.

    Refuted by: pinned memory, by the copies' names.
    """
    run = scenario.run
    rows = np.flatnonzero(copies(run, *TO_HOST) & copies(run, "Pageable") & (run.table.ints("bytes") >= LARGE))
    pinned = _pinned(run)
    if not len(rows) or not pinned:
        yield Abstained("copy_to_host", "no large copy to pageable memory of the host, or an unknown GPU")
        return
    total, took = float(run.table.ints("bytes")[rows].sum()), float(run.dur[rows].sum())
    yield Edit(
        rule="copy_to_host",
        change=(
            "Copy less to the host: choose, sum or round on the GPU and copy the result. What is needed whole goes to "
            "pinned memory that is kept."
        ),
        why=(
            f"{run.number(rows, 'copy moves', 'copies move')} {_moved(run, rows)} to pageable memory of the "
            f"host at {rounded(total / max(took, 1.0), 3)} GB/s: {rounded(run.ms(took))} ms. Counted is pinned memory"
        ),
        cost=COSTS["copy_to_host"],
        rows=rows,
        ns=np.minimum(run.dur[rows], COPY_NS + 1e9 * run.table.ints("bytes")[rows] / pinned),
        left=np.ones(len(rows)),
        deviation=0.3,
    )


def _to_gpu(run: Run) -> Bools:
    """Copies of pageable memory to the GPU, of known sizes."""
    found: Bools = copies(run, *TO_DEVICE) & copies(run, "Pageable") & (run.table.ints("bytes") != NULL)
    return found


@edit_rule("made_on_cpu")
def made_on_cpu(scenario: Scenario) -> Iterator[Proposal]:
    """Copies to the GPU of what a layer or a loss makes on the CPU, of the same sizes in each step (``made_on_host``).

    As buffers they stay on the GPU: the copy, the work of the CPU before it and the wait for it go away.

    Refuted by: sizes that differ between steps.
    """
    run, rows = scenario.run, made_on_host(scenario)
    if not len(rows):
        yield Abstained("made_on_cpu", "no layer or loss makes tensors of equal sizes on the CPU in each step")
        return
    change = (
        "Keep on the GPU what is made on the CPU each time: make it once, register_buffer(..., persistent=False), or "
        "make it with device=x.device."
    )
    why = (
        f"{run.number(rows, 'copy', 'copies')} to the GPU of tensors that a layer or a loss makes on the CPU "
        f"({run.trace(int(rows[0]))}): the host makes each, and waits for its copy"
    )
    edit = without_waits(scenario, "made_on_cpu", change, why, rows, COSTS["made_on_cpu"])
    yield replace(edit, prompt=segments_of(scenario, rows))


def made_on_host(scenario: Scenario) -> Ints:
    """Copies of pageable memory to the GPU of what the program makes on the CPU, of the same sizes in each step."""
    run, base = scenario.run, scenario.base
    rows = np.flatnonzero(_to_gpu(run) & (run.phase != "backward"))
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
    steps, step = np.unique(run.table.ints("step"), return_inverse=True)
    first, inside = np.full(len(steps), run.rows), np.flatnonzero(run.names("layer"))
    np.minimum.at(first, step[inside], inside)
    found: Bools = np.arange(run.rows) < first[step]
    return found


def segments_of(scenario: Scenario, rows: Ints) -> Ints:
    """The calls that make these copies, and those before them that the host makes for the same copy."""
    unit = scenario.base.unit
    return np.flatnonzero(np.isin(unit, unit[scenario.calls(rows)]))
