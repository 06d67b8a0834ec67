"""Collectives that no computation covers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import CALL_NS, SMALL_MESSAGE, Run

__all__: list[str] = []


CASTS = 12  # bytes an element: float32 read, 16 bits written, and back
BUCKET = 25 << 20
SAMPLES = 4  # messages that tell the link's rate: fewer may all have waited for another rank
FEW = 16  # collectives a step
# What a collective takes the host, on two H200: 96 buckets of DDP against 4, 46 µs; 192 all_reduce calls against 1, 22
DDP_NS, CALLED_NS = 45_000.0, 22_000.0


@rule("communication")
def communication(run: Run) -> Iterator[Finding]:
    """All-reduces of float32 gradients that nothing covers, at half their bytes.

    How long a collective moves bytes is told by the run's fastest one (a byte); the rest of its time it waits for other
    ranks, which no smaller message makes shorter. Abstains without the messages' sizes, and for messages under 4 MiB,
    which are latency.
    """
    reduces = run.mentions("kShortName", "AllReduce") & run.mentions("kShortName", "ncclDevKernel", "ncclKernel")
    rows = np.flatnonzero(reduces & run.mentions("kShortName", "_f32", "_float"))
    size = np.array([run.message_bytes(row) for row in rows.tolist()], np.float64)
    rows, size = rows[size >= SMALL_MESSAGE], size[size >= SMALL_MESSAGE]
    if len(rows) < SAMPLES:
        return
    fastest = float((run.dur[rows] / size).min())
    bare = run.exposed(rows)
    casts = 1e9 * CASTS * size / 4 / run.bandwidth  # nothing covers them where nothing covers the message
    saved = 0.5 * np.minimum(bare, size * fastest) - np.where(bare > 0, casts, 0.0)
    if not float(saved.sum()) > 0:  # NaN: bandwidth unknown
        return
    why = (
        f"{run.count(len(rows)):.4g} all-reduces of {run.ms(float(size.sum())):.4g} MB in float32 take "
        f"{run.ms(float(run.dur[rows].sum())):.4g} ms, {run.ms(float(bare.sum())):.4g} ms of it with nothing "
        "beside them; "
        f"moving their bytes takes {run.ms(float((size * fastest).sum())):.4g} ms at the rate of the fastest, "
        "the rest is "
        "waiting for other ranks"
    )
    change = (
        "model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook) "
        "halves the bytes; tune bucket_cap_mb so that the last bucket is small."
    )
    yield Finding(rows, saved, why, change, "low")


@rule("small_collectives")
def small_collectives(run: Run) -> Iterator[Finding]:
    """Many all-reduces of small messages, where a few of 25 MiB would do.

    Saved is the host's time for each, and of what nothing covers the part that the sum of the bytes does not take at
    the rate of the greatest message. Abstains without the messages' sizes.
    """
    reduces = np.flatnonzero(run.collectives & run.mentions("kShortName", "AllReduce"))
    size = np.array([run.message_bytes(row) for row in reduces.tolist()], np.float64)
    rows, size = reduces[(size > 0) & (size < SMALL_MESSAGE)], size[(size > 0) & (size < SMALL_MESSAGE)]
    merged = max(float(size.sum()) / BUCKET, run.steps * run.lanes)
    if run.count(len(rows)) < FEW or len(rows) < 2 * merged:
        return
    largest = int(size.argmax())
    bare = run.exposed(rows)
    rate = float(run.dur[rows].min()) / size[largest]  # ns a byte, at the most: small ones are latency
    saved = np.maximum(np.minimum(bare, run.dur[rows].min()) - size * rate, 0.0)
    each = np.where(run.phase[rows] == "backward", DDP_NS, CALLED_NS).mean()
    calls = (len(rows) - merged) * each / CALL_NS
    why = (
        f"{run.count(len(rows)):.4g} all-reduces of {float(size.mean()) / 1e6:.3g} MB on average, "
        f"{run.ms(float(size.sum())):.4g} MB in all: each takes the host about {each / 1e3:.0f} µs "
        f"to launch, and {run.ms(float(bare.sum())):.4g} ms of them nothing covers"
    )
    change = (
        "DistributedDataParallel(..., bucket_cap_mb=25, gradient_as_bucket_view=True); by hand, flatten the gradients "
        "into one tensor, or torch.distributed._coalescing_manager."
    )
    yield Finding(rows, saved, why, change, "low", launches=len(rows) - merged, calls=calls)
