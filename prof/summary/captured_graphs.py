"""What opaque CUDA graphs contain, by op and by layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pyprof.command.json_schema import doc
from pyprof.prof.work.annotate import annotate
from pyprof.prof.work.opaque_graphs import CapturedCall, OpaqueGraph, opaque_graphs
from pyprof.table.columns import Table


@dataclass(frozen=True, slots=True)
class GraphShare:
    """The calls of an opaque graph that have one op, or are in one layer."""

    name: Annotated[str, doc("the op's or the layer's name; empty outside of all layers")]
    launches: Annotated[int, doc("kernels, copies and memsets that the graph captured of it")]
    flop: Annotated[int | None, doc("their FLOPs in one launch of the graph; null if those of any call are unknown")]


@dataclass(frozen=True, slots=True)
class GraphContent:
    """A CUDA graph that the profiler recorded as one operation, by what it captured."""

    name: Annotated[str, doc("the graph's name in the table")]
    rows: Annotated[int, doc("number of its launches")]
    ns: Annotated[int, doc("their time")]
    launches: Annotated[int, doc("kernels, copies and memsets that it captured; 0 if its capture is not in the files")]
    flop: Annotated[int | None, doc("FLOPs of one launch of it; null if those of any call are unknown")]
    nbytes: Annotated[int | None, doc("bytes of one launch of it; null if those of any call are unknown")]
    ops: Annotated[tuple[GraphShare, ...], doc("by op, most FLOPs first")]
    layers: Annotated[tuple[GraphShare, ...], doc("by the two outermost parts of the layer, most FLOPs first")]


def graph_contents(table: Table) -> tuple[GraphContent, ...]:
    """The opaque graphs of the table, those with the most time first."""
    duration = table.ints("kDuration")
    found = [
        GraphContent(
            name=graph.name,
            rows=len(graph.rows),
            ns=int(duration[graph.rows].sum()),
            launches=graph.launches,
            flop=graph.flop,
            nbytes=graph.nbytes,
            ops=_graph_shares(graph, lambda call: call.op),
            layers=_graph_shares(graph, lambda call: ":".join(call.layer.split(":")[:2])),
        )
        for graph in opaque_graphs(table, annotate)
    ]
    return tuple(sorted(found, key=lambda content: -content.ns))


def _graph_shares(graph: OpaqueGraph, key: Callable[[CapturedCall], str]) -> tuple[GraphShare, ...]:
    parts: dict[str, list[CapturedCall]] = {}
    for call in graph.calls:
        parts.setdefault(key(call), []).append(call)
    shares = [
        GraphShare(name, sum(call.launches for call in calls), OpaqueGraph(name, graph.rows, tuple(calls)).flop)
        for name, calls in parts.items()
    ]
    return tuple(sorted(shares, key=lambda share: -(share.flop or 0)))
