"""The terms of the page and their definitions: one table, which docs/reference/terms.md shows too.

A term is marked where it first stands in a list of sentences or as the name of a figure. The page's columns take their
meaning from the columns of prof.py where they are the same.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from markupsafe import Markup, escape

from pyprof.prof.memory.categories import RULES, UNKNOWN
from pyprof.prof.table.columns import COLUMN


@dataclass(frozen=True, slots=True)
class Term:
    """A term: its name, its definition in full sentences, and the other texts that stand for it."""

    name: str
    text: str
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The end of its id in the page."""
        return re.sub(r"\W+", "-", self.name.lower())


TERMS = (
    Term(
        "attributed",
        "An operation is attributed if the PyTorch op that launched it is known; the share is one of time. The rest is "
        "listed with its reason.",
    ),
    Term("GPU time", "The sum of the durations of all operations: time in which two of them run counts twice."),
    Term(
        "CPU time",
        "The sum of the times of all rows of a capture without GPU activity: that of the outermost CPU ops, without "
        "those that only make views or allocate.",
    ),
    Term(
        "step time",
        "From a step's mark to the next one, as the GPU reaches the marks; without marks, from a DataLoader's call or "
        "the first operation to that of the next step. Without the profiler where steps were timed. The median of "
        "several steps, or their mean if that is more than a tenth longer.",
        ("A step takes", "The step takes"),
    ),
    Term(
        "what limits the step",
        "The GPU's work if it takes three quarters of the step or more; otherwise what takes a quarter of it or more: "
        "loading data, waits for the GPU's results, communication, or else the host.",
        ("limits the step",),
    ),
    Term("capture", "From the first operation to the end of the last one."),
    Term(
        "GPU busy",
        "The share of the step, or of the capture if it has no steps, in which at least one operation runs on the GPU: "
        "a kernel, a copy, a memset or a graph.",
        ("the GPU works",),
    ),
    Term(
        "idle time",
        "Time in which no operation runs on the GPU. Each gap is split by what the CPU did meanwhile.",
        ("it is idle",),
    ),
    Term(
        "late launches",
        "Gaps in which the GPU had finished, and the CPU was still on its way to launch the next operation.",
        ("has not launched",),
    ),
    Term("GPU's queue", "Operations that were launched wait there until those before them have ended."),
    Term(
        "FLOP rate",
        "The floating-point operations that the algorithm needs, divided by the time including idle time. A "
        "multiply-add counts as 2.",
        ("FLOPs are known",),
    ),
    Term(
        "MFU",
        "Model FLOPs utilisation: the FLOPs of the matrix products that ran, each at the dense peak of the unit that "
        "it ran on, as a share of the time; beside it, if that differs, at the GPU's best dense peak in half "
        "precision.",
        ("Model FLOPs utilisation (MFU)",),
    ),
    Term(
        "MBU",
        "Memory bandwidth utilisation: the bytes that the operations need, at the GPU's memory bandwidth, as a share "
        "of the time. The bytes of a decode step are mostly those of the weights and of the cached keys and values.",
        ("(MBU)",),
    ),
    Term(
        "TPOT",
        "Time per output token: how long a request that generates waits for its next token, which is one decode step.",
        ("(TPOT)",),
    ),
    Term(
        "% of limit",
        "The time that the hardware's limit allows, as a share of the time taken. The limit is the longer of FLOPs / "
        "peak of the unit and bytes / memory bandwidth. It may exceed 100% where data comes from a cache.",
        ("hardware's limits",),
    ),
    Term("compute-bound", "The limit is that of the FLOPs: FLOPs / peak is longer than bytes / bandwidth."),
    Term("memory-bound", "The limit is that of the memory: bytes / bandwidth is longer than FLOPs / peak."),
    Term(
        "latency-bound",
        "Neither limit explains the time: the kernel is below 25% of its limit, and takes at most 5 µs or has fewer "
        "blocks than the GPU has multiprocessors (SMs; AMD: compute units).",
    ),
    Term(
        "tensor cores",
        "Units for products of small matrices; AMD calls them matrix cores. Whether a kernel uses them is read from "
        "its name.",
        ("matrix cores", "Matrix math"),
    ),
    Term(
        "GPU utilisation",
        "The share of the time of the steps in which a kernel runs, however small.",
    ),
    Term(
        "SM efficiency",
        "Estimated share of the GPU's multiprocessors (SMs; AMD: compute units, CUs) that have a block to run, as "
        "torch.profiler defines it.",
        ("CU efficiency",),
    ),
    Term(
        "achieved occupancy",
        "Estimated share of the threads that an SM can hold at once, as torch.profiler defines it.",
    ),
    Term(
        "communication",
        "Collectives and other transfers between GPUs. It is exposed while nothing else runs on its GPU.",
        ("Communication takes",),
    ),
    Term(
        "bus bandwidth",
        "The bytes that a rank must send for a collective, divided by its time; it compares with the speed of a link.",
    ),
    Term("op", "What the user called, such as torch.nn.functional.linear; one op may launch several kernels."),
    Term("aten op", "What PyTorch's dispatcher ran for an op, such as aten::addmm; the innermost did the work."),
    Term("layer", "The names of the modules around an op, the outermost first."),
    Term("roofline", "The highest rate at a number of FLOPs per byte: bandwidth × FLOP/byte, or the unit's peak."),
    Term(
        "in use",
        "Bytes of the blocks that PyTorch has handed out and not taken back: what torch.cuda.memory_allocated() "
        "returns. The peak is torch.cuda.max_memory_allocated().",
        ("memory in use",),
    ),
    Term(
        "reserved",
        "Bytes that PyTorch's caching allocator has from the driver, in use or not: torch.cuda.memory_reserved().",
        ("in reserve",),
    ),
    *(Term(name, f"A category of memory: {rule}.") for name, rule in RULES.items() if name != UNKNOWN),
    Term(
        "saved activations",
        "What the forward pass leaves in memory because the backward pass needs it.",
        ("activations for the backward pass",),
    ),
    Term(
        "activation checkpointing",
        "A checkpointed layer keeps its input alone, and its backward pass runs its forward pass again "
        "(torch.utils.checkpoint). Predicted from this capture: how far the peak falls, and the GPU time of the "
        "kernels that run again.",
        ("Checkpointing",),
    ),
    Term("frees", "By how much the peak of the step would fall."),
    Term("repeats", "The GPU time, in each step, of the kernels that would run again."),
    Term(
        "DRAM traffic",
        "The bytes that a kernel read from the GPU's memory and wrote to it, as Nsight Compute's counters saw them. It "
        "exceeds the algorithm's bytes where data is read again, and is below them where a cache has it.",
    ),
    Term(
        "measured by Nsight Compute",
        "The counters of another run of the same program, in which each kernel ran alone and several times. Its "
        "kernels are matched with the capture's by name, grid, block and op, and where several are alike, by their "
        "order.",
        ("Nsight Compute measured",),
    ),
    Term("own time", "Of a line of code: of the operations whose innermost line of the stack it is."),
    Term("time with callees", "Of a line of code: of the operations in whose stack it is, at any depth."),
)
# Words that mean something else in sentences: there, a capture is the file.
ELSEWHERE = {"capture", "in use", "reserved", "frees", "repeats"}
PARTS = {text: term for term in TERMS for text in (term.name, *term.also)}
# Columns of the page that are columns of prof.py, whose meaning they have: key on the page -> name.
SAME = {
    key: key for key in "op dir layer trace phase aten sizes dtypes params flops bytes bound tc tcprec unit".split()
}
SAME |= {key: key for key in "idle step".split()} | {"name": "kernel"}
OWN = {
    "sol": PARTS["% of limit"].text,
    "dur": "how long the operations ran, together",
    "count": "operations that the line stands for",
    "share": "of the time of all operations in the capture",
    "start": "since the first operation began",
    "flop_s": "flops / time",
    "byte_s": "bytes / time",
    "wait": "from the start of the launching call to the start on the GPU",
    "why": "the cause of the idle time before it",
    "lane": "the stream on which it ran, or the CPU thread",
    "work": "kind of work: GEMM, element-wise, copies and casts, ...",
    "calls": "calls of an aten op, each of which may launch several kernels",
}


