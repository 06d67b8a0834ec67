"""Group norms whose sums leave most of the GPU idle."""

import math
from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import START_NS, STREAMED, Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.quantities import rounded

# PyTorch's forward statistics use one block per sample and group; the sums of the gradients use one per sample and
# channel (ATen/native/cuda/group_norm_kernel.cu). A block of 512 threads reads 5 GB/s on an H200, 16 blocks 79, 64
# blocks 313. Kernel -> number of tensors that it reads.
SUMS = {"RowwiseMomentsCUDAKernel": 1, "ComputeInternalGradientsCUDAKernel": 2}
SPLIT = 0.5  # expected share of the bandwidth on all SMs; PyTorch's own sums over rows reach 0.65 of 4.8 TB/s
WORTH = 1.5


@rule("group_norm")
def group_norm(run: Run) -> Iterator[Finding]:
    """Sums of group norms in fewer blocks than the GPU has SMs.

    Only the saving of the sums is counted, not that of other ops that torch.compile fuses (casts, scale, activation).
    Abstains if grid, shapes or device are unknown, and if there are at least as many blocks as SMs.

    Refuted by: as many blocks as SMs.
    """
    if run.device is None:
        return
    norm = np.isin(run.aten, ("native_group_norm", "native_group_norm_backward"))
    rows = np.flatnonzero(norm & run.mentions("kShortName", *SUMS))
    few = [row for row in rows.tolist() if _blocks(run, row) < (run.device.sms or 0)]
    gain = np.array([run.dur[row] - _expected_ns(run, row) for row in few])
    kept = [i for i, row in enumerate(few) if gain[i] > (1 - 1 / WORTH) * run.dur[row]]  # drops NaN: type unknown
    if not kept:
        return
    found, saved = np.array(few)[kept], gain[kept]
    worst, now = int(found[saved.argmax()]), run.ms_of(found)
    why = (
        f"The sums of group norms (over {run.shapes(worst)[0]} and others) run in {_blocks(run, worst):.0f} blocks on "
        f"{run.device.sms} SMs: {run.number(found, 'kernel', 'kernels')}, {rounded(now)} ms; on all SMs "
        f"{rounded(now - run.ms(float(saved.sum())))} ms are expected"
    )
    change = "Compile the group norms: torch.compile splits long sums, and fuses the casts and the activation."
    yield Finding(found, saved, why, change)


def _blocks(run: Run, row: int) -> float:
    """The number of blocks of the launch; infinite if unknown."""
    return numel(run.listed("grid", row)) or math.inf


def _expected_ns(run: Run, row: int) -> float:
    """Expected time in ns on all SMs; NaN if dtype or device are unknown."""
    tensors = next(count for name, count in SUMS.items() if name in str(run.name[row]))
    nbytes = tensors * numel(run.first_shape(row)) * ITEM_BYTES.get(str(run.dtype[row]), math.nan)
    return START_NS + 1e9 * nbytes / (SPLIT / STREAMED * run.bandwidth) if nbytes else math.nan
