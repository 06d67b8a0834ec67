"""Chains of element-wise kernels that one kernel could do."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.costs import OF_CALLS
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.rules.kernels.attention import DROPOUT
from pyprof.quantities import rounded
from pyprof.table.columns import Bools, Ints, numbered

CHAIN = 3  # fewest kernels in a chain; with two, the first result is often needed elsewhere
SWISH = ["sigmoid", "mul"]  # but for these, if the backward pass shows that they are F.silu
LEAST = 1 << 18  # with fewer elements than this, launching takes longer than moving them: a call alone is proposed
FUSED_NS = 3000.0  # time per fused kernel in addition to moving its bytes
CONTIGUOUS = ("vectorized_elementwise_kernel", "unrolled_elementwise_kernel")  # copies that change only the type
ROWS = 4  # kernels over a norm's statistics, between its two passes: epsilon, root, reciprocal
# The share of the second operands in a chain that the fused kernel has to read. The chain made the others itself, or
# has read them before. A backward chain reads tensors saved by the forward, most of which a compiler recomputes.
NEW_FORWARD, NEW_BACKWARD = 1 / 2, 1 / 3
RMS_NORM = "Call F.rms_norm (one kernel from PyTorch 2.9 on) in place of its formula"
LAYER_NORM = "Call F.layer_norm in place of its formula"
CENTERED = "sub"  # what a layer norm has, and the norm by the root mean square alone does not
Ops = frozenset[str] | tuple[str, ...]
# (ops of a chain, as a tuple one directly after the other; an op that it does not have; the call that runs them in one
# kernel). The gradient of x * sigmoid(x) is the sum of two: that of a gate is summed up before, if at all.
CALLS: tuple[tuple[Ops, str, str], ...] = (
    (frozenset(("tanh", "pow")), "", 'Call F.gelu(x, approximate="tanh") in place of its formula'),
    (frozenset(("erf", "mul")), "", "Call F.gelu(x) in place of its formula"),
    (("mul", "sigmoid_backward", "add"), "", "Call F.silu(x) in place of x * sigmoid(x)"),
    (frozenset(("mean", "rsqrt", "mul")), CENTERED, RMS_NORM),
    (frozenset(("mean", "sqrt", "div")), CENTERED, RMS_NORM),
    (frozenset((CENTERED, "mean", "rsqrt", "mul")), "", LAYER_NORM),
    (frozenset((CENTERED, "mean", "sqrt", "div")), "", LAYER_NORM),
)


@rule("fusion")
def fusion(run: Run) -> Iterator[Finding]:
    """Consecutive kernels in forward or backward that process tensors of the same size.

    There is one card per size, and one for all sizes where one call runs what the kernels do: that is one change of the
    code, as of a norm that an encoder and a decoder share. Of small tensors, as in decoding word by word, only these
    have a card: they save the host launches, without a compiler.

    Sums over rows between them, as in norms, and the kernels that use these sums also belong to the chain. The fused
    kernel reads the chain's input and a share of its second operands, and writes one result. Abstains without shapes,
    for copies that change the layout, for the accumulation of gradients and for the optimizer's step.

    Refuted by: equal calls alone, of which none need read what another wrote; kernels that a compiler has fused.
    """
    of_size: dict[int, list[list[int]]] = {}
    for size, chain in chains(run, least=1):
        of_size.setdefault(size, []).append(chain)
    found: dict[tuple[str, ...] | int, dict[int, list[list[int]]]] = {}
    for size, members in of_size.items():
        members = members if size >= LEAST else _of_formulas(run, members)
        instead = _instead(run, members)
        long = members if instead else [chain for chain in members if len(chain) >= CHAIN]
        if long:
            found.setdefault(instead or size, {})[size] = long
    for sizes in found.values():
        yield from _finding(run, sizes)


def chains(run: Run, least: int = LEAST) -> Iterator[tuple[int, list[int]]]:
    """(elements, rows) of each chain of so many elements. The rows include rows of other sizes within the chain.

    On the CPU, a number that an op takes is copied to a tensor before it (``y * 0.5``): that ends no chain.
    """
    size, bridge = _sizes(run)
    number = _of_numbers(run)
    _, places = numbered(run.lane, run.table.coded("phase").codes, run.table.ints("stream"), size)
    may_begin, may_go_on = (rows.tolist() for rows in ((size >= least) & ~bridge, size >= least))
    links, place = bridge.tolist(), places.tolist()
    chain: list[int] = []
    for row in [*np.flatnonzero(~number).tolist(), run.rows]:
        if chain and (row == run.rows or place[row] != place[chain[-1]]):
            while links[chain[-1]]:
                chain.pop()
            kept = [each for each in chain if not links[each]]
            if (len(kept) >= CHAIN and not repeats(run, kept)) or run.aten[chain].tolist() == SWISH:
                yield int(size[chain[0]]), chain
            chain = []
        if row < run.rows and (may_go_on if chain else may_begin)[row]:
            chain.append(row)


def repeats(run: Run, rows: list[int]) -> bool:
    """Whether the rows are one call again and again, which may well have the same operands each time, as a benchmark's
    loop has: nothing shows that one reads what another wrote. (In the backward pass, autograd adds gradients up in
    place, one after the other.)"""
    adds_up = run.phase[rows[0]] == "backward" and run.aten[rows[0]] == "add_"
    return not adds_up and len({run.alike[row] for row in rows}) == 1


def _of_numbers(run: Run) -> Bools:
    """The CPU's copies of a single number."""
    found = np.zeros(run.rows, bool)
    if run.on_cpu:
        for row in np.flatnonzero((run.family == "copy") & (run.largest <= 1)).tolist():
            found[row] = bool(run.shapes(row)) and not any(run.shapes(row))
    return found


