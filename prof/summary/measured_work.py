"""What Nsight Compute measured of a capture's kernels, against what their algorithm needs: numbers and sentences."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.prof.limits.occupancy import by_device, floats
from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.summary.wording import amount, brief_time, operation_name
from pyprof.prof.work.annotate import Annotation
from pyprof.quantities import counted, share
from pyprof.table.columns import Floats, Table

NOTABLE = 0.001  # of the time: a kernel whose traffic beyond its algorithm costs less is not named


@dataclass(frozen=True, slots=True)
class Excess:
    """The kernel that moves most bytes beyond those of its algorithm, by the time that they take."""

    kernel: Annotated[str, doc("its name")]
    rows: Annotated[int, doc("how many of it were measured")]
    dram_bytes: Annotated[int, doc("that their DRAM traffic has, as measured")]
    nbytes: Annotated[int, doc("that their algorithm needs")]
    ns: Annotated[float, nan_doc("time that the bytes beyond it take at the memory's bandwidth")]


@dataclass(frozen=True, slots=True)
class Measured:
    """The kernels that Nsight Compute measured."""

    reports: Annotated[tuple[str, ...], doc("the files of the reports")]
    kernels: Annotated[int, doc("kernels in the capture")]
    matched: Annotated[int, doc("kernels that a report has")]
    by_order: Annotated[int, doc("kernels among them that are like others, so that their order decided")]
    matched_ns: Annotated[int, doc("time of the matched kernels")]
    bytes_ns: Annotated[int, doc("time of the matched kernels whose measured and algorithmic bytes are known")]
    dram_bytes: Annotated[int, doc("DRAM traffic of these, as measured")]
    nbytes: Annotated[int, doc("bytes that their algorithm needs")]
    flops_ns: Annotated[int, doc("time of the matched kernels whose executed and algorithmic FLOPs are known")]
    executed: Annotated[int, doc("FLOPs that these executed")]
    flop: Annotated[int, doc("FLOPs that their algorithm needs")]
    most: Annotated[Excess | None, doc("the kernel whose traffic beyond its algorithm takes most time")]


def measured_work(table: Table, annotation: Annotation, limits: Roofline) -> Measured | None:
    """The numbers; None if no report was joined."""
    counters = annotation.counters
    if counters is None:
        return None
    duration, matched = table.ints("kDuration"), counters.matched
    dram, executed = counters.values["dram"], counters.values["exec_flops"]
    nbytes, flop = floats(annotation.bytes), floats(annotation.flops)
    both_bytes, both_flops = np.isfinite(dram) & np.isfinite(nbytes), np.isfinite(executed) & np.isfinite(flop)
    return Measured(
        reports=tuple(each.file for each in counters.reports),
        kernels=int(np.count_nonzero(table.coded("kind").among("kernel"))),
        matched=int(np.count_nonzero(matched)),
        by_order=int(np.count_nonzero(counters.certainty.among("order"))),
        matched_ns=int(duration[matched].sum()),
        bytes_ns=int(duration[both_bytes].sum()),
        dram_bytes=round(float(dram[both_bytes].sum())),
        nbytes=round(float(nbytes[both_bytes].sum())),
        flops_ns=int(duration[both_flops].sum()),
        executed=round(float(executed[both_flops].sum())),
        flop=round(float(flop[both_flops].sum())),
        most=_most(table, limits, np.where(both_bytes, dram, 0), np.where(both_bytes, nbytes, 0)),
    )


def _most(table: Table, limits: Roofline, dram: Floats, nbytes: Floats) -> Excess | None:
    """The kernel, by its name; None if none moves more than its algorithm needs, or no bandwidth is known."""
    bandwidth = by_device(limits.device, [device.bandwidth for device in limits.devices])
    ns = np.where(np.isfinite(bandwidth), 1e9 * (dram - nbytes) / bandwidth, 0)
    name = table.coded("kShortName")
    kernel = name.codes.astype(np.int64) + 1  # code -1 is no name
    sums = np.bincount(kernel, ns, len(name.values) + 1)
    worst = int(np.argmax(sums)) if len(sums) else 0
    if not len(sums) or sums[worst] <= 0:
        return None
    rows = (kernel == worst) & (dram > 0)
    return Excess(
        kernel=["", *name.values][worst],
        rows=int(np.count_nonzero(rows)),
        dram_bytes=round(float(dram[rows].sum())),
        nbytes=round(float(nbytes[rows].sum())),
        ns=float(sums[worst]),
    )


def measured_sentences(measured: Measured | None, total_ns: int) -> Iterator[str]:
    """What was measured; DRAM bytes and executed FLOPs against the algorithm's; the kernel with most beyond its own."""
    if measured is None:
        return
    order = f", {measured.by_order:,} of them by their order among kernels that are alike" if measured.by_order else ""
    yield (
        f"Nsight Compute measured {measured.matched:,} of {counted(measured.kernels, 'kernel')}{order}: "
        f"{share(measured.matched_ns, total_ns)} of GPU time."
    )
    parts = []
    if measured.nbytes:
        parts.append(
            f"moved {amount(measured.dram_bytes, 'B')} of DRAM traffic where the algorithm needs "
            f"{amount(measured.nbytes, 'B')} ({measured.dram_bytes / measured.nbytes:.3g} times; both known for "
            f"{share(measured.bytes_ns, total_ns)} of GPU time)"
        )
    if measured.flop:
        parts.append(
            f"executed {amount(measured.executed, 'FLOP')} where it needs {amount(measured.flop, 'FLOP')} "
            f"({measured.executed / measured.flop:.3g} times; {share(measured.flops_ns, total_ns)})"
        )
    if parts:
        yield f"These kernels {', and '.join(parts)}."
    most = measured.most
    if most is not None and most.ns >= NOTABLE * total_ns:
        yield (
            f"Most traffic beyond its algorithm is that of {operation_name(most.kernel)}, in "
            f"{counted(most.rows, 'kernel')}: {amount(most.dram_bytes, 'B')} instead of {amount(most.nbytes, 'B')}; "
            f"the rest takes {brief_time(most.ns)} at the memory's bandwidth."
        )
