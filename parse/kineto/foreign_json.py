"""What a JSON text is that is no trace of torch.profiler, and what to do about it."""

import json
import re

# Records of an export by nsys as JSON lines: {"Type": 79, "CudaEvent": {..}}.
_NSYS_LINE = re.compile(rb'"(?:Cuda|Nvtx|TraceProcess|Thread|ContextInfo|Diagnostic|GpuContext|Metadata)\w*Event"\s*:')
_JSON_LINES = re.compile(rb"\s*\{[^\n]*\}[ \t\r]*\n\s*\{")
# torch.profiler's _memory_profiler.py: [[time, action, bytes, category], ..], or times, and sizes by category.
_MEMORY_TIMELINE = re.compile(rb"\s*\[\s*\[\s*(?:-?\d[\d.eE+]*\s*(?:,|\])|\])")
_EXECUTION_TRACE = re.compile(rb'\s*\{\s*"schema"\s*:\s*"[\d.]+-chakra')
NSYS_LINES = "an export of nsys as JSON lines, which is not read (nsys export --type sqlite REPORT.nsys-rep)"
MEMORY_TIMELINE = (
    "a memory timeline of torch.profiler, which has neither ops nor kernels: record with profile_memory=True and give "
    "the trace that export_chrome_trace writes"
)
EXECUTION_TRACE = "an execution trace of PyTorch, which has no times: give the trace that torch.profiler wrote"


def described(text: bytes) -> str:
    """What a text that begins as JSON is."""
    if _MEMORY_TIMELINE.match(text):
        return MEMORY_TIMELINE
    if _EXECUTION_TRACE.match(text):
        return EXECUTION_TRACE
    if _NSYS_LINE.search(text[:65_536]) and not _is_one(text):
        return NSYS_LINES
    if _JSON_LINES.match(text[:65_536]):
        return "JSON lines, an object in each, and not one object with traceEvents"
    try:
        keys = list(json.loads(text))
    except (ValueError, RecursionError):
        return "no JSON, or JSON that is cut before its first event: copy it again"
    return f"JSON with {', '.join(map(repr, keys[:4])) or 'nothing'} but no list of traceEvents"


def _is_one(text: bytes) -> bool:
    """Whether the text is one JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_memory_timeline(text: bytes) -> bool:
    """Whether a text is a list of lists of numbers, of which no trace consists."""
    return _MEMORY_TIMELINE.match(text) is not None
