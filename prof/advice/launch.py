"""A GPU that waits for launches, for the host after a synchronisation, or for data."""

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.host_time import LONG_NS, own_share
from pyprof.prof.advice.run import HOST_SURE, Run
from pyprof.prof.timing.gpus import SMALL, TO_DEVICE, TO_HOST
from pyprof.prof.timing.input_data import BATCH
from pyprof.quantities import rounded
from pyprof.table.columns import NULL, Ints, numbered

MANY = 30  # fewer launches per step do not limit a step
EQUAL = 0.02  # steps may differ by this share of their launches, and be the same program
# In a CUDA graph: small kernels take a tenth longer than launched one by one, and follow each other after 0.25 µs
# (three programs of 80 to 1,100 kernels on an H200).
IN_GRAPH, AFTER_NS = 1.1, 250.0
WAITED = 0.05  # least idle time before batches, as a share of the GPU's work
BY_WORKERS = (
    "Let the DataLoader's workers prepare batches whole: the program works on them itself before it copies them. Do so "
    "in the dataset or its collate_fn, or on the GPU."
)
MORE_WORKERS = (
    "Give the DataLoader more workers or cheaper samples: it has worker processes, which are too slow for the step. "
    "num_workers up to the number of cores, a greater prefetch_factor where batches differ, less work per sample: "
    "decode and augment on the GPU, or keep what is decoded."
)
FOR_LOADER = {"workers": MORE_WORKERS, "besides": BY_WORKERS}  # by who makes the batches
LEAD_NS = 20_000.0  # a copy that waited at least this long in the queue counts as a synchronisation
READ, UNSCALE = "_local_scalar_dense", "_amp_foreach_non_finite_check_and_unscale_"
SOON_NS = 20_000.0  # the first launch after a wait takes up to this; longer is Python's time, in part profiler overhead


@rule("launch_bound")
def launch_bound(run: Run) -> Iterator[Finding]:
    """Many short kernels that take the host longer to launch than they take the GPU to run.

    The saving is the host's time (estimated, without the profiler's cost) minus the GPU's time in a CUDA graph. It is
    the median of the estimate, not its mean, which is greater. Abstains if there is, within the estimate's errors, a
    chance of more than one in five of no saving.

    Refuted by: kernels that a graph launches already, and sizes that differ between steps, as a graph's do not.
    """
    count = run.count(run.rows)
    graph = IN_GRAPH * run.busy_ns + AFTER_NS * count
    saved = run.launching_ns - graph
    if run.in_graph.any() or count < MANY or run.launching_ns < HOST_SURE * max(run.queued_ns, graph):
        return
    if sizes_differ(run):
        return
    why = (
        f"The GPU works {rounded(run.busy_ns / 1e6)} ms of a step: {rounded(count)} kernels and copies of "
        f"{rounded(run.busy_ns / count / 1e3, 3)} µs on average. The host needs about "
        f"{rounded(run.launching_ns / 1e6, 3)} ms to launch them (estimated from the capture, without the profiler's "
        f"cost); as a graph they would take about {rounded(graph / 1e6, 3)} ms. Measure the step without a profiler"
    )
    change = (
        'Launch the step as a CUDA graph: torch.compile(model, mode="reduce-overhead") or torch.cuda.graph launches '
        "all kernels at once. Larger batches help, too, where they fit."
    )
    yield Finding(np.arange(run.rows), np.zeros(run.rows), why, change, "low", saved * run.steps * run.lanes)


def sizes_differ(run: Run) -> bool:
    """Whether more of a marked step's launches than ``EQUAL`` have no equal of the same op and sizes in another one."""
    steps, op = run.table.ints("step"), run.table.coded("aten").codes
    call = numbered(op, run.table.coded("sizes").codes)[1]
    each = [np.bincount(call[steps == step], minlength=int(call.max()) + 1) for step in np.unique(steps[steps != NULL])]
    return any(np.abs(other - each[0]).sum() / 2 > EQUAL * each[0].sum() for other in each[1:])


