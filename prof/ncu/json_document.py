"""The JSON that `pyprof ncu REPORT` prints with --json (pyprof/command/envelope.py adds the header)."""

from collections.abc import Sequence
from typing import Annotated

from pyprof.command.json_schema import Record, doc, nan_doc
from pyprof.prof.ncu.report_rows import Kernels, Sums

Nanoseconds = Annotated[float, nan_doc("on the GPU, at ncu's clocks and with its caches", "ns")]
ReadDram = Annotated[float, nan_doc("read from the GPU's memory", "byte")]
WroteDram = Annotated[float, nan_doc("written to the GPU's memory", "byte")]
ReadL2 = Annotated[float, nan_doc("read from the L2 cache", "byte")]
WroteL2 = Annotated[float, nan_doc("written to the L2 cache", "byte")]
Instructions = Annotated[float, nan_doc("executed, counted by warp")]
Tensor = Annotated[float, nan_doc("of the tensor cores' peak; of several kernels, the mean by time", "%")]
Efficiency = Annotated[float, nan_doc("the greater of the shares of DRAM and tensor cores; as above", "%")]


class MeasuredGpu(Record):
    """A GPU of the report."""

    name: Annotated[str, doc("as the report spells it")]
    bandwidth: Annotated[float, nan_doc("peak of its memory", "byte/s")]
    source: Annotated[str, doc("of that peak")]
    sm_clock: Annotated[float, nan_doc("median over the kernels", "Hz")]
    highest_clock: Annotated[float, nan_doc("that the device allows", "Hz")]


class MeasuredKernel(Record):
    """One run of a kernel."""

    number: Annotated[int, doc("ncu's, in the order of launches")]
    count: Annotated[int, doc("how often it runs in the model (--layers)")]
    name: Annotated[str, doc("without namespaces and template arguments")]
    kind: Annotated[str, doc("of work, by its name or op")]
    pass_name: Annotated[str, doc("forward, backward, optimizer or other; empty if unknown")]
    phase: Annotated[str, doc("encoder, forward, classifier, backward, optimizer or other; empty if unknown")]
    op: Annotated[str, doc("the user's call; empty if unknown")]
    layer: Annotated[str, doc("empty if unknown")]
    time_ns: Nanoseconds
    dram_read_bytes: ReadDram
    dram_write_bytes: WroteDram
    l2_read_bytes: ReadL2
    l2_write_bytes: WroteL2
    instructions: Instructions
    tensor_percent: Tensor
    dram_percent: Annotated[float, nan_doc("of the memory's peak bandwidth", "%")]
    efficiency_percent: Efficiency


class Together(Record):
    """Several kernels, each counted as often as it runs."""

    name: Annotated[str, doc("the kind or phase")]
    kernels: Annotated[int, doc("runs of kernels")]
    time_ns: Nanoseconds
    dram_read_bytes: ReadDram
    dram_write_bytes: WroteDram
    l2_read_bytes: ReadL2
    l2_write_bytes: WroteL2
    instructions: Instructions
    tensor_percent: Tensor
    efficiency_percent: Efficiency
    incomplete: Annotated[bool, doc("whether a value is unknown for some of them")]


class Counters(Record):
    """The hardware's counters: of each kernel, summed by phase and by kind, and in sentences."""

    gpus: Annotated[list[MeasuredGpu], doc("the GPUs that ran them")]
    total: Annotated[Together, doc("all kernels")]
    phases: Annotated[list[Together], doc("in the order of a training step")]
    kinds: Annotated[list[Together], doc("the longest first")]
    without_gemm: Annotated[Together, doc("all kernels but matrix products")]
    sentences: Annotated[list[str], doc("the report's, to be quoted")]
    notes: Annotated[list[str], doc("the basis of the numbers: clocks, peaks, ranges")]
    kernels: Annotated[list[MeasuredKernel], doc("in the order of the report, or of --sort")]


def gpus_of(found: Kernels) -> list[MeasuredGpu]:
    return [
        MeasuredGpu(
            name=gpu.name,
            bandwidth=gpu.byte_per_s,
            source="" if gpu.device is None else gpu.device.source,
            sm_clock=gpu.clock_hz,
            highest_clock=gpu.highest_hz,
        )
        for gpu in found.gpus
    ]


def kernels_of(found: Kernels, rows: Sequence[int]) -> list[MeasuredKernel]:
    return [
        MeasuredKernel(
            number=found.ids[row],
            count=int(found.counts[row]),
            name=found.names[row],
            kind=found.kinds[row],
            pass_name=found.passes[row],
            phase=found.phases[row],
            op=found.ops[row],
            layer=found.layers[row],
            time_ns=float(found.time_ns[row]),
            **{key: float(values[row]) for key, values in found.amounts.items()},
            tensor_percent=float(found.tensor_pct[row]),
            dram_percent=float(found.dram_pct[row]),
            efficiency_percent=float(found.efficiency_pct[row]),
        )
        for row in rows
    ]


def together(each: Sums) -> Together:
    return Together(
        name=each.name,
        kernels=each.kernels,
        time_ns=each.time_ns,
        **each.amounts,
        tensor_percent=each.tensor_pct,
        efficiency_percent=each.efficiency_pct,
        incomplete=each.incomplete,
    )
