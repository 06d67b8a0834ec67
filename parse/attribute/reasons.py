"""The reasons why a row has no op (the values of the column ``reason``), and the remedies."""

from collections.abc import Sequence

from pyprof.parse.attribute.scope import Kind, Scope

BEFORE_CAPTURE = "launched before the capture"
NO_CALL = "no API row"
NO_CORRELATION = "no correlation id, so its launch is unknown"
SHARED_CORRELATION = "several kernels have the correlation id of a call that launched one kernel"
NO_CALLS = "the capture has no API rows of its process"
NO_RANGE = "no range around the launch"
UNRECORDED_THREAD = "launched by a thread whose ops were not recorded"
GRAPH_REPLAY = "replayed by a CUDA graph, which runs no op"
# Captures of graphs are in the files, but do not tell the kernel's op. What follows ": " says why.
GRAPH_UNKNOWN = "replayed by a CUDA graph, and it is not certain which captured launch it was"
GRAPH_COUNT = f"{GRAPH_UNKNOWN}: no captured graph has as many kernels"
GRAPH_KERNELS = f"{GRAPH_UNKNOWN}: the captured ops have other kernels"
GRAPH_BRANCHES = f"{GRAPH_UNKNOWN}: the graph's branches may run in any order"
GRAPH_SEVERAL = f"{GRAPH_UNKNOWN}: several captured graphs fit, with different ops, layers or lines"
GRAPH_COPIES = f"{GRAPH_UNKNOWN}: the graph captured another number of copies or memsets"
# These two are followed by ": " and the innermost range's name.
ONLY_USER_RANGES = "only user ranges around the launch"
ONLY_PYTHON = "Python code, but no op around the launch"
GRAPH_LAUNCH = "op of the graph's launch, not of its capture"  # used for rows with an op: says how the op was found
GRAPH_SHAPES = "of unknown shapes, for graphs of several shapes fit the replay"  # the same
UNKNOWN = "the capture does not say why"  # PyProf's own net.dict has no reasons

_REMEDIES = {
    BEFORE_CAPTURE: "these were in the queue when the capture began: let the GPU finish first "
    "(torch.cuda.synchronize() before the start), or let the capture begin with a step",
    NO_CALL: "the file is cut, or was recorded without the API's calls: capture again, with them",
    NO_CORRELATION: "the profiler does not say which call launched these: capture again, with a newer profiler",
    NO_CALLS: "capture the API's calls, too: torch.profiler with ProfilerActivity.CPU; of CUDA, nsys with -t cuda,nvtx",
    NO_RANGE: "no range of PyTorch is around these launches: if PyTorch made them, capture with pyprof.init(), pyprof "
    "run or torch.profiler to see its ops",
    UNRECORDED_THREAD: "PyTorch's profilers record the thread that begins them: capture with pyprof run or "
    "pyprof.profile, or under nsys with pyprof.init(), which see all threads; or give torch.profiler the "
    "experimental_config torch._C._profiler._ExperimentalConfig(profile_all_threads=True); if that was done, code "
    "outside of PyTorch's ops made these launches",
    GRAPH_REPLAY: "the ops ran when the graph was captured: let the capture contain that, too (pyprof run from the "
    "program's first line on; of CUDA, nsys with --cuda-graph-trace=node), or give the trace or the nsys report of "
    "it: parse.py FILE --graphs TRACE (docs/how-to/graphs.md)",
    GRAPH_UNKNOWN: "where several graphs fit, parse.py FILE --graphs TRACE with the trace of this graph's capture "
    "alone decides; nsys with --cuda-graph-trace=node numbers the nodes, if it runs from before the capture",
    ONLY_PYTHON: "Python launched these itself (Triton, CuPy, an extension): register the launching function as an op "
    "(torch.library.custom_op), or give it a name with pyprof.wrap",
    ONLY_USER_RANGES: "the ranges around these launches are the program's own, and none is of an op: capture with "
    "pyprof.init() or torch.profiler; if that was done, code outside of PyTorch's ops (an extension, for example) made "
    "these launches, and pyprof.wrap gives it a name",
}


def without_op(around: Sequence[Scope], replayed: bool) -> str:
    """Why a launch has no op. ``around``: the ranges around it, of which none is an op; ``replayed``: by a graph."""
    if replayed:
        return GRAPH_REPLAY
    if not around:
        return NO_RANGE
    innermost = around[-1]
    reason = ONLY_PYTHON if innermost.kind in (Kind.FRAME, Kind.MODULE) else ONLY_USER_RANGES
    return f"{reason}: {innermost.name[:80]}"


def general(reason: str) -> str:
    """The reason without the name of a range."""
    return reason.partition(": ")[0]


def remedy(reason: str) -> str:
    """The remedy for a reason; empty if no remedy is known."""
    return _REMEDIES.get(general(reason), "")
