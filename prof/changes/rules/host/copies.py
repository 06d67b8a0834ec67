"""Copies from pageable memory, and repeated casts of the same weights."""

import math
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.limits.architectures import PCIE_3, PCIE_5, PINNED, PINNED_PCIE_5
from pyprof.prof.timing.gpus import named_rows
from pyprof.quantities import rounded
from pyprof.table.columns import NULL, Bools

LARGE = 1 << 20  # bytes; small copies go through the launch itself


@rule("pageable_copy")
def pageable_copy(run: Run) -> Iterator[Finding]:
    """Large copies from or to pageable memory, which the driver moves through a buffer of its own while the call waits.

    The name of a copy tells the kinds of memory. In tables of older versions, copies that nsys recorded are recognised
    by an asynchronous call that lasts into its copy: with pinned memory it returns at once. Abstains on GPUs before
    compute capability 8.0 (PCIe 3) and, under nsys without marked steps, for copies before the first kernel, which load
    the model.

    Refuted by: pinned memory, by the copies' names or by calls that return at once.
    """
    size = run.table.ints("bytes")
    large = (run.texts("kind") == "memcpy") & (size != NULL) & (size >= LARGE)
    rows = np.flatnonzero(large & _pageable(run))
    if not len(rows) or run.device is None or run.device.arch in PCIE_3:
        return
    pinned = PINNED_PCIE_5 if run.device.arch in PCIE_5 else PINNED
    saved = run.dur[rows] - 1e9 * size[rows] / pinned
    rows, saved = rows[saved > 0], saved[saved > 0]
    if not len(rows):
        return
    total = float(size[rows].sum())
    rate = total / float(run.dur[rows].sum())
    why = (
        f"{run.number(rows, 'copy moves', 'copies move')} {rounded(run.ms(total))} MB from or to pageable memory at "
        f"{rounded(rate, 3)} GB/s. Pinned memory gives {pinned / 1e9:.0f} GB/s or more, and its copies run beside "
        "kernels"
    )
    change = (
        "Copy from pinned memory: DataLoader(pin_memory=True) or tensor.pin_memory(), then .to(device, "
        "non_blocking=True)."
    )
    yield Finding(rows, saved, why, change)


def _pageable(run: Run) -> Bools:
    """A mask of the copies from or to pageable memory: named so, or, unnamed, with an asynchronous call that lasted
    until the copy was half done. nsys also records how a program loads its model, which is no part of a step."""
    api, took = run.table.ints("apiStart"), run.table.ints("apiDuration")
    known = (api != NULL) & (took != NULL)
    lasted = known & (np.where(known, api + took, 0) >= run.start + run.dur / 2) & run.mentions("api", "MemcpyAsync")
    of_nsys = named_rows(run.table, "Host-to-Device", "Device-to-Host")
    found: Bools = named_rows(run.table, "Pageable") | (of_nsys & lasted & ~named_rows(run.table, "Pinned"))
    if not run.marked:
        kernels = np.flatnonzero(run.texts("kind") == "kernel")
        first = np.full(run.lanes, run.rows)
        np.minimum.at(first, run.lane[kernels], kernels)
        found &= ~of_nsys | (np.arange(run.rows) > first[run.lane])
    return found


@rule("weight_casts")
def weight_casts(run: Run) -> Iterator[Finding]:
    """Inference under autocast that casts fp32 weights to half precision in every forward pass.

    Autocast caches a cast only until its context ends. Abstains without shapes and dtypes, and in training, where fp32
    master weights need one cast per step.

    Refuted by: a backward pass; weights that are in half precision, which need no cast.
    """
    if bool((run.phase == "backward").any()) or bool((run.texts("dir") == "bprop").any()):
        return
    casts = (run.aten == "copy_") & run.mentions("nodes", "aten::_to_copy")
    rows = [row for row in np.flatnonzero(casts).tolist() if _of_weight(run, row)]
    if rows:
        why = (
            f"Autocast casts {run.number(rows, 'weight', 'weights')} from float32 in every forward pass: "
            f"{rounded(run.ms_of(rows))} ms"
        )
        change = "Load the model in half precision: model.to(torch.bfloat16), without autocast."
        yield Finding(np.array(rows), run.dur[rows].copy(), why, change, launches=len(rows))


def _of_weight(run: Run, row: int) -> bool:
    """Whether a cast from fp32 makes the second operand or the bias of the product that follows."""
    sizes, dtypes = run.shapes(row), run.listed("dtypes", row)
    if not sizes or not dtypes or dtypes[:2] not in (["bfloat16", "float32"], ["float16", "float32"]):
        return False
    for after in range(row + 1, min(row + 6, run.rows)):
        if run.family[after] in ("gemm", "conv") and run.role[after] == "main":
            if len(sizes[0]) == 1:
                return sizes[0] in run.shapes(after)
            operands = [shape for shape in run.shapes(after) if len(shape) > 1]
            if len(operands) < 2:
                return False
            first, second = (math.prod(shape) for shape in operands[:2])
            return bool(math.prod(sizes[0]) == second != first)
    return False
