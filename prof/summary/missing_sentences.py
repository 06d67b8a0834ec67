"""Sentences about what the capture or the models do not say: kernels in graphs, time without an op or a FLOP model."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.parse.attribute.reasons import remedy
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.wording import counted, operation_name
from pyprof.quantities import ms, share
from pyprof.table.json_lists import first_text

MOST = 3  # reasons that a sentence names
NAMED = 5  # ops without a model that it names
MISSED = 0.05  # of the time has no op: from here on a sentence says what would give it one


def graph_sentences(summary: Summary) -> Iterator[str]:
    """CUDA graphs whose kernels are not in the capture."""
    graphs = next((part for part in summary.kinds_of_rows if part.name == "graph"), None)
    if graphs is not None:
        launches = counted(graphs.rows, "graph launch")
        yield (
            f"The kernels of {launches} ({ms(graphs.ns)}) are not in the capture: nsys profile --cuda-graph-trace=node "
            "records them."
        )


def unattributed_sentences(summary: Summary) -> Iterator[str]:
    """How much time has no op, why, and what would give it one."""
    total, missing = summary.total_ns, summary.total_ns - summary.attributed_ns
    if missing > 0:
        reasons = [
            f"{part.name} ({share(part.ns, total)}, {counted(part.rows, 'operation')})" for part in summary.reasons
        ]
        more = f" and {len(reasons) - MOST} more reasons" if len(reasons) > MOST else ""
        time = f"{share(missing, total)} of {summary.worker} time"
        yield f"{time} has no op: {'; '.join(reasons[:MOST])}{more}."
    if missing and not summary.attributed_ns:
        yield (
            "Without ops, FLOPs, their rates and MFU are unknown: capture with pyprof.init(), or with nsys profile "
            "--pytorch=autograd-shapes-nvtx."
        )
        return
    advice = remedy(summary.reasons[0].name) if summary.reasons else ""
    if advice and missing >= MISSED * total:
        yield f"{advice[0].upper()}{advice[1:]}."


def uncounted_sentences(summary: Summary) -> Iterator[str]:
    """The ops without a FLOP model."""
    sums: dict[str, int] = {}
    for part in summary.uncounted:
        op = operation_name(first_text(part.name) if part.name.startswith('["') else part.name)
        sums[op] = sums.get(op, 0) + part.ns
    if not sums:
        return
    total = summary.total_ns
    named = [f"{op} {share(ns, total)}" for op, ns in sorted(sums.items(), key=lambda item: -item[1])]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    time = f"{share(sum(sums.values()), total)} of {summary.worker} time"
    why = "ops without a FLOP model" if summary.has_sizes else "ops whose shapes the capture does not record"
    yield f"{time} runs in {why}: {', '.join(named[:NAMED])}{more}."