@rule("sync_in_step")
def sync_in_step(run: Run) -> Iterator[Finding]:
    """.item() and similar calls in a step: the host waits until the queue is empty, then the GPU waits for the host.

    Counts copies of a few bytes to the host that waited in a full queue and are followed by work of the same step. The
    saving is the GPU's idle time afterwards, up to the time by which the host was ahead. Abstains without launch times.

    Refuted by: reads of GradScaler's own, which the program does not make.
    """
    idle = run.gaps
    small = (run.texts("kind") == "memcpy") & run.mentions("kShortName", *TO_HOST)
    size, api, step = (run.table.ints(key) for key in ("bytes", "apiStart", "step"))
    rows = np.flatnonzero(small & (size != NULL) & (size <= SMALL) & (api != NULL))
    rows = np.setdiff1d(rows[rows + 1 < run.rows], reads_of_scaler(run))
    rows = rows[(run.lane[rows + 1] == run.lane[rows]) & (step[rows + 1] == step[rows])]
    lead = (run.start[rows] - api[rows]).astype(np.float64)
    lost = np.where(lead > LEAD_NS, np.minimum(idle[rows + 1], lead), 0.0)
    lost = np.minimum(lost, SOON_NS + own_share(run) * np.maximum(lost - SOON_NS, 0))
    rows, lost = rows[lost > 0], lost[lost > 0]
    if not len(rows):
        return
    count = run.count(len(rows))
    why = (
        f"{rounded(count)} {'copy' if count == 1 else 'copies'} of a few bytes to the host within the step (.item(), "
        "or a condition on a tensor). Each waits until the queue is empty, and then the GPU waits for the host: "
        f"{rounded(run.ms(float(lost.sum())))} ms"
    )
    change = (
        "Avoid reading values from the GPU within the step: keep them there (torch.where, in-place sums), or read them "
        "every few steps."
    )
    yield Finding(rows, np.zeros(len(rows)), why, change, "medium", float(lost.sum()))


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


def made_by(run: Run, waited_ms: float) -> str:
    """Who makes the batches for which the host waits so many ms per step: "workers", processes of the DataLoader, or
    the host "itself". Where the loader's marks do not explain half of the wait: "besides" workers, or empty."""
    spent = [0.0, 0.0]
    for row in np.flatnonzero(run.table.coded("batches").codes >= 0).tolist():
        for call in run.listed("batches", row):
            if isinstance(call, list) and [type(number) for number in call] == [int] * 3:
                spent[call[0] > 0] += run.ms(call[2] - call[1])
    workers = spent[1] > spent[0]
    if spent[workers] > waited_ms / 2:
        return "workers" if workers else "itself"
    return "besides" if workers else ""


@rule("data_loader")
def data_loader(run: Run) -> Iterator[Finding]:
    """A GPU that is idle before the copies of a step's input data, because the next batch is not ready.

    Only in training, for copies in the phase "data" and gaps that launches do not explain.

    Refuted by: worker processes, by the loader's own marks; then they are too few, and it is this that is said.
    """
    copies = (run.texts("kind") == "memcpy") & (run.phase == "data") & (run.table.ints("bytes") >= BATCH)
    trains = bool(np.isin(run.phase, ("backward", "optimizer")).any())
    rows = np.flatnonzero(copies & run.mentions("kShortName", *TO_DEVICE) & (run.gaps > LONG_NS) & trains)
    waited = float(run.recurring_gaps[rows].sum())
    # A share of the GPU's work, not of the step, since the first step may take seconds.
    if waited > WAITED * run.busy_ns * run.steps * run.lanes:
        why = (
            f"The GPU is idle for {rounded(run.ms(waited))} ms before {run.number(rows, 'copy', 'copies')} of input "
            f"data per {run.unit}, because the host has no batch ready"
        )
        change = FOR_LOADER.get(made_by(run, run.ms(waited))) or (
            "Load data in the background: DataLoader(num_workers=..., persistent_workers=True, pin_memory=True, "
            "prefetch_factor=...). Decode and augment in the workers or on the GPU."
        )
        yield Finding(rows, np.zeros(len(rows)), why, change, "medium", waited)
