"""Programs that run on the CPU alone: input data, threads, bf16, channels last, chains of element-wise ops.

The constants are of one machine: an AMD EPYC of family 26 (AVX-512 with bf16), PyTorch 2.13, one thread, by the
thread's own CPU time. docs/explanation/advice.md has the measurements, also those of a Xeon with AMX.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.finding import Finding, cpu_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.rules.host.data_loader import made_by
from pyprof.prof.changes.rules.kernels.fusion import chains
from pyprof.prof.changes.rules.kernels.layout import spatial_rank
from pyprof.quantities import counted, rounded
from pyprof.table.columns import Bools, Floats, Ints

LEAST_SHARE = 0.05  # of the step, that input data take
WIDE_NS = 100_000.0  # shorter ops do not repay waking further threads
PARALLEL = ("gemm", "conv", "attention", "norm", "pointwise", "reduction", "softmax", "pooling", "embedding")
SCALING = 0.85  # of the further threads; of a Xeon, eight threads saved 1.00 to 1.16 times what it says
PRODUCTS = ("gemm", "conv", "attention")
NARROW = frozenset({"bfloat16", "float16"})
# Products in bf16 are this many times as fast. AVX-512 has twice the multiply-adds per instruction: with the casts,
# convolutions took 1/1.7 to 1/2.8 of their time, linear layers (whose fp32 is slow on AMD's CPUs) 1/3.8 to 1/4.
# AMX has eight times the multiply-adds per cycle; a quarter was assumed before eight programs were measured.
BF16 = {"avx512_bf16": 2.0, "amx": 4.0}
# That quarter is of the product alone: each operand and result is converted once more, read in fp32, written in bf16.
CONVERTED = {"avx512_bf16": 0.0, "amx": 1.5}  # bytes for each byte of the product in fp32
NARROWED = 0.5  # of the time of an element-wise op that moves bf16 in place of fp32
LEAST_FLOP = 1e7  # smaller products are overhead
# Channels last, as shares of the time in NCHW: forward convolutions took 0.5 to 0.95, those of an image's three
# channels 0.55, batch norms 0.3 to 0.6 forward and 0.5 to 1.5 backward; backward convolutions took as long as before.
CONV_LAST, IMAGE_LAST, NORM_LAST, IMAGE_CHANNELS = 0.75, 0.55, 0.5, 4
# Pooling over windows in NCHW is not vectorized. Alone (4 × 64 × 56 × 56, windows of 2 and of 3), it took this share.
POOLED_LAST = {
    "max_pool2d_with_indices": 0.05,
    "max_pool2d_with_indices_backward": 0.45,
    "avg_pool2d": 0.08,
    "avg_pool2d_backward": 0.22,
}
STREAMING = 1 << 20  # bytes of an op from which its rate is that of memory, or of the cache its tensors fit in
# Element-wise ops whose arithmetic takes longer than moving their bytes; compiled code still has to do it.
LONG_ARITHMETIC = tuple("exp log tanh sigmoid silu gelu erf pow sin cos softplus mish selu elu logsigmoid".split())
NEW = 0.5  # share of a chain's second operands that the compiled code has to read (fusion.py)


@cpu_rule("cpu_data_loader")
def cpu_data_loader(run: Run) -> Iterator[Finding]:
    """Ops of the phase "data" and the pauses before them: a DataLoader without workers.

    Workers share the cores with the step. Where PyTorch's threads use all cores, one core's work costs the step its
    share of a core: of D ms, D / cores remain. Abstains if the capture does not say how many cores there are.

    Refuted by: worker processes, by the loader's own marks.
    """
    facts = run.table.cpu
    rows = np.flatnonzero(run.phase == "data")
    if facts is None or facts.cores < 2 or not len(rows):
        return
    pauses = float(run.recurring_gaps[rows].sum())
    took = pauses + float(run.dur[rows].sum())
    if took < LEAST_SHARE * run.step_ns * run.steps * run.lanes or made_by(run, run.ms(took)) == "workers":
        return
    free = facts.threads < facts.cores
    share = 1.0 if free else 1 - 1 / facts.cores
    rest = "a core is free for it" if free else f"{facts.threads} threads already use {facts.cores} cores"
    why = (
        f"The step waits for its input data: {rounded(run.ms(took))} ms, of which ops take {rounded(run.ms_of(rows))} "
        f"ms. Workers prepare them beside the step ({rest})"
    )
    change = (
        "Prepare input data in other processes: DataLoader(num_workers=1 or more, persistent_workers=True). "
        "Each worker has one thread."
    )
    yield Finding(rows, share * run.dur[rows], why, change, idle_ns=share * pauses)


@cpu_rule("cpu_threads")
def cpu_threads(run: Run) -> Iterator[Finding]:
    """Fewer threads than cores. Abstains if the capture does not say how many there are.

    Refuted by: as many threads as cores.
    """
    facts = run.table.cpu
    if facts is None or facts.threads >= facts.cores:
        return
    rows = np.flatnonzero(np.isin(run.family, PARALLEL) & (run.dur > WIDE_NS))
    if not len(rows):
        return
    faster = 1 + (facts.cores / facts.threads - 1) * SCALING
    why = (
        f"PyTorch used {counted(facts.threads, 'thread')} on {facts.cores} cores: {run.number(rows, 'op', 'ops')} of "
        "more than "
        f"{WIDE_NS / 1e6:.1f} ms took {rounded(run.ms_of(rows))} ms; with all cores "
        f"{rounded(run.ms_of(rows) / faster)} ms are expected, if no other process needs them"
    )
    change = (
        f"Use all cores: torch.set_num_threads({facts.cores}), or OMP_NUM_THREADS={facts.cores}. Cores that are two "
        "threads of one core add less."
    )
    yield Finding(rows, run.dur[rows] * (1 - 1 / faster), why, change)


@cpu_rule("cpu_bf16")
def cpu_bf16(run: Run) -> Iterator[Finding]:
    """Products in fp32 on a CPU that has instructions for bf16, in a run without narrower products.

    Abstains if the capture does not say which instructions the CPU has.

    Refuted by: a product in half precision.
    """
    ratio = BF16.get(run.table.cpu.bf16) if run.table.cpu is not None else None
    products = np.isin(run.family, PRODUCTS)
    if ratio is None or bool(np.isin(run.dtype[products], tuple(NARROW)).any()):
        return
    took = products & (run.dtype == "float32") & (run.dur > 0)
    rows = np.flatnonzero(took & (run.flop > LEAST_FLOP))  # False for NaN, unknown
    if not len(rows):
        return
    instructions = run.table.cpu.bf16 if run.table.cpu is not None else ""
    narrow = _narrowed(run)
    name = {"amx": "AMX", "avx512_bf16": "AVX-512"}[instructions]
    why = (
        f"{run.number(rows, 'product', 'products')} in float32 took {rounded(run.ms_of(rows))} ms at "
        f"{rounded(float(run.flop[rows].sum() / run.dur[rows].sum()), 3)} GFLOP/s. This CPU multiplies bf16 by {name}, "
        f"at least {ratio:.0f} times as fast where compute is the limit"
    )
    if len(narrow):
        ops = run.number(narrow, "element-wise op", "element-wise ops")
        why += f"; {ops} ({rounded(run.ms_of(narrow))} ms) get narrow, too"
    change = (
        'Use mixed precision: run forward and loss under torch.autocast("cpu", dtype=torch.bfloat16). The numerics '
        "change, so check the loss."
    )
    gain = run.dur[rows] * (1 - 1 / ratio)
    rate = _bytes_per_ns(run)
    converting = CONVERTED[instructions] * float(np.nansum(run.nbytes[rows])) / rate if rate else 0.0
    left = max(1 - converting / float(gain.sum()), 0.0)
    saved = np.r_[gain * left, _streaming_ns(run, narrow, rate) * (1 - NARROWED)]
    yield Finding(np.r_[rows, narrow], saved, why, change)


def _narrowed(run: Run) -> Ints:
    """Element-wise ops in fp32 between products, which take bf16 from these under autocast; not those of gradients that
    are added to a parameter's, which stays in fp32."""
    between = np.isin(run.phase, ("forward", "backward")) & ~run.mentions("nodes", "AccumulateGrad")
    return np.flatnonzero(between & (run.family == "pointwise") & (run.dtype == "float32") & (run.nbytes > STREAMING))


