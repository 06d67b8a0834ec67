"""Collectives that do not overlap with computation."""

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import CALL_NS, SMALL_MESSAGE, Run
from pyprof.quantities import rounded

CASTS = 12  # bytes per element: float32 read, 16 bits written, and back
BUCKET = 25 << 20
SAMPLES = 4  # messages needed to measure the link's rate, since fewer may all have waited for another rank
FEW = 16  # the rule abstains with fewer collectives per step
# The host's time per collective, on two H200: 96 buckets of DDP against 4, 46 µs; 192 all_reduce calls against 1, 22
DDP_NS, CALLED_NS = 45_000.0, 22_000.0

BY_DDP = (
    "Send gradients as bf16: model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks."
    "default_hooks.bf16_compress_hook) halves the bytes. Tune bucket_cap_mb so that the last bucket is small."
)
CALLED = (  # by the program or its library: with tensor parallelism, gradients of activations
    "All-reduce in bf16: what torch.distributed.all_reduce sums here, cast to bfloat16 before the call and back behind "
    "it, has half the bytes."
)


@rule("communication")
def communication(run: Run) -> Iterator[Finding]:
    """All-reduces of float32 gradients that nothing overlaps, and that could send half the bytes in 16 bits.

    The run's fastest collective (per byte) gives the time for moving the bytes. The remaining time is waiting for other
    ranks, which a smaller message does not shorten. Abstains without the messages' sizes, and for messages under 4 MiB,
    which are limited by latency.

    Refuted by: messages in 16 bits; a run without a backward pass, whose messages are no gradients.
    """
    if _infers(run):
        return
    reduces = run.mentions("kShortName", "AllReduce") & run.mentions("kShortName", "ncclDevKernel", "ncclKernel")
    rows = np.flatnonzero(reduces & run.mentions("kShortName", "_f32", "_float"))
    size = run.message_bytes(rows)
    rows, size = rows[size >= SMALL_MESSAGE], size[size >= SMALL_MESSAGE]
    if len(rows) < SAMPLES:
        return
    fastest = float((run.dur[rows] / size).min())
    bare = run.exposed(rows)
    casts = 1e9 * CASTS * size / 4 / run.bandwidth  # as exposed as the message itself
    saved = 0.5 * np.minimum(bare, size * fastest) - np.where(bare > 0, casts, 0.0)
    if not float(saved.sum()) > 0:  # NaN if the bandwidth is unknown
        return
    why = (
        f"{run.number(rows, 'all-reduce', 'all-reduces')} of {rounded(run.ms(float(size.sum())))} MB in float32 took "
        f"{rounded(run.ms_of(rows))} ms, {rounded(run.ms(float(bare.sum())))} ms of it with nothing beside them. At "
        f"the rate of the fastest, moving the bytes takes {rounded(run.ms(float((size * fastest).sum())))} ms; the "
        "rest is waiting for other ranks"
    )
    called = all(run.op(row) == "all_reduce" for row in rows.tolist())
    yield Finding(rows, saved, why, CALLED if called else BY_DDP)


def _infers(run: Run) -> bool:
    """Whether nothing is trained, where the phases are known."""
    return bool((run.phase != "").any()) and not run.trains


@rule("small_collectives")
def small_collectives(run: Run) -> Iterator[Finding]:
    """Many all-reduces of small messages, which could be a few all-reduces of 25 MiB.

    The saving is the host's time per all-reduce, plus the exposed time minus the time that all the bytes would take at
    the rate of the largest message. Abstains without the messages' sizes.

    Refuted by: messages that are few or large already; a run without a backward pass, in which the next layer needs
    each result, as with tensor parallelism.
    """
    if _infers(run):
        return
    reduces = np.flatnonzero(run.collectives & run.mentions("kShortName", "AllReduce"))
    size = run.message_bytes(reduces)
    rows, size = reduces[(size > 0) & (size < SMALL_MESSAGE)], size[(size > 0) & (size < SMALL_MESSAGE)]
    merged = max(float(size.sum()) / BUCKET, run.steps * run.lanes)
    if run.count(len(rows)) < FEW or len(rows) < 2 * merged:
        return
    largest = int(size.argmax())
    bare = run.exposed(rows)
    rate = float(run.dur[rows].min()) / size[largest]  # ns per byte, an upper bound: latency limits small messages
    saved = np.maximum(np.minimum(bare, run.dur[rows].min()) - size * rate, 0.0)
    each = np.where(run.phase[rows] == "backward", DDP_NS, CALLED_NS).mean()
    calls = (len(rows) - merged) * each / CALL_NS
    why = (
        f"{run.number(rows, 'all-reduce', 'all-reduces')} of {rounded(float(size.mean()) / 1e6, 3)} MB on average, "
        f"{rounded(run.ms(float(size.sum())))} MB in all. Each takes the host about {each / 1e3:.0f} µs to launch, and "
        f"{rounded(run.ms(float(bare.sum())))} ms of them run with nothing beside them"
    )
    change = (
        "Merge the small all-reduces: DistributedDataParallel(..., bucket_cap_mb=25, gradient_as_bucket_view=True). "
        "Without DDP, flatten the gradients into one tensor, or use torch.distributed._coalescing_manager."
    )
    yield Finding(rows, saved, why, change, launches=len(rows) - merged, calls=calls)