def column_meanings() -> dict[str, str]:
    """What the page's columns mean, by their keys."""
    return {**{key: COLUMN[name].meaning for key, name in SAME.items()}, **OWN}


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    longest = sorted(PARTS.keys() - ELSEWHERE, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")


def marked(texts: Sequence[str]) -> list[Markup]:
    """The texts as HTML: escaped, each term a button that opens its definition where it first stands in them."""
    seen: set[str] = set()
    return [Markup("").join(_pieces(text, seen)) for text in texts]


def _pieces(text: str, seen: set[str]) -> Iterator[Markup]:
    at = 0
    for found in _pattern().finditer(text):
        term = PARTS[found[0]]
        if term.key not in seen:
            seen.add(term.key)
            yield escape(text[at : found.start()])
            yield button(found[0], term)
            at = found.end()
    yield escape(text[at:])


def button(text: str, term: Term) -> Markup:
    """A button that looks like the text and opens the term's definition; it needs no JavaScript."""
    opens = Markup('<button type="button" class="term" popovertarget="term-{}" title="{}">{}</button>')
    return opens.format(term.key, term.text, text)


def named(text: str) -> Markup:
    """A figure's or a heading's name, with its definition if it has one."""
    return button(text, PARTS[text]) if text in PARTS else escape(text)