def _sizes(run: Run) -> tuple[Ints, Bools]:
    """Per row, the element count of its possible chain (0: none), and whether the row only links other rows."""
    name = run.mentions("kShortName", *CONTIGUOUS) | run.mentions("kLongName", *CONTIGUOUS)
    copies = (run.family == "copy") & name & np.isin(run.aten, ("copy_", "_to_copy"))
    usual = (run.family == "pointwise") | copies | np.isin(run.aten, DROPOUT)
    fits = np.isin(run.phase, ("forward", "backward")) & ~run.mentions("nodes", "AccumulateGrad")
    size = np.where(usual & fits, run.largest, 0)
    bridge = np.zeros(run.rows, bool)
    for row in np.flatnonzero((run.family == "reduction") & (run.role == "main") & fits).tolist():
        shape = run.first_shape(row)
        if not _of_rows(run, row, shape):
            continue
        size[row], bridge[row] = numel(shape), True
        for other in range(row + 1, min(row + 1 + ROWS, run.rows)):
            if not usual[other] or run.largest[other] != numel(shape[:-1]):
                break
            size[other], bridge[other] = numel(shape), True
    return size, bridge


def _of_rows(run: Run, row: int, shape: list[int]) -> bool:
    """Whether a row reduces only the last dimension."""
    args, last = run.listed("args", row), len(shape) - 1
    dims = str(args[1]).replace(" ", "") if len(args) > 1 else ""
    return len(shape) > 1 and dims in ("[-1]", f"[{last}]", "-1", str(last))


def _fused_ns(run: Run, size: int, chain: list[int], second: dict[tuple[int, int], float]) -> float:
    """Expected time in ns of one kernel in place of the chain; NaN if the device is unknown.

    ``second``: ``_second_bytes`` of rows and sizes for which it is known.
    """
    source = run.second_dtype(chain[0]) if run.family[chain[0]] == "copy" else ""
    nbytes = _item(source or run.dtype[chain[0]]) + _item(run.dtype[chain[-1]])
    new = NEW_BACKWARD if run.phase[chain[0]] == "backward" else NEW_FORWARD
    for row in chain[1:]:
        key = run.alike[row], size
        if key not in second:
            second[key] = _second_bytes(run, size, row)
        nbytes += new * second[key]
    return FUSED_NS + 1e9 * nbytes * size / run.bandwidth


def _second_bytes(run: Run, size: int, row: int) -> float:
    """The bytes per element of a row's second operand, which may be another than the chain's; 0 if it has none."""
    full = sum(numel(shape) == size for shape in run.shapes(row))
    has = (full > 1 and run.family[row] != "copy") or run.aten[row] in DROPOUT
    return _item(run.dtype[row]) if has else 0.0


def _item(dtype: str) -> float:
    return ITEM_BYTES.get(dtype, 4.0)


def _instead(run: Run, members: list[list[int]]) -> tuple[str, ...]:
    """The calls that run some of these chains in one kernel each."""
    ops_of = {tuple(run.aten[row].rstrip("_") for row in chain) for chain in members}
    every = (call for parts, other, call in CALLS if any(_has(ops, parts) and other not in ops for ops in ops_of))
    return tuple(dict.fromkeys(every))


def _has(ops: tuple[str, ...], parts: Ops) -> bool:
    if isinstance(parts, frozenset):
        return parts.issubset(ops)
    return any(ops[at : at + len(parts)] == parts for at in range(len(ops)))


def _of_formulas(run: Run, members: list[list[int]]) -> list[list[int]]:
    """Those of the chains that are formulas of CALLS, with the chains of their layers' backward passes; of each, what
    is of one layer, as a sum before a norm is no part of it."""
    parts = [list(part) for chain in members for _, part in groupby(chain, key=run.layer)]
    formulas = [bool(_instead(run, [part])) for part in parts]
    layers = {run.layer(part[0]) for part, is_formula in zip(parts, formulas, strict=True) if is_formula} - {""}
    return [
        part
        for part, is_formula in zip(parts, formulas, strict=True)
        if is_formula or (run.phase[part[0]] == "backward" and run.layer(part[0]) in layers and len(part) >= CHAIN)
    ]


def _finding(run: Run, sizes: dict[int, list[list[int]]]) -> Iterator[Finding]:
    """One finding for the chains of all these sizes."""
    every = [(size, chain) for size, members in sizes.items() for chain in members]
    second: dict[tuple[int, int], float] = {}
    rows, saved, kept = run.replaced((chain, _fused_ns(run, size, chain, second)) for size, chain in every)
    if not rows:
        return
    now = run.ms_of(rows)
    ops = list(dict.fromkeys(run.aten[row].rstrip("_") for row in max((chain for _, chain in every), key=len)))
    why = (
        f"{run.number(kept, 'chain', 'chains')} of element-wise kernels ({', '.join(ops)}) over "
        f"{' and '.join(map(str, sizes))} elements, where each intermediate result is written to memory and read back: "
        f"{run.number(rows, 'kernel', 'kernels')}, {rounded(now)} ms; as one kernel per chain "
        f"{rounded(now - run.ms(float(saved.sum())))} ms are expected"
    )
    few = ", ".join(ops[:3]) + (", ..." if len(ops) > 3 else "")
    change = f"Fuse the element-wise kernels ({few}): torch.compile the module that holds them."
    instead = _instead(run, [chain for _, chain in every])
    if instead:
        change = f"{'. '.join(instead)}. Alternatively, torch.compile the module that holds it."
    yield Finding(np.array(rows), saved, why, change, launches=len(rows) - kept, cost=OF_CALLS if instead else "")
