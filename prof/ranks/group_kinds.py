"""What a job's communicators are for, inferred from the operations on them and where in the program they are called.

======== ======================================================================================================
tensor   all-reduces or reduce-scatters in the forward pass of a layer: each rank has a part of the layer
sharded  all-gathers and reduce-scatters outside of that: parameters and gradients in parts (FSDP, ZeRO)
data     all-reduces outside of layers' forward passes: gradients of the same parameters (DDP)
expert   all-to-alls outside of attention: tokens and the experts that they are sent to
context  all-to-alls, sends or receives in attention: parts of a sequence
pipeline sends and receives elsewhere: from one stage to the next
======== ======================================================================================================

Batch norm's statistics do not count as a layer's operation. A communicator may be used in several ways: each operation
has a kind of its own. Where the capture names no layers, tensor parallel all-reduces cannot be told from those of
gradients except by autograd's nodes, so their kind may be wrong; a kind is shown as what it is, an inference.
"""

from __future__ import annotations

import pyarrow as pa

from pyprof.prof.ranks.pace_records import GroupKind
from pyprof.prof.ranks.rank_tables import TWO

IN_LAYER, IN_ATTENTION = 1, 2


def group_kinds(collectives: pa.Table) -> dict[tuple[str, int, str], GroupKind]:
    """The kind of each (communicator, number of ranks, operation); empty if nothing says it."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    rows = collectives.group_by(["group", "ranks", "op"]).aggregate([("within", "max")]).to_pylist()
    for row in rows:
        found.setdefault((row["group"], row["ranks"]), {})[row["op"]] = row["within_max"]
    return {(*group, op): _kind(op, ops) for group, ops in found.items() for op in ops}


def _kind(op: str, ops: dict[str, int]) -> GroupKind:
    if op == TWO:
        return "context" if ops[op] == IN_ATTENTION else "pipeline"
    if "all_to_all" in op:
        return "context" if ops[op] == IN_ATTENTION else "expert"
    if not any(word in op for word in ("all_reduce", "all_gather", "reduce_scatter")):
        return ""
    reducing = [each for each in ops if "all_reduce" in each or "reduce_scatter" in each]
    if any(ops[each] >= IN_LAYER for each in reducing):
        return "tensor"
    if any("reduce_scatter" in each for each in ops) and any("all_gather" in each for each in ops):
        return "data" if "all_reduce" in op else "sharded"
    return "data" if "all_reduce" in op else ""
