"""The reasons why a row has no op (the values of the column ``reason``), and the remedies."""

BEFORE_CAPTURE = "launched before the capture"
NO_CALL = "no API row"
NO_CALLS = "the capture has no API rows of its process"
NO_RANGE = "no range around the launch"
ONLY_USER_RANGES = "only user ranges around the launch"  # followed by ": " and the innermost range's name
GRAPH_LAUNCH = "op of the graph's launch, not of its capture"  # used for rows with an op: says how the op was found
UNKNOWN = "the capture does not say why"  # PyProf's own net.dict has no reasons

_REMEDIES = {
    BEFORE_CAPTURE: "these were in the queue when the capture began: let the GPU finish first "
    "(torch.cuda.synchronize() before the start), or let the capture begin with a step",
    NO_CALL: "the file is cut, or was recorded without the API's calls: capture again, with them",
    NO_CALLS: "capture with the CUDA API: nsys with -t cuda,nvtx",  # a reason that only captures of nsys have
    NO_RANGE: "nothing of PyTorch's is around the launch: capture with pyprof.init(), pyprof run or torch.profiler, "
    "if it is no other library's",
    ONLY_USER_RANGES: "there are ranges, but none of an op: capture with pyprof.init() or torch.profiler",
}


def only_user_ranges(innermost: str) -> str:
    return f"{ONLY_USER_RANGES}: {innermost[:80]}"


def general(reason: str) -> str:
    """The reason without the name of a range."""
    return reason.partition(": ")[0]


def remedy(reason: str) -> str:
    """The remedy for a reason; empty if no remedy is known."""
    return _REMEDIES.get(general(reason), "")