def _streaming_ns(run: Run, rows: Ints, rate: float) -> Floats:
    """The part of each op's time that goes with its bytes: all, but of functions such as exp what their bytes take."""
    long = np.array([str(run.aten[row]).startswith(LONG_ARITHMETIC) for row in rows.tolist()], bool)
    return np.where(long, np.minimum(run.dur[rows], run.nbytes[rows] / rate if rate else 0.0), run.dur[rows])


@cpu_rule("cpu_channels_last")
def cpu_channels_last(run: Run) -> Iterator[Finding]:
    """2-d convolutions in fp32 whose inputs are contiguous in NCHW, and the batch norms and pooling of such tensors.

    Of convolutions and norms the forward pass is counted alone: in the backward pass as many ops lost as gained.
    Abstains for 1-d convolutions, for which PyTorch has no such format, without strides, and if group norms are in the
    run, which take NCHW.

    Refuted by: inputs in channels last, by their strides.
    """
    if bool(run.mentions("op", "group_norm", "instance_norm").any()):
        return
    images = _nchw(run)
    convolutions = np.flatnonzero((run.family == "conv") & images & (run.flop > LEAST_FLOP))
    convolutions = convolutions[[spatial_rank(run, row) == 2 for row in convolutions.tolist()]]
    if not len(convolutions):
        return
    ahead = run.phase != "backward"
    convolutions, norms = convolutions[ahead[convolutions]], np.flatnonzero((run.family == "norm") & images & ahead)
    few = np.array([[*run.first_shape(row), 0, 0][1] <= IMAGE_CHANNELS for row in convolutions.tolist()])
    pools = np.flatnonzero(np.isin(run.aten, list(POOLED_LAST)) & images)
    pooled = [POOLED_LAST[str(run.aten[row])] for row in pools.tolist()]
    share = np.r_[np.where(few, IMAGE_LAST, CONV_LAST), np.full(len(norms), NORM_LAST), pooled]
    rows = np.r_[convolutions, norms, pools]
    saved = run.dur[rows] * (1 - share)
    before, after = run.ms_of(rows), run.ms_of(rows) - run.ms(float(saved.sum()))
    kinds = (convolutions, "convolution"), (norms, "batch norm"), (pools, "pooling op")
    words = ", ".join(run.number(some, one, f"{one}s") for some, one in kinds if len(some))
    why = f"Read in NCHW: {words}, {rounded(before)} ms; channels last {rounded(after)} ms are expected"
    change = (
        "Use channels last: model.to(memory_format=torch.channels_last), and the same for the input. Views and "
        "reshapes that assume NCHW copy."
    )
    yield Finding(rows, saved, why, change)


