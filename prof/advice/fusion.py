"""Chains of element-wise kernels that one kernel could do."""

from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.table.columns import Bools, Ints

CHAIN = 3  # fewest kernels in a chain; with two, the first result is often needed elsewhere
LEAST = 1 << 18  # with fewer elements than this, launching takes longer than moving them
FUSED_NS = 3000.0  # time per fused kernel in addition to moving its bytes
CONTIGUOUS = ("vectorized_elementwise_kernel", "unrolled_elementwise_kernel")  # copies that change only the type
DROPOUT = ("native_dropout", "native_dropout_backward")
ROWS = 4  # kernels over a norm's statistics, between its two passes: epsilon, root, reciprocal
# The share of the second operands in a chain that the fused kernel has to read. The chain made the others itself, or
# has read them before. A backward chain reads tensors saved by the forward, most of which a compiler recomputes.
NEW_FORWARD, NEW_BACKWARD = 1 / 2, 1 / 3
CALLS = (  # (ops of a chain, the call that runs them in one kernel)
    ({"tanh", "pow"}, 'Call F.gelu(x, approximate="tanh") in place of its formula'),
    ({"pow", "mean", "rsqrt", "mul"}, "Call F.rms_norm (one kernel from PyTorch 2.9 on) in place of its formula"),
)


@rule("fusion")
def fusion(run: Run) -> Iterator[Finding]:
    """Consecutive kernels in forward or backward that process tensors of the same size, one card per size.

    Sums over rows between them, as in norms, and the kernels that use these sums also belong to the chain. The fused
    kernel reads the chain's input and a share of its second operands, and writes one result. Abstains without shapes,
    for copies that change the layout, for the accumulation of gradients and for the optimizer's step.
    """
    found: dict[int, list[list[int]]] = {}
    for size, chain in chains(run):
        found.setdefault(size, []).append(chain)
    for size, members in found.items():
        yield from _finding(run, size, members)


def chains(run: Run) -> Iterator[tuple[int, list[int]]]:
    """(elements, rows) of each chain. The rows include rows of other sizes within the chain."""
    size, bridge = _sizes(run)
    chain: list[int] = []
    for row in range(run.rows + 1):
        joined = row < run.rows and bool(chain) and size[row] == size[chain[0]] and _same(run, chain[-1], row)
        if chain and not joined:
            while bridge[chain[-1]]:
                chain.pop()
            if len(chain) - int(bridge[chain].sum()) >= CHAIN:
                yield int(size[chain[0]]), chain
            chain = []
        if row < run.rows and size[row] >= LEAST and (chain or not bridge[row]):
            chain.append(row)


def _same(run: Run, a: int, b: int) -> bool:
    return bool(run.lane[a] == run.lane[b] and run.phase[a] == run.phase[b] and run.stream[a] == run.stream[b])


def _sizes(run: Run) -> tuple[Ints, Bools]:
    """Per row, the element count of its possible chain (0: none), and whether the row only links other rows."""
    name = run.mentions("kShortName", *CONTIGUOUS) | run.mentions("kLongName", *CONTIGUOUS)
    copies = np.isin(run.family, ("copy",)) & name & np.isin(run.aten, ("copy_", "_to_copy"))
    usual = (run.family == "pointwise") | copies | np.isin(run.aten, DROPOUT)
    fits = np.isin(run.phase, ("forward", "backward")) & ~run.mentions("nodes", "AccumulateGrad")
    size = np.where(usual & fits, run.largest, 0)
    bridge = np.zeros(run.rows, bool)
    for row in np.flatnonzero((run.family == "reduction") & (run.role == "main") & fits).tolist():
        shape = run.first_shape(row)
        if not _of_rows(run, row, shape):
            continue
        whole = numel(shape)
        for other in range(row, min(row + 1 + ROWS, run.rows)):
            if other == row or (usual[other] and run.largest[other] == whole // shape[-1]):
                size[other], bridge[other] = whole, True
            else:
                break
    return size, bridge


def _of_rows(run: Run, row: int, shape: list[int]) -> bool:
    """Whether a row reduces only the last dimension."""
    args = run.json("args", row)
    dims = args[1] if isinstance(args, list) and len(args) > 1 else None
    last = len(shape) - 1
    return len(shape) > 1 and str(dims).replace(" ", "") in ("[-1]", f"[{last}]", "-1", str(last))


def _fused_ns(run: Run, size: int, chain: list[int]) -> float:
    """Expected time in ns of one kernel in place of the chain; NaN if the device is unknown."""
    first, last = run.json("dtypes", chain[0]), str(run.dtype[chain[-1]])
    source = first[1] if run.family[chain[0]] == "copy" and isinstance(first, list) and len(first) > 1 else ""
    nbytes = _item(str(source) or str(run.dtype[chain[0]])) + _item(last)
    new = NEW_BACKWARD if run.phase[chain[0]] == "backward" else NEW_FORWARD
    for row in chain[1:]:
        full = sum(numel(shape) == size for shape in run.shapes(row))
        if (full > 1 and run.family[row] != "copy") or run.aten[row] in DROPOUT:
            nbytes += new * _item(str(run.dtype[row]))
    return FUSED_NS + 1e9 * nbytes * size / run.bandwidth


def _few(names: str) -> str:
    """The first three of some names.

    >>> _few("add, mul, pow, tanh"), _few("add, mul")
    ('add, mul, pow, ...', 'add, mul')
    """
    listed = names.split(", ")
    return names if len(listed) <= 3 else f"{', '.join(listed[:3])}, ..."


def _item(dtype: str) -> float:
    return ITEM_BYTES.get(dtype, 4.0)


def _finding(run: Run, size: int, members: list[list[int]]) -> Iterator[Finding]:
    rows, saved, kept = run.replaced((chain, _fused_ns(run, size, chain)) for chain in members)
    if not rows:
        return
    now = run.ms_of(rows)
    longest = max(members, key=len)
    ops = ", ".join(dict.fromkeys(str(run.aten[row]).rstrip("_") for row in longest))
    why = (
        f"{run.count(kept):.4g} chains of element-wise kernels ({ops}) over {size} elements write each intermediate "
        f"result to memory and read it back: {run.number(rows)} kernels, {now:.4g} ms; as one kernel per chain "
        f"{now - run.ms(float(saved.sum())):.4g} ms are expected"
    )
    ops_of = [{str(run.aten[row]).rstrip("_") for row in chain} for chain in members]
    instead = [call for parts, call in CALLS if any(parts <= found for found in ops_of)]
    change = f"Fuse the element-wise kernels ({_few(ops)}): torch.compile the module that holds them."
    if instead:
        change = f"{'. '.join(instead)}. Alternatively, torch.compile the module that holds it."
    yield Finding(np.array(rows), saved, why, change, "medium", launches=len(rows) - kept)
