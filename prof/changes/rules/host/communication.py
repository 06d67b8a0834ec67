"""Collectives that do not overlap with computation."""

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.quantities import rounded

CASTS = 12  # bytes per element: float32 read, 16 bits written, and back
# Shorter messages are latency, 8 to 20 µs within a host (192 of 1 MB and less on two H200: median 8.6), or waits.
SMALL_MESSAGE = 4 << 20
SAMPLES = 4  # messages needed to measure the link's rate, since fewer may all have waited for another rank

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
    if (run.phase != "").any() and not run.trains:
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