def _nchw(run: Run) -> Bools:
    """A mask of the rows whose first 4-d argument of fp32 is contiguous in NCHW and has more than one channel."""
    found = np.zeros(run.rows, bool)
    for row in np.flatnonzero(np.isin(run.family, ("conv", "norm", "pooling")) & (run.dtype == "float32")).tolist():
        strides = run.strides(row) or []
        for shape, stride in zip(run.shapes(row), strides, strict=False):
            if len(shape) == 4 and isinstance(stride, list) and len(stride) == 4:
                _, c, h, w = shape
                found[row] = c > 1 and h * w > 1 and stride[1:] == [h * w, w, 1]
                break
    return found


@cpu_rule("cpu_fusion")
def cpu_fusion(run: Run) -> Iterator[Finding]:
    """Chains of element-wise ops, as the rule fusion finds them, each of which compiled code does in one pass.

    Expected: the bytes of the chain's input, its result and a half of the second operands at the rate of the run's own
    element-wise ops, and what functions such as exp take beyond moving their bytes. Abstains without
    shapes.

    Refuted by: equal calls alone, of which none need read what another wrote.
    """
    rate = _bytes_per_ns(run)
    members = list(chains(run)) if rate else []
    rows, saved, kept = run.replaced((chain, _fused_ns(run, size, chain, rate)) for size, chain in members)
    if not rows:
        return
    ops = list(dict.fromkeys(str(run.aten[row]).rstrip("_") for row in rows))
    few = ", ".join(ops[:3]) + (", ..." if len(ops) > 3 else "")
    after = run.ms_of(rows) - run.ms(float(saved.sum()))
    why = (
        f"{run.number(kept, 'chain', 'chains')} of element-wise ops write each intermediate result to memory and read "
        f"it back: {run.number(rows, 'op', 'ops')}, {rounded(run.ms_of(rows))} ms; in one pass per chain "
        f"{rounded(after)} ms are expected"
    )
    change = f"Fuse the element-wise ops ({few}): torch.compile the module that holds them; it needs a C++ compiler."
    yield Finding(np.array(rows), saved, why, change, launches=len(rows) - kept)


def _bytes_per_ns(run: Run) -> float:
    """The rate at which the run's element-wise ops move their bytes: the upper quartile; 0 without any."""
    usual = np.isin(run.family, ("pointwise", "copy")) & (run.nbytes > STREAMING) & (run.dur > 0)
    rates: Floats = run.nbytes[usual] / run.dur[usual]
    return float(np.quantile(rates, 0.75)) if len(rates) else 0.0


def _fused_ns(run: Run, size: int, chain: list[int], rate: float) -> float:
    """Expected time of one pass in place of the chain, ns; NaN if the bytes of one of its ops are not known."""
    item = [ITEM_BYTES.get(str(run.dtype[row]), 4.0) for row in chain]
    seconds = sum(sum(numel(shape) == size for shape in run.shapes(row)) > 1 for row in chain[1:])
    nbytes = size * (item[0] + item[-1] + NEW * seconds * item[0])
    rows: Ints = np.array([row for row in chain if str(run.aten[row]).startswith(LONG_ARITHMETIC)], np.int64)
    arithmetic = np.maximum(run.dur[rows] - run.nbytes[rows] / rate, 0.0)
    return nbytes / rate + float(arithmetic.sum())
